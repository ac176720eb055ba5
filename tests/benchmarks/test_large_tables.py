"""What `benchmarks/large_tables.py` measures: the memory of a command, and not of who runs it."""

import numpy as np

from benchmarks.large_tables import run


def test_memory_of_the_process_that_measures_is_not_counted():
    large = np.ones(40_000_000)  # 0.3 GB
    assert run(["--help"])["peak_gb"] < 0.3
    assert len(large)
