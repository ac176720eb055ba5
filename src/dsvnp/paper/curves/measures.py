"""Measures of a model of curves: Tables 2 and A.1, the effect of context, calibration, and predictions to draw."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dsvnp.metrics import Points, pit, pit_coverage, point_squared_error
from dsvnp.models import NeuralProcess
from dsvnp.paper.curves.data import INSIDE, OUTSIDE, UnseenCurves
from dsvnp.paper.experiment import Drawn, Measurement
from dsvnp.paper.measuring import FIXED, Likelihoods, PointNLL, by_task, estimate_nll, seeded_predict
from dsvnp.plotting.figures import FunctionPanel
from dsvnp.sources.curves import draw_curves
from dsvnp.task import Task

LEVELS = [i / 20 for i in range(1, 20)]
POINTS: tuple[Points, ...] = ("J", "P")


def measure_curves(
    nets: Sequence[NeuralProcess], data: UnseenCurves, num_global: int, how: Likelihoods = FIXED
) -> tuple[Measurement, ...]:
    """The tables' rows, one value per net.

    Over all points (J) and outside the context (P): the NLL's mean over points, its median over functions (far outside
    the interval of training, one function can outweigh all others), and outside the context the squared error. With
    draws that suffice, the negative ELBO stands next to NLL over all points.
    """
    rows: dict[tuple[str, str, str], list[float]] = {}
    drawn: dict[tuple[str, str, str], tuple[Drawn, ...]] = {}
    for split, tasks in data.splits.items():
        part, _, suffix = split.partition("-")
        for net in nets:
            predictions = [seeded_predict(net, task, (num_global, 1)) for task in tasks]
            found, scored = estimate_nll(net, tasks, "J", how, predictions), how.scored(tasks)
            for points in POINTS:
                name = "-".join(filter(None, [part, points, suffix]))
                of_all = found.only(scored, points)
                of_each = by_task(of_all.values, scored, points)
                for metric, value in (("nll", of_all.mean), ("nll-median", float(of_each.median()))):
                    what = (metric, name, "nats/point")
                    rows.setdefault(what, []).append(value)
                    drawn[what] = drawn.get(what, ()) + of_all.drawn
                if of_all.bound is not None:
                    rows.setdefault(("bound", name, "nats/point"), []).append(of_all.bound)
            pairs = zip(predictions, tasks, strict=True)
            error = torch.cat([point_squared_error(p, task, "P") for p, task in pairs]).mean()
            rows.setdefault(("mse", name, "raw"), []).append(float(error))
    return tuple(
        Measurement("curves", *what, tuple(values), drawn.get(what, ())) for what, values in rows.items()
    )


def curve_extras(
    nets: Sequence[NeuralProcess], data: UnseenCurves, num_global: int, how: Likelihoods = FIXED
) -> dict[str, Any]:
    """NLL outside the context for each size of context, and coverage of central intervals: one list per net."""

    def outside(score: Callable[..., Tensor], net: NeuralProcess, tasks: Sequence[Task]) -> Tensor:
        return torch.cat([score(seeded_predict(net, t, (num_global, 1)), t, "P") for t in tasks])

    def likelihood(net: NeuralProcess, tasks: Sequence[Task]) -> PointNLL:
        predictions = [seeded_predict(net, task, (num_global, 1)) for task in tasks]
        return estimate_nll(net, tasks, "P", how, predictions)

    return {
        "context_sizes": list(data.by_size),
        "nll_by_context": [[likelihood(net, tasks).mean for tasks in data.by_size.values()] for net in nets],
        "levels": LEVELS,
        "coverage": [pit_coverage(outside(pit, net, data.splits["inter"]), LEVELS).tolist() for net in nets],
    }


def curve_panels(net: NeuralProcess, num_global: int, device: torch.device) -> dict[str, Any]:
    """One function inside the interval of training and one beyond it, the same for every model."""
    shown = {}
    for title, interval, num_context in (("interpolation", INSIDE, 15), ("extrapolation", OUTSIDE, 30)):
        generator = torch.Generator("cpu").manual_seed(4)  # the same curve on every device
        grid = torch.linspace(*interval, 200)
        places = interval[0] + (interval[1] - interval[0]) * torch.rand(num_context, generator=generator)
        x = torch.cat([grid, places])[None, :, None]
        y = draw_curves(x, generator)
        task = Task.from_sets(x[:, 200:], y[:, 200:], x[:, :200]).to(device)
        panel = FunctionPanel.of(
            grid, y[0, :200, 0], places, y[0, 200:, 0], seeded_predict(net, task, (num_global, 1))
        )
        shown[title] = panel.to_lists()
    return shown
