"""Trained: ensembles of networks that learn from the user's own rows."""
