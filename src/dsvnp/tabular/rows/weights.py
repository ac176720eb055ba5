"""Weights of rows: a row of weight w stands for w rows.

A network that reads rows knows no weights. Rows are therefore repeated in proportion to them: row i comes n w_i / Σw
times, rounded up or down at random (systematic resampling: n rows in all, each with that expectation). What is read or
trained on is repeated apart from what is held out: no copy of a held-out row is read. A loss over repeated rows is the
weighted loss, and where the w_i / min w are whole numbers of a small sum, it is exactly that. Only ratios matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_sample_weight

from dsvnp.tabular.columns import Columns

MOST_COPIES = 2.0  # rows after repetition, at most, for each row before

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Weights:
    """Weights of the rows of a table, all positive; None has rows count alike."""

    values: NDArray[np.float64] | None = None

    @classmethod
    def product(cls, *factors: NDArray[np.float64] | None) -> Weights:
        """The product of weights, of which some may be None."""
        there = [factor for factor in factors if factor is not None]
        return cls(np.prod(there, axis=0)) if there else cls()

    def repeated(self, rows: Rows, seed: int) -> Rows:
        """Rows, each as often as its weight says; as many for any choice of so many rows."""
        if self.values is None or not len(rows):
            return rows
        number = round(len(rows) * min(MOST_COPIES, float(self.values.mean() / self.values.min())))
        ends = np.cumsum(self.values[rows])
        ends *= number / ends[-1]
        marks = np.floor(ends.round(9) + np.random.default_rng(seed).uniform())
        return np.repeat(rows, np.diff(marks, prepend=0).astype(np.intp))


ALIKE = Weights()


def rows_that_count(
    X: Any, y: Any, groups: Any, time: Any, sample_weight: Any
) -> tuple[Any, Any, Any, Any, NDArray[np.float64] | None]:
    """What `fit` is passed, without the rows of weight 0."""
    if sample_weight is None:
        return X, y, groups, time, None
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    keep = np.flatnonzero(weights)
    if len(keep) < len(weights):
        for name, values in (("y", y), ("groups", groups), ("time", time)):
            if values is not None and len(values) != len(weights):
                raise ValueError(
                    f"{name} has {len(values)} rows but X has {len(weights)}; pass one for each row"
                )
        X, y, groups, time = (None if part is None else _taken(part, keep) for part in (X, y, groups, time))
    return X, y, groups, time, weights[keep]


def _taken(table: Any, rows: Rows) -> Any:
    """Some rows of any kind of table."""
    return table.rows(rows) if isinstance(table, Columns) else _safe_indexing(table, rows)
