"""Asking: the pretrained network for tables reads known rows and predicts others, in the user's units.

It reads several sets with equal numbers of rows together: the folds of a table, or one table with its columns in
several orders. The order has a small effect on a prediction, and less on a mixture over orders. The network summarises
a set once, in single precision. Few rows are predicted in double precision: a row's prediction must not depend on the
rows asked with it, even by rounding.

Axes: B sets, N known rows, T targets, D columns, S components, C classes.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from dsvnp.models.base import NeuralProcess
from dsvnp.models.transformer import Slots
from dsvnp.predictive import CategoricalPredictive, IndependentPredictive, Predictive
from dsvnp.pretrained import for_classes, for_numbers, load_pretrained
from dsvnp.sources.priors.scaling import input_scale, output_scale, scale_inputs
from dsvnp.sources.priors.tables import CLIP_OUTPUT
from dsvnp.task import Task

NETWORK = "tables"  # name of the weights
MOST_CLASSES = 10  # that the network tells apart at once
FEW_ROWS = 24  # that are answered in double precision

Told = tuple[Tensor, Tensor]  # inputs [N, D], NaN where missing, and one output [N]: NaN or −1 where unknown


@cache
def network(num_classes: int, device: torch.device, dtype: torch.dtype) -> NeuralProcess:
    """The pretrained network for so many classes, 0 for numbers."""
    whole = load_pretrained(NETWORK)
    one = for_classes(whole, num_classes) if num_classes else for_numbers(whole)
    return one.to(device, dtype).requires_grad_(False)


class Reading:
    """Sets of rows as the network has read them.

    Args:
        sets: as many rows of as many columns in each.
        orders: a seed for each set, which decides the order of its columns and classes; 0 leaves them as they are.
        num_classes: 0 for numbers.
        device: where to compute.
        exact: answer few rows in double precision.
    """

    @torch.no_grad()
    def __init__(
        self, sets: Sequence[Told], orders: Sequence[int], num_classes: int, device: torch.device, exact: bool
    ) -> None:
        self.num_classes, self.device, self.exact = num_classes, device, exact
        self.wide: Any = None
        width = sets[0][0].shape[1]
        self.columns = [order_of(seed, width) for seed in orders]
        self.classes = torch.stack([order_of(seed, num_classes) for seed in orders])  # [B, C]
        x = self._ordered([x for x, _ in sets])
        y = torch.stack([output for _, output in sets])  # [B, N]
        self.known = y >= 0 if num_classes else ~y.isnan()
        self.unit = input_scale(x, self.known[..., None])
        self.mean, self.std = self._unit(y)
        model = network(num_classes, device, torch.float32)
        inputs = self._inputs(x, torch.float32)
        task = Task.from_sets(inputs, self._outputs(y), inputs[:, :0], mask_context=self.known.to(device))
        self.summary = _each_slot(model.summarise(task, {}), lambda slots: slots._replace(x=slots.x[..., :0]))

    @torch.no_grad()
    def __call__(self, rows: Sequence[Tensor]) -> Predictive:
        """Answer rows [T, D], as many for each set; sets are the first axis of what comes out, [B, S, 1, T, ·]."""
        x = self._ordered(rows)
        dtype = torch.float64 if self.exact and x.shape[1] <= FEW_ROWS else torch.float32
        model = network(self.num_classes, self.device, dtype)
        raw = model.decode(self._summary(dtype), self._inputs(x, dtype), {})
        # [B, S, 1, T, ·]
        parts = [part.double().transpose(0, 2) for part in model.likelihood.components(raw)]
        if self.num_classes:
            index = self.classes.to(self.device)[:, None, None, None].expand_as(parts[0])
            return CategoricalPredictive(parts[0].gather(-1, index))
        whole = model.likelihood.predictive(*parts)
        assert whole.log_weights is not None
        mean, std = (value.to(self.device)[:, None, None, None] for value in (self.mean, self.std))
        loc, scale, weights = whole.arrays()
        return IndependentPredictive(mean + std * loc, std * scale, weights)

    def _unit(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of numbers, [B, 1] each."""
        if self.num_classes:
            return torch.zeros(len(y), 1), torch.ones(len(y), 1)
        return output_scale(y, self.known)

    def _outputs(self, y: Tensor) -> Tensor:
        """Known outputs in the network's units, [B, N, 1]."""
        if self.num_classes:
            return self.classes.gather(-1, y.clamp(min=0))[..., None].to(self.device)
        scaled = ((y - self.mean) / self.std).clamp(-CLIP_OUTPUT, CLIP_OUTPUT)
        return torch.where(self.known, scaled, 0.0)[..., None].float().to(self.device)

    def _ordered(self, rows: Sequence[Tensor]) -> Tensor:
        """Rows [T, D] of each set with their columns in its order, [B, T, D]."""
        return torch.stack([x[:, order] for x, order in zip(rows, self.columns, strict=True)])

    def _inputs(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Rows [B, T, D] as the network reads them, [B, T, 2·D]."""
        used = torch.ones_like(self.unit[0][:, 0], dtype=torch.bool)
        return scale_inputs(x, used, used[:, None], self.unit).to(self.device, dtype)

    def _summary(self, dtype: torch.dtype) -> Any:
        """The network's summary of the sets; in double precision, made when first needed."""
        if dtype == torch.float32:
            return self.summary
        if self.wide is None:
            self.wide = _each_slot(
                self.summary,
                lambda slots: slots._replace(keys=slots.keys.double(), values=slots.values.double()),
            )
        return self.wide


class Tree:
    """More classes than the network tells apart: p(class) = p(group) · p(class | group), each from a reading.

    Args:
        sets: rows and labels.
        orders: a seed for each set.
        num_classes: how many there are.
        device: where to compute.
        exact: answer few rows in double precision.
    """

    def __init__(
        self, sets: Sequence[Told], orders: Sequence[int], num_classes: int, device: torch.device, exact: bool
    ) -> None:
        groups = torch.arange(num_classes).tensor_split(-(-num_classes // MOST_CLASSES))
        of_class = torch.cat([torch.full_like(group, i) for i, group in enumerate(groups)])
        tops = [(x, torch.where(y >= 0, of_class[y], -1)) for x, y in sets]
        self.top = read(tops, orders, len(groups), device, exact)
        self.parts = []
        for group in groups:
            inside = [(x, torch.where((y >= group[0]) & (y <= group[-1]), y - group[0], -1)) for x, y in sets]
            self.parts.append(read(inside, orders, len(group), device, exact))

    def __call__(self, rows: Sequence[Tensor]) -> Predictive:
        """Answer rows [T, D] for each set, [B, 1, 1, T, C]."""
        (top,) = self.top(rows).arrays()
        parts = [part(rows).arrays()[0] for part in self.parts]
        return CategoricalPredictive(
            torch.cat([top[..., i : i + 1] + part for i, part in enumerate(parts)], dim=-1)
        )


def read(
    sets: Sequence[Told], orders: Sequence[int], num_classes: int, device: torch.device, exact: bool = True
) -> Reading | Tree:
    """Let the network read sets of rows, with any number of classes; see `Reading` for the arguments."""
    return (Reading if num_classes <= MOST_CLASSES else Tree)(sets, orders, num_classes, device, exact)


def order_of(seed: int, size: int) -> Tensor:
    """An order of so many things; the given one for seed 0."""
    if not seed:
        return torch.arange(size)
    return torch.randperm(size, generator=torch.Generator().manual_seed(seed))


def _each_slot(summary: Any, change: Callable[[Slots], Slots]) -> Any:
    """Change all slots of a summary."""
    return type(summary)(*([change(slots) for slots in layers] for layers in summary))
