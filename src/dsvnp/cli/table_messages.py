"""What the commands on tables print, and the places that they refuse to write to."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsvnp.naming import shown

if TYPE_CHECKING:
    from dsvnp.tabular.columns import Array, Columns
    from dsvnp.tabular.summary import Summary


def check_out(out: Path) -> None:
    """Refuse a folder for a model that cannot be written, or that holds something else."""
    from dsvnp.tabular.saved.saving import may_hold

    if not may_hold(out):
        raise ValueError(f"{out} is there and holds no model; choose another --out")
    folder = next(parent for parent in out.resolve().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"--out {out}: nothing can be written into {folder}; choose another place")


def check_plot(plot: Path, table: Path) -> None:
    """Refuse a name that is not a picture's, before anything is computed."""
    if plot.suffix.lower() != ".png":
        raise ValueError(f"--plot {plot}: expected a name that ends in .png, got {plot.suffix!r}")
    if plot.is_dir():
        raise ValueError(f"--plot {plot} is a folder; choose another name for the picture")
    spare_the_table(plot, table, "--plot")


def spare_the_table(path: Path, table: Path, option: str) -> None:
    """Refuse to write over the table that is read."""
    if path.exists() and table.exists() and path.samefile(table):
        raise ValueError(f"{option} {path} is the table itself, which would be lost; choose another name")


def say_understood(x: Columns, y: Array, targets: Sequence[str], has_classes: bool) -> None:
    """Print what the columns are taken for; refuse targets whose predictions would have the same name."""
    from dsvnp.cli.targets import prediction_names, understood
    from dsvnp.tabular.rows.encoding import Encoding

    classes = sorted({label for label in y.tolist() if label is not None}) if has_classes else None
    prediction_names(targets, classes)
    typer.echo(shown(understood(Encoding.fit(x), targets, classes)))


def say_left_out(y: Array, targets: Sequence[str], maybe_codes: bool) -> None:
    """Print how many rows lack a target, and a hint where numbers may be codes of classes."""
    from dsvnp.cli.targets import hint_of_classes, left_out

    typer.echo(shown(left_out(y, targets)))
    if hint := hint_of_classes(targets[0], y) if maybe_codes else None:
        typer.echo(shown(hint))


def say_dropped(keep: Array, drop: bool) -> None:
    """Say how many rows `--drop-missing` left out."""
    if drop:
        count = int((~keep).sum())
        typer.echo(f"{len(keep)} rows, {count or 'none'} left out because an input is missing")


def show(summary: Summary, title: str, targets: Sequence[str]) -> None:
    """Print a summary as a table, and the errors of several targets as another."""
    from dsvnp.tabular.summary import as_text, errors_as_text

    print_table(as_text(summary), title)
    if len(targets) > 1:
        print_table(errors_as_text(summary, targets), "Root mean squared errors, each in its target's unit")


def print_table(cells: list[list[str]], title: str) -> None:
    """Print rows of text, the header first."""
    header, *lines = cells
    # As `Text`: in a name, brackets are no markup.
    table = Table(title=Text(shown(title)), title_justify="left")
    for name in header:
        table.add_column(Text(shown(name)), justify="left" if name in ("", "class") else "right")
    for line in lines:
        table.add_row(*(Text(shown(cell)) for cell in line))
    Console().print(table)


def say(before: str, path: Path, after: str) -> None:
    """Print where something is; a path is no markup."""
    Console().print(Text.assemble(before, (shown(path), "bold"), after))


@contextmanager
def spoken_warnings() -> Iterator[None]:
    """Say warnings in a line each, without the place in the code that they come from."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(shown(f"dsvnp: warning: {message}"), err=True)
