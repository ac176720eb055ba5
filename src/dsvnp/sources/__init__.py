"""Sources of training tasks."""
