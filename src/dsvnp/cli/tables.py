"""`dsvnp fit`, `dsvnp predict`, `dsvnp evaluate`: the command line on a person's own tables."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from dsvnp.cli.options import Device
from dsvnp.cli.targets import (
    hint_of_classes,
    known_outputs,
    left_out,
    outputs_of,
    prediction_names,
    texts_for,
    understood,
)
from dsvnp.models import MODELS
from dsvnp.naming import lookup, unknown
from dsvnp.tabular import NPClassifier, NPRegressor
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.columns import Array, Columns, Encoding, texts_of
from dsvnp.tabular.distribution import ends_of
from dsvnp.tabular.recipe import AUTO, EFFORTS
from dsvnp.tabular.saving import PLOT, may_hold
from dsvnp.tabular.summary import Summary, as_text, calibration_plot, errors_as_text
from dsvnp.tabular.table_files import check_suffix, check_texts, read_table, write_table

TASKS = {"auto": None, "regression": NPRegressor, "classification": NPClassifier}

TableFile = Annotated[Path, typer.Argument(help="CSV or Parquet with a header.")]
ModelFolder = Annotated[Path, typer.Argument(help="Folder that `dsvnp fit` wrote.")]

DropMissing = Annotated[
    bool, typer.Option("--drop-missing", help="Leave rows out in which an input number is missing.")
]


def fit(
    table: TableFile,
    target: Annotated[str, typer.Option(help="Columns to predict, with commas between them.")],
    out: Annotated[Path, typer.Option(help="Folder for the fitted model.")],
    model: Annotated[str, typer.Option(help=f"Which model: auto, {', '.join(MODELS)}.")] = AUTO,
    inputs: Annotated[
        str | None, typer.Option(help="Columns to predict from; all but the targets by default.")
    ] = None,
    exclude: Annotated[str | None, typer.Option(help="Columns not to predict from: dates, ids.")] = None,
    task: Annotated[str, typer.Option(help="auto, regression or classification.")] = "auto",
    effort: Annotated[str, typer.Option(help="How long to train: fast, balanced or thorough.")] = "balanced",
    replicas: Annotated[int | None, typer.Option(min=1, help="Members of the ensemble.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps, at most.")] = None,
    seed: Annotated[int, typer.Option(help="Decides all that is random.")] = 0,
    drop_missing: DropMissing = False,
    device: Device = "auto",
) -> None:
    """Fit a model to a table and say how well it predicts rows that it has not seen."""
    lookup(model, {AUTO: None, **MODELS}, "model")
    lookup(effort, EFFORTS, "effort")
    lookup(task, TASKS, "task")
    if not may_hold(out):
        raise ValueError(f"{out} is there and holds no model; choose another --out")
    folder = next(parent for parent in out.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"--out {out}: nothing can be written into {folder}; choose another place")
    with _spoken_warnings():
        rows = read_table(table)
        targets = _names(target, rows, table)
        chosen = _chosen(inputs, exclude, targets, rows, table)
        check_texts(table, rows.select([*chosen, *targets]))
        kind = TASKS[task] or (NPRegressor if rows[targets[0]].dtype.kind == "f" else NPClassifier)
        x, keep = _without_missing(rows.select(chosen), None, drop_missing, table)
        y = outputs_of(rows.rows(keep), targets, kind, table)
        classes = (
            None if kind is NPRegressor else sorted({label for label in y.tolist() if label is not None})
        )
        prediction_names(targets, classes)  # refuses those that clash
        # Said before the training, which whoever meant something else need not wait for.
        typer.echo(understood(Encoding.fit(x), targets, classes))
        _say_dropped(keep, drop_missing)
        typer.echo(left_out(y, targets))
        codes = task == "auto" and kind is NPRegressor and len(targets) == 1
        if hint := hint_of_classes(targets[0], y) if codes else None:
            typer.echo(hint)
        settings: dict[str, Any] = {"effort": effort, "n_replicas": replicas, "max_steps": steps}
        estimator = kind(model, **settings, device=device, random_state=seed, verbose=True)
        # Several targets come with their names; one alone is a column, and its predictions are.
        estimator.fit(x, y if y.ndim == 1 else Columns(tuple(targets), tuple(y.T)))
    estimator.target_names_ = tuple(targets)
    plot = calibration_plot(estimator.ensemble_.calibration, f"{', '.join(targets)[:40]}, rows held out")
    estimator.save(out)
    (out / PLOT).write_bytes(plot)
    _show(estimator.validation_, f"Rows of {table.name} that were held out", targets)
    best = ", ".join(map(str, estimator.best_steps_))
    Console().print(
        f"The model is in [bold]{out}[/bold], a calibration plot beside it. Its members have the weights of steps {best} "
        f"of {estimator.recipe_.num_steps}."
    )


def predict(
    model: ModelFolder,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="CSV or Parquet for the predictions.")],
    coverage: Annotated[float, typer.Option(help="Share that the interval should hold.")] = 0.9,
    drop_missing: DropMissing = False,
    device: Device = "auto",
) -> None:
    """Predict the rows of a table: mean, spread and interval, or label and probabilities."""
    check_suffix(out)
    _spare_the_table(out, table, "--out")
    estimator = BaseNP.load(model, device)
    with _spoken_warnings():
        rows = _inputs(estimator, read_table(table, texts_for(estimator)), table)
        rows, keep = _without_missing(rows, estimator.encoding_, drop_missing, table)
        columns = _predictions(estimator, rows, coverage)
    names = prediction_names(estimator.target_names_, getattr(estimator, "classes_", None))
    write_table(out, names, [_in_place(values, keep) for values in columns])
    _say_dropped(keep, drop_missing)
    Console().print(f"{len(rows)} predictions are in [bold]{out}[/bold].")


def _predictions(estimator: BaseNP, rows: Columns, coverage: float) -> list[Array]:
    """Mean, spread and interval of each target, or label and probabilities, and how strange rows are, in one pass.

    The columns are in the order of `prediction_names`.
    """
    interval = ends_of(coverage)
    found = estimator.predict_dist(rows)
    if isinstance(estimator, NPClassifier):
        probs, strangeness = found.reduce(lambda p, _: p.mean[0], found.strangeness)
        return [estimator.classes_[probs.argmax(1)], *probs.T, strangeness]
    mean, std, ends, strangeness = found.reduce(
        lambda p, _: p.mean[0], lambda p, _: p.stddev[0], interval, found.strangeness
    )
    stacked = np.concatenate([mean[..., None], std[..., None], ends], -1)  # [rows, targets, 4]
    return [*stacked.reshape(len(rows), -1).T, strangeness]


def _in_place(values: Array, keep: Array) -> Array:
    """Predictions of the rows that were kept among empty cells: line for line the table that was asked with."""
    out = np.full(len(keep), None, dtype=object)
    out[keep] = values.tolist()
    return out


def evaluate(
    model: ModelFolder,
    table: TableFile,
    plot: Annotated[Path | None, typer.Option(help="PNG for a calibration plot.")] = None,
    drop_missing: DropMissing = False,
    device: Device = "auto",
) -> None:
    """Measure a model on a table whose targets are known, beside a mean predictor and ridge."""
    if plot is not None:
        _check_plot(plot, table)
    estimator = BaseNP.load(model, device)
    with _spoken_warnings():
        rows = read_table(table, texts_for(estimator))
        targets = list(estimator.target_names_)
        _check_columns(targets, rows, table, "was fitted to predict")
        inputs = _inputs(estimator, rows, table)
        inputs, keep = _without_missing(inputs, estimator.encoding_, drop_missing, table)
        outputs = outputs_of(rows.rows(keep), targets, type(estimator), table, learn=False)
        known = known_outputs(outputs)
        if not known:
            raise ValueError(
                f"{table}: {', '.join(targets)} is known in no row; there is nothing to measure by"
            )
        found = estimator.evaluate(inputs, outputs)
    _say_dropped(keep, drop_missing)
    typer.echo(left_out(outputs, targets))
    _show(found.summary, f"{known} rows of {table.name}", targets)
    if found.classes is not None:
        _print_table(found.classes, "Each class against all others")
    if plot is not None:
        temporary = plot.with_name(f".writing-{plot.name}")
        plot.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(calibration_plot(found.calibration, table.name))
        os.replace(temporary, plot)
        Console().print(f"A calibration plot is in [bold]{plot}[/bold].")


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


def _names(text: str, rows: Columns, path: Path) -> list[str]:
    """Columns a user names, all of which must be there."""
    names = [name.strip() for name in text.split(",")] if text not in rows.columns else [text]
    for name in names:
        if name not in rows.columns:
            message = unknown(name, rows.columns, f"column of {path}")
            if len(rows.columns) == 1:  # probably something else is between them
                message += " It has a single column; columns are separated by a comma, semicolon, tab or bar."
            raise ValueError(message)
        if names.count(name) > 1:
            raise ValueError(f"column {name!r} is named twice in {text!r}; once is enough")
    return names


def _chosen(
    inputs: str | None, exclude: str | None, targets: list[str], rows: Columns, path: Path
) -> list[str]:
    """Columns to predict from: those a user names, or all that are no target, without those to leave out."""
    chosen = _names(inputs, rows, path) if inputs else [name for name in rows.columns if name not in targets]
    out = _names(exclude, rows, path) if exclude else []
    chosen = [name for name in chosen if name not in out]
    if not chosen:
        raise ValueError(f"{path}: no column is left to predict from; all are targets, or excluded")
    if both := [name for name in chosen if name in targets]:
        raise ValueError(f"{path}: {', '.join(both)} is in --inputs and in --target; leave it out of one")
    return chosen


def _inputs(estimator: BaseNP, rows: Columns, path: Path) -> Columns:
    """The columns a model was fitted to, in its order; others do not matter."""
    names = list(getattr(estimator, "feature_names_in_", []))
    if not names:
        raise ValueError("the model was fitted to arrays, whose columns have no names; ask it from Python")
    _check_columns(names, rows, path, "was fitted with")
    return rows.select(names)


def _check_columns(names: Sequence[str], rows: Columns, path: Path, what: str) -> None:
    """Refuse a table that lacks a column of the model's."""
    for name in names:
        if name not in rows.columns:
            raise ValueError(f"{path} has no column {name!r}, which the model {what}")


