"""Measures of a model of a table: squared error by part and unit, NLL, coverage; also of parts that the paper may mean.

Parts ("split" of a row) and where the context comes from:

    test             the test half, from training rows: the headline
    train            the rows that were learned from, from training rows
    test-context     the test half, from test rows, as the paper suggests
    test-own         batches of the test half in which the context's own rows are predicted as well
    test-posterior   the same batches, with latents that have read all their labels: reconstruction, no prediction
    train-posterior  the same on the rows that were learned from

Units: "standard" divides each output by its standard deviation, "raw" by nothing, "minmax" by its range.

"nll" is of all outputs of a row together, "nll-each" of each output by itself: D times the second less the first is
what a model gains by the dependence of its D outputs. Where outputs take a few values (Water Quality), "nll-interval"
and "nll-interval-each" take the place of both (`dsvnp.intervals`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsvnp.estimation import log_likelihood
from dsvnp.intervals import point_interval_nll, point_interval_nll_each
from dsvnp.likelihoods import FixedGaussian
from dsvnp.metrics import pit, pit_coverage, point_nll, point_nll_each
from dsvnp.models import NeuralProcess
from dsvnp.paper.experiment import EXACT, Drawn, Measurement
from dsvnp.paper.measuring import FIXED, DrawCounts, Likelihoods, chunk_of, double_draws, seeded_predict
from dsvnp.paper.multioutput.folds import Rows, Split
from dsvnp.predictive import GaussianPredictive, Predictive
from dsvnp.streaming import Per
from dsvnp.task import Task

LEVELS = tuple(round(0.1 * i, 1) for i in range(1, 10))
Scores = dict[tuple[str, str, str], float]  # by metric, part and unit
Moments = tuple[Tensor, Tensor]  # mean and standard deviation, [rows, dim_y] each
UNIT_OF_NLL = {"nll": "nats/point", "nll-each": "nats/output"}
UNIT_OF_NLL |= {"nll-interval": "nats/point", "nll-interval-each": "nats/output"}
AT_ONCE = 2**22  # rows times draws whose likelihoods are computed together
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
    if isinstance(net.likelihood, FixedGaussian):  # the root mean square of the residuals
        held_out = predict_rows(net, split.task(split.held_out), draws)
        net.likelihood.sigma.copy_(residual_scale(held_out.mean, split.held_out.y))
    parts = {"test": split.task(split.test), "train": split.task(split.train)}
    parts["test-context"] = split.within_test()
    num_context = len(split.context)
    parts["test-own"] = batches(split.test, num_points, num_context)
    predictions = ((part, task, predict_rows(net, task, draws)) for part, task in parts.items())
    measured = measure_parts(predictions, split)
    if how.draws == "suffice" and split.edges is None:
        measured = _with_own_likelihoods(measured, net, parts, how)
    elif how.draws == "suffice":

        def predict(rows: Rows, num_global: int) -> Predictive:
            return predict_rows(net, split.task(rows), (num_global, 1))

        measured = with_draws_that_suffice(measured, split, predict, (draws[0], 1), draws_latents(net), how)
    if isinstance(net.likelihood, FixedGaussian):  # whose log-likelihood is the squared error itself
        for part, task in (
            ("test-posterior", parts["test-own"]),
            ("train-posterior", batches(split.train, num_points, num_context)),
        ):
            with torch.no_grad():
                terms = net.objective(task, noise={}).per_point()
            measured.scores["mse", part, "standard"] = -float(terms["log_likelihood"])
    return measured


def _with_own_likelihoods(
    measured: SplitScores, net: NeuralProcess, parts: Mapping[str, Task], how: Likelihoods
) -> SplitScores:
    """The scores with NLL from as many draws as a network's density takes."""
    scores, drawn = dict(measured.scores), {}
    limits: Any = {"tolerance": how.tolerance, "max_draws": how.max_draws}
    for name in [name for name in scores if name[0] in UNIT_OF_NLL]:
        per: Per = "output" if name[0] == "nll-each" else "point"
        found = log_likelihood(net, parts[name[1]], per, **limits)
        scores[name], drawn[name] = -found.mean, Drawn.of(found)
    return measured._replace(scores=scores, drawn=drawn)


def with_draws_that_suffice(
    measured: SplitScores,
    split: Split,
    predict: Callable[[Rows, int], Predictive],
    first: tuple[int, int],
    random: bool,
    how: Likelihoods,
) -> SplitScores:
    """The test half's NLL from predictions whose draws, at first `first` of as many components, are doubled."""

    def estimate(draws: int) -> dict[str, float]:
        index = torch.arange(len(split.test.x), device=split.test.x.device)
        parts = (split.test.take(some) for some in index.split(max(1, AT_ONCE // (draws * first[1]))))
        found = [row_nlls(predict(rows, draws), split.task(rows), split.edges) for rows in parts]
        return {name: float(torch.cat([each[name] for each in found]).mean()) for name in found[0]}

    means, drawn = double_draws(estimate, *first, how) if random else ({}, EXACT)
    names = [name for name in measured.scores if name[0] in UNIT_OF_NLL and name[1] == "test"]
    scores = {name: means.get(name[0], measured.scores[name]) for name in names}
    return measured._replace(scores=measured.scores | scores, drawn=dict.fromkeys(names, drawn))


def draws_latents(net: NeuralProcess) -> bool:
    """Whether predictions of a network are random."""
    return bool(net.noise_shapes(1, 1, 1, 1, shared=True))


def row_nlls(predictive: Predictive, task: Task, edges: Tensor | None) -> dict[str, Tensor]:
    """NLL of each row by all its outputs together, [N], and of each output by itself, [N · dim_y]."""
    if edges is None:
        return {"nll": point_nll(predictive, task), "nll-each": point_nll_each(predictive, task)}
    assert isinstance(predictive, GaussianPredictive)
    joint = point_interval_nll(predictive, task, edges)
    return {"nll-interval": joint, "nll-interval-each": point_interval_nll_each(predictive, task, edges)}


def measure_parts(predictions: Iterable[tuple[str, Task, Predictive]], split: Split) -> SplitScores:
    """Squared error of each part in each unit; NLL and coverage of those that honestly predict the test half."""
    scores: Scores = {}
    coverage, by_output = [], []
    units = {"standard": torch.ones_like(split.std), "raw": split.std, "minmax": split.std / split.span}
    for part, task, predictive in predictions:
        assert task.y_target is not None
        errors = (task.y_target - predictive.mean).square().mean((0, 1))  # of each output, [dim_y]
        scores |= {("mse", part, unit): float((errors * by.square()).mean()) for unit, by in units.items()}
        if part in ("test", "test-context"):
            inside = pit_coverage(pit(predictive, task), LEVELS).tolist()
            nlls = row_nlls(predictive, task, split.edges)
            scores |= {(name, part, UNIT_OF_NLL[name]): float(each.mean()) for name, each in nlls.items()}
            scores["coverage-90", part, "share"] = inside[-1]
            if part == "test":
                coverage, by_output = inside, errors.tolist()
    return SplitScores(scores, coverage, by_output)


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


def measure_gaussians(split: Split, test: Moments, train: Moments) -> SplitScores:
    """Measure one Gaussian for each row of the test half and of the training rows; σ may be one for all, [dim_y]."""
    parts = (("test", split.test, test), ("train", split.train, train))
    return measure_parts(
        (
            (part, split.task(rows), GaussianPredictive(mean[None, None, None], std))
            for part, rows, (mean, std) in parts
        ),
        split,
    )


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
