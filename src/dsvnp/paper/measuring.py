"""Prediction and likelihoods for measures: the draws are the same in each call, and alike for every model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.estimation import log_likelihood
from dsvnp.metrics import Points, point_mask, point_nll
from dsvnp.models import NeuralProcess
from dsvnp.paper.experiment import Drawn
from dsvnp.predictive import Predictive
from dsvnp.task import Task

DrawCounts = tuple[int, int]  # of z_G, and of each z_* for each of them


@dataclass(frozen=True)
class Likelihoods:
    """Settings of the estimate of a likelihood."""

    # "fixed" for as many as a prediction has; "suffice" to double them until the mean is still
    draws: str = "fixed"
    tolerance: float = 0.01  # change of the mean, in nats, below which two doublings in a row end an estimate
    max_draws: int = 16384  # limit of the draws that suffice

    def __post_init__(self) -> None:
        if self.draws not in ("fixed", "suffice"):
            raise ValueError(f"draws must be 'fixed' or 'suffice', got {self.draws!r}")


# The default of every setting: results from before draws were counted have "fixed" ones.
FIXED, SUFFICE = Likelihoods(), Likelihoods("suffice")


class PointNLL(NamedTuple):
    """−ln p(y_t) of the counted points of all tasks, flat and in their order, [N], and the draws it took."""

    values: Tensor
    drawn: tuple[Drawn, ...]  # one, or none where draws are fixed

    @property
    def mean(self) -> float:
        """The mean over points."""
        return float(self.values.mean())


def estimate_nll(
    net: NeuralProcess,
    tasks: Sequence[Task],
    points: Points,
    how: Likelihoods,
    predictions: Sequence[Predictive],
) -> PointNLL:
    """NLL of each point, from the draws of predictions or from as many as it takes."""
    if how.draws == "fixed":
        pairs = zip(predictions, tasks, strict=True)
        return PointNLL(torch.cat([point_nll(predictive, task, points) for predictive, task in pairs]), ())
    found = log_likelihood(net, tasks, "point", points, tolerance=how.tolerance, max_draws=how.max_draws)
    return PointNLL(-found.values, (Drawn(found.method, found.draws, found.still),))


def by_task(values: Tensor, tasks: Sequence[Task], points: Points) -> Tensor:
    """Mean over the points of each task, [tasks], of values [N] of all counted points."""
    sizes = torch.cat([point_mask(task, points).sum(-1) for task in tasks]).tolist()
    return torch.stack([part.mean() for part in values.split(sizes)])


def seeded_predict(net: NeuralProcess, task: Task, draws: DrawCounts, chunk: int = 10_000) -> Predictive:
    """Predict with draws that are the same for each call.

    `chunk` targets are predicted at once, which bounds the memory and decides which noise a target's z_* gets.
    """
    generator = torch.Generator(task.x_target.device).manual_seed(0)
    return net.predict(task, *draws, generator=generator, validate=False, chunk=chunk)


def chunk_of(draws: DrawCounts, most: int) -> int:
    """Targets to predict at once, where all their draws together may be `most`."""
    return max(1, most // (draws[0] * draws[1]))
