"""Rows: a user's table as tensors, scaled, weighed and cut into folds."""
