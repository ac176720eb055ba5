"""Files: tables as CSV (with nothing but Python) or Parquet (with polars), read whole or part by part.

Every complaint names the file, the column and the line: who wrote the table can correct it.
"""

import csv
import sys
import warnings
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from dsvnp.tabular.columns import Array, Columns, is_number
from dsvnp.tabular.files.parquet_pages import check_pages
from dsvnp.tabular.files.table_cells import COMMA, DATE, GROUPED, MISSING, Manner, mostly, read_columns

SEPARATORS = ",;\t|"
TEXT, PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
MOST_LINES = 5  # of which an error says the same
STANDARD = "-"  # standard input or output
LARGEST = 1e150  # the square of anything larger is infinite
FAR = 1e6  # spreads from the median at which a value is probably a mistake


Problems = dict[str, str]  # name of a column → what is wrong with its cells


def read_table(path: Path, texts: Collection[str] | None = None, problems: Problems | None = None) -> Columns:
    """Read a table with a header; columns of numbers become floats, those of dates dates, all others texts.

    Args:
        path: CSV or Parquet; "-" is CSV on the standard input.
        texts: columns of a CSV that are texts whatever they look like, for a model that knows its columns. It has
            numbers in all others, even where a table holds nothing but words for a missing one.
        problems: where to note cells that cannot be read, which are then missing; None raises all of them as an error.
    """
    (table,) = parts_of_table(path, texts, None, problems)
    return table


def parts_of_table(
    path: Path, texts: Collection[str] | None, num_rows: int | None, problems: Problems | None = None
) -> Iterator[Columns]:
    """Read a table part by part, each of at most so many rows; None reads it in one.

    How decimal commas and dates are to be read shows in the first part; a later one that is written otherwise is
    refused. See `read_table` for the other arguments.
    """
    if str(path) != STANDARD and not path.is_file():
        what = "is a folder" if path.is_dir() else "is not there"
        raise FileNotFoundError(f"{path} {what}; pass the path of a CSV or Parquet file")
    noted: Problems = {} if problems is None else problems
    if path.suffix.lower() in PARQUET:
        parts = _parts_of_parquet(path, num_rows)
    elif path.suffix.lower() in TEXT or str(path) == STANDARD:
        parts = _parts_of_text(path, texts, num_rows, noted)
    else:
        raise ValueError(
            f"{path}: expected a name that ends in {', '.join(TEXT + PARQUET)}, got {path.suffix!r}"
        )
    for part in parts:
        _check_numbers(path, part, noted)
        if noted and problems is None:
            raise ValueError("\n".join(noted.values()))
        yield part


def _check_numbers(path: Path, table: Columns, problems: Problems) -> None:
    """Note columns whose numbers cannot be computed with."""
    if not len(table):
        raise ValueError(f"{path} has columns but no row; there is nothing to read")
    for name, values in zip(table.columns, table.arrays, strict=True):
        try:
            if values.dtype.kind == "f":
                _check_sizes(path, name, values, table)
        except ValueError as error:
            problems.setdefault(name, str(error))


def polars_package() -> Any:
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
        if mostly(cells, DATE.fullmatch):
            problems.append(
                f"{path}: column {name!r} holds dates that cannot be read without doubt {example}; write all of them "
                "as 2024-01-31, or leave the column out with --exclude"
            )
        if mostly(cells, lambda cell: GROUPED.fullmatch(cell) or COMMA.fullmatch(cell)):
            problems.append(
                f"{path}: column {name!r} holds numbers that cannot be read without doubt {example}; write them with a "
                "decimal point and nothing between thousands"
            )
    if problems:
        raise ValueError("\n".join(problems))


