"""`dsvnp fit`, `dsvnp predict`, `dsvnp evaluate`: the command line on a person's own tables."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsvnp.cli.options import Device, LogDir
from dsvnp.files import write_atomically
from dsvnp.naming import lookup, shown

if TYPE_CHECKING:
    from dsvnp.cli.table_rows import Asked
    from dsvnp.tabular.base import BaseNP
    from dsvnp.tabular.columns import Array, Columns
    from dsvnp.tabular.summary import Summary

TableFile = Annotated[Path, typer.Argument(help="CSV or Parquet with a header.")]
ModelFolder = Annotated[Path, typer.Argument(help="Folder that `dsvnp fit` wrote.")]

Strict = Annotated[bool, typer.Option("--strict", help="Refuse missing inputs instead of filling them in.")]
Group = Annotated[
    str | None, typer.Option(help="Column that says which rows belong together: sensors, patients, machines.")
]
Context = Annotated[
    Path | None,
    typer.Option(help="Known rows of the task to predict from, for a model fitted with --group."),
]
DropMissing = Annotated[
    bool, typer.Option("--drop-missing", help="Leave rows out in which an input number is missing.")
]


def fit(
    table: TableFile,
    target: Annotated[str, typer.Option(help="Columns to predict, with commas between them.")],
    out: Annotated[Path, typer.Option(help="Folder for the fitted model.")],
    model: Annotated[str, typer.Option(help="auto, or a model that `dsvnp models` lists.")] = "auto",
    inputs: Annotated[
        str | None, typer.Option(help="Columns to predict from; all but the targets by default.")
    ] = None,
    exclude: Annotated[str | None, typer.Option(help="Columns not to predict from: dates, ids.")] = None,
    task: Annotated[str, typer.Option(help="auto, regression or classification.")] = "auto",
    refine: Annotated[
        bool, typer.Option("--refine", help="Train a network of your own too, and keep the better.")
    ] = False,
    effort: Annotated[str, typer.Option(help="How long to take: fast, balanced or thorough.")] = "balanced",
    replicas: Annotated[int | None, typer.Option(min=1, help="Members of the ensemble.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps, at most.")] = None,
    seed: Annotated[int, typer.Option(help="Decides all that is random.")] = 0,
    group: Group = None,
    one_table: Annotated[
        bool,
        typer.Option("--one-table", help="With --group: one function for all; groups are held out whole."),
    ] = False,
    time: Annotated[
        str | None, typer.Option(help="Column of numbers or dates; the latest rows are held out.")
    ] = None,
    weight: Annotated[
        str | None, typer.Option(help="Column of numbers that says how many rows a row counts as; no input.")
    ] = None,
    drop_missing: DropMissing = False,
    strict: Strict = False,
    device: Device = "auto",
    log_dir: LogDir = None,
) -> None:
    """Fit a model to a table and say how well it predicts rows that it has not seen.

    With --group each group is a table of its own, and the model predicts a new one from some of its rows.
    """
    from dsvnp.cli.table_rows import (
        all_at_once,
        check_cells,
        check_inputs,
        check_kept,
        chosen_columns,
        column_names,
        full_column,
        without_missing,
    )
    from dsvnp.cli.targets import outputs_of
    from dsvnp.models import MODELS
    from dsvnp.tabular import NPClassifier, NPRegressor
    from dsvnp.tabular.memory import check_file
    from dsvnp.tabular.recipe import AUTO, EFFORTS
    from dsvnp.tabular.table_files import Problems, check_texts, read_table
    from dsvnp.training.hooks import tensorboard

    kinds = {"auto": None, "regression": NPRegressor, "classification": NPClassifier}
    _check_held_out(group, one_table, time, weight)
    lookup(model, {AUTO: None, **MODELS}, "model")
    lookup(effort, EFFORTS, "effort")
    lookup(task, kinds, "task")
    _check_out(out)
    check_file(table)
    with _spoken_warnings(), tensorboard(log_dir):
        problems: Problems = {}
        rows = read_table(table, problems=problems)
        targets = column_names(target, rows, table)
        groups = column_names(group, rows, table) if group else []
        weights = column_names(weight, rows, table) if weight else []
        chosen = chosen_columns(inputs, exclude, [*targets, *groups, *weights], rows, table)
        kind = kinds[task] or (NPRegressor if rows[targets[0]].dtype.kind == "f" else NPClassifier)
        sound = [name for name in targets if name not in problems]
        all_at_once(
            partial(check_cells, problems, [*chosen, *targets, *groups, *weights]),
            partial(check_texts, table, rows.select([*chosen, *targets])),
            partial(check_inputs, rows, [name for name in chosen if name not in problems], strict, table),
            *([partial(outputs_of, rows, sound, kind, table)] if sound else []),
        )
        x, keep = without_missing(rows.select(chosen), None, drop_missing, strict, table)
        check_kept(len(x), table)
        y = outputs_of(rows.rows(keep), targets, kind, table)
        # Printed before the training: who meant something else need not wait for it.
        _say_understood(x, y, targets, kind is NPClassifier)
        _say_dropped(keep, drop_missing)
        _say_left_out(y, targets, task == "auto" and kind is NPRegressor and len(targets) == 1)
        how: dict[str, Any] = {"refine": refine, "effort": effort, "n_replicas": replicas, "max_steps": steps}
        how |= {"missing": "refuse" if strict else "impute", "random_state": seed}
        estimator = kind(model, **how, device=device, verbose=True)
        by = _held_out_by(rows.rows(keep), groups if one_table else [], time, table)
        by |= {"sample_weight": full_column("--weight", weight, rows.rows(keep), table)} if weight else {}
        _learn(estimator, x, y, targets, rows.rows(keep).select([] if one_table else groups), by)
    estimator.target_names_ = tuple(targets)
    what = "Groups" if groups and not one_table else "Rows"
    _save_and_show(estimator, out, f"{what} of {table.name} that were held out")


def predict(
    model: ModelFolder,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="CSV or Parquet for the predictions.")],
    coverage: Annotated[float, typer.Option(help="Share that the interval should hold.")] = 0.9,
    context: Context = None,
    group: Group = None,
    keep: Annotated[str | None, typer.Option(help="Columns to copy into the predictions, as an id.")] = None,
    drop_missing: DropMissing = False,
    strict: Strict = False,
    device: Device = "auto",
) -> None:
    """Predict the rows of a table: mean, spread and interval, or label and probabilities.

    With --context they are predicted from the rows of that table; with --group as well, each group from its own.
    """
    from dsvnp.cli.table_rows import Asked, read_known
    from dsvnp.tabular.base import BaseNP
    from dsvnp.tabular.table_files import STANDARD
    from dsvnp.tabular.table_writing import check_suffix

    check_suffix(out)
    _spare_the_table(out, table, "--out")
    estimator = BaseNP.load(model, device)
    with _spoken_warnings():
        known = None if context is None else read_known(estimator, context)
        asked = Asked(table, known, group, keep, coverage, drop_missing, strict)
        there = _write_answers(estimator, asked, out)
    if str(out) != STANDARD:
        _say_dropped(there, drop_missing)
        _say(f"{there.sum()} predictions are in ", out, ".")


def _write_answers(estimator: BaseNP, asked: Asked, out: Path) -> Array:
    """Write predictions as they come, and return which rows have one."""
    import numpy as np

    from dsvnp.cli.table_rows import answers
    from dsvnp.tabular.table_files import PARQUET
    from dsvnp.tabular.table_writing import TableWriter, without_formulas

    parts = answers(estimator, asked)
    first = next(parts)
    is_text = out.suffix.lower() not in PARQUET
    there = []
    with TableWriter(out, first.names) as writer:
        for part in chain([first], parts):
            # A label is a text of whoever made the model, and no formula for a spreadsheet to compute.
            writer.add(list(map(without_formulas, part.columns)) if is_text else part.columns)
            there.append(part.there)
    return np.concatenate(there)


def evaluate(
    model: ModelFolder,
    table: TableFile,
    plot: Annotated[Path | None, typer.Option(help="PNG for a calibration plot.")] = None,
    context: Context = None,
    group: Group = None,
    drop_missing: DropMissing = False,
    strict: Strict = False,
    device: Device = "auto",
) -> None:
    """Measure a model on a table whose targets are known, next to a mean predictor and ridge.

    With --context rows are predicted from those of that table; with --group as well, each group from its own.
    """
    from dsvnp.cli.table_rows import (
        all_at_once,
        check_cells,
        check_columns,
        check_kept,
        inputs_of,
        without_missing,
    )
    from dsvnp.cli.targets import known_outputs, left_out, outputs_of, texts_for
    from dsvnp.tabular.base import BaseNP
    from dsvnp.tabular.summary import calibration_plot
    from dsvnp.tabular.table_files import Problems, read_table

    if plot is not None:
        _check_plot(plot, table)
    estimator = BaseNP.load(model, device)
    with _spoken_warnings():
        problems: Problems = {}
        rows = read_table(table, texts_for(estimator), problems)
        targets = list(estimator.target_names_)
        all_at_once(
            partial(check_cells, problems, [*targets, *getattr(estimator, "feature_names_in_", [])]),
            partial(check_columns, targets, rows, table, "was fitted to predict"),
            partial(inputs_of, estimator, rows, table),
        )
        inputs = inputs_of(estimator, rows, table)
        inputs, keep = without_missing(inputs, estimator.encoding_, drop_missing, strict, table)
        check_kept(len(inputs), table)
        outputs = outputs_of(rows.rows(keep), targets, type(estimator), table, learn=False)
        known = known_outputs(outputs)
        if not known:
            raise ValueError(
                f"{table}: {', '.join(targets)} is known in no row; there is nothing to measure by"
            )
        parts = _contexts(estimator, rows.rows(keep), context, group, table)
        found = estimator.evaluate_tasks((inputs.rows(some), outputs[some], pair) for some, pair in parts)
    _say_dropped(keep, drop_missing)
    typer.echo(shown(left_out(outputs, targets)))
    _show(found.summary, f"{known} rows of {table.name}", targets)
    if found.classes is not None:
        _print_table(found.classes, "Each class against all others")
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(plot, calibration_plot(found.calibration, table.name))
        _say("A calibration plot is in ", plot, ".")


def _contexts(
    estimator: BaseNP, rows: Columns, context: Path | None, group: str | None, table: Path
) -> list[tuple[Array, Any]]:
    """Which rows are predicted together, and from what."""
    from dsvnp.cli.table_rows import contexts, read_known

    known = None if context is None else read_known(estimator, context)
    return contexts(estimator, rows, known, group, table)


def _check_held_out(group: str | None, one_table: bool, time: str | None, weight: str | None) -> None:
    """Refuse options of which one says nothing without, or with, another."""
    if one_table and not group:
        raise ValueError(
            "--one-table says how to treat groups, got no --group; name the column, or leave it out"
        )
    if time and group:
        raise ValueError("rows are held out by --group or by --time, got both; choose one")
    if weight and group and not one_table:
        raise ValueError("--weight weighs rows of one table, got --group; add --one-table, or leave it out")


def _held_out_by(rows: Columns, groups: Sequence[str], time: str | None, table: Path) -> dict[str, Any]:
    """What `fit` is told of the rows that are to be held out together."""
    from dsvnp.cli.table_rows import full_column
    from dsvnp.tabular.columns import texts_of

    by: dict[str, Any] = {"groups": texts_of(rows[groups[0]])} if groups else {}
    return by | ({"time": full_column("--time", time, rows, table, dates=True)} if time else {})


def _check_out(out: Path) -> None:
    """Refuse a folder for a model that cannot be written, or that holds something else."""
    from dsvnp.tabular.saving import may_hold

    if not may_hold(out):
        raise ValueError(f"{out} is there and holds no model; choose another --out")
    folder = next(parent for parent in out.resolve().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"--out {out}: nothing can be written into {folder}; choose another place")


def _say_understood(x: Columns, y: Array, targets: Sequence[str], has_classes: bool) -> None:
    """Print what the columns are taken for; refuse targets whose predictions would have the same name."""
    from dsvnp.cli.targets import prediction_names, understood
    from dsvnp.tabular.encoding import Encoding

    classes = sorted({label for label in y.tolist() if label is not None}) if has_classes else None
    prediction_names(targets, classes)
    typer.echo(shown(understood(Encoding.fit(x), targets, classes)))


def _say_left_out(y: Array, targets: Sequence[str], maybe_codes: bool) -> None:
    """Print how many rows lack a target, and a hint where numbers may be codes of classes."""
    from dsvnp.cli.targets import hint_of_classes, left_out

    typer.echo(shown(left_out(y, targets)))
    if hint := hint_of_classes(targets[0], y) if maybe_codes else None:
        typer.echo(shown(hint))


def _learn(
    estimator: BaseNP, x: Columns, y: Array, targets: Sequence[str], groups: Columns, by: dict[str, Any]
) -> None:
    """Fit an estimator to a table or, if there is a column of groups, to one table per group."""
    from dsvnp.cli.table_rows import named, tasks_of

    if not groups.columns:
        estimator.fit(x, named(y, targets), **by)
        return
    tasks = tasks_of(x, y, targets, groups.arrays[0])
    typer.echo(shown(f"{len(tasks)} groups by {groups.columns[0]}"))
    estimator.fit_tasks(tasks)


def _save_and_show(estimator: BaseNP, out: Path, title: str) -> None:
    """Save a fitted model with its calibration plot, and print how well it predicted what was held out."""
    from dsvnp.tabular.saving import PLOT
    from dsvnp.tabular.summary import calibration_plot

    targets = estimator.target_names_
    estimator.save(out)  # before anything else that could fail
    plot = calibration_plot(estimator.ensemble_.calibration, f"{', '.join(targets)[:40]}, rows held out")
    write_atomically(out / PLOT, plot)
    _show(estimator.validation_, title, targets)
    _say("The model is in ", out, f", with a calibration plot. {estimator.how_it_predicts}.")


def _check_plot(plot: Path, table: Path) -> None:
    """Refuse a name that is not a picture's, before anything is computed."""
    if plot.suffix.lower() != ".png":
        raise ValueError(f"--plot {plot}: expected a name that ends in .png, got {plot.suffix!r}")
    if plot.is_dir():
        raise ValueError(f"--plot {plot} is a folder; choose another name for the picture")
    _spare_the_table(plot, table, "--plot")


