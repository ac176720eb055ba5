"""A table to test with."""

from __future__ import annotations

import numpy as np
import reading


def made_table(kind: str, rows: int = 150) -> reading.Table:
    """Two numbers of which one is missing at times, a category that matters, and a useless column."""
    rng = np.random.default_rng(0)
    code = rng.integers(0, 3, rows)
    x = np.stack([rng.normal(size=rows), rng.normal(size=rows), code, rng.normal(size=rows)], 1)
    y = 2 * x[:, 0] + np.array([-2.0, 0.0, 2.0])[code] + 0.3 * rng.normal(size=rows)
    x[rng.random(rows) < 0.1, 1] = np.nan
    if kind == "classification":
        y = np.digitize(y, [-1.5, 1.5])
    folds = reading.folds_of(y, kind, 0)
    return reading.Table(
        "made", kind, x, y, np.array([False, False, True, False]), ("a", "b", "c", "d"), folds
    )
