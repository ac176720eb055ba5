"""Cells of a text file: which columns hold numbers, dates or texts, and how those are written.

Decimal commas, and days before months, show in the cells themselves. What could be read in two ways is left a text.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from dsvnp.tabular.columns import DATES, Array, is_number

# Among numbers; among texts only the empty cell is missing.
MISSING = {"", "na", "nan", "n/a", "null", "none", "?"}
PLAIN = frozenset("0123456789.+-eE")  # of numbers as most files have them
COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)  # 1,5
POINT = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?", re.IGNORECASE)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # 1,500: one and a half to some, fifteen hundred to others
GROUPED = re.compile(r"[+-]?\d{1,3}([ \u00a0\u202f'’,.]\d{3})+([.,]\d+)?")  # 1 000
DATE = re.compile(r"(\d{4}-\d\d?-\d\d?|\d\d?[./]\d\d?[./]\d{4})([T ]\d\d?:\d\d.*)?")


@dataclass
class Manner:
    """How the cells of a file are written: known of the first part of its rows, it holds for all."""

    may_have_commas: bool  # whether something else than a comma is between cells
    # columns that are texts whatever they look like; None has the cells decide, which are then whole columns
    texts: Collection[str] | None
    has_commas: bool = False  # whether numbers have decimal commas
    has_points: bool = False  # whether they have decimal points
    # by column of dates, which of their numbers is the day
    orders: dict[str, str] = field(default_factory=dict)


def read_columns(
    path: Path,
    columns: dict[str, Sequence[str]],
    lines: Sequence[str],
    manner: Manner,
    problems: dict[str, str],
) -> list[Array]:
    """Columns of cells as floats, dates or texts; of a column that cannot be read, `problems` then says why."""
    texts = manner.texts or ()
    if manner.may_have_commas:
        try:
            columns = columns | _with_points(
                {n: cells for n, cells in columns.items() if n not in texts}, manner
            )
        except ValueError as error:
            raise ValueError(f"{path} {lines[0]} and below: {error}") from None
    arrays = []
    for name, cells in columns.items():
        dates = None if name in texts else dates_of(name, cells, manner)
        if dates is not None or name in texts:
            arrays.append(np.array(cells, dtype=object) if dates is None else dates)
            continue
        values, wrong = _column(cells, may_be_text=manner.texts is None)
        if wrong:
            others = f" (nor are {len(wrong) - 1} others)" if len(wrong) > 1 else ""
            problems.setdefault(
                name,
                f"{path} {lines[wrong[0]]}, column {name!r}: {cells[wrong[0]]!r} is not a number, as most of this "
                f"column are{others}; correct it, or leave the cell empty",
            )
        arrays.append(values)
    return arrays


def dates_of(name: str, cells: Sequence[str], manner: Manner) -> Array | None:
    """A column of dates as such, NaT where missing; None if it is no such column, or could be read in two ways.

    Days come first with points (31.12.2024), and with slashes where the dates themselves tell: a number above 12.
    """
    there = [cell for cell in cells if cell.lower() not in MISSING]
    if not there or not all(map(DATE.fullmatch, there)):
        return None
    heads = [match[1] for cell in there if (match := DATE.fullmatch(cell))]
    order = "iso" if all("-" in head for head in heads) else manner.orders.get(name) or _day_order(heads)
    if order is None:
        return None
    manner.orders[name] = order
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


def _with_points(columns: dict[str, Sequence[str]], manner: Manner) -> dict[str, Sequence[str]]:
    """Columns of numbers with decimal commas, with points; none where that could be wrong."""
    numbers = {
        name: cells
        for name, cells in columns.items()
        if mostly(cells, lambda cell: COMMA.fullmatch(cell) or is_number(cell))
    }
    cells = [cell for column in numbers.values() for cell in column]
    commas = [cell for cell in cells if COMMA.fullmatch(cell)]
    has_points = any(map(POINT.fullmatch, cells))
    if has_points and manner.has_commas:
        raise ValueError("decimal points, where rows above have decimal commas; write all numbers alike")
    manner.has_points |= has_points
    clear = manner.has_commas or not all(map(THOUSANDS.fullmatch, commas))
    if manner.has_points or not clear:
        return {}
    manner.has_commas = True
    return {
        name: [cell.replace(",", ".") if COMMA.fullmatch(cell) else cell for cell in column]
        for name, column in numbers.items()
    }


def mostly(cells: Sequence[str], test: Callable[[str], Any]) -> bool:
    """Whether more than half of the cells that are not missing pass a test."""
    there = [cell for cell in cells if cell.lower() not in MISSING]
    return 2 * sum(bool(test(cell)) for cell in there) > len(there)


def _column(cells: Sequence[str], may_be_text: bool) -> tuple[Array, list[int]]:
    """Floats if most cells are numbers, with those that are neither that nor missing; texts otherwise, as they are.

    A column of words for nothing alone is one of texts, if it may be.
    """
    if all(cells) and PLAIN.issuperset("".join(cells)):  # most columns: a tenth of the time
        try:
            return np.array([float(cell) for cell in cells]), []
        except ValueError:  # a date or a code of digits
            pass
    missing = [cell.lower() in MISSING for cell in cells]
    numbers = [not gone and is_number(cell) for cell, gone in zip(cells, missing, strict=True)]
    words = any(cells) if may_be_text else not all(missing)
    if words and 2 * sum(numbers) <= len(cells) - sum(missing):
        return np.array(cells, dtype=object), []
    wrong = [row for row, kinds in enumerate(zip(missing, numbers, strict=True)) if not any(kinds)]
    floats = [float(cell) if number else np.nan for cell, number in zip(cells, numbers, strict=True)]
    return np.array(floats), wrong
