"""Answers of `dsvnp predict`: rows of a file, part by part, and from which known rows each is predicted."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsvnp.cli import table_rows
from dsvnp.cli.targets import outputs_of, prediction_names, texts_for
from dsvnp.tabular import NPClassifier
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.columns import Array, Columns, texts_of
from dsvnp.tabular.distribution import ends_of
from dsvnp.tabular.files.table_files import Problems, parts_of_table

PART = 20_000  # rows of a file that are predicted before the next are read


class Known(NamedTuple):
    """The rows of a file whose outputs are known."""

    rows: Columns
    outputs: Array
    path: Path


def read_known(estimator: BaseNP, path: Path) -> Known:
    """Read the rows to predict from."""
    rows, problems = table_rows.read_noted(path, texts_for(estimator))
    targets = list(estimator.target_names_)
    table_rows.inputs_of(estimator, rows, path, problems, targets)
    return Known(rows, outputs_of(rows, targets, type(estimator), path, learn=False), path)


def predict_rows(estimator: BaseNP, rows: Columns, coverage: float, context: Any = None) -> list[Array]:
    """Mean, spread and interval of each target, or label and probabilities, and how strange rows are, in one pass.

    The columns are in the order of `prediction_names`.
    """
    interval = ends_of(coverage)
    found: Any = estimator.predict_dist(rows, context, keep=False)
    if isinstance(estimator, NPClassifier):
        probs, strangeness = found.reduce(lambda p, _: p.mean[0], found.strangeness)
        return [estimator.classes_[probs.argmax(1)], *probs.T, strangeness]
    mean, std, ends, strangeness = found.reduce(
        lambda p, _: p.mean[0], lambda p, _: p.stddev[0], interval, found.strangeness
    )
    stacked = np.concatenate([mean[..., None], std[..., None], ends], -1)  # [rows, targets, 4]
    return [*stacked.reshape(len(rows), -1).T, strangeness]


class Asked(NamedTuple):
    """What `dsvnp predict` is asked for."""

    table: Path
    known: Known | None  # the rows to predict from; None are those of the fit
    group: str | None
    keep: str | None  # columns to copy
    coverage: float
    drop_missing: bool
    strict: bool


class PredictedPart(NamedTuple):
    """Predictions of some rows."""

    names: list[str]
    columns: list[Array]
    there: Array  # which rows are predicted; the others lack an input


def answers(estimator: BaseNP, asked: Asked) -> Iterator[PredictedPart]:
    """Predict a file part by part: what is in memory does not grow with it."""
    num_kept = 0
    problems: Problems = {}
    for part in parts_of_table(asked.table, texts_for(estimator), PART, problems):
        answer = _answer(estimator, part, asked, problems)
        num_kept += int(answer.there.sum())
        yield answer
    table_rows.check_kept(num_kept, asked.table)


def _answer(estimator: BaseNP, whole: Columns, asked: Asked, problems: Problems) -> PredictedPart:
    """Predict one part, unless there are problems with its cells."""
    path, known = asked.table, asked.known
    copied = table_rows.column_names(asked.keep, whole, path) if asked.keep else []
    names = prediction_names(estimator.target_names_, getattr(estimator, "classes_", None))
    if both := [name for name in copied if name in names]:
        raise ValueError(f"--keep {', '.join(both)}: a column of the predictions has that name; rename it")
    table_rows.check_cells(problems, copied)
    inputs = table_rows.inputs_of(estimator, whole, path, problems)
    rows, there = table_rows.without_missing(
        inputs, estimator.encoding_, asked.drop_missing, asked.strict, path
    )
    columns: list[Array] = [there[:0]] * len(names)
    if there.any():
        parts = contexts(estimator, whole.rows(there), known, asked.group, path)
        columns = predict_groups(estimator, rows, parts, asked.coverage)
    kept = [written(whole[name]) for name in copied]
    return PredictedPart([*copied, *names], [*kept, *(in_place(values, there) for values in columns)], there)


def contexts(
    estimator: BaseNP, whole: Columns, known: Known | None, group: str | None, path: Path
) -> list[tuple[Array, Any]]:
    """Which rows of a table are predicted together, and from what: the known rows of their group, or all of them.

    A group of which nothing is known is predicted from no row at all; without known rows the estimator has its own.
    """
    everything = np.arange(len(whole))
    if known is None:
        return [(everything, None)]
    inputs = table_rows.inputs_of(estimator, known.rows, known.path, {})
    if group is None:
        return [(everything, (inputs, known.outputs))]
    table_rows.check_columns([group], whole, path, "is to be grouped by (--group)")
    table_rows.check_columns([group], known.rows, known.path, "is to be grouped by (--group)")
    here, there = (np.array(texts_of(table[group])) for table in (whole, known.rows))
    out: list[tuple[Array, Any]] = []
    for name in dict.fromkeys(here.tolist()):
        given = np.flatnonzero(there == name)
        pair = (inputs.rows(given), known.outputs[given]) if len(given) else None
        out.append((np.flatnonzero(here == name), pair))
    return out


def predict_groups(
    estimator: BaseNP, rows: Columns, parts: Sequence[tuple[Array, Any]], coverage: float
) -> list[Array]:
    """Predict rows part by part, see `contexts`."""
    out: list[Array] = []
    for asked, pair in parts:
        found = predict_rows(estimator, rows.rows(asked), coverage, pair)
        out = out or [np.empty(len(rows), dtype=object) for _ in found]
        for column, values in zip(out, found, strict=True):
            column[asked] = values.tolist()
    return out


def in_place(values: Array, keep: Array) -> Array:
    """Predictions of the rows that were kept among empty cells: line for line the table that was asked with."""
    out = np.full(len(keep), None, dtype=object)
    out[keep] = values.tolist()
    return out


def written(values: Array) -> Array:
    """A column of the table as it is written again; dates without a time as days."""
    if values.dtype.kind == "M":
        days = values.astype("datetime64[D]")
        values = np.where(
            np.isnat(values), "", (days if (days == values)[~np.isnat(values)].all() else values).astype(str)
        )
    return np.array(texts_of(values), dtype=object)
