"""Encoding: columns become the numbers that a network reads.

Numbers stay as they are. Dates become days and, where they vary, the season, the weekday and the time of day, each as a
point on a circle. Texts and categories are encoded by scikit-learn's `OneHotEncoder`: a category is known by its text,
in which a whole float is an integer; one that was not there in training is a row of zeros and a warning. A missing
number or date is replaced by its column's median, and a column of flags marks where that was done.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import OneHotEncoder

from dsvnp.tabular.columns import Array, Columns, is_number, texts_of

Floats = NDArray[np.float64]
MOST_CATEGORIES = 200  # of one column: rarer ones are read as unknown
FEWEST_IDS = 20  # rows from which on texts that are all different are no accident
DAY = 86_400
CYCLES = {"year": 365.2425 * DAY, "week": 7.0 * DAY, "clock": float(DAY)}  # in seconds
SEEN = {"year": 60 * DAY, "week": 2 * DAY}  # seconds that dates must span for a cycle to show


@dataclass(frozen=True)
class Encoding:
    """How the columns of a frame become numbers."""

    names: tuple[str, ...]  # names of the columns
    # for each column its categories, or None for a column of numbers or dates
    categories: tuple[tuple[str, ...] | None, ...]
    # for each column of dates the cycles that are read, as a part of `CYCLES`; None for all others
    cycles: tuple[tuple[str, ...] | None, ...]

    @classmethod
    def fit(cls, table: Columns) -> Encoding:
        """Look at a table; columns of texts that are all different are refused: ids."""
        categories: list[tuple[str, ...] | None] = []
        cycles: list[tuple[str, ...] | None] = []
        problems = []
        for name, values in zip(table.columns, table.arrays, strict=True):
            found = None
            if values.dtype.kind not in "fM":
                counts = Counter(texts_of(values))
                if len(counts) == len(table) >= FEWEST_IDS:
                    problems.append(
                        f"column {name!r} has another text in each of {len(counts)} rows, from which nothing "
                        "can be learned about new rows; leave it out"
                    )
                found = tuple(sorted(text for text, _ in counts.most_common(MOST_CATEGORIES)))
            categories.append(found)
            cycles.append(_cycles(values) if values.dtype.kind == "M" else None)
        if problems:
            raise ValueError("\n".join(problems))
        return cls(table.columns, tuple(categories), tuple(cycles))

    def transform(self, table: Columns) -> Floats:
        """Numbers [rows, D], NaN where missing: columns of numbers and dates first, then those of the categories."""
        numbers, texts, problems = [], [], []
        columns = zip(self.names, table.arrays, self.categories, self.cycles, strict=True)
        for name, values, categories, around in columns:
            try:
                if categories is not None:
                    texts.append(_known_texts(name, values, categories))
                elif around is not None:
                    numbers += _dates(name, values, around, table)
                else:
                    numbers.append(_numbers(name, values, table))
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise ValueError("\n".join(problems))
        parts = [np.stack(numbers, 1)] if numbers else []
        if texts:
            parts.append(self._encoder().transform(np.stack(texts, 1)))
        return np.concatenate(parts, axis=1).astype(np.float64)

    @property
    def number_names(self) -> list[str]:
        """The column that each of the first numbers comes from."""
        out = []
        for name, categories, around in zip(self.names, self.categories, self.cycles, strict=True):
            out += [] if categories is not None else [name] * (1 + 2 * len(around or ()))
        return out

    @property
    def all_numbers(self) -> bool:
        """Whether every column is one of numbers."""
        return all(found is None for found in (*self.categories, *self.cycles))

    def _encoder(self) -> OneHotEncoder:
        """scikit-learn's encoder for the columns of texts, made again from their categories."""
        known = [np.array(found, dtype=object) for found in self.categories if found is not None]
        encoder = OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False)
        return encoder.fit(np.array([[found[0] for found in known]], dtype=object))