def _without_missing(
    rows: Columns, encoding: Encoding | None, drop: bool, path: Path
) -> tuple[Columns, Array]:
    """The rows whose numbers are all there, and which those are; an empty text is a category.

    Args:
        rows: the inputs.
        encoding: what a model takes them for; None, in a fit, goes by what they look like.
        drop: leave rows out; a missing number is refused otherwise.
        path: the file.
    """
    keep = np.ones(len(rows), dtype=bool)
    taken = encoding or Encoding.fit(rows)
    for name, categories in zip(taken.names, taken.categories, strict=True):
        if categories is not None:
            continue
        values = rows[name]
        gone = np.isnan(values) if values.dtype.kind == "f" else np.array(texts_of(values)) == ""
        if gone.any() and not drop:
            column = gone.all() and encoding is None  # which a fit can do without
            remedy = "the column out with --exclude" if column else "such rows out with --drop-missing"
            raise ValueError(
                f"{path}: column {name!r} is empty in {gone.sum()} of {len(rows)} rows (first: "
                f"{rows.place(int(gone.argmax()))}); fill it in, or leave {remedy}"
            )
        keep &= ~gone
    if not keep.any():
        raise ValueError(
            f"{path}: an input is missing in every row; there is nothing left for --drop-missing to keep"
        )
    return rows.rows(keep), keep


def _say_dropped(keep: Array, drop: bool) -> None:
    """Say how many rows `--drop-missing` left out."""
    if drop:
        count = int((~keep).sum())
        typer.echo(f"{len(keep)} rows, {count or 'none'} left out because an input is missing")


def _show(summary: Summary, title: str, targets: Sequence[str]) -> None:
    """Print a summary as a table, and the errors of several targets as another."""
    _print_table(as_text(summary), title)
    if len(targets) > 1:
        _print_table(errors_as_text(summary, targets), "Root mean squared errors, each in its target's unit")


def _print_table(cells: list[list[str]], title: str) -> None:
    """Print rows of text, the header first."""
    header, *lines = cells
    table = Table(title=title, title_justify="left")
    for name in header:
        table.add_column(name, justify="left" if name in ("", "class") else "right")
    for line in lines:
        table.add_row(*line)
    Console().print(table)


@contextmanager
def _spoken_warnings() -> Iterator[None]:
    """Say warnings in a line each, without the place in the code that they come from."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(f"dsvnp: warning: {message}", err=True)
