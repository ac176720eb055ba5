"""Fitting: fold the rows, train a replica on each fold as one fleet, and learn from what they held out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from sklearn.model_selection import KFold, StratifiedKFold
from torch import Tensor

from dsvnp.predictive import CategoricalPredictive, Predictive
from dsvnp.sources.table import ManyTables, Pair, TableTasks
from dsvnp.tabular.correcting import CORRECTIONS, Answer
from dsvnp.tabular.ensemble import Ensemble, Outputs, Replica, beside
from dsvnp.tabular.recipe import Recipe
from dsvnp.tabular.scaling import ClassScaling, InputScaling, OutputScaling
from dsvnp.tabular.summary import Summary, blind, calibration_of, normal, prior_of, summarise
from dsvnp.training import Fleet, Reporter, train

MANY = 500  # rows of which a tenth is enough to stop by; of fewer, a fifth
MOST_ROWS = 1000  # held-out rows that a validation looks at, so that it costs less than the steps between two
CONTEXTS = (64, 256, 1024)  # sizes of a prediction's context that the held-out rows choose from
MOST_CONTEXT = CONTEXTS[-1]


class Question(NamedTuple):
    """Held-out rows to predict, and the context to predict them from."""

    context: Pair
    x: Tensor
    y: Tensor

    def context_of(self, size: int) -> Pair:
        """The first rows of the context."""
        return self.context[0][:size], self.context[1][:size]


@dataclass(frozen=True)
class Part:
    """What one replica learns from, and what it is asked: tables of rows in the user's units."""

    tables: list[Pair]
    questions: list[Question]

    def scalings(self, linear: bool) -> tuple[InputScaling, Outputs]:
        """Scalings of the training rows."""
        x, y = (torch.cat(column) for column in zip(*self.tables, strict=True))
        inputs = InputScaling.fit(x)
        if not y.is_floating_point():
            return inputs, ClassScaling(torch.ones(1, dtype=torch.float64))
        return inputs, OutputScaling.fit(inputs.both(x), y, linear)


def parts_of_table(x: Tensor, y: Tensor, num: int, seed: int) -> list[Part]:
    """Cut one table into folds, and give each replica all rows but a fold."""
    num_folds = min(len(x), max(num, 10 if len(x) >= MANY else 5))
    labels = None if y.is_floating_point() else y[:, 0].numpy()
    stratify = labels is not None and np.bincount(labels).min() >= num_folds
    folds = (StratifiedKFold if stratify else KFold)(num_folds, shuffle=True, random_state=seed)
    splits = list(folds.split(x.numpy(), labels))
    most = max(len(rows) for rows, _ in splits)
    rng = np.random.default_rng(seed)
    parts = []
    for replica in range(num):
        rows, held = splits[replica % num_folds]
        # Replicas of a fleet have as many rows each: where a fold is larger by one, a row comes twice.
        rows = rng.permutation(np.concatenate([rows, rng.choice(rows, most - len(rows))]))
        context = x[rows[:MOST_CONTEXT]], y[rows[:MOST_CONTEXT]]
        parts.append(Part([(x[rows], y[rows])], [Question(context, x[held], y[held])]))
    return parts


