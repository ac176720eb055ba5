"""Columns: arrays and data frames (pandas, polars and others, by narwhals) in, and answers of the same kind out.

A column is of numbers, of dates, or of texts. `encoding` turns columns into numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
FLAGS = {"False", "True", ""}
FEW_NUMBERS = 20  # texts that are all numbers are categories if they are so few, as codes are; else numbers
DATES = "datetime64[s]"


def kind_of(table: Any) -> str:
    """What a table is: "columns" (our own), "frame", "series", or "array" for everything else."""
    if isinstance(table, Columns):
        return "columns"
    if isinstance(table, np.ndarray):  # at once: to ask narwhals takes longer than a network
        return "array"
    if nw.dependencies.is_into_dataframe(table):
        return "frame"
    return "series" if nw.dependencies.is_into_series(table) else "array"


def is_frame(table: Any) -> bool:
    """Whether a table has columns with names."""
    return kind_of(table) in ("columns", "frame")


@dataclass(frozen=True)
class Columns:
    """A table as columns with names: floats (NaN where missing), dates (NaT) or texts ("")."""

    columns: tuple[str, ...]  # names, in order
    arrays: tuple[Array, ...]  # one for each, all of one length
    # what to call a row in an error, as "line 7"; its number from 0 on by default
    places: Sequence[str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, frame: Any) -> Columns:
        """Take a data frame apart."""
        if isinstance(frame, Columns):
            return frame
        table = nw.from_native(frame, eager_only=True)
        names = tuple(str(name) for name in table.columns)
        return cls(names, tuple(_column(series) for series in table.iter_columns()))

    @classmethod
    def concatenate(cls, tables: Sequence[Columns]) -> Columns:
        """Put tables with the same columns below each other."""
        for table in tables[1:]:
            if table.columns != tables[0].columns:
                raise ValueError(
                    f"expected the columns {', '.join(tables[0].columns)}, got {', '.join(table.columns)}"
                )
        arrays = zip(*(table.arrays for table in tables), strict=True)
        return cls(tables[0].columns, tuple(_stacked(group) for group in arrays))

    def __len__(self) -> int:
        return len(self.arrays[0]) if self.arrays else 0

    @cached_property
    def _by_name(self) -> dict[str, Array]:
        """The columns by name: there may be a hundred thousand."""
        return dict(zip(self.columns, self.arrays, strict=True))

    def __getitem__(self, name: str) -> Array:
        return self._by_name[name]

    def select(self, names: Iterable[str]) -> Columns:
        """Some columns, in the order asked for."""
        names = tuple(names)
        return Columns(names, tuple(self[name] for name in names), self.places)

    def rows(self, keep: Array) -> Columns:
        """The rows of a mask, or of a list of numbers."""
        numbers = np.flatnonzero(keep) if keep.dtype == bool else keep
        places = [self.place(row) for row in numbers.tolist()]
        return Columns(self.columns, tuple(values[numbers] for values in self.arrays), places)

    def place(self, row: int) -> str:
        """What to call a row."""
        return f"row {row}" if self.places is None else self.places[row]


def names_of(targets: Any, count: int) -> tuple[str, ...]:
    """Names of outputs: those of a frame or series, else y, or y0, y1, …"""
    if is_frame(targets):
        return tuple(str(name) for name in targets.columns)
    name = targets.name if kind_of(targets) == "series" else None
    if name not in (None, ""):
        return (str(name),)
    return ("y",) if count == 1 else tuple(f"y{i}" for i in range(count))


def values_of(targets: Any) -> Any:
    """Outputs as an array; what is missing among numbers of a frame or series becomes NaN."""
    kind = kind_of(targets)
    if kind == "columns":
        return np.stack(targets.arrays, 1)
    if kind == "frame":
        table = nw.from_native(targets, eager_only=True)
        return np.stack([_targets(series) for series in table.iter_columns()], 1)
    return _targets(nw.from_native(targets, series_only=True)) if kind == "series" else targets


def answer(values: Array, like: Any, names: Sequence[str]) -> Any:
    """Answers [rows] or [rows, columns] as the kind of table that was asked with; other shapes stay arrays."""
    if kind_of(like) not in ("frame", "series") or values.ndim > 2:
        return values
    asked = nw.from_native(like, eager_only=True, allow_series=True)
    made: Any
    if values.ndim == 1:
        made = nw.new_series(names[0], values.tolist(), backend=asked.implementation).to_native()
    else:
        columns = {str(name): values[:, i] for i, name in enumerate(names)}
        made = nw.from_dict(columns, backend=asked.implementation).to_native()
    index = nw.maybe_get_index(asked)
    if index is not None:
        made.index = index
    return made


def texts_of(values: Array, categories: Iterable[str] = ()) -> list[str]:
    """The texts by which categories are known, "" where missing; the same number is the same text, however it comes.

    Where the categories of training are flags, the numbers 0 and 1 are flags too.
    """
    flags = values.dtype.kind == "f" and "True" in categories and set(categories) <= FLAGS
    return [text_of(bool(cell) if flags and cell in (0, 1) else cell) for cell in values.tolist()]


def text_of(cell: Any) -> str:
    """A cell as text: a whole float as an integer, since a single missing cell turns a column of integers to floats."""
    if is_missing(cell):
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def is_missing(cell: Any) -> bool:
    """Whether a cell is None, NaN, or what pandas puts in their place."""
    return cell is None or (not isinstance(cell, str) and (str(cell) in ("<NA>", "NaT") or cell != cell))


def is_number(value: Any) -> bool:
    """Whether a cell can be read as a number; 1_000, which Python takes for one, is text to everyone else."""
    if isinstance(value, str) and "_" in value:
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def _column(series: nw.Series[Any]) -> Array:
    """One column of a frame as floats, dates or texts."""
    kind = series.dtype
    if isinstance(kind, nw.Datetime | nw.Date):
        return np.asarray(series.to_numpy()).astype(DATES)
    if isinstance(kind, nw.Duration):
        return np.asarray(series.to_numpy()) / np.timedelta64(1, "D")
    if kind.is_numeric() or isinstance(kind, nw.Boolean):
        return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    cells = series.to_list()
    there = [cell for cell in cells if not is_missing(cell)]
    categorical = isinstance(kind, nw.Categorical | nw.Enum)
    if there and not categorical and all(map(is_number, there)):
        texts = any(isinstance(cell, str) for cell in there)
        if not texts or len(set(there)) > FEW_NUMBERS:  # nullable integers, decimals, numbers as text
            return np.array([np.nan if is_missing(cell) else float(cell) for cell in cells])
    return np.array([text_of(cell) for cell in cells], dtype=object)


def _targets(series: nw.Series[Any]) -> Array:
    """A column of outputs: numbers with NaN, or labels as they are."""
    if series.dtype.is_numeric() and series.null_count():
        series = series.cast(nw.Float64)
    return np.asarray(series.to_numpy())


def _stacked(group: Sequence[Array]) -> Array:
    """Columns of several tables as one; texts among them make it a column of texts."""
    if len({values.dtype.kind for values in group}) > 1:
        return np.array([text for values in group for text in texts_of(values)], dtype=object)
    return np.concatenate(group)
