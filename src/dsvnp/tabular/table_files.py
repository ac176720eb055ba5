"""Files: tables as CSV (with nothing but Python) or Parquet (with polars), read and written in one piece.

Every complaint names the file, the column and the line: who wrote the table can mend it.
"""

from __future__ import annotations

import csv
import io
import os
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np

from dsvnp.tabular.columns import DATES, Array, Columns, is_number

# Among numbers; among texts only the empty cell is missing.
MISSING = {"", "na", "nan", "n/a", "null", "none", "?"}
SEPARATORS = ",;\t|"
COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)  # 1,5
POINT = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?", re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # 1,500: one and a half to some, fifteen hundred to others
GROUPED = re.compile(r"[+-]?\d{1,3}([ \u00a0\u202f'’,.]\d{3})+([.,]\d+)?")  # 1 000
DATE = re.compile(r"(\d{4}-\d\d?-\d\d?|\d\d?[./]\d\d?[./]\d{4})([T ]\d\d?:\d\d.*)?")
TEXT, PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
STANDARD = "-"  # standard input or output
LARGEST = 1e150  # the square of anything larger is infinite
FAR = 1e6  # spreads from the median at which a value is probably a mistake


def read_table(path: Path, texts: Collection[str] | None = None) -> Columns:
    """Read a table with a header; columns of numbers become floats, those of dates dates, all others texts.

    Args:
        path: CSV or Parquet; "-" is CSV on the standard input.
        texts: columns of a CSV that are texts whatever they look like, for a model that knows its columns. It has
            numbers in all others, even where a table holds nothing but words for a missing one.
    """
    if str(path) == STANDARD:
        return _checked(path, _read_text(path, texts))
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not there"
        raise FileNotFoundError(f"{path} {what}; pass the path of a CSV or Parquet file")
    if path.suffix.lower() in PARQUET:
        table = Columns.of(_read_parquet(path))
    elif path.suffix.lower() in TEXT:
        table = _read_text(path, texts)
    else:
        raise ValueError(
            f"{path}: expected a name that ends in {', '.join(TEXT + PARQUET)}, got {path.suffix!r}"
        )
    return _checked(path, table)


def _checked(path: Path, table: Columns) -> Columns:
    """The table, once its numbers can be computed with; all that cannot are named at once."""
    if not len(table):
        raise ValueError(f"{path} has columns but no row; there is nothing to read")
    problems = []
    for name, values in zip(table.columns, table.arrays, strict=True):
        try:
            if values.dtype.kind == "f":
                _check_sizes(path, name, values, table)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))
    return table


