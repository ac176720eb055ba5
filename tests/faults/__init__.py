"""A standing attack on what this package keeps on disk: `python -m tests.faults --minutes 30 --report FILE`."""
