"""`dsvnp fit`, `dsvnp predict`, `dsvnp evaluate`: the command line on a person's own tables."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from dsvnp.estimators import NPClassifier, NPRegressor
from dsvnp.estimators.base import BaseNP
from dsvnp.estimators.columns import Columns
from dsvnp.estimators.files import check_suffix, read_table, write_table
from dsvnp.estimators.plots import calibration_plot
from dsvnp.estimators.saving import RECORD, load
from dsvnp.estimators.summary import Summary, as_text, calibration_of, summarise
from dsvnp.models import MODELS
from dsvnp.naming import lookup, unknown

TASKS = {"auto": None, "regression": NPRegressor, "classification": NPClassifier}

TableFile = Annotated[Path, typer.Argument(help="CSV or Parquet with a header.")]
ModelFolder = Annotated[Path, typer.Argument(help="Folder that `dsvnp fit` wrote.")]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu or cuda.")]


def fit(
    table: TableFile,
    target: Annotated[str, typer.Option(help="Columns to predict, with commas between them.")],
    out: Annotated[Path, typer.Option(help="Folder for the fitted model.")],
    model: Annotated[str, typer.Option(help=f"Which model: {', '.join(MODELS)}.")] = "dsvnp",
    inputs: Annotated[
        str | None, typer.Option(help="Columns to predict from; all others by default.")
    ] = None,
    task: Annotated[str, typer.Option(help="auto, regression or classification.")] = "auto",
    replicas: Annotated[int, typer.Option(min=1, help="Members of the ensemble.")] = 5,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps, at most.")] = None,
    seed: Annotated[int, typer.Option(help="Decides all that is random.")] = 0,
    device: Device = "auto",
) -> None:
    """Fit a model to a table and say how well it predicts rows that it has not seen."""
    lookup(model, MODELS, "model")
    lookup(task, TASKS, "task")
    if out.exists() and not (out / RECORD).is_file():
        raise ValueError(f"{out} is there and holds no model; choose another --out")
    with _spoken_warnings():
        rows = read_table(table)
        targets = _names(target, rows, table)
        chosen = (
            _names(inputs, rows, table) if inputs else [name for name in rows.columns if name not in targets]
        )
        if not chosen or set(chosen) & set(targets):
            raise ValueError(
                f"{table}: no column is left to predict from, or one is input and target; see --inputs"
            )
        kind = TASKS[task] or (NPRegressor if rows[targets[0]].dtype.kind == "f" else NPClassifier)
        y = _outputs(rows, targets, kind, table)
        settings: dict[str, Any] = {"n_replicas": replicas, "max_steps": steps, "device": device}
        estimator = kind(model, **settings, random_state=seed, verbose=True)
        estimator.fit(rows.select(chosen), y)
    estimator.target_names_ = tuple(targets)
    plot = calibration_plot(estimator.ensemble_.calibration, f"{', '.join(targets)[:40]}, rows held out")
    estimator.save(out)
    (out / "calibration.png").write_bytes(plot)
    _show(estimator.validation_, f"Rows of {table.name} that were held out")
    Console().print(f"The model is in [bold]{out}[/bold], a calibration plot beside it.")


def predict(
    model: ModelFolder,
    table: TableFile,
    out: Annotated[Path, typer.Option(help="CSV or Parquet for the predictions.")],
    coverage: Annotated[float, typer.Option(help="Share that the interval should hold.")] = 0.9,
    device: Device = "auto",
) -> None:
    """Predict the rows of a table: mean, spread and interval, or label and probabilities."""
    check_suffix(out)
    estimator = load(model, device)
    with _spoken_warnings():
        rows = _inputs(estimator, read_table(table), table)
        columns: dict[str, Any] = {}
        if isinstance(estimator, NPRegressor):
            mean, std = estimator.predict(rows, return_std=True)
            low, high = estimator.predict_interval(rows, coverage)
            for index, name in enumerate(estimator.target_names_):
                for ending, values in (("", mean), ("_std", std), ("_low", low), ("_high", high)):
                    columns[name + ending] = values if values.ndim == 1 else values[:, index]
        else:
            assert isinstance(estimator, NPClassifier)
            probs = estimator.predict_proba(rows)
            columns[estimator.target_names_[0]] = estimator.classes_[probs.argmax(1)]
            columns |= {f"p_{label}": probs[:, i] for i, label in enumerate(estimator.classes_)}
        columns["ood_score"] = estimator.ood_score(rows)
    write_table(out, list(columns), list(columns.values()))
    Console().print(f"{len(rows)} predictions are in [bold]{out}[/bold].")


def evaluate(
    model: ModelFolder,
    table: TableFile,
    plot: Annotated[Path | None, typer.Option(help="PNG for a calibration plot.")] = None,
    device: Device = "auto",
) -> None:
    """Measure a model on a table whose targets are known, beside a mean predictor and ridge."""
    estimator = load(model, device)
    with _spoken_warnings():
        rows = read_table(table)
        targets = _names(",".join(estimator.target_names_), rows, table)
        x, y = estimator._read_pair(
            _inputs(estimator, rows, table),
            _outputs(rows, targets, type(estimator), table, learn=False),
            reset=False,
        )
    if not len(x):
        raise ValueError(f"{table}: {', '.join(targets)} is known in no row; there is nothing to measure by")
    ensemble, y = estimator.ensemble_, y.to(estimator.ensemble_.device)
    predictive = ensemble.predict(estimator.context_, x, estimator.n_draws, estimator.noise_seed_)
    _show(
        summarise({"neural process": predictive, **ensemble.baselines(x)}, y),
        f"{len(x)} rows of {table.name}",
    )
    if plot is not None:
        temporary = plot.with_name(f".writing-{plot.name}")
        plot.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(calibration_plot(calibration_of(predictive, y).cpu(), table.name))
        os.replace(temporary, plot)


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (fit, predict, evaluate):
        app.command()(command)


def _names(text: str, rows: Columns, path: Path) -> list[str]:
    """Columns a user names, all of which must be there."""
    names = [name.strip() for name in text.split(",")] if text not in rows.columns else [text]
    for name in names:
        if name not in rows.columns:
            raise ValueError(unknown(name, rows.columns, f"column of {path}"))
    return names


def _inputs(estimator: BaseNP, rows: Columns, path: Path) -> Columns:
    """The columns a model was fitted to, in its order; others do not matter."""
    names = list(getattr(estimator, "feature_names_in_", []))
    for name in names:
        if name not in rows.columns:
            raise ValueError(f"{path} has no column {name!r}, which the model was fitted with")
    return rows.select(names)


def _outputs(
    rows: Columns, targets: list[str], kind: type[BaseNP], path: Path, learn: bool = True
) -> np.ndarray[Any, Any]:
    """The target columns; with `learn`, refuse what nothing can be learned from."""
    columns = [rows[name] for name in targets]
    if kind is NPClassifier:
        return _labels(columns, targets, path)
    for name, values in zip(targets, columns, strict=True):
        if values.dtype.kind != "f":
            raise ValueError(
                f"{path}: target {name!r} holds texts ({values[0]!r} at {rows.place(0)}); predict "
                "it alone, as a class"
            )
        known = values[~np.isnan(values)]
        if learn and len(known) < 2:
            raise ValueError(
                f"{path}: target {name!r} is known in {len(known)} row(s); a fit needs at least 2"
            )
        if learn and (known == known[0]).all():
            raise ValueError(
                f"{path}: target {name!r} is {known[0]:g} in every row; there is nothing to learn"
            )
    return columns[0] if len(columns) == 1 else np.stack(columns, 1)


def _labels(columns: list[Any], targets: list[str], path: Path) -> np.ndarray[Any, Any]:
    """One column of labels; an empty cell is a missing one."""
    if len(columns) > 1:
        raise ValueError(f"{path}: classes are predicted one column at a time, got {', '.join(targets)}")
    (values,) = columns
    if values.dtype.kind == "f":
        whole = values == np.round(values)
        if not (whole | np.isnan(values)).all():
            raise ValueError(
                f"{path}: target {targets[0]!r} holds fractions, which are no classes; use --task regression"
            )
        return np.array([None if np.isnan(v) else str(int(v)) for v in values.tolist()], dtype=object)
    return np.array([value or None for value in values.tolist()], dtype=object)


def _show(summary: Summary, title: str) -> None:
    """Print a summary as a table."""
    header, *lines = as_text(summary)
    table = Table(title=title, title_justify="left")
    for name in header:
        table.add_column(name, justify="left" if not name else "right")
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