def write_table(path: Path, names: Sequence[str], columns: Sequence[Array]) -> None:
    """Write columns under a temporary name and rename the file: it is whole or not there."""
    if str(path) == STANDARD:
        _write_text(sys.stdout, names, columns)
        return
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
                _write_text(file, names, columns)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_text(file: IO[str], names: Sequence[str], columns: Sequence[Array]) -> None:
    """Write CSV; fractions have six significant digits."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    cells = [
        [f"{cell:.6g}" if isinstance(cell, float) else cell for cell in column.tolist()] for column in columns
    ]
    writer.writerows(zip(*cells, strict=True))


def check_suffix(path: Path) -> None:
    """Refuse a name that no table can be written to, before any work is done."""
    if str(path) == STANDARD:
        return
    if path.is_dir():
        raise ValueError(f"{path} is a folder; choose another name for the table")
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


def check_texts(path: Path, table: Columns) -> None:
    """Refuse columns of texts that are meant as something else: numbers as some countries write them, odd dates."""
    problems = []
    for name, values in zip(table.columns, table.arrays, strict=True):
        if values.dtype.kind in "fM":
            continue
        cells = values.tolist()
        row = next((row for row, cell in enumerate(cells) if cell.lower() not in MISSING), 0)
        example = f"({cells[row]!r} at {table.place(row)})"
        if _mostly(cells, DATE.fullmatch):
            problems.append(
                f"{path}: column {name!r} holds dates that cannot be read without doubt {example}; write all of them "
                "as 2024-01-31, or leave the column out with --exclude"
            )
        if _mostly(cells, lambda cell: GROUPED.fullmatch(cell) or COMMA.fullmatch(cell)):
            problems.append(
                f"{path}: column {name!r} holds numbers that cannot be read without doubt {example}; write them with a "
                "decimal point and nothing between thousands"
            )
    if problems:
        raise ValueError("\n".join(problems))


def _read_parquet(path: Path) -> Any:
    """Read Parquet with polars, whose own errors are many kinds."""
    polars = _polars()
    try:
        return polars.read_parquet(path)
    except polars.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} cannot be read as Parquet ({reason}); write it again") from None


def _read_text(path: Path, texts: Collection[str] | None) -> Columns:
    """Read CSV, whichever of comma, semicolon, tab and bar its header uses most."""
    try:
        text = sys.stdin.read() if str(path) == STANDARD else path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); save it as such"
        ) from None
    written = text.split("\n")
    start = next((number for number, line in enumerate(written) if _says_something(line)), None)
    if start is None:
        raise ValueError(f"{path} is empty; expected a header with names and rows below it")
    separator = max(SEPARATORS, key=written[start].count)
    filled = _filled_rows(path, "\n".join(written[start:]), separator, start)
    _, names = next(filled)
    _check_header(path, names)
    rows, lines = [], []
    for line, row in filled:
        if len(row) != len(names):
            raise ValueError(f"{path} {line}: expected {len(names)} cells, got {len(row)}")
        rows.append(row)
        lines.append(line)
    if not rows:
        raise ValueError(f"{path} has a header but no row; there is nothing to read")
    columns: dict[str, Sequence[str]] = dict(zip(names, zip(*rows, strict=True), strict=True))
    may_be_text, texts = texts is None, texts or ()
    if separator != ",":
        columns |= _with_points({name: cells for name, cells in columns.items() if name not in texts})
    arrays, problems = [], []
    for name, cells in columns.items():
        try:
            array = np.array(cells, dtype=object)
            if name not in texts:
                dates = dates_of(cells)
                array = _column(path, name, cells, lines, may_be_text) if dates is None else dates
            arrays.append(array)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise ValueError("\n".join(problems))
    return Columns(tuple(names), tuple(arrays), lines)


def dates_of(cells: Sequence[str]) -> Array | None:
    """A column of dates as such, NaT where missing; None if it is no such column, or could be read in two ways.

    Days come first with points (31.12.2024), and with slashes where the dates themselves tell: a number above 12.
    """
    there = [cell for cell in cells if cell.lower() not in MISSING]
    found = [DATE.fullmatch(cell) for cell in there]
    if not there or not all(found):
        return None
    heads = [match[1] for match in found if match]
    order = "iso" if all("-" in head for head in heads) else _day_order(heads)
    if order is None:
        return None
    try:
        return np.array(
            [np.datetime64("NaT") if cell.lower() in MISSING else _date(cell, order) for cell in cells],
            dtype=DATES,
        )
    except ValueError:  # the 31st of June
        return None


def _day_order(heads: Sequence[str]) -> str | None:
    """Which number of a date is the day, "first" or "second"; None where that is open."""
    if all("." in head for head in heads):
        return "first"
    if not all("/" in head for head in heads):
        return None
    first, second = (max(int(head.split("/")[i]) for head in heads) for i in (0, 1))
    if first > 12 >= second:
        return "first"
    return "second" if second > 12 >= first else None


def _date(cell: str, order: str) -> np.datetime64:
    """One date, with its time if there is one; a zone is taken into account."""
    match = DATE.fullmatch(cell)
    assert match is not None
    numbers = [int(part) for part in re.split(r"[-./]", match[1])]
    if order == "iso":
        year, month, day = numbers
    else:
        day, month, year = numbers if order == "first" else (numbers[1], numbers[0], numbers[2])
    clock = (match[2] or "").strip("T ").strip()
    clock = f"0{clock}" if clock[1:2] == ":" else clock
    moment = datetime.fromisoformat(f"{year:04}-{month:02}-{day:02}" + (f"T{clock}" if clock else ""))
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(moment, "s")


def _says_something(line: str) -> bool:
    """Whether a line holds more than separators, quotes and space."""
    return any(sign not in f'{SEPARATORS}"' and not sign.isspace() for sign in line)


def _filled_rows(path: Path, text: str, separator: str, above: int) -> Iterator[tuple[str, list[str]]]:
    """The rows in which anything stands, and where they end, with so many lines above; quotes must be closed."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                yield f"line {above + reader.line_num}", cells
    except csv.Error as error:
        raise ValueError(
            f"{path} line {above + reader.line_num}: {error}; is a quote left open there or above?"
        ) from None


def _with_points(columns: dict[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    """Columns of numbers with decimal commas, with points; none where that could be wrong."""
    numbers = {
        name: cells
        for name, cells in columns.items()
        if _mostly(cells, lambda cell: COMMA.fullmatch(cell) or is_number(cell))
    }
    cells = [cell for column in numbers.values() for cell in column]
    commas = [cell for cell in cells if COMMA.fullmatch(cell)]
    if any(map(POINT.fullmatch, cells)) or all(map(THOUSANDS.fullmatch, commas)):
        return {}
    return {
        name: [cell.replace(",", ".") if COMMA.fullmatch(cell) else cell for cell in column]
        for name, column in numbers.items()
    }


def _mostly(cells: Sequence[str], test: Callable[[str], Any]) -> bool:
    """Whether more than half of the cells that are not missing pass a test."""
    there = [cell for cell in cells if cell.lower() not in MISSING]
    return 2 * sum(bool(test(cell)) for cell in there) > len(there)


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


def _column(path: Path, name: str, cells: Sequence[str], lines: Sequence[str], may_be_text: bool) -> Array:
    """Floats if most cells are numbers, and then all must be or be missing; texts otherwise, as they are.

    A column of words for nothing alone is one of texts, if it may be.
    """
    missing = [cell.lower() in MISSING for cell in cells]
    numbers = [not gone and is_number(cell) for cell, gone in zip(cells, missing, strict=True)]
    words = any(cells) if may_be_text else not all(missing)
    if words and 2 * sum(numbers) <= len(cells) - sum(missing):
        return np.array(cells, dtype=object)
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
