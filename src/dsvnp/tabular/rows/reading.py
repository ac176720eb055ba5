"""Rows in: a user's tables as tensors, with the columns of the fit.

Nothing is computed before what a user passes is checked. Arrays go through scikit-learn's own checks; frames keep their
names, and their texts become categories.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _num_samples, validate_data
from torch import Tensor

from dsvnp.naming import lookup
from dsvnp.sources.table import Pair, known_rows
from dsvnp.tabular.columns import Columns, is_frame, kind_of, values_of
from dsvnp.tabular.rows.encoding import Encoding, Filling, Floats
from dsvnp.tabular.rows.folds import HoldOut

MISSING = {"impute": None, "refuse": None}  # what to do with missing inputs


class RowReader(BaseEstimator, ABC):
    """An estimator that reads rows; each kind says what its outputs are."""

    missing: str
    encoding_: Encoding | None
    filling_: Filling

    @abstractmethod
    def _read_outputs(self, y: Any, reset: bool) -> Tensor:
        """Outputs as a tensor [rows, D]: floats with NaN where missing, or class indices."""

    @abstractmethod
    def _learn_outputs(self, outputs: Sequence[Any]) -> None:
        """Look at the outputs of all tasks together."""

    def _read_pair(self, X: Any, y: Any, reset: bool) -> Pair:
        """Inputs and outputs as tensors, without the rows of which no output is known."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None; pass one output per row"
            )
        x = self._read_inputs(X, reset)
        outputs = self._read_outputs(y, reset)
        check_lengths(x, outputs)
        known = known_rows(outputs)
        return x[known], outputs[known]

    def _read_inputs(self, X: Any, reset: bool) -> Tensor:
        """Inputs as numbers without gaps, [rows, D], in float64; the columns are those of the fit."""
        numbers = self._numbers(X, reset)
        if reset:
            self.filling_ = Filling.fit(numbers, self._number_names(numbers))
        return torch.from_numpy(self.filling_.transform(numbers, self._number_names(numbers)))

    def _numbers(self, X: Any, reset: bool) -> Floats:
        """Inputs as numbers, NaN where missing, unless that is to be refused."""
        if reset:
            lookup(self.missing, MISSING, "missing")
            self.encoding_ = None
        if is_frame(X):
            self._check_names(X, reset)
            table = Columns.of(X)
            if reset:
                self.encoding_ = Encoding.fit(table)
            if self.encoding_ is not None:
                if len(table) < 1:
                    raise ValueError(
                        "Found array with 0 sample(s) while a minimum of 1 is required; X has no row"
                    )
                numbers = self.encoding_.transform(table)
                if self.missing == "refuse":
                    self._refuse_gaps(numbers, table)
                return numbers
        elif self.encoding_ is not None and not self.encoding_.all_numbers:
            raise ValueError(
                f"X is {type(X).__name__} but the fit had columns of categories or dates; pass a data frame with the "
                f"columns {', '.join(self.encoding_.names)}"
            )
        finite = "allow-nan" if self.missing == "impute" else True
        return validate_data(
            self, X, reset=reset, dtype=np.float64, order="C", copy=True, ensure_all_finite=finite
        )

    def _number_names(self, numbers: Floats) -> Sequence[str]:
        """What to call each column of numbers."""
        if self.encoding_ is None:
            return [str(i) for i in range(numbers.shape[1])]
        names = self.encoding_.number_names
        return names + ["category"] * (numbers.shape[1] - len(names))

    def _refuse_gaps(self, numbers: Floats, table: Columns) -> None:
        """Name all columns in which a number is missing, each with its first row."""
        names, gaps = self._number_names(numbers), np.isnan(numbers)
        found = {
            names[i]: table.place(int(gaps[:, i].argmax())) for i in np.flatnonzero(gaps.any(0)).tolist()
        }
        if found:
            places = "; ".join(f"column {name!r} at {place}" for name, place in found.items())
            raise ValueError(
                f"Input X contains NaN: {places}; fill such values in, drop the rows, or let missing='impute'"
            )

    def _check_names(self, X: Any, reset: bool) -> None:
        """Hold the columns of a frame against those of the fit, as scikit-learn does."""
        if kind_of(X) != "columns":
            validate_data(self, X, reset=reset, skip_check_array=True)
        elif reset:
            self.feature_names_in_ = np.array(X.columns, dtype=object)
            self.n_features_in_ = len(X.columns)
        elif list(X.columns) != list(getattr(self, "feature_names_in_", X.columns)):
            raise ValueError(
                f"expected the columns {', '.join(self.feature_names_in_)}, got {', '.join(X.columns)}"
            )

    def _learn_columns(self, tasks: Sequence[tuple[Any, Any]]) -> None:
        """Look at the columns of all tasks together: a category may occur in one of them only."""
        self._numbers(tasks[0][0], reset=True)
        if all(is_frame(X) for X, _ in tasks):
            self.encoding_ = Encoding.fit(Columns.concatenate([Columns.of(X) for X, _ in tasks]))
        numbers = np.concatenate([self._numbers(X, reset=False) for X, _ in tasks])
        self.filling_ = Filling.fit(numbers, self._number_names(numbers))
        self._learn_outputs([y for _, y in tasks])


