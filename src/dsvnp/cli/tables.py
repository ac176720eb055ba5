"""`dsvnp fit`, `dsvnp predict`, `dsvnp evaluate`: the command line on a person's own tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsvnp.cli import table_messages as messages
from dsvnp.cli.options import Device, LogDir, Wait
from dsvnp.files import write_atomically
from dsvnp.naming import lookup, shown

if TYPE_CHECKING:
    from dsvnp.cli.table_answers import Asked
    from dsvnp.tabular.base import BaseNP
    from dsvnp.tabular.columns import Array, Columns

TableFile = Annotated[Path, typer.Argument(help="CSV or Parquet with a header.")]
ModelFolder = Annotated[Path, typer.Argument(help="Folder that `dsvnp fit` wrote.")]

Strict = Annotated[bool, typer.Option("--strict", help="Refuse missing inputs instead of filling them in.")]
Group = Annotated[
    str | None, typer.Option(help="Column that says which rows belong together: sensors, patients, machines.")
]
Context = Annotated[
    Path | None, typer.Option(help="Known rows of the task to predict from, for a model fitted with --group.")
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
    wait: Wait = False,
) -> None:
    """Fit a model to a table and say how well it predicts rows that it has not seen.

    With --group each group is a table of its own, and the model predicts a new one from some of its rows.
    """
    from dsvnp.cli import table_rows
    from dsvnp.cli.targets import outputs_of
    from dsvnp.models import MODELS
    from dsvnp.tabular import NPClassifier, NPRegressor
    from dsvnp.tabular.rows.memory import check_file
    from dsvnp.tabular.saved.saving import alone_in
    from dsvnp.tabular.trained.recipe import AUTO, EFFORTS
    from dsvnp.training.hooks import tensorboard

    kinds = {"auto": None, "regression": NPRegressor, "classification": NPClassifier}
    _check_held_out(group, one_table, time, weight)
    lookup(model, {AUTO: None, **MODELS}, "model")
    lookup(effort, EFFORTS, "effort")
    lookup(task, kinds, "task")
    messages.check_out(out)
    check_file(table)
    with messages.spoken_warnings(), tensorboard(log_dir):
        rows, problems = table_rows.read_noted(table)
        targets = table_rows.column_names(target, rows, table)
        groups = table_rows.column_names(group, rows, table) if group else []
        others = [*targets, *groups, *([weight] if weight else [])]
        chosen = table_rows.chosen_columns(inputs, exclude, others, rows, table)
        kind = kinds[task] or (NPRegressor if rows[targets[0]].dtype.kind == "f" else NPClassifier)
        table_rows.check_learnable(rows, chosen, targets, kind, strict, table, problems)
        x, keep = table_rows.without_missing(rows.select(chosen), None, drop_missing, strict, table)
        table_rows.check_kept(len(x), table)
        y = outputs_of(rows.rows(keep), targets, kind, table)
        # Printed before the training: who meant something else need not wait for it.
        messages.say_understood(x, y, targets, kind is NPClassifier)
        messages.say_dropped(keep, drop_missing)
        messages.say_left_out(y, targets, task == "auto" and kind is NPRegressor and len(targets) == 1)
        how: dict[str, Any] = {"refine": refine, "effort": effort, "n_replicas": replicas, "max_steps": steps}
        how |= {"missing": "refuse" if strict else "impute", "random_state": seed}
        estimator = kind(model, **how, device=device, verbose=True)
        by = _told_of_rows(rows.rows(keep), groups if one_table else [], time, weight, table)
        with alone_in(out, wait, lambda line: typer.echo(shown(line))):
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
    from dsvnp.cli.table_answers import Asked, read_known
    from dsvnp.tabular.base import BaseNP
    from dsvnp.tabular.files.table_files import STANDARD
    from dsvnp.tabular.files.table_writing import check_suffix

    check_suffix(out)
    messages.spare_the_table(out, table, "--out")
    estimator = BaseNP.load(model, device)
    with messages.spoken_warnings():
        known = None if context is None else read_known(estimator, context)
        asked = Asked(table, known, group, keep, coverage, drop_missing, strict)
        there = _write_answers(estimator, asked, out)
    if str(out) != STANDARD:
        messages.say_dropped(there, drop_missing)
        messages.say(f"{there.sum()} predictions are in ", out, ".")


def _write_answers(estimator: BaseNP, asked: Asked, out: Path) -> Array:
    """Write predictions as they come, and return which rows have one."""
    import numpy as np

    from dsvnp.cli.table_answers import answers
    from dsvnp.tabular.files.table_files import PARQUET
    from dsvnp.tabular.files.table_writing import TableWriter, without_formulas

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
    from dsvnp.cli import table_answers, table_rows
    from dsvnp.cli.targets import known_outputs, left_out, outputs_of, texts_for
    from dsvnp.tabular.base import BaseNP
    from dsvnp.tabular.summary import calibration_plot

    if plot is not None:
        messages.check_plot(plot, table)
    estimator = BaseNP.load(model, device)
    with messages.spoken_warnings():
        rows, problems = table_rows.read_noted(table, texts_for(estimator))
        targets = list(estimator.target_names_)
        inputs = table_rows.inputs_of(estimator, rows, table, problems, targets)
        inputs, keep = table_rows.without_missing(inputs, estimator.encoding_, drop_missing, strict, table)
        table_rows.check_kept(len(inputs), table)
        outputs = outputs_of(rows.rows(keep), targets, type(estimator), table, learn=False)
        known = known_outputs(outputs)
        if not known:
            raise ValueError(
                f"{table}: {', '.join(targets)} is known in no row; there is nothing to measure by"
            )
        given = None if context is None else table_answers.read_known(estimator, context)
        parts = table_answers.contexts(estimator, rows.rows(keep), given, group, table)
        found = estimator.evaluate_tasks((inputs.rows(some), outputs[some], pair) for some, pair in parts)
    messages.say_dropped(keep, drop_missing)
    typer.echo(shown(left_out(outputs, targets)))
    messages.show(found.summary, f"{known} rows of {table.name}", targets)
    if found.classes is not None:
        messages.print_table(found.classes, "Each class against all others")
    if found.advice:
        typer.echo(f"{found.advice}.")
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(plot, calibration_plot(found.calibration, table.name))
        messages.say("A calibration plot is in ", plot, ".")


def _check_held_out(group: str | None, one_table: bool, time: str | None, weight: str | None) -> None:
    """Refuse options that need, or exclude, another one."""
    if one_table and not group:
        raise ValueError(
            "--one-table says how to treat groups, got no --group; name the column, or leave it out"
        )
    if time and group:
        raise ValueError("rows are held out by --group or by --time, got both; choose one")
    if weight and group and not one_table:
        raise ValueError("--weight weighs rows of one table, got --group; add --one-table, or leave it out")


def _told_of_rows(
    rows: Columns, groups: Sequence[str], time: str | None, weight: str | None, table: Path
) -> dict[str, Any]:
    """What `fit` is told of the rows: which are to be held out together, and how much they count."""
    from dsvnp.cli.table_rows import full_column
    from dsvnp.tabular.columns import texts_of

    by: dict[str, Any] = {"groups": texts_of(rows[groups[0]])} if groups else {}
    by |= {"time": full_column("--time", time, rows, table, dates=True)} if time else {}
    return by | ({"sample_weight": full_column("--weight", weight, rows, table)} if weight else {})


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
    from dsvnp.tabular.saved.content import content_of
    from dsvnp.tabular.saved.saving import PLOT, replace
    from dsvnp.tabular.summary import calibration_plot

    targets = estimator.target_names_
    replace(out.resolve(), *content_of(estimator))  # before anything else that could fail
    plot = calibration_plot(estimator.ensemble_.calibration, f"{', '.join(targets)[:40]}, rows held out")
    write_atomically(out / PLOT, plot)
    messages.show(estimator.validation_, title, targets)
    messages.say("The model is in ", out, f", with a calibration plot. {estimator.how_it_predicts}.")
