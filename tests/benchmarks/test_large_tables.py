"""What `benchmarks/large_tables.py` measures: the memory of a command, and not of who runs it."""

from argparse import Namespace

import numpy as np

from benchmarks.large_tables import estimators, run


def test_memory_of_the_process_that_measures_is_not_counted():
    large = np.ones(40_000_000)  # 0.3 GB
    assert run(["--help"])["peak_gb"] < 0.3
    assert len(large)


def test_estimators_are_measured_as_they_are_by_default():
    rows = list(estimators(Namespace(rows=60, asked=10)))
    assert [row["what"] for row in rows] == [
        f"{name}(), fit and 10 predictions" for name in ("NPRegressor", "NPClassifier")
    ]
    assert all(row["rows"] == 60 and 0 < row["peak_gb"] < 4 for row in rows)
