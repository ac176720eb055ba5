"""The other readings of the paper, one option changed at a time."""