# --- checks ---


def hold_out_by(groups: Any, time: Any, known: Tensor) -> HoldOut:
    """What decides which rows are held out, for the rows of which an output is known."""
    keep = known.numpy()
    for name, values in (("groups", groups), ("time", time)):
        if values is not None and len(values) != len(keep):
            raise ValueError(
                f"{name} has {len(values)} values but X has {len(keep)} rows; pass one for each row"
            )
    if groups is not None and time is not None:
        raise ValueError("rows are held out by groups or by time, got both; choose one")
    if groups is not None:
        texts = np.array([str(value) for value in np.asarray(values_of(groups)).tolist()])[keep]
        names, numbers = np.unique(texts, return_inverse=True)
        if len(names) < 2:
            raise ValueError(f"groups has {len(names)} group with a known output; a fit needs at least 2")
        return HoldOut(groups=numbers.astype(np.intp))
    if time is not None:
        array = np.asarray(values_of(time))
        if array.dtype.kind == "M":
            array = np.where(np.isnat(array), np.nan, array.astype("datetime64[us]").astype(np.int64))
        moments = np.asarray(array, dtype=np.float64)[keep]
        if np.isnan(moments).any() or len(np.unique(moments)) < 2:
            raise ValueError(
                "time must hold a number or date for each row and at least 2 different ones; correct it"
            )
        return HoldOut(time=moments)
    return HoldOut()


def pair_of(value: Any, what: str) -> tuple[Any, Any]:
    """Inputs and outputs of a table; an array of two rows is no such pair."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
        raise ValueError(
            f"{what} must be a pair (X, y), got {type(value).__name__}{size}; pass both in a tuple"
        )
    return value[0], value[1]


def pairs_of(tasks: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Tables of inputs and outputs, at least two of them and with at least two rows each."""
    pairs = [pair_of(task, f"task {index}") for index, task in enumerate(tasks)]
    if len(pairs) < 2:
        raise ValueError(
            f"expected at least 2 tables to learn from, got {len(pairs)}; for a single one use fit"
        )
    for index, (X, y) in enumerate(pairs):
        if len(X) < 2 or len(X) != len(y):
            raise ValueError(
                f"task {index} has {len(X)} rows of inputs, {len(y)} of outputs; pass as many of both, at least 2"
            )
    return pairs


def useful(tables: Sequence[Pair]) -> list[Pair]:
    """Those of the tables that have two rows left whose output is known; at least two tables."""
    kept = [table for table in tables if len(table[0]) > 1]
    if len(kept) < 2:
        raise ValueError(
            f"expected at least 2 tables with 2 rows whose output is known, got {len(kept)} of {len(tables)}; "
            "the others teach nothing"
        )
    return kept


def check_lengths(X: Any, y: Any) -> None:
    """Refuse outputs that are not one row for each row of inputs."""
    if _num_samples(y) != _num_samples(X):
        raise ValueError(
            f"y has {_num_samples(y)} rows but X has {_num_samples(X)}; pass one output row per input row"
        )


def check_known(tables: Iterable[Sequence[Pair]], names: Sequence[str]) -> None:
    """Refuse an output that a replica would know from what it holds out alone: it could not learn it.

    Args:
        tables: those that each replica learns from.
        names: names of the outputs.
    """
    for each in tables:
        empty = torch.isnan(torch.cat([y for _, y in each])).all(0)
        if bool(empty.any()):
            raise ValueError(
                f"output {names[int(empty.int().argmax())]} is known in too few rows or tables: a replica that holds "
                "those out has nothing to learn it from; leave it out of y"
            )
