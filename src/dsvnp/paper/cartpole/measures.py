"""Measures of a model of the Cart-Pole: Table 3, the effect of context, roll-outs; and the reference."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import torch

from dsvnp.metrics import Points, point_squared_error, squared_error
from dsvnp.models import NeuralProcess
from dsvnp.paper import measuring
from dsvnp.paper.cartpole.data import Environments, Transitions, average_step, identification_task
from dsvnp.paper.cartpole.physics import TEST_ENVIRONMENTS
from dsvnp.paper.cartpole.rollouts import RolloutScores, roll_out, roll_out_average, shown_rollout
from dsvnp.paper.experiment import Drawn, Measurement
from dsvnp.predictive import GaussianPredictive, Predictive
from dsvnp.task import Task

HORIZON = 10
CONTEXT_SIZES = (1, 2, 5, 10, 20, 50, 100)
SHOWN = TEST_ENVIRONMENTS.index((0.6, 0.1))  # training knows neither its mass nor its friction
POINTS: tuple[Points, ...] = ("J", "P")
STEPS = (1, 5, 10)  # after which roll-outs have a row in the results; figures show all


class UnseenCarts(NamedTuple):
    """The 14 test environments, the same for every model."""

    task: Task  # a context each, and all transitions as targets
    # for each size of context, tasks with fewer targets; a smaller context is part of a larger one
    by_size: dict[int, list[Task]]
    runs: Transitions  # trajectories to roll out

    @classmethod
    def draw(
        cls,
        num_trajectories: int,
        num_context: int,
        num_rollouts: int,
        num_contexts: int,
        generator: torch.Generator,
    ) -> Self:
        """Simulate trajectories to predict and others to roll out, with `num_contexts` random contexts of each size."""
        data = Transitions.draw(TEST_ENVIRONMENTS, num_trajectories, HORIZON, generator)
        task = identification_task(data, num_context, generator)
        runs = Transitions.draw(TEST_ENVIRONMENTS, num_rollouts, HORIZON, generator)
        few = Transitions(data.x[:, :40], data.y[:, :40])

        def again(size: int) -> list[Task]:
            seeds, fresh = range(3_000_000, 3_000_000 + num_contexts), torch.Generator(generator.device)
            return [identification_task(few, size, fresh.manual_seed(seed)) for seed in seeds]

        return cls(task, {size: again(size) for size in CONTEXT_SIZES if size <= num_context}, runs)

    def to(self, device: torch.device) -> Self:
        """The same carts on a device."""
        by_size = {size: [task.to(device) for task in tasks] for size, tasks in self.by_size.items()}
        return type(self)(
            self.task.to(device), by_size, Transitions(*(part.to(device) for part in self.runs))
        )


def measure_carts(
    nets: Sequence[NeuralProcess],
    data: UnseenCarts,
    draws: measuring.DrawCounts,
    num_particles: int,
    how: measuring.Likelihoods = measuring.FIXED,
) -> tuple[tuple[Measurement, ...], dict[str, Any]]:
    """Table 3's rows and those of the roll-outs, one value per net; and what the figures show."""
    predictions = [predict_carts(net, data.task, draws) for net in nets]
    pairs, scored = zip(nets, predictions, strict=True), how.scored([data.task])
    found = [measuring.estimate_nll(net, [data.task], "J", how, [p]) for net, p in pairs]
    losses = {points: [each.only(scored, points) for each in found] for points in POINTS}
    rows = [_likelihood_row(points, found) for points, found in losses.items()]
    if bounds := [each.bound for each in found if each.bound is not None]:
        rows.append(_row("bound", "test-J", "nats/point", bounds))
    rows += [
        _row("mse", f"test-{points}", "raw", (squared_error(p, data.task, points) for p in predictions))
        for points in POINTS
    ]
    generator = torch.Generator(data.runs.x.device)
    particles = [roll_out(net, data.task, data.runs, num_particles, generator.manual_seed(0)) for net in nets]
    scores = [RolloutScores.of(each, data.runs.y) for each in particles]
    for step in STEPS:
        mse, inside = zip(*((s.mse[step - 1], s.coverage[step - 1]) for s in scores), strict=True)
        rows.append(_row("rollout-mse", f"step-{step}", "raw", mse))
        rows.append(_row("rollout-coverage-90", f"step-{step}", "share", inside))
    curves = [by_context(net, data, draws, how) for net in nets]
    extras = {
        "environments": TEST_ENVIRONMENTS,
        "by_environment": [
            by_environment(p, data.task, measuring.by_task(loss.values, scored, "J"))
            for p, loss in zip(predictions, found, strict=True)
        ],
        "context_sizes": list(data.by_size),
        "nll": [curve["nll"] for curve in curves],
        "mse": [curve["mse"] for curve in curves],
        "rollout_steps": list(range(1, HORIZON + 1)),
        "rollout_mse": [s.mse.tolist() for s in scores],
        "rollout_coverage": [s.coverage.tolist() for s in scores],
        "rollout": shown_rollout(particles[0], data.runs, SHOWN),
    }
    return tuple(rows), extras


