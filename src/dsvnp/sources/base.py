"""Standardizer, from a user's units to unit variance and back; and TaskSource, where training tasks come from.

A source has *static* tensors that never change (the rows of a table, images) and a *pool* that is redrawn every
`refresh_every` steps (functions of a process, an order in which rows are visited). A batch is a pure function of both,
of a few uniform numbers and of the step: it can be drawn inside a captured graph, for many replicas at once under
`vmap`.

The generator of a pool is seeded by the replica's seed and by the number of earlier pools, never by the clock: a
resumed run sees the same tasks as an uninterrupted one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dsvnp.networks import Shape
from dsvnp.task import Task

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Standardizer:
    """Zero mean and unit variance for each column, and the way back."""

    mean: Tensor  # mean of each column, [D]
    std: Tensor  # standard deviation of each, over n and not n − 1; 1 for a column that does not vary, [D]

    @classmethod
    def fit(cls, rows: Tensor) -> Standardizer:
        """Measure the columns of rows [N, D], in float64; entries that are NaN do not count."""
        rows = rows.double()
        mean = rows.nanmean(0)
        if mean.isnan().any():
            column = int(mean.isnan().nonzero()[0])
            raise ValueError(f"column {column} has no finite value to standardise by; leave it out")
        std = (rows - mean).square().nanmean(0).sqrt()
        # Rounding of the mean makes a constant column vary by a few units in its last place.
        constant = std <= 1e-12 * mean.abs()
        return cls(mean, torch.where(constant, 1.0, std))

    def transform(self, rows: Tensor) -> Tensor:
        """Rows [..., D] in unit variance, in the dtype they came in."""
        return ((rows.double() - self.mean) / self.std).to(rows.dtype)

    def inverse(self, rows: Tensor) -> Tensor:
        """Rows [..., D] in the units of the fit."""
        return (rows.double() * self.std + self.mean).to(rows.dtype)


class TaskSource(ABC):
    """A supply of batches of tasks; see the module's docstring."""

    refresh_every: int = 1_000_000  # number of steps that one pool serves

    def static(self) -> Tensors:
        """Tensors that never change; none by default."""
        return {}

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """Draw a pool, whose shapes are the same each time; nothing by default."""
        return {}

    @abstractmethod
    def uniform_shapes(self) -> Mapping[str, Shape]:
        """Names and shapes of the uniform numbers in [0, 1) that a batch consumes, as one per task for its context."""

    @abstractmethod
    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        """Make the batch of a step from static tensors and pool; pure, and without branches on values.

        `step` counts the steps taken before, an integer tensor.
        """


@dataclass(frozen=True)
class Rotation:
    """Sources that take turns, one per step: their batches may differ in shape (tables of few and of many columns)."""

    # at least one, in the order of their turns; a source may be listed more than once
    sources: tuple[TaskSource, ...]

    def __post_init__(self) -> None:
        if not self.sources:
            raise ValueError("a rotation needs at least one source, got none; pass one")


class RowSource(TaskSource):
    """Tasks that are random batches of rows of one table, as Alg. 1 makes them; images are rows as well.

    An epoch visits the rows in a random order; the first rows of a batch are its context; a uniform
    number decides how many. The last rows of an order, too few for a batch, are left out of that epoch.
    """

    def __init__(
        self,
        x: Tensor,  # inputs, [rows, dim_x]
        y: Tensor,  # outputs [rows, dim_y], or integer labels [rows, 1]
        num_points: int = 100,  # rows of a task
        batch_size: int = 1,  # tasks of a batch
        min_context: int = 1,  # smallest context
        max_context: int | None = None,  # largest context; all rows of a task by default
    ) -> None:
        if len(x) != len(y):
            raise ValueError(f"y has {len(y)} rows but x has {len(x)}; pass one output row per input row")
        self.x, self.y = x, y
        self.shape = (batch_size, num_points)
        self.context = (min_context, num_points if max_context is None else max_context)
        check_context(self.context, num_points)
        self.refresh_every = len(x) // (batch_size * num_points)
        if self.refresh_every < 1:
            raise ValueError(
                f"the table has {len(x)} rows, fewer than the {batch_size} × {num_points} of one batch; "
                "lower num_points or batch_size"
            )

    def static(self) -> Tensors:
        return {"x": self.x, "y": self.y}

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """The order in which an epoch visits the rows."""
        return {"order": torch.randperm(len(self.x), generator=generator, device=device)}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        return {"context": self.shape[:1]}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        rows = take_batch(tensors["order"], step, self.shape[0] * self.shape[1]).reshape(self.shape)
        x = self.prepare(tensors["x"][rows], tensors, uniforms)
        return Task.from_points(x, tensors["y"][rows], first_points(uniforms["context"], *self.context, x))

    def prepare(self, x: Tensor, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor]) -> Tensor:
        """Turn stored inputs [B, T, dim_x] into the model's inputs; here they are the same."""
        return x


def take_batch(pool: Tensor, step: Tensor, size: int) -> Tensor:
    """Take `size` entries of a pool in order, from the start again at its end; each step takes the next ones."""
    start = step % (pool.shape[0] // size) * size
    return pool[start + torch.arange(size, device=pool.device)]


def first_points(uniform: Tensor, smallest: int, largest: int, x: Tensor) -> Tensor:
    """Flag the first n points of tasks x [B, T, dim_x] as their context, n uniform in smallest … largest, [B, T].

    `uniform` holds one number in [0, 1) per task. The points of a pool are in random order already: the first n are a
    random subset.
    """
    sizes = smallest + (uniform * (largest - smallest + 1)).long()
    return torch.arange(x.shape[1], device=x.device) < sizes[:, None]


def check_context(context: tuple[int, int], num_points: int) -> None:
    """Refuse context sizes that no task of `num_points` points can have."""
    smallest, largest = context
    if not 0 <= smallest <= largest <= num_points:
        raise ValueError(
            f"context sizes must satisfy 0 ≤ min_context ≤ max_context ≤ {num_points}, the points of a task; "
            f"got {smallest} and {largest}"
        )
