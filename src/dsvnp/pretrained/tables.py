"""Rows of a user's table as tasks of the pretrained network for tables, and its answers in the user's units.

A network has learned from contexts up to some size. A table with more rows is cut: targets that lie near each other are
predicted from the rows nearest to them. Columns have no order for a network except for the codes that tell them apart;
predictions are a mixture over a few random orders, of classes too, which averages what little the codes matter.

Axes: N known rows, T targets, D columns, M orders.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dsvnp.models.base import NeuralProcess
from dsvnp.naming import at_least_one
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, Predictive, concatenate
from dsvnp.pretrained.curves import outside
from dsvnp.sources.priors.scaling import output_scale, standardise
from dsvnp.sources.priors.tables import CLIP_OUTPUT
from dsvnp.task import Task


@dataclass(frozen=True)
class TableUse:
    """How a pretrained network is used on a table."""

    num_orders: int = 4  # M, orders of columns and classes that a prediction is a mixture over
    max_context: int = 1024  # rows that a prediction reads at most; networks were trained with up to 896
    max_parts: int = 16  # contexts that a large table is cut into at most
    seed: int = 0  # of the orders, and of rows that are left out at random

    def __post_init__(self) -> None:
        at_least_one(num_orders=self.num_orders, max_context=self.max_context, max_parts=self.max_parts)


def predict_numbers(
    model: NeuralProcess, x: Tensor, y: Tensor, x_target: Tensor, use: TableUse | None = None
) -> GaussianPredictive:
    """Predict one output at rows [T, D] from known rows x [N, D], y [N], by a network for numbers (`for_numbers`).

    Inputs are in any units, in float64, NaN where missing. Returns a mixture over orders, [M, S, 1, T, 1], in the
    user's units and in float64.
    """
    use = use or TableUse()

    def part(near: Tensor, rows: Tensor, order: Tensor) -> GaussianPredictive:
        mean, std = output_scale(y[near][None], torch.ones_like(near[None], dtype=torch.bool))  # [1, 1]
        outputs = ((y[near] - mean) / std).clamp(-CLIP_OUTPUT, CLIP_OUTPUT)[..., None].float()  # [1, N, 1]
        predictive = _ask(model, x[near][:, order], outputs, x_target[rows][:, order])
        assert isinstance(predictive, GaussianPredictive)
        return predictive.map(Tensor.double).affine(mean, std)

    cuts, orders = list(contexts(x, x_target, use)), list(_orders(x.shape[1], use))
    whole = _together([[part(near, rows, order) for order in orders] for rows, near in cuts], cuts)
    assert isinstance(whole, GaussianPredictive)
    return whole


def predict_classes(
    model: NeuralProcess, x: Tensor, labels: Tensor, x_target: Tensor, use: TableUse | None = None
) -> CategoricalPredictive:
    """Predict classes at rows [T, D] from known rows x [N, D] with integer labels [N], 0 … number of classes − 1.

    The network is one for as many classes (`for_classes`). Returns a mixture over orders, [M, 1, 1, T, classes], in
    float64.
    """
    use = use or TableUse()

    def part(near: Tensor, rows: Tensor, order: Tensor, number: Tensor) -> CategoricalPredictive:
        predictive = _ask(
            model, x[near][:, order], number[labels[near]][None, :, None], x_target[rows][:, order]
        )
        assert isinstance(predictive, CategoricalPredictive)
        return predictive.map(lambda log_probs: log_probs.double()[..., number])  # back to the user's numbers

    cuts = list(contexts(x, x_target, use))
    orders = list(zip(_orders(x.shape[1], use), _orders(model.arch.dim_y, use, 1), strict=True))
    whole = _together([[part(near, rows, *order) for order in orders] for rows, near in cuts], cuts)
    assert isinstance(whole, CategoricalPredictive)
    return whole


def contexts(x: Tensor, x_target: Tensor, use: TableUse) -> Iterator[tuple[Tensor, Tensor]]:
    """Cut targets [T, D] into parts: indices of the targets of each, and of the rows to predict them from.

    The part with most targets is cut at the median of the column along which it is longest, in standard deviations of
    the table, until there are parts enough for each row to be read once. A part reads the rows nearest to the box of
    its targets; among rows inside the box, random ones.
    """
    if len(x) <= use.max_context:
        yield torch.arange(len(x_target)), torch.arange(len(x))
        return
    table, targets = _plain(x, x), _plain(x_target, x)
    parts, wanted = [torch.arange(len(targets))], min(use.max_parts, -(-len(x) // use.max_context))
    while len(parts) < wanted:
        parts.sort(key=len)
        rows = parts[-1]
        sides = targets[rows].amax(0) - targets[rows].amin(0)
        if len(rows) < 2 or not float(sides.max()) > 0:
            break
        ranked = parts.pop()[targets[rows][:, sides.argmax()].argsort()]
        parts += ranked.tensor_split(2)
    generator = torch.Generator().manual_seed(use.seed)
    for rows in parts:
        away = outside(table, targets[rows]).norm(dim=-1)
        random = torch.rand(len(x), generator=generator, dtype=away.dtype)
        yield rows, (away + 1e-9 * random).argsort()[: use.max_context]


def _plain(x: Tensor, known: Tensor) -> Tensor:
    """Columns in standard deviations of the known rows, 0 where a value is missing."""
    mean = known.nanmean(0)
    std = (known - mean).square().nanmean(0).sqrt()
    return ((x - mean) / torch.where(std > 0, std, 1.0)).nan_to_num(0.0)


def _orders(size: int, use: TableUse, salt: int = 0) -> Iterator[Tensor]:
    """M orders of columns or classes, the given one first."""
    generator = torch.Generator().manual_seed(use.seed + salt)
    yield torch.arange(size)
    for _ in range(use.num_orders - 1):
        yield torch.randperm(size, generator=generator)


def _ask(model: NeuralProcess, x: Tensor, y: Tensor, x_target: Tensor) -> Predictive:
    """Predict from known rows [N, D] with outputs [1, N, 1] in the network's units, on the network's device."""
    rows = torch.cat([x, x_target])[None]  # [1, N + T, D]
    seen = (torch.arange(rows.shape[1]) < len(x))[None]
    used = torch.ones_like(rows[:, 0], dtype=torch.bool)
    inputs = standardise(rows, used, seen, torch.ones_like(seen)).float()
    device = next(model.parameters()).device
    parts = (inputs[:, : len(x)], y, inputs[:, len(x) :])
    task = Task.from_sets(*(part.to(device) for part in parts))
    return model.predict(task, num_global=1).map(Tensor.cpu)


def _together(parts: Sequence[Sequence[Predictive]], cuts: Sequence[tuple[Tensor, Tensor]]) -> Predictive:
    """Orders as draws, and targets as they came."""
    order = torch.cat([rows for rows, _ in cuts]).argsort()
    return concatenate([concatenate(orders, 0) for orders in parts], 3).map(
        lambda array: array[:, :, :, order]
    )