def _parts_of_parquet(path: Path, num_rows: int | None) -> Iterator[Columns]:
    """Read Parquet with polars, whose own errors are of many kinds."""
    polars = polars_package()
    start, count = 0, None
    while count is None or start < count:
        try:
            table = polars.scan_parquet(path)
            if count is None:
                check_pages(path)
                count = int(table.select(polars.len()).collect().item())
            frame = table.slice(start, num_rows).collect()
        except (polars.exceptions.PolarsError, OSError, ValueError, MemoryError) as error:
            raise _not_parquet(path, error) from None
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # a bug of polars that damage may reach
                raise
            raise _not_parquet(path, error) from None
        part = Columns.of(frame)
        _check_header(path, part.columns)
        yield Columns(part.columns, part.arrays, [f"row {start + row}" for row in range(len(part))])
        if num_rows is None or not count:
            return
        start += num_rows


def _not_parquet(path: Path, error: BaseException) -> ValueError:
    reason = str(error).partition("\n")[0]
    return ValueError(f"{path} cannot be read as Parquet ({reason:.200}); write it again")


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    """A text file, or the standard input; what is not UTF-8 is refused."""
    try:
        if str(path) == STANDARD:
            yield sys.stdin
        else:
            with path.open(encoding="utf-8-sig") as file:
                yield file
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason}); save it as such") from None


def _parts_of_text(
    path: Path, texts: Collection[str] | None, num_rows: int | None, problems: Problems
) -> Iterator[Columns]:
    """Read CSV, whichever of comma, semicolon, tab and bar its header uses most."""
    with _opened(path) as file:
        above, header = next(((n, line) for n, line in enumerate(file) if _says_something(line)), (0, ""))
        if not header:
            raise ValueError(f"{path} is empty; expected a header with names and rows below it")
        separator = max(SEPARATORS, key=header.count)
        filled = _filled_rows(path, chain([header], file), separator, above)
        _, names = next(filled)
        _check_header(path, names)
        manner = Manner(may_have_commas=separator != ",", texts=texts)
        is_first = True
        while part := list(islice(filled, num_rows)):
            lines = [line for line, _ in part]
            cells = zip(*(row for _, row in part), strict=True)
            columns: dict[str, Sequence[str]] = dict(zip(names, cells, strict=True))
            del part
            yield Columns(tuple(names), tuple(read_columns(path, columns, lines, manner, problems)), lines)
            is_first = False
        if is_first:
            raise ValueError(f"{path} has a header but no row; there is nothing to read")


def _says_something(line: str) -> bool:
    """Whether a line holds more than separators, quotes and space."""
    return any(sign not in f'{SEPARATORS}"' and not sign.isspace() for sign in line)


def _filled_rows(
    path: Path, text: Iterator[str], separator: str, above: int
) -> Iterator[tuple[str, list[str]]]:
    """The rows in which anything stands, and where they end, with so many lines above; the first is the header."""
    reader = csv.reader(text, delimiter=separator, strict=True)
    width, uneven = 0, []
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                line = f"line {above + reader.line_num}"
                if len(cells) != (width := width or len(cells)):
                    uneven.append(f"{path} {line}: expected {width} cells, got {len(cells)}")
                if not uneven:
                    yield line, cells
    except csv.Error as error:
        raise ValueError(
            f"{path} line {above + reader.line_num}: {error}; is a quote left open there or above?"
        ) from None
    if uneven:
        raise ValueError("\n".join([*uneven[:MOST_LINES], *["…"] * (len(uneven) > MOST_LINES)]))


def _check_header(path: Path, names: Sequence[str]) -> None:
    """Refuse columns without a name of their own."""
    problems = [
        f"{path}: column {i + 1} has no name in the header" for i, name in enumerate(names) if not name
    ]
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    problems += [f"{path}: two columns are called {name!r}; rename one" for name in twice]
    if problems:
        raise ValueError("\n".join(problems))
    if all(is_number(name) for name in names):
        raise ValueError(
            f"{path}: the first line holds numbers ({', '.join(names[:3])} …); expected names of columns"
        )


def _check_sizes(path: Path, name: str, values: Array, table: Columns) -> None:
    """Refuse numbers that cannot be computed with; warn of one that is far from all others."""
    size = np.abs(np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=np.inf))
    row = int(size.argmax())
    if size[row] > LARGEST:
        raise ValueError(
            f"{path} {table.place(row)}, column {name!r}: {values[row]:g} is too large to compute with; correct it "
            "or leave the row out"
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
