"""Rows: which columns and rows of a file a command reads, and what is wrong with them."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dsvnp.cli.targets import outputs_of
from dsvnp.naming import unknown
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.columns import Array, Columns, texts_of
from dsvnp.tabular.files.table_files import Problems, check_texts, read_table
from dsvnp.tabular.rows.encoding import Encoding


def column_names(text: str, rows: Columns, path: Path) -> list[str]:
    """Columns a user names, all of which must be there."""
    names = [name.strip() for name in text.split(",")] if text not in rows.columns else [text]
    problems = []
    for name in dict.fromkeys(names):
        if name not in rows.columns:
            problems.append(unknown(name, rows.columns, f"column of {path}"))
            if len(rows.columns) == 1:  # probably something else is between them
                problems[-1] += (
                    " It has a single column; columns are separated by a comma, semicolon, tab or bar."
                )
        if names.count(name) > 1:
            problems.append(f"column {name!r} is listed twice in {text!r}; leave one of them out")
    refuse(problems)
    return names


def chosen_columns(
    inputs: str | None, exclude: str | None, targets: list[str], rows: Columns, path: Path
) -> list[str]:
    """Columns to predict from: those a user names, or all that are no target, without those to leave out."""
    chosen = (
        column_names(inputs, rows, path) if inputs else [name for name in rows.columns if name not in targets]
    )
    out = column_names(exclude, rows, path) if exclude else []
    chosen = [name for name in chosen if name not in out]
    if not chosen:
        raise ValueError(f"{path}: no column is left to predict from; all are targets, or excluded")
    if both := [name for name in chosen if name in targets]:
        raise ValueError(f"{path}: {', '.join(both)} is in --inputs and in --target; leave it out of one")
    return chosen


def inputs_of(
    estimator: BaseNP, rows: Columns, path: Path, problems: Problems, targets: Sequence[str] = ()
) -> Columns:
    """The columns a model was fitted to, in its order; others do not matter, but `targets` must be there too."""
    names = list(getattr(estimator, "feature_names_in_", []))
    if not names:
        raise ValueError("the model was fitted to arrays, whose columns have no names; ask it from Python")
    all_at_once(
        partial(check_cells, problems, [*names, *targets]),
        partial(check_columns, targets, rows, path, "was fitted to predict"),
        partial(check_columns, names, rows, path, "was fitted with"),
    )
    return rows.select(names)


def all_at_once(*checks: Callable[[], object]) -> None:
    """Do some checks, and raise what all of them complain of as one error."""
    problems: list[str] = []
    for check in checks:
        try:
            check()
        except ValueError as error:
            problems += str(error).split("\n")
    refuse(problems)


def refuse(problems: Iterable[str]) -> None:
    """Raise all problems as one error, each of them once; none is no error."""
    if lines := list(dict.fromkeys(problems)):
        raise ValueError("\n".join(lines))


def check_cells(problems: Problems, names: Iterable[str]) -> None:
    """Refuse columns that are needed and have cells that could not be read."""
    refuse(problems[name] for name in names if name in problems)


def check_columns(names: Sequence[str], rows: Columns, path: Path, what: str) -> None:
    """Refuse a table that lacks a column of the model's."""
    refuse(
        f"{path} has no column {name!r}, which the model {what}" for name in names if name not in rows.columns
    )


def without_missing(
    rows: Columns, encoding: Encoding | None, drop: bool, strict: bool, path: Path
) -> tuple[Columns, Array]:
    """The rows to use, and which those are: all of them, unless those with a missing number are to be left out.

    `encoding` is what a model takes them for; None, in a fit, goes by what they look like. `drop` leaves rows out in
    which a number or date is missing (an empty text is a category); `strict` refuses them, all columns at once.
    """
    keep = np.ones(len(rows), dtype=bool)
    texts = None if encoding is None else dict(zip(encoding.names, encoding.categories, strict=True))
    problems = []
    for name, values in zip(rows.columns, rows.arrays, strict=True):
        is_text = values.dtype.kind not in "fM" if texts is None else texts[name] is not None
        gone = np.zeros(len(rows), dtype=bool) if is_text else missing_cells(values)
        if gone.all() and encoding is None:
            problems.append(
                f"{path}: column {name!r} is empty in all {len(rows)} rows; leave it out with --exclude"
            )
        elif gone.any() and strict:
            problems.append(
                f"{path}: column {name!r} is empty in {gone.sum()} of {len(rows)} rows (first: "
                f"{rows.place(int(gone.argmax()))}); fill it in, leave such rows out with --drop-missing, or do "
                "without --strict"
            )
        elif drop:
            keep &= ~gone
    refuse(problems)
    return rows.rows(keep), keep


def check_learnable(
    rows: Columns,  # the table
    chosen: Sequence[str],  # columns to predict from
    targets: Sequence[str],  # columns to predict
    kind: type[BaseNP],  # of the estimator
    strict: bool,  # refuse missing inputs
    path: Path,  # its file
    problems: Problems,  # columns whose cells could not be read
) -> None:
    """Refuse a table that cannot be learned from, and list all that is wrong with its columns."""
    inputs = rows.select([name for name in chosen if name not in problems])
    sound = [name for name in targets if name not in problems]
    all_at_once(
        partial(check_cells, problems, [*chosen, *targets]),
        partial(check_texts, path, rows.select([*chosen, *targets])),
        partial(Encoding.fit, inputs),
        partial(without_missing, inputs, None, drop=False, strict=strict, path=path),
        *([partial(outputs_of, rows, sound, kind, path)] if sound else []),
    )


def check_kept(num_rows: int, path: Path) -> None:
    """Refuse a table of which --drop-missing keeps no row."""
    if not num_rows:
        raise ValueError(
            f"{path}: an input is missing in every row; there is nothing left for --drop-missing to keep"
        )


def missing_cells(values: Array) -> Array:
    """Which cells of a column hold nothing."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    return np.isnat(values) if values.dtype.kind == "M" else np.array(texts_of(values)) == ""


def tasks_of(x: Columns, y: Array, targets: Sequence[str], groups: Array) -> list[tuple[Columns, Any]]:
    """Rows that belong together as tables of their own; groups of a single row are left out."""
    names = np.array(texts_of(groups))
    found = [np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())]
    return [(x.rows(rows), named(y[rows], targets)) for rows in found if len(rows) > 1]


def full_column(option: str, given: str, rows: Columns, path: Path, dates: bool = False) -> Array:
    """The column that an option names: numbers, or dates too, all of them known."""
    name = column_names(given, rows, path)[0]
    values = rows[name]
    kinds = "fM" if dates else "f"
    gone = missing_cells(values) if values.dtype.kind in kinds else np.ones(len(values), dtype=bool)
    if gone.any():
        what, place = "number or date" if dates else "number", rows.place(int(gone.argmax()))
        raise ValueError(
            f"{path}: {option} {name} has no {what} at {place}; fill it in, or choose another column"
        )
    return values


def named(y: Array, targets: Sequence[str]) -> Any:
    """Several targets with their names; one alone is a column, and its predictions are."""
    return y if y.ndim == 1 else Columns(tuple(targets), tuple(y.T))


def read_noted(path: Path, texts: Collection[str] | None = None) -> tuple[Columns, Problems]:
    """Read a table, and note the columns whose cells cannot be read: who needs them lists all that is wrong."""
    problems: Problems = {}
    return read_table(path, texts, problems), problems