def parts_of_tables(tables: Sequence[Pair], num: int, seed: int) -> list[Part]:
    """Give each replica all tables but a fold; one half of such a table's rows is the context for the other."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(tables))
    held = max(1, len(tables) // max(num, 5))
    parts = []
    for replica in range(num):
        chosen = {int(order[(replica * held + i) % len(tables)]) for i in range(held)}
        questions = []
        for index in sorted(chosen):
            rows = rng.permutation(len(tables[index][0]))  # a table may be in an order, as of time
            x, y = (column[rows] for column in tables[index])
            half = len(x) // 2
            questions.append(Question((x[:half], y[:half]), x[half:], y[half:]))
        parts.append(Part([table for i, table in enumerate(tables) if i not in chosen], questions))
    return parts


def fit_ensemble(
    parts: Sequence[Part],
    recipe: Recipe,
    dim_y: int,
    seed: int,
    device: torch.device,
    one_table: bool,
    max_context: int | None = None,
    reporter: Reporter | None = None,
) -> tuple[Ensemble, Summary]:
    """Train a replica on each part as one fleet, then set what the held-out rows decide and say what they tell.

    Args:
        parts: one for each replica.
        recipe: how.
        dim_y: number of outputs or classes.
        seed: decides everything that is random.
        device: where.
        one_table: whether tasks are rows of one table, or each a table of its own.
        max_context: size of a prediction's context; None lets the held-out rows choose.
        reporter: where progress goes.
    """
    likelihood = "gaussian" if parts[0].tables[0][1].is_floating_point() else "categorical"
    scalings = [part.scalings(linear=one_table) for part in parts]
    longest = max(len(x) for part in parts for x, _ in part.tables)
    sources = []
    for part, (inputs, outputs) in zip(parts, scalings, strict=True):
        tables = [_scaled(table, inputs, outputs) for table in part.tables]
        sources.append(
            TableTasks(*tables[0], recipe.num_points, recipe.batch_size)
            if one_table
            else ManyTables(tables, batch_size=recipe.batch_size, num_slots=longest)
        )
    make = partial(recipe.make, parts[0].tables[0][0].shape[1], dim_y, likelihood)
    seeds = [seed + row for row in range(len(parts))]
    fleet = Fleet(make, sources, seeds, recipe.settings(device), device)

    def replica(row: int, best: bool) -> Replica:
        return Replica(fleet.replica(row, best).double(), *scalings[row]).to(device)

    def validate(fleet: Fleet) -> Tensor:
        rows = range(len(parts))
        return torch.stack([_held_out_error(replica(row, False), parts[row], seed) for row in rows])

    train(fleet, validation=validate, reporter=reporter)
    kept = _unbroken(fleet)
    trained = [replica(row, True) for row in kept]
    parts = [parts[row] for row in kept]
    return _finish(trained, parts, seed, _context_sizes(parts, one_table, max_context))


def _unbroken(fleet: Fleet) -> list[int]:
    """Replicas that are of use: the loss of the others was not finite, or no validation of theirs was."""
    stopped, best = (fleet.state[name].cpu() for name in ("stop_step", "best_metric"))
    kept = torch.nonzero((stopped < 0) & best.isfinite()).flatten().tolist()
    number, rate = len(stopped), fleet.settings.learning_rate
    if not kept:
        raise ValueError(
            f"training broke down in all {number} replicas: their loss was not finite, at a learning rate of {rate}; "
            "choose a lower learning_rate, and look for extreme values in X and y"
        )
    if len(kept) < number:
        warnings.warn(
            f"{number - len(kept)} of {number} replicas are left out: their loss was not finite, at a learning rate of "
            f"{rate}; a lower learning_rate may help",
            RuntimeWarning,
            stacklevel=5,  # at the caller of `fit`
        )
    return kept


def _scaled(table: Pair, inputs: InputScaling, outputs: Outputs) -> Pair:
    """A table as the network reads it in training, in float32; labels stay whole numbers."""
    y = outputs.transform(inputs.both(table[0]), table[1])
    return inputs.transform(table[0]).float(), y.float() if y.is_floating_point() else y


def _held_out_error(replica: Replica, part: Part, seed: int) -> Tensor:
    """What a replica is stopped by, on at most so many of the rows it held out."""
    errors = []
    for question in part.questions:
        y = question.y[:MOST_ROWS].to(replica.device)
        answer = replica.predict(question.context_of(CONTEXTS[1]), question.x[:MOST_ROWS], (4, 1), seed)
        errors.append(error_of(answer, y))
    return torch.stack(errors).mean()


def error_of(predictive: Predictive, y: Tensor) -> Tensor:
    """Negative log-likelihood of rows once the spread is stretched as suits them best.

    For a regression in closed form, with one normal of the mixture's mean and variance for each output: a network that
    is too sure of itself, which can be mended afterwards, is not mistaken for a bad one.
    """
    if isinstance(predictive, CategoricalPredictive):
        return -predictive.log_prob(y[None]).mean()
    ratio = (y - predictive.mean[0]).square() / predictive.variance[0]
    log_variance = torch.where(torch.isnan(y), torch.nan, predictive.variance[0].log())
    return 0.5 * (log_variance.nanmean(0) + ratio.nanmean(0).clamp(min=1e-12).log()).nanmean()


def _context_sizes(parts: Sequence[Part], one_table: bool, max_context: int | None) -> list[int]:
    """Sizes of the context to choose from: a task of its own is told by all its rows."""
    if max_context is not None or not one_table:
        return [max_context or MOST_CONTEXT]
    return [size for size in CONTEXTS if size <= len(parts[0].tables[0][0])] or [CONTEXTS[0]]


def _finish(
    replicas: list[Replica], parts: Sequence[Part], seed: int, sizes: Sequence[int]
) -> tuple[Ensemble, Summary]:
    """Choose the context's size and the corrections by the held-out rows, and measure what comes out."""

    def held_out(size: int) -> list[Answer]:
        return [
            Answer(
                replica.predict(q.context_of(size), q.x, (16, 1), seed), replica, q.x, q.y.to(replica.device)
            )
            for replica, part in zip(replicas, parts, strict=True)
            for q in part.questions
        ]

    def error(size: int) -> float:
        value = float(torch.stack([error_of(a.predictive, a.y) for a in held_out(size)]).mean())
        return value if math.isfinite(value) else math.inf

    size = min(sizes, key=error) if len(sizes) > 1 else sizes[0]
    for fit in CORRECTIONS[type(replicas[0].outputs)]:
        corrections = fit(held_out(size))
        replicas = [replica.corrected(**corrections) for replica in replicas]
    answers = held_out(size)
    device = replicas[0].device
    # Two replicas cover the table, as each holds out another part of it.
    y = torch.cat([rows for part in parts[:2] for _, rows in part.tables]).to(device)
    prior = prior_of(y, answers[0].predictive.shape[-1])
    calibration = torch.cat([calibration_of(a.predictive, a.y) for a in answers]).cpu()
    return Ensemble(replicas, size, prior, calibration), _summary(answers, prior)


def _summary(answers: Sequence[Answer], prior: Tensor) -> Summary:
    """What the held-out rows say of the fit, each row answered by the replica that had not seen it."""
    y = torch.cat([a.y for a in answers])
    predictions = {
        "neural process": beside([a.predictive for a in answers]),
        "mean predictor": blind(prior, len(y)),
    }
    ridge = [
        normal(a.replica.linear(a.x), a.replica.outputs.scale)
        for a in answers
        if isinstance(a.replica.outputs, OutputScaling)
    ]
    return summarise(predictions | ({"ridge": beside(ridge)} if ridge else {}), y)
