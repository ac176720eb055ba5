"""Columns: tables of NumPy, pandas and polars come in as numbers, and answers go out as the same kind.

Columns of numbers stay as they are; columns of texts or categories are encoded by scikit-learn's `OneHotEncoder`. A
category is known by its text, in which a whole float is an integer. One that was not there in training is a row of
zeros and a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import OneHotEncoder

Array = NDArray[Any]
MOST_CATEGORIES = 200  # of one column: beyond that it is a name or a free text, of no use to a network
FEWEST_IDS = 20  # rows from which on texts that are all different are no accident
FLAGS = {"False", "True", ""}


def kind_of(table: Any) -> str:
    """What a table is: "pandas", "polars", "columns" (our own) or "numpy" for everything else."""
    if isinstance(table, Columns):
        return "columns"
    package = type(table).__module__.split(".")[0]
    return package if package in ("pandas", "polars") else "numpy"


def is_frame(table: Any) -> bool:
    """Whether a table has columns with names."""
    return kind_of(table) != "numpy" and hasattr(table, "columns")


@dataclass(frozen=True)
class Columns:
    """A table as columns with names, each of floats (NaN where missing) or of texts ("" where missing).

    Attributes:
        columns: names, in order.
        arrays: one for each, all of one length.
        places: what to call a row in an error, as "line 7"; its number from 0 on by default.
    """

    columns: tuple[str, ...]
    arrays: tuple[Array, ...]
    places: Sequence[str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, frame: Any) -> Columns:
        """Take a data frame of pandas or polars apart."""
        if isinstance(frame, Columns):
            return frame
        names = [str(name) for name in frame.columns]
        series = [frame.iloc[:, i] if kind_of(frame) == "pandas" else frame[:, i] for i in range(len(names))]
        return cls(tuple(names), tuple(_column(name, one) for name, one in zip(names, series, strict=True)))

    @classmethod
    def concatenate(cls, tables: Sequence[Columns]) -> Columns:
        """Put tables with the same columns below each other."""
        for table in tables[1:]:
            if table.columns != tables[0].columns:
                raise ValueError(
                    f"expected the columns {', '.join(tables[0].columns)}, got {', '.join(table.columns)}"
                )
        arrays = zip(*(table.arrays for table in tables), strict=True)
        return cls(tables[0].columns, tuple(np.concatenate(group) for group in arrays))

    def __len__(self) -> int:
        return len(self.arrays[0]) if self.arrays else 0

    def __getitem__(self, name: str) -> Array:
        return self.arrays[self.columns.index(name)]

    def select(self, names: Iterable[str]) -> Columns:
        """Some columns, in the order asked for."""
        names = tuple(names)
        return Columns(names, tuple(self[name] for name in names), self.places)

    def rows(self, keep: Array) -> Columns:
        """The rows of a mask."""
        places = [self.place(row) for row in np.flatnonzero(keep).tolist()]
        return Columns(self.columns, tuple(values[keep] for values in self.arrays), places)

    def place(self, row: int) -> str:
        """What to call a row."""
        return f"row {row}" if self.places is None else self.places[row]


@dataclass(frozen=True)
class Encoding:
    """How the columns of a frame become numbers.

    Attributes:
        names: names of the columns.
        categories: for each column its categories, or None for a column of numbers.
    """

    names: tuple[str, ...]
    categories: tuple[tuple[str, ...] | None, ...]

    @classmethod
    def fit(cls, table: Columns) -> Encoding:
        """Look at a table; a column of too many texts is refused, or of texts that are all different: an id."""
        categories: list[tuple[str, ...] | None] = []
        for name, values in zip(table.columns, table.arrays, strict=True):
            found = None if values.dtype.kind == "f" else tuple(sorted(set(texts_of(values))))
            if found is not None and len(found) > MOST_CATEGORIES:
                raise ValueError(
                    f"column {name!r} has {len(found)} different texts, too many for categories; leave it out, or "
                    f"group them into at most {MOST_CATEGORIES}"
                )
            if found is not None and len(found) == len(table) >= FEWEST_IDS:
                raise ValueError(
                    f"column {name!r} has another text in each of {len(found)} rows, which tells nothing of new ones; "
                    "leave it out"
                )
            categories.append(found)
        return cls(table.columns, tuple(categories))

    def transform(self, table: Columns) -> NDArray[np.float64]:
        """Numbers [rows, D]: columns of numbers first, then those of the categories."""
        numbers, texts = [], []
        for name, values, categories in zip(self.names, table.arrays, self.categories, strict=True):
            if categories is not None:
                texts.append(_known_texts(name, values, categories))
            else:
                numbers.append(_finite_numbers(name, values, table))
        parts = [np.stack(numbers, 1)] if numbers else []
        if texts:
            parts.append(self._encoder().transform(np.stack(texts, 1)))
        return np.concatenate(parts, axis=1).astype(np.float64)

    def _encoder(self) -> OneHotEncoder:
        """scikit-learn's encoder for the columns of texts, made anew from their categories."""
        known = [np.array(found, dtype=object) for found in self.categories if found is not None]
        encoder = OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False)
        return encoder.fit(np.array([[found[0] for found in known]], dtype=object))


