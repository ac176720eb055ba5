"""Experiments: the demo, and one file for each experiment of the paper."""
