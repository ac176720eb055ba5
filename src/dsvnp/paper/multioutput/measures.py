"""Measures of a model of a table: squared error by part and unit, NLL, coverage; also of parts that the paper may mean.

Parts ("split" of a row) and where the context comes from:

    test             the test half, from training rows: the headline
    train            the rows that were learned from, from training rows
    test-context     the test half, from test rows, as the paper suggests
    test-own         batches of the test half in which the context's own rows are predicted as well
    test-posterior   the same batches, with latents that have read all their labels: reconstruction, no prediction
    train-posterior  the same on the rows that were learned from

Units: "standard" divides each output by its standard deviation, "raw" by nothing, "minmax" by its range.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsvnp.likelihoods import FixedGaussian
from dsvnp.metrics import nll, pit, pit_coverage
from dsvnp.models import NeuralProcess
from dsvnp.paper.experiment import Drawn, Measurement
from dsvnp.paper.measuring import FIXED, DrawCounts, Likelihoods, chunk_of, estimate_nll, seeded_predict
from dsvnp.paper.multioutput.folds import Rows, Split
from dsvnp.predictive import GaussianPredictive, Predictive
from dsvnp.task import Task

LEVELS = tuple(round(0.1 * i, 1) for i in range(1, 10))
Scores = dict[tuple[str, str, str], float]  # by metric, part and unit
SIGMA_FLOOR = 0.01  # in unit variance: an output that is the same in all held-out rows would make σ zero


class SplitScores(NamedTuple):
    """Scores of one split, and what figures show of it: coverage by level, error by output."""

    scores: Scores
    coverage: list[float]
    by_output: list[float]
    drawn: Mapping[tuple[str, str, str], Drawn] = {}  # the draws behind likelihoods, where they were counted


def measure_net(
    net: NeuralProcess, split: Split, draws: DrawCounts, num_points: int, how: Likelihoods = FIXED
) -> SplitScores:
    """Measure a trained network; σ of a squared-error likelihood is set here, from held-out rows."""
    set_sigma(net, split, draws)
    parts = {"test": split.task(split.test), "train": split.task(split.train)}
    parts["test-context"] = split.within_test()
    num_context = len(split.context)
    parts["test-own"] = batches(split.test, num_points, num_context)
    predictions = ((part, task, predict_rows(net, task, draws)) for part, task in parts.items())
    measured = measure_parts(predictions, split)
    if how.draws == "suffice":
        measured = _with_draws_that_suffice(measured, net, parts, how)
    if isinstance(net.likelihood, FixedGaussian):  # whose log-likelihood is the squared error itself
        for part, task in (
            ("test-posterior", parts["test-own"]),
            ("train-posterior", batches(split.train, num_points, num_context)),
        ):
            with torch.no_grad():
                terms = net.objective(task, noise={}).per_point()
            measured.scores["mse", part, "standard"] = -float(terms["log_likelihood"])
    return measured


def _with_draws_that_suffice(
    measured: SplitScores, net: NeuralProcess, parts: Mapping[str, Task], how: Likelihoods
) -> SplitScores:
    """The scores with NLL from as many draws as it takes."""
    scores, drawn = dict(measured.scores), {}
    for name in [name for name in scores if name[0] == "nll"]:
        found = estimate_nll(net, [parts[name[1]]], "P", how, [])
        scores[name], drawn[name] = found.mean, found.drawn[0]
    return measured._replace(scores=scores, drawn=drawn)


def measure_parts(predictions: Iterable[tuple[str, Task, Predictive]], split: Split) -> SplitScores:
    """Squared error of each part in each unit; NLL and coverage of those that honestly predict the test half."""
    scores: Scores = {}
    coverage, by_output = [], []
    units = {"standard": torch.ones_like(split.std), "raw": split.std, "minmax": split.std / split.span}
    for part, task, predictive in predictions:
        errors = output_errors(predictive, task)
        scores |= {("mse", part, unit): float((errors * by.square()).mean()) for unit, by in units.items()}
        if part in ("test", "test-context"):
            inside = pit_coverage(pit(predictive, task), LEVELS).tolist()
            scores["nll", part, "nats/point"] = float(nll(predictive, task))
            scores["coverage-90", part, "share"] = inside[-1]
            if part == "test":
                coverage, by_output = inside, errors.tolist()
    return SplitScores(scores, coverage, by_output)


def output_errors(predictive: Predictive, task: Task) -> Tensor:
    """Squared error of each output, averaged over all targets, [dim_y]."""
    assert task.y_target is not None
    return (task.y_target - predictive.mean).square().mean((0, 1))


def set_sigma(net: NeuralProcess, split: Split, draws: DrawCounts) -> None:
    """Set σ of a squared-error likelihood to the root mean square of the residuals on held-out training rows."""
    if isinstance(net.likelihood, FixedGaussian):
        task = split.task(split.held_out)
        net.likelihood.sigma.copy_(residual_scale(predict_rows(net, task, draws).mean, split.held_out.y))


def residual_scale(mean: Tensor, y: Tensor) -> Tensor:
    """Root mean square of the residuals of each output, over all axes before the last, [dim_y]."""
    return (y - mean).square().flatten(0, -2).mean(0).sqrt().clamp(min=SIGMA_FLOOR)


def batches(rows: Rows, num_points: int, num_context: int) -> Task:
    """Rows in batches of which the first ones are the context, and all are targets; the last few are left out."""
    count = len(rows.x) // num_points
    x, y = (part[: count * num_points].unflatten(0, (count, num_points)) for part in rows)
    in_context = torch.arange(num_points, device=x.device) < num_context
    return Task.from_points(x, y, in_context.expand(count, -1))


def predict_rows(net: NeuralProcess, task: Task, draws: DrawCounts) -> Predictive:
    """Predict with draws that are the same for each call, in parts that fit into memory."""
    return seeded_predict(net, task, draws, chunk_of(draws, 200_000))


def gaussian(mean: Tensor, scale: Tensor) -> GaussianPredictive:
    """The predictive of one Gaussian for each row, from [rows, dim_y]; σ may be one for all rows, [dim_y]."""
    return GaussianPredictive(mean[None, None, None], scale)


def collect(dataset: str, measured: Sequence[SplitScores]) -> tuple[tuple[Measurement, ...], dict[str, Any]]:
    """Measurements with one value per split, in the order of the splits, and extras for the figures."""
    rows = tuple(
        Measurement(
            dataset,
            *name,
            tuple(each.scores[name] for each in measured),
            tuple(each.drawn[name] for each in measured if name in each.drawn),
        )
        for name in measured[0].scores
    )
    extras = {
        "levels": list(LEVELS),
        "coverage": [each.coverage for each in measured],
        "by_output": [each.by_output for each in measured],
    }
    return rows, extras
