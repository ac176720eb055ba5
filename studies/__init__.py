"""Scripts that chose settings and that rebuild the README; run from a clone, not installed."""
