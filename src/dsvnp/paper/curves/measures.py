"""What is measured of a model of curves: Tables 2 and A.1, the effect of context, calibration, and what it draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsvnp.metrics import Points, pit, pit_coverage, point_nll, point_squared_error
from dsvnp.models import NeuralProcess
from dsvnp.paper.experiment import Measurement
from dsvnp.plotting.figures import Panel
from dsvnp.predictive import Predictive
from dsvnp.sources.curves import curve_tasks, draw_curves
from dsvnp.task import Task

INSIDE, OUTSIDE = (-2.0, 2.0), (-4.0, 4.0)
LEVELS = [i / 20 for i in range(1, 20)]
CONTEXT_SIZES = (1, 2, 3, 5, 8, 12, 20, 30, 40, 50)
POINTS: tuple[Points, ...] = ("J", "P")


class Unseen(NamedTuple):
    """Functions that no model learns from, the same for every model.

    Attributes:
        splits: tasks of "inter" and "extra", and with "-max" those whose context is exactly the largest.
        by_size: interpolation with contexts of exactly each size.
    """

    splits: dict[str, list[Task]]
    by_size: dict[int, list[Task]]

    @classmethod
    def draw(
        cls, num_tests: int, num_points: int, max_context: int, extra_context: int, device: torch.device
    ) -> Unseen:
        """Draw functions.

        Args:
            num_tests: functions of each split.
            num_points: points of each function.
            max_context: largest context in interpolation.
            extra_context: largest context in extrapolation.
            device: where.
        """

        def tasks(
            seed: int, number: int, sizes: tuple[int, int], interval: tuple[float, float]
        ) -> list[Task]:
            generator = torch.Generator(device).manual_seed(seed)
            return curve_tasks(number, num_points, sizes, generator, interval)

        splits = {}
        for i, (part, interval, most) in enumerate(
            (("inter", INSIDE, max_context), ("extra", OUTSIDE, extra_context))
        ):
            splits[part] = tasks(1_000_000 + i, num_tests, (3, most), interval)
            splits[f"{part}-max"] = tasks(1_000_000 + i, num_tests, (most, most), interval)
        few = min(500, num_tests)
        sizes = [size for size in CONTEXT_SIZES if size <= max_context]
        return cls(splits, {size: tasks(2_000_000, few, (size, size), INSIDE) for size in sizes})


def measure(nets: Sequence[NeuralProcess], data: Unseen, num_global: int) -> tuple[Measurement, ...]:
    """The tables' rows, a value a net.

    Over all points (J) and outside the context (P): the NLL's mean over points, its median over functions (far outside
    the interval of training, one function can outweigh all others), and outside the context the squared error.
    """
    rows: dict[tuple[str, str, str], list[float]] = {}
    for split, tasks in data.splits.items():
        part, _, suffix = split.partition("-")
        for net in nets:
            predictions = [(predict(net, task, num_global), task) for task in tasks]
            for points in POINTS:
                name = "-".join(filter(None, [part, points, suffix]))
                of_each = torch.cat([_by_function(p, task, points) for p, task in predictions])
                of_all = torch.cat([point_nll(p, task, points) for p, task in predictions])
                rows.setdefault(("nll", name, "nats/point"), []).append(float(of_all.mean()))
                rows.setdefault(("nll-median", name, "nats/point"), []).append(float(of_each.median()))
            error = torch.cat([point_squared_error(p, task, "P") for p, task in predictions]).mean()
            rows.setdefault(("mse", name, "raw"), []).append(float(error))
    return tuple(Measurement("curves", *what, tuple(values)) for what, values in rows.items())


def _by_function(predictive: Predictive, task: Task, points: Points) -> Tensor:
    """Each function's NLL per point, [B]."""
    assert task.y_target is not None and task.in_context is not None
    counted = task.mask_target & ~task.in_context if points == "P" else task.mask_target
    values = torch.where(counted, -predictive.log_prob(task.y_target), 0.0)
    return values.sum(-1) / counted.sum(-1)


def extras(nets: Sequence[NeuralProcess], data: Unseen, num_global: int) -> dict[str, Any]:
    """NLL outside the context for each size of context, and coverage of central intervals: a list a net."""
    return {
        "context_sizes": list(data.by_size),
        "nll_by_context": [
            [
                float(torch.cat([point_nll(predict(net, t, num_global), t, "P") for t in tasks]).mean())
                for tasks in data.by_size.values()
            ]
            for net in nets
        ],
        "levels": LEVELS,
        "coverage": [_coverage(net, data.splits["inter"], num_global) for net in nets],
    }


def _coverage(net: NeuralProcess, tasks: Sequence[Task], num_global: int) -> list[float]:
    """Share of points outside the context inside central intervals of each level."""
    return pit_coverage(torch.cat([pit(predict(net, t, num_global), t, "P") for t in tasks]), LEVELS).tolist()


def panels(net: NeuralProcess, num_global: int, device: torch.device) -> dict[str, Any]:
    """One function inside the interval of training and one beyond it, the same for every model."""
    shown = {}
    for title, interval, num_context in (("interpolation", INSIDE, 15), ("extrapolation", OUTSIDE, 30)):
        generator = torch.Generator("cpu").manual_seed(4)  # the same curve on every device
        grid = torch.linspace(*interval, 200)
        places = interval[0] + (interval[1] - interval[0]) * torch.rand(num_context, generator=generator)
        x = torch.cat([grid, places])[None, :, None]
        y = draw_curves(x, generator)
        task = Task.from_sets(x[:, 200:], y[:, 200:], x[:, :200]).to(device)
        panel = Panel.of(grid, y[0, :200, 0], places, y[0, 200:, 0], predict(net, task, num_global))
        shown[title] = panel.to_lists()
    return shown


def predict(net: NeuralProcess, task: Task, num_global: int) -> Predictive:
    """Predict with draws that are the same for each call."""
    generator = torch.Generator(task.x_target.device).manual_seed(0)
    return net.predict(task, num_global, generator=generator, validate=False)