def names_of(targets: Any, count: int) -> tuple[str, ...]:
    """Names of outputs: those of a frame or series, else y, or y0, y1, …"""
    if is_frame(targets):
        return tuple(str(name) for name in targets.columns)
    name = getattr(targets, "name", None) if kind_of(targets) != "numpy" else None
    if name not in (None, ""):
        return (str(name),)
    return ("y",) if count == 1 else tuple(f"y{i}" for i in range(count))


def values_of(targets: Any) -> Any:
    """Outputs as an array; what is missing in a frame or series becomes NaN."""
    kind = kind_of(targets)
    if kind == "columns":
        return np.stack(targets.arrays, 1)
    if kind == "pandas":
        frame = targets if is_frame(targets) else targets.to_frame()
        columns = [np.asarray(_column_of_targets(frame.iloc[:, i])) for i in range(frame.shape[1])]
        return np.stack(columns, 1) if is_frame(targets) else columns[0]
    return targets.to_numpy() if kind == "polars" else targets


def answer(values: Array, like: Any, names: Sequence[str]) -> Any:
    """Answers [rows] or [rows, columns] as the kind of table that was asked with; other shapes stay arrays."""
    kind = kind_of(like)
    if kind not in ("pandas", "polars") or values.ndim > 2:
        return values
    if kind == "pandas":
        import pandas as pd

        if values.ndim == 1:
            return pd.Series(values, index=like.index, name=names[0])
        return pd.DataFrame(values, index=like.index, columns=list(names))
    import polars as pl

    if values.ndim == 1:
        return pl.Series(names[0], values.tolist())
    return pl.DataFrame(values, schema=list(names))


def texts_of(values: Array, categories: Iterable[str] = ()) -> list[str]:
    """The texts by which categories are known, "" where missing; the same number is the same text, however it comes.

    Args:
        values: a column of any kind.
        categories: those of training, if any; where they are flags, the numbers 0 and 1 are flags too.
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


def _known_texts(name: str, values: Array, categories: Sequence[str]) -> Array:
    """Texts of a column of categories; what was not there in training is said, and refused nowhere.

    A row must be answered alike in any company, so that a table of such rows is no worse than one among others.
    """
    texts = texts_of(values, categories)
    known = set(categories)
    strange = [text for text in texts if text not in known]
    if strange:
        found = sorted(set(strange))
        said = ", ".join(repr(text) if text else "an empty cell" for text in found[:5])
        said += ", …" if len(found) > 5 else ""
        warnings.warn(
            f"column {name!r}: {said} was not there in training ({len(strange)} of {len(texts)} rows); such rows are "
            "predicted without this column; write categories as in training",
            stacklevel=2,
        )
    return np.array(texts, dtype=object)


def _finite_numbers(name: str, values: Array, table: Columns) -> Array:
    """A column of numbers, also where they come as texts or categories; refuse what is none, missing or infinite."""
    if values.dtype.kind != "f":
        texts = texts_of(values)
        row = next((i for i, text in enumerate(texts) if text and not is_number(text)), None)
        if row is not None:
            raise ValueError(
                f"column {name!r} held numbers in training but holds {texts[row]!r} at {table.place(row)}"
            )
        values = np.array([float(text or "nan") for text in texts])
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        kind = "NaN" if np.isnan(values[row]) else "infinity"
        raise ValueError(
            f"Input X contains {kind}: column {name!r} at {table.place(row)}; fill such values in, as with "
            "scikit-learn's SimpleImputer, or drop the row"
        )
    return values


def _column(name: str, series: Any) -> Array:
    """One column of a frame as floats or texts."""
    categorical = "categorical" in str(series.dtype).lower() or "category" in str(series.dtype).lower()
    values = np.asarray(series.to_numpy())
    if values.dtype.kind in "mM":
        raise ValueError(
            f"column {name!r} holds dates or durations; turn it into numbers first, or leave it out"
        )
    if not categorical and values.dtype.kind in "iufb":
        return values.astype(np.float64)
    cells = values.tolist()
    missing = [is_missing(cell) for cell in cells]
    there = [cell for cell, gone in zip(cells, missing, strict=True) if not gone]
    if not categorical and not any(isinstance(cell, str) for cell in there) and all(map(is_number, there)):
        # Nullable integers, decimals.
        return np.array([np.nan if gone else float(cell) for cell, gone in zip(cells, missing, strict=True)])
    return np.array([text_of(cell) for cell in cells], dtype=object)


def _column_of_targets(series: Any) -> Array:
    """A pandas column of outputs: numbers with NaN, or labels as they are."""
    values = series.to_numpy()
    if values.dtype == object and getattr(series.dtype, "kind", "O") in "iuf":
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(values)


def is_number(value: Any) -> bool:
    """Whether a cell can be read as a number; 1_000, which Python takes for one, is text to everyone else."""
    if isinstance(value, str) and "_" in value:
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
