"""What is measured of a model on a problem: likelihoods with draws that suffice, and the energy score.

    nll          −ln p(y_t | C), all outputs of a target together, in nats per point
    nll-output   −ln p(y_td | C), each output by itself, in nats per output
    bound        the negative evidence lower bound next to `nll`, never below its exact value on average
    energy       the energy score of a target's outputs

`by_context` has the same `nll` for tasks whose contexts are small or large.
All of targets outside the context (P), the same for every model. References say what is known without training.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsvnp.estimation import LogLikelihood, log_likelihood
from dsvnp.metrics import point_energy_score, point_mask
from dsvnp.models import NeuralProcess
from dsvnp.paper.ambiguity.problem import CONTEXT, NUM_POINTS, Problem, ProblemTask
from dsvnp.paper.experiment import EXACT, Drawn, Measurement
from dsvnp.paper.measuring import chunk_of
from dsvnp.task import Task

SPLIT = "test-P"
MOST = 2**22  # targets times draws whose samples are held at once
RANGES = ((3, 10), (11, 20), (21, 30), (31, 40), (41, 46))  # of the size of a context
TESTS, TRIALS = 5_000_000, 6_000_000  # seeds of the tasks to test on, and of those to choose by


@dataclass(frozen=True)
class Measures:
    """How much is measured."""

    num_tests: int = 256  # tasks to test on
    num_points: int = NUM_POINTS  # points of each
    context: tuple[int, int] = CONTEXT  # smallest and largest context
    # change of a likelihood, in nats, below which two doublings of the draws end an estimate
    tolerance: float = 0.01
    max_draws: int = 16384  # limit of the draws
    num_energy: int = 256  # draws and samples of the energy score
    chunk: int = 2**19  # targets times draws decoded at once

    def tasks(self, problem: Problem, device: torch.device, unseen: bool = True) -> list[ProblemTask]:
        """Tasks to test on or, with `unseen` False, tasks of the training distribution to choose settings by."""
        generator = torch.Generator(device).manual_seed(TESTS if unseen else TRIALS)
        sizes = {"num_points": self.num_points, "context": self.context}
        return problem.tasks(self.num_tests, generator, unseen=unseen, **sizes)  # type: ignore[arg-type]


class Measured(NamedTuple):
    """What is measured of some nets."""

    rows: tuple[Measurement, ...]
    by_context: dict[str, list[Any]]  # the middle of each range of sizes, and the NLL there, one row per net


def without_context(task: Task) -> Task:
    """The same targets outside the context, and nothing of the context."""
    _, in_context = task.all_points()
    return replace(
        task,
        mask_context=torch.zeros_like(task.mask_context),
        mask_target=task.mask_target & ~in_context,
        in_context=None,
    )


def measure_nets(
    nets: Sequence[NeuralProcess], name: str, tasks: Sequence[Task], sizes: Measures
) -> Measured:
    """All rows of one model on one problem, one value per net."""
    estimate = partial(
        log_likelihood, tolerance=sizes.tolerance, max_draws=sizes.max_draws, chunk=sizes.chunk
    )
    points = [estimate(net, tasks, "point") for net in nets]
    one = tasks[0].y_target is not None and tasks[0].y_target.shape[-1] == 1
    outputs = points if one else [estimate(net, tasks, "output") for net in nets]
    energy = tuple(energy_of(net, tasks, sizes.num_energy) for net in nets)
    rows = (
        _likelihood(name, "nll", "nats/point", points),
        _likelihood(name, "nll-output", "nats/output", outputs),
        Measurement(name, "bound", SPLIT, "nats/point", tuple(-found.bound for found in points)),
        Measurement(name, "energy", SPLIT, "raw", energy),
    )
    return Measured(rows, by_context([-found.values for found in points], tasks))


def by_context(values: Sequence[Tensor], tasks: Sequence[Task]) -> dict[str, list[Any]]:
    """Means of values [N] of all targets outside the context over those of tasks in each range; NaN where none is."""
    counts = torch.cat([point_mask(task, "P").sum(-1) for task in tasks])
    sizes = torch.cat([task.mask_context.sum(-1) for task in tasks]).repeat_interleave(counts)
    inside = [(low <= sizes) & (sizes <= high) for low, high in RANGES]
    means = [[float(each[mask].mean()) for mask in inside] for each in values]
    return {"context": [(low + high) / 2 for low, high in RANGES], "nll": means}


def _likelihood(name: str, metric: str, unit: str, found: Sequence[LogLikelihood]) -> Measurement:
    """Estimates as a row, which keeps the draws that each of them took."""
    drawn = tuple(map(Drawn.of, found))
    return Measurement(name, metric, SPLIT, unit, tuple(-each.mean for each in found), drawn)


def energy_of(net: NeuralProcess, tasks: Sequence[Task], count: int) -> float:
    """The energy score over all targets outside the context, from as many samples as draws."""
    scores = []
    generator = torch.Generator(tasks[0].x_target.device).manual_seed(0)
    for task in tasks:
        predictive = net.predict(task, count, generator=generator, chunk=chunk_of((count, 1), MOST))
        scores.append(point_energy_score(predictive, task, "P", count, generator))
    return float(torch.cat(scores).mean())


def measure_reference(
    reference: str, problem: Problem, name: str, known: Sequence[ProblemTask], num_seeds: int
) -> tuple[Measurement, ...]:
    """NLL of "truth", or of the best Gaussian with a "diagonal" or "full" covariance, the tasks being identified."""
    log_density = getattr(problem.unseen(), reference)
    values = torch.cat([log_density(each)[point_mask(each.task, "P")] for each in known])
    means = (-float(values.mean()),) * num_seeds
    return (Measurement(name, "nll", SPLIT, "nats/point", means, (EXACT,) * num_seeds),)