@dataclass(frozen=True)
class Filling:
    """What stands in for missing numbers."""

    medians: tuple[float, ...]  # of each column in training
    # for each column whether some values were missing in training: only then is there a column of flags
    gaps: tuple[bool, ...]
    empty: tuple[bool, ...]  # for each column whether all were: it is 0 then, whatever comes later

    @classmethod
    def fit(cls, x: Floats, names: Sequence[str]) -> Filling:
        """Look at numbers [rows, D]; warn of columns without any."""
        missing = np.isnan(x)
        empty = missing.all(0) & np.full(x.shape[1], len(x) > 0)
        if empty.any():
            said = ", ".join(dict.fromkeys(repr(names[i]) for i in np.flatnonzero(empty).tolist()))
            warnings.warn(
                f"column {said} is empty in all {len(x)} rows; nothing is learned from it", stacklevel=2
            )
            x = np.where(empty, 0.0, x)
        medians = (np.nanmedian if missing.any() else np.median)(x, axis=0)
        gaps = missing.any(0) & ~empty
        return cls(tuple(medians.tolist()), tuple(gaps.tolist()), tuple(empty.tolist()))

    def transform(self, x: Floats, names: Sequence[str]) -> Floats:
        """Numbers with the gaps filled, and a flag for each column that had some in training, [rows, D + gaps]."""
        x = np.where(np.array(self.empty), 0.0, x)
        missing = np.isnan(x)
        new = missing.any(0) & ~np.array(self.gaps)
        if new.any():
            said = ", ".join(dict.fromkeys(repr(names[i]) for i in np.flatnonzero(new).tolist()))
            warnings.warn(
                f"column {said} has missing values ({int(missing[:, new].any(1).sum())} of {len(x)} rows) but had none "
                "in training; such rows are predicted from its median",
                stacklevel=2,
            )
        filled = np.where(missing, np.array(self.medians), x)
        return np.concatenate([filled, missing[:, np.array(self.gaps, dtype=bool)]], axis=1)


def _cycles(dates: Array) -> tuple[str, ...]:
    """The cycles that a column of dates is long and fine enough to show."""
    seconds = dates[~np.isnat(dates)].astype("datetime64[s]").astype(np.int64)
    if not len(seconds):
        return ()
    span = int(seconds.max() - seconds.min())
    shown = [name for name, least in SEEN.items() if span >= least]
    return (*shown, *(["clock"] if (seconds % DAY != seconds[0] % DAY).any() else []))


def _dates(name: str, values: Array, cycles: Sequence[str], table: Columns) -> list[Floats]:
    """A column of dates as days since 1970, and sine and cosine of each cycle."""
    if values.dtype.kind != "M":
        row = next((i for i, text in enumerate(texts_of(values)) if text), None)
        if row is not None:
            raise ValueError(
                f"column {name!r} held dates in training but holds {texts_of(values)[row]!r} at {table.place(row)}"
            )
        values = np.full(len(values), "NaT", dtype="datetime64[s]")
    seconds = np.where(
        np.isnat(values), np.nan, values.astype("datetime64[s]").astype(np.int64).astype(float)
    )
    angles = [2 * np.pi * seconds / CYCLES[cycle] for cycle in cycles]
    return [seconds / DAY, *(wave(angle) for angle in angles for wave in (np.sin, np.cos))]


def _known_texts(name: str, values: Array, categories: Sequence[str]) -> Array:
    """Texts of a column of categories; a text that training did not have is a warning, never an error.

    A row's prediction must not depend on the rows asked with it: a table of such rows alone is predicted, too.
    """
    texts = texts_of(values, categories)
    known = set(categories)
    strange = [text for text in texts if text not in known]
    if strange and len(categories) < MOST_CATEGORIES:
        found = sorted(set(strange))
        said = ", ".join(repr(text) if text else "an empty cell" for text in found[:5])
        said += ", …" if len(found) > 5 else ""
        warnings.warn(
            f"column {name!r}: {said} was not there in training ({len(strange)} of {len(texts)} rows); such rows are "
            "predicted without this column; write categories as in training",
            stacklevel=2,
        )
    return np.array(texts, dtype=object)


def _numbers(name: str, values: Array, table: Columns) -> Floats:
    """A column of numbers, also where they come as texts or categories; refuse what is none or infinite."""
    if values.dtype.kind == "M":
        raise ValueError(f"column {name!r} held numbers in training but holds dates")
    if values.dtype.kind != "f":
        texts = texts_of(values)
        row = next((i for i, text in enumerate(texts) if text and not is_number(text)), None)
        if row is not None:
            raise ValueError(
                f"column {name!r} held numbers in training but holds {texts[row]!r} at {table.place(row)}"
            )
        values = np.array([float(text or "nan") for text in texts])
    if np.isinf(values).any():
        row = int(np.flatnonzero(np.isinf(values))[0])
        raise ValueError(
            f"Input X contains infinity: column {name!r} at {table.place(row)}; correct the value, or drop the row"
        )
    return values