def measure_oracle(
    data: UnseenCarts, environments: Environments, num_seeds: int
) -> tuple[tuple[Measurement, ...], dict[str, Any]]:
    """The same of a predictor that knows the mechanics exactly but averages over environments; it has an error only."""
    mean = average_step(environments, data.task.x_target)
    exact = GaussianPredictive(mean[None, None], torch.ones_like(mean))
    errors = {points: squared_error(exact, data.task, points) for points in POINTS}
    rows = [_row("mse", f"test-{points}", "raw", [error] * num_seeds) for points, error in errors.items()]
    path = roll_out_average(environments, data.runs)
    mse = RolloutScores.of(path[None], data.runs.y).mse
    rows += [_row("rollout-mse", f"step-{step}", "raw", [mse[step - 1]] * num_seeds) for step in STEPS]
    extras = {
        "mse": float(errors["P"]),
        "rollout_mse": mse.tolist(),
        "rollout": shown_rollout(path[None], data.runs, SHOWN)["mean"],
    }
    return tuple(rows), extras


def by_context(
    net: NeuralProcess,
    data: UnseenCarts,
    draws: measuring.DrawCounts,
    how: measuring.Likelihoods = measuring.FIXED,
) -> dict[str, list[float]]:
    """NLL and squared error outside the context for each size of context."""
    out: dict[str, list[float]] = {"nll": [], "mse": []}
    for tasks in data.by_size.values():
        predictions = [predict_carts(net, task, draws) for task in tasks]
        errors = [point_squared_error(p, task) for p, task in zip(predictions, tasks, strict=True)]
        out["nll"].append(measuring.estimate_nll(net, tasks, "P", how, predictions).mean)
        out["mse"].append(float(torch.cat(errors).mean()))
    return out


def by_environment(predictive: Predictive, task: Task, loss: torch.Tensor) -> dict[str, list[float]]:
    """NLL [environments] and squared error of each environment, over all its transitions (J)."""
    assert task.y_target is not None
    error = (task.y_target - predictive.mean).square().mean((1, 2))
    return {"nll": loss.tolist(), "mse": error.tolist()}


def predict_carts(net: NeuralProcess, task: Task, draws: measuring.DrawCounts) -> Predictive:
    """Predict with draws that are the same for each call, in parts that fit into a few hundred megabytes."""
    return measuring.seeded_predict(net, task, draws, measuring.chunk_of(draws, 100_000))


def _likelihood_row(points: Points, found: Sequence[measuring.PointNLL]) -> Measurement:
    """NLL of some points, and the draws it took."""
    drawn: tuple[Drawn, ...] = sum((each.drawn for each in found), ())
    values = tuple(each.mean for each in found)
    return Measurement("cartpole", "nll", f"test-{points}", "nats/point", values, drawn)


def _row(metric: str, split: str, unit: str, values: Iterable[torch.Tensor | float]) -> Measurement:
    """A measurement of this experiment."""
    return Measurement("cartpole", metric, split, unit, tuple(float(value) for value in values))