def _spare_the_table(path: Path, table: Path, option: str) -> None:
    """Refuse to write over the table that is read."""
    if path.exists() and table.exists() and path.samefile(table):
        raise ValueError(f"{option} {path} is the table itself, which would be lost; choose another name")


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (fit, predict, evaluate):
        app.command()(command)


def _say_dropped(keep: Array, drop: bool) -> None:
    """Say how many rows `--drop-missing` left out."""
    if drop:
        count = int((~keep).sum())
        typer.echo(f"{len(keep)} rows, {count or 'none'} left out because an input is missing")


def _show(summary: Summary, title: str, targets: Sequence[str]) -> None:
    """Print a summary as a table, and the errors of several targets as another."""
    from dsvnp.tabular.summary import as_text, errors_as_text

    _print_table(as_text(summary), title)
    if len(targets) > 1:
        _print_table(errors_as_text(summary, targets), "Root mean squared errors, each in its target's unit")


def _print_table(cells: list[list[str]], title: str) -> None:
    """Print rows of text, the header first."""
    header, *lines = cells
    # As `Text`: in a name, brackets are no markup.
    table = Table(title=Text(shown(title)), title_justify="left")
    for name in header:
        table.add_column(Text(shown(name)), justify="left" if name in ("", "class") else "right")
    for line in lines:
        table.add_row(*(Text(shown(cell)) for cell in line))
    Console().print(table)


def _say(before: str, path: Path, after: str) -> None:
    """Print where something is; a path is no markup."""
    Console().print(Text.assemble(before, (shown(path), "bold"), after))


@contextmanager
def _spoken_warnings() -> Iterator[None]:
    """Say warnings in a line each, without the place in the code that they come from."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(shown(f"dsvnp: warning: {message}"), err=True)
