"""Files: tables as CSV (with nothing but Python) or Parquet (with polars), read and written in one piece.

Every complaint names the file, the column and the line: who wrote the table can mend it.
"""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dsvnp.estimators.columns import Array, Columns, is_number

MISSING = {"", "na", "nan", "n/a", "null", "none", "?"}
TEXT, PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
LARGEST = 1e150  # the square of anything larger is infinite
FAR = 1e6  # spreads from the median at which a value is probably a mistake


def read_table(path: Path) -> Columns:
    """Read a table with a header; columns of numbers become floats, all others texts."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there; pass the path of a CSV or Parquet file")
    if path.suffix.lower() in PARQUET:
        table = Columns.of(_polars().read_parquet(path))
    elif path.suffix.lower() in TEXT:
        table = _read_text(path)
    else:
        raise ValueError(
            f"{path}: expected a name that ends in {', '.join(TEXT + PARQUET)}, got {path.suffix!r}"
        )
    if not len(table):
        raise ValueError(f"{path} has columns but no row; there is nothing to read")
    for name, values in zip(table.columns, table.arrays, strict=True):
        if values.dtype.kind == "f":
            _check_sizes(path, name, values, table)
    return table


def write_table(path: Path, names: Sequence[str], columns: Sequence[Array]) -> None:
    """Write columns under a temporary name and rename the file: it is whole or not there."""
    temporary = path.with_name(f".writing-{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if path.suffix.lower() in PARQUET:
            polars = _polars()
            polars.DataFrame({n: c.tolist() for n, c in zip(names, columns, strict=True)}).write_parquet(
                temporary
            )
        else:
            with temporary.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(names)
                writer.writerows(zip(*(column.tolist() for column in columns), strict=True))
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def check_suffix(path: Path) -> None:
    """Refuse a name that no table can be written to, before any work is done."""
    if path.suffix.lower() not in (".csv", *PARQUET):
        raise ValueError(f"{path}: expected a name that ends in .csv or .parquet, got {path.suffix!r}")
    if path.suffix.lower() in PARQUET:
        _polars()


def _polars() -> Any:
    """The package that reads Parquet, or what to install."""
    try:
        import polars
    except ImportError:
        raise ValueError(
            "Parquet needs polars, which is not installed; pip install 'dsvnp[tables]'"
        ) from None
    return polars


def _read_text(path: Path) -> Columns:
    """Read CSV, whichever of comma, semicolon and tab its header uses most."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); save it as such"
        ) from None
    header = text.partition("\n")[0]
    if not text.strip():
        raise ValueError(f"{path} is empty; expected a header with names and rows below it")
    reader = csv.reader(text.splitlines(), delimiter=max(",;\t", key=header.count))
    names = [name.strip() for name in next(reader)]
    _check_header(path, names)
    rows, lines = [], []
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(names):
            raise ValueError(f"{path} line {reader.line_num}: expected {len(names)} cells, got {len(row)}")
        rows.append([cell.strip() for cell in row])
        lines.append(f"line {reader.line_num}")
    if not rows:
        raise ValueError(f"{path} has a header but no row; there is nothing to read")
    columns = zip(*rows, strict=True)
    arrays = tuple(_column(path, name, cells, lines) for name, cells in zip(names, columns, strict=True))
    return Columns(tuple(names), arrays, lines)


def _check_header(path: Path, names: Sequence[str]) -> None:
    """Refuse columns without a name of their own."""
    for index, name in enumerate(names):
        if not name:
            raise ValueError(f"{path}: column {index + 1} has no name in the header")
        if name in names[:index]:
            raise ValueError(f"{path}: two columns are called {name!r}; rename one")
    if all(is_number(name) for name in names):
        raise ValueError(
            f"{path}: the first line holds numbers ({', '.join(names[:3])} …); expected names of columns"
        )


def _column(path: Path, name: str, cells: Sequence[str], lines: Sequence[str]) -> Array:
    """Floats if most cells are numbers, and then all must be; texts otherwise."""
    missing = [cell.lower() in MISSING for cell in cells]
    numbers = [not gone and is_number(cell) for cell, gone in zip(cells, missing, strict=True)]
    if 2 * sum(numbers) <= len(cells) - sum(missing) and not all(missing):
        return np.array(
            ["" if gone else cell for cell, gone in zip(cells, missing, strict=True)], dtype=object
        )
    for cell, gone, number, line in zip(cells, missing, numbers, lines, strict=True):
        if not gone and not number:
            raise ValueError(
                f"{path} {line}, column {name!r}: {cell!r} is not a number, as most of this column are; mend it, or "
                "leave the cell empty"
            )
    return np.array([float(cell) if number else np.nan for cell, number in zip(cells, numbers, strict=True)])


def _check_sizes(path: Path, name: str, values: Array, table: Columns) -> None:
    """Refuse numbers that cannot be computed with; warn of one that is far from all others."""
    size = np.abs(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=np.inf))
    row = int(size.argmax())
    if size[row] > LARGEST:
        raise ValueError(
            f"{path} {table.place(row)}, column {name!r}: {values[row]:g} is too large to compute with; mend or leave "
            "the row out"
        )
    known = values[~np.isnan(values)]
    if len(known) < 4:
        return
    low, middle, high = np.quantile(known, [0.25, 0.5, 0.75])
    spread = high - low
    if spread > 0 and size[row] > abs(middle) + FAR * spread:
        warnings.warn(
            f"{path} {table.place(row)}, column {name!r}: {values[row]:g} is far from the others, whose median is "
            f"{middle:g}; is it right?",
            stacklevel=2,
        )
