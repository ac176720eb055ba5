"""Saved: a fitted estimator as a folder of files, checked when it is loaded."""
