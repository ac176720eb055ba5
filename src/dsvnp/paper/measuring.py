"""Prediction and likelihoods for measures: the draws are the same in each call, and alike for every model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

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
    # With draws that suffice, score one in so many targets of a task: neighbours on a curve are alike, and the spread
    # over tasks decides how exact a mean over both is.
    every: int = 1

    def __post_init__(self) -> None:
        if self.draws not in ("fixed", "suffice"):
            raise ValueError(f"draws must be 'fixed' or 'suffice', got {self.draws!r}")
        if self.every < 1:
            raise ValueError(f"every must be at least 1, got {self.every}; 1 scores all targets")

    def scored(self, tasks: Sequence[Task]) -> list[Task]:
        """The tasks with the targets that are scored."""
        return [task.some_targets(self.every) for task in tasks] if self.draws == "suffice" else list(tasks)


# The default of every setting: results from before draws were counted have "fixed" ones.
FIXED, SUFFICE = Likelihoods(), Likelihoods("suffice")


class PointNLL(NamedTuple):
    """−ln p(y_t) of the counted points of all tasks, flat and in their order, [N], and the draws it took."""

    values: Tensor
    drawn: tuple[Drawn, ...]  # one, or none where draws are fixed
    # the negative evidence lower bound of all these points; None where draws are fixed
    bound: float | None = None

    @property
    def mean(self) -> float:
        """The mean over points."""
        return float(self.values.mean())

    def only(self, tasks: Sequence[Task], points: Points) -> Self:
        """The values of some points, where these are of all (J)."""
        kept = torch.cat([point_mask(task, points)[point_mask(task, "J")] for task in tasks])
        return self._replace(values=self.values[kept], bound=self.bound if points == "J" else None)


def estimate_nll(
    net: NeuralProcess,
    tasks: Sequence[Task],
    points: Points,
    how: Likelihoods,
    predictions: Sequence[Predictive],
) -> PointNLL:
    """NLL of each point, from the draws of predictions or from as many as it takes; of `how.scored` tasks."""
    if how.draws == "fixed":
        pairs = zip(predictions, tasks, strict=True)
        return PointNLL(torch.cat([point_nll(predictive, task, points) for predictive, task in pairs]), ())
    found = log_likelihood(
        net, how.scored(tasks), "point", points, tolerance=how.tolerance, max_draws=how.max_draws
    )
    return PointNLL(-found.values, (Drawn.of(found),), -found.bound)


def double_draws(
    estimate: Callable[[int], Mapping[str, float]], first: int, components: int, how: Likelihoods
) -> tuple[Mapping[str, float], Drawn]:
    """Double the draws behind several means until all are still: for ensembles, and for what is not a density.

    `estimate` gives means by name from a number of draws of each component, of which there are `components`, such as
    members of an ensemble; `how` limits the draws of all together.
    """
    history, draws, still, change = [estimate(first)], first, False, None
    while not still and 2 * draws * components <= how.max_draws:
        draws *= 2
        history.append(estimate(draws))
        change = max(abs(b[name] - a[name]) for a, b in pairwise(history[-3:]) for name in b)
        still = len(history) > 2 and change < how.tolerance
    return history[-1], Drawn("prior", draws * components, still, change)


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
