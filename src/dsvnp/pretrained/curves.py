"""Points of a user's function as tasks of the pretrained network for curves, and its answers in the user's units.

The context is scaled as `CurvePrior` scales it. A network has learned from contexts up to some size; a function with
more points is cut into boxes of targets, each predicted from the points nearest to it, inside and around the box.

Axes: N points of the function, T targets, D inputs, one to three.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dsvnp.models.base import NeuralProcess
from dsvnp.predictive import GaussianPredictive, concatenate
from dsvnp.pretrained.seasons import CurveView
from dsvnp.sources.priors.curves import CLIP_INPUT, CLIP_OUTPUT
from dsvnp.sources.priors.scaling import output_scale, standardise
from dsvnp.sources.priors.spectra import DIMENSIONS
from dsvnp.task import Task


@dataclass(frozen=True)
class ScaledTask:
    """A task in the network's units, and the way back: y = mean + std · output."""

    task: Task  # one task, inputs with their codes, in float32
    mean: Tensor  # of the context's outputs, float64
    std: Tensor  # of the context's outputs, float64

    def back(self, predictive: GaussianPredictive) -> GaussianPredictive:
        """The predictive distribution in the user's units, in float64: a small σ may lie on a large mean."""
        double = predictive.like(*(array.double() for array in predictive.arrays()))
        return double.affine(self.mean, self.std)


def scaled_task(x: Tensor, y: Tensor, x_target: Tensor, device: torch.device | str = "cpu") -> ScaledTask:
    """Make a task of points x [N, D], y [N] and inputs [T, D], each in the user's units and in float64."""
    count, dims = x.shape
    points = torch.cat([x, x_target])
    # [1, N+T, 3]
    padded = torch.cat([points, points.new_zeros(len(points), DIMENSIONS - dims)], dim=-1)[None]
    used = torch.arange(DIMENSIONS)[None] < dims
    seen = torch.arange(len(points))[None] < count
    inputs = standardise(padded, used, seen, torch.ones_like(seen), clip=CLIP_INPUT).float()
    mean, std = output_scale(y[None], torch.ones_like(y[None], dtype=torch.bool))  # [1, 1]
    outputs = ((y - mean) / std).clamp(-CLIP_OUTPUT, CLIP_OUTPUT).float().unsqueeze(-1)  # [1, N, 1]
    parts = (inputs[:, :count], outputs, inputs[:, count:])
    return ScaledTask(Task.from_sets(*(part.to(device) for part in parts)), mean.squeeze(), std.squeeze())


def predict_curve(
    model: NeuralProcess,
    x: Tensor,
    y: Tensor,
    x_target: Tensor,
    max_context: int,
    view: CurveView | None = None,
) -> GaussianPredictive:
    """Predict at inputs [T, D] from the points x [N, D], y [N], in the user's units and in float64."""
    if view is not None:
        rest = y - view.baseline(x)[:, 0]
        found = predict_curve(model, view.inputs(x), rest, view.inputs(x_target), max_context)
        return found.affine(view.baseline(x_target), torch.ones((), dtype=torch.float64))
    device = next(model.parameters()).device
    parts, places = [], []
    for rows, near in boxes(x, x_target, max_context):
        scaled = scaled_task(x[near], y[near], x_target[rows], device)
        predictive = model.predict(scaled.task, num_global=1)
        assert isinstance(predictive, GaussianPredictive)
        parts.append(scaled.back(predictive.like(*(array.cpu() for array in predictive.arrays()))))
        places.append(rows)
    whole = concatenate(parts, 3)
    order = torch.cat(places).argsort()
    return parts[0].like(*(array[:, :, :, order] for array in whole.arrays()))


def predict_views(
    model: NeuralProcess, x: Tensor, y: Tensor, x_target: Tensor, max_context: int, views: Sequence[CurveView]
) -> list[GaussianPredictive]:
    """Predict once with each view, as `predict_curve` does; few points pass through the network all at once."""
    if len(x) > max_context:
        return [predict_curve(model, x, y, x_target, max_context, view) for view in views]
    device = next(model.parameters()).device
    shown = [
        scaled_task(view.inputs(x), y - view.baseline(x)[:, 0], view.inputs(x_target), device)
        for view in views
    ]
    sets = zip(
        *((each.task.x_context, each.task.y_context, each.task.x_target) for each in shown), strict=True
    )
    found = model.predict(Task.from_sets(*(torch.cat(parts) for parts in sets)), num_global=1)
    assert isinstance(found, GaussianPredictive)
    parts = zip(*(array.cpu().split(1, dim=2) for array in found.arrays()), strict=True)
    one = torch.ones((), dtype=torch.float64)
    return [
        each.back(found.like(*arrays)).affine(view.baseline(x_target), one)
        for each, arrays, view in zip(shown, parts, views, strict=True)
    ]


def boxes(x: Tensor, x_target: Tensor, max_context: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut targets [T, D] into boxes: indices of the targets of each, and of the points to predict them from.

    A box is cut at the median of its targets along its longest side until it holds at most half of `max_context`
    points x [N, D]: the other half then lies around it. Sides are measured in standard deviations of x.
    """
    waiting = [torch.arange(len(x_target))]
    scale = x.std(0).clamp(min=1e-300)
    while waiting:
        rows = waiting.pop()
        some = x_target[rows]
        away, sides = outside(x, some) / scale, (some.amax(0) - some.amin(0)) / scale
        inside = int((away.amax(-1) == 0).sum())
        if len(x) > max_context and inside > max_context // 2 and float(sides.max()) > 0:
            ranked = rows[some[:, sides.argmax()].argsort()]
            waiting += ranked.tensor_split(2)
        else:
            yield rows, away.norm(dim=-1).argsort(stable=True)[:max_context]


def outside(x: Tensor, x_target: Tensor) -> Tensor:
    """How far points [N, D] lie outside of the box of all targets [T, D], along each input, [N, D]."""
    low, high = x_target.amin(0), x_target.amax(0)
    return (low - x).clamp(min=0) + (x - high).clamp(min=0)
