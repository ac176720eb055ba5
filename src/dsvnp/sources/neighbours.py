"""Tasks of one row and its neighbours: the context is chosen for each target (the paper's Sec. 6 asks for that).

The context of a target consists of the rows nearest to it in a *metric*, a weight for each input. Its outputs are
measured from their smooth mean over that context, the *centre*: a model whose output is zero predicts as nearest
neighbours do, and learns to correct them; `recentre=False` leaves outputs as they are. The inputs of a row also hold
its distance from the target and the centre, without which a model could not correct the centre's error. Several metrics
give a target several contexts; a batch uses a random one of them.

In training the target is a row of the table and never in its own context.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.networks import Shape
from dsvnp.sources.base import TaskSource, Tensors, take_batch
from dsvnp.task import Task

SHARPNESS = 2.0  # of the weights exp(−2 (d / mean d)²) by which nearer rows count more


class Neighbourhood(NamedTuple):
    """Targets with their contexts, and the centre to add to a prediction."""

    task: Task  # one target per task, its outputs less the centre; inputs with the distance and the centre
    centre: Tensor  # smooth mean of each context's outputs, [B, 1, dim_y]


class NeighbourTasks(TaskSource):
    """Batches of rows of a table, each with its nearest rows in a random one of some metrics as context."""

    def __init__(
        self,
        x: Tensor,  # inputs, [rows, dim_x]
        y: Tensor,  # outputs, [rows, dim_y]
        metrics: Tensor,  # weight of each input, [metrics, dim_x]
        num_context: int,  # nearest rows that are a target's context
        batch_size: int,  # targets of a batch
        # context slots, at least `num_context`; all replicas of a fleet need the same number
        slots: int | None = None,
        recentre: bool = True,  # whether outputs are measured from the centre
    ) -> None:
        slots = num_context if slots is None else slots
        if not 1 <= num_context <= slots < len(x) or batch_size > len(x):
            raise ValueError(
                f"a table of {len(x)} rows cannot give batches of {batch_size} rows with {num_context} neighbours in "
                f"{slots} slots each; lower batch_size, num_context or slots"
            )
        self.x, self.y, self.metrics = x, y, metrics
        self.index = torch.stack([nearest_rows(x, x, metric, slots, itself=False) for metric in metrics])
        self.num_context = torch.tensor(num_context, device=x.device)
        self.slots, self.batch_size, self.recentre = slots, batch_size, recentre
        self.refresh_every = len(x) // batch_size

    def static(self) -> Tensors:
        """The rows, each row's neighbours in each metric, the metrics, and how many neighbours count."""
        names = ("x", "y", "metrics", "index", "num_context")
        return {name: getattr(self, name) for name in names}

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """The order in which an epoch visits the rows."""
        return {"order": torch.randperm(len(self.x), generator=generator, device=device)}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        """One number per target, for the metric."""
        return {"metric": (self.batch_size,)}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        """The next rows of the order as targets, each behind its context."""
        rows = take_batch(tensors["order"], step, self.batch_size)
        which = (uniforms["metric"] * len(self.metrics)).long()
        points = torch.cat([tensors["index"][which, rows], rows[:, None]], dim=1)  # [B, slots + 1]
        in_context = torch.arange(self.slots + 1, device=rows.device) < tensors["num_context"]
        in_context = in_context.expand(self.batch_size, -1)
        metric = tensors["metrics"][which, None]  # [B, 1, dim_x]
        x, y, _ = centred(tensors["x"][points], tensors["y"][points], in_context, metric, self.recentre)
        target = torch.arange(self.slots + 1, device=rows.device) == self.slots
        return Task.from_points(x, y, in_context, in_context | target)


def neighbourhood(
    rows: tuple[Tensor, Tensor],  # x and y of the table
    targets: tuple[Tensor, Tensor | None],  # x and y to predict; y may be None
    metric: Tensor,  # weight of each input
    num_context: int,  # nearest rows that are a context
    # False where the targets are the rows themselves, in order: each is left out of its own context
    itself: bool,
    recentre: bool = True,  # whether outputs are measured from the centre, which is 0 where they are not
) -> Neighbourhood:
    """Find the contexts of targets among the rows of a table."""
    x_target, y_target = targets
    index = nearest_rows(x_target, rows[0], metric, num_context, itself)
    known = x_target.new_zeros(len(x_target), rows[1].shape[1]) if y_target is None else y_target
    x = torch.cat([rows[0][index], x_target[:, None]], dim=1)  # [B, C + 1, dim_x]
    y = torch.cat([rows[1][index], known[:, None]], dim=1)
    in_context = (torch.arange(num_context + 1, device=x.device) < num_context).expand(len(x), -1)
    x, y, centre = centred(x, y, in_context, metric, recentre)
    task = Task.from_sets(x[:, :-1], y[:, :-1], x[:, -1:], None if y_target is None else y[:, -1:])
    return Neighbourhood(task, centre)


def centred(
    x: Tensor, y: Tensor, in_context: Tensor, metric: Tensor, recentre: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Measure points [B, T, ·] from the last of them, the target, by a metric [dim_x], or one per task, [B, 1, dim_x].

    Returns inputs with the distance from the target and, with `recentre`, the centre, [B, T, dim_x + 1 (+ dim_y)];
    outputs less the centre; and the centre [B, 1, dim_y], which is 0 without `recentre`.
    """
    distance = ((x - x[:, -1:]) * metric).square().sum(-1).sqrt()  # [B, T]
    shown = [x, (distance / metric.square().sum(-1).sqrt()).unsqueeze(-1)]
    centre = torch.zeros_like(y[:, :1])
    if recentre:
        centre = (smooth_weights(distance, in_context).unsqueeze(-1) * y).sum(1, keepdim=True)
        shown.append(centre.expand(-1, x.shape[1], -1))
    return torch.cat(shown, dim=-1), y - centre, centre


def smooth_weights(distance: Tensor, counted: Tensor) -> Tensor:
    """Weights that sum to 1 and fall with the distance, relative to the mean distance of the counted, [B, C]."""
    distance = torch.where(counted, distance, 0.0)
    mean = distance.sum(1, keepdim=True) / counted.sum(1, keepdim=True).clamp(min=1)
    weights = torch.where(counted, torch.exp(-SHARPNESS * (distance / mean.clamp(min=1e-12)).square()), 0.0)
    return weights / weights.sum(1, keepdim=True).clamp(min=1e-12)


def nearest_rows(
    queries: Tensor, rows: Tensor, metric: Tensor, count: int, itself: bool, chunk: int = 1024
) -> Tensor:
    """Indices of the rows nearest to each query by weighted inputs, nearest first, [queries, count].

    `itself` is False where query i is row i, which is then left out. `chunk` queries are handled at once.
    """
    scaled = rows * metric
    found = []
    for start in range(0, len(queries), chunk):
        distance = torch.cdist(queries[start : start + chunk] * metric, scaled)
        if not itself:
            distance.diagonal(start).fill_(torch.inf)
        found.append(distance.topk(count, largest=False).indices)
    return torch.cat(found)
