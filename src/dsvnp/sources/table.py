"""A person's own data as tasks: one table, or many small ones (sensors, patients, machines).

A missing output is NaN and masked by the likelihood. A row of which no output is known has no use in training and must
not enter a context, where a missing output is read as the mean: `known_rows` flags the rows to keep.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dsvnp.networks import Shape
from dsvnp.sources.base import RowSource, TaskSource, Tensors, check_context, take_batch
from dsvnp.sources.own_units import OwnUnits
from dsvnp.task import Task

Pair = tuple[Tensor, Tensor]  # x [rows, dim_x] and y [rows, dim_y]


def known_rows(y: Tensor) -> Tensor:
    """Rows of y [rows, dim_y] of which at least one output is known, as flags; a missing label is −1."""
    return ~torch.isnan(y).all(-1) if y.is_floating_point() else y[:, 0] >= 0


class TableTasks(RowSource):
    """Tasks that are random batches of rows of one table (Alg. 1), with sizes that suit any number of rows.

    y is [rows, dim_y], NaN where missing, or integer labels [rows, 1]. A table too small for `num_points` or
    `batch_size` gives smaller tasks, and fewer at once.
    """

    def __init__(self, x: Tensor, y: Tensor, num_points: int = 64, batch_size: int = 4) -> None:
        points = min(num_points, len(x))
        # A task of one row is all context or has none; the others leave at least one row to predict.
        super().__init__(
            x,
            y,
            num_points=points,
            batch_size=max(1, min(batch_size, len(x) // max(1, points))),
            min_context=min(1, points - 1),
            max_context=max(0, points - 1),
        )


class ManyTables(TaskSource):
    """Tasks that are tables of their own: a batch holds some tables, each with its rows in a new order.

    The first rows of a table in that order are its context; a uniform number decides how many. A table of more than
    `num_points` rows gives a random part of them.
    """

    refresh_every: int

    def __init__(
        self,
        # pairs of inputs [rows, dim_x] and outputs [rows, dim_y]; the numbers of rows may differ
        tables: Sequence[Pair],
        num_points: int = 128,  # rows of a task, at most
        batch_size: int = 16,  # tables of a batch, at most
        # smallest context; with 0 a model also learns to predict a table without any context
        min_context: int = 0,
        # rows that tables are padded to, the longest's by default; the sources of a fleet need the same
        num_slots: int | None = None,
        # sizes of contexts are spread as u^skew, u uniform: the larger, the more small contexts
        skew: float = 1.0,
        own: OwnUnits | None = None,  # gives tasks in units of their contexts
    ) -> None:
        if not tables:
            raise ValueError("got no table; pass at least one pair of inputs and outputs")
        self.x, self.y, self.mask = pad_tables(tables, num_slots)
        self.shape = (min(batch_size, len(tables)), min(num_points, self.x.shape[1]))
        self.min_context, self.skew, self.own = min_context, skew, own
        check_context((min_context, self.shape[1]), self.shape[1])
        self.refresh_every = len(tables) // self.shape[0]

    def static(self) -> Tensors:
        """The tables, padded to the longest, and what they have in common."""
        found = {"x": self.x, "y": self.y, "mask": self.mask}
        for name, value in vars(self.own).items() if self.own else ():
            found[f"own_{name}"] = value.to(self.y.dtype)
        return found

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """The order in which an epoch visits the tables."""
        return {"order": torch.randperm(len(self.x), generator=generator, device=device)}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        """One number per task for the size of its context, and one per slot for the order of its rows."""
        return {"context": self.shape[:1], "rows": (self.shape[0], self.x.shape[1])}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        """The next tables of the order, each with its rows shuffled and padding last."""
        tables = take_batch(tensors["order"], step, self.shape[0])
        filled = tensors["mask"][tables]  # [B, N]
        order = (uniforms["rows"] + (~filled).to(uniforms["rows"].dtype)).argsort(-1)[:, : self.shape[1]]
        mask = filled.gather(1, order)
        x, y = (tensors[name][tables].take_along_dim(order.unsqueeze(-1), 1) for name in ("x", "y"))
        most = (mask.sum(-1) - 1).clamp(min=0)  # at least one row is left to predict
        least = most.clamp(max=self.min_context)
        sizes = least + (uniforms["context"].pow(self.skew) * (most - least + 1)).long()
        in_context = torch.arange(self.shape[1], device=x.device) < sizes[:, None]
        if self.own is not None:
            own = OwnUnits(**{name: tensors[f"own_{name}"] for name in vars(self.own)})
            units = own.of(x, y, in_context)
            x, y = own.inputs(x, units).float(), own.outputs(y, units).float()
        return Task.from_points(x, y, in_context, mask)


def pad_tables(tables: Sequence[Pair], num_slots: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Stack tables of different lengths: x [M, N, dim_x], y [M, N, dim_y], and which slots are filled [M, N]."""
    longest = num_slots or max(len(x) for x, _ in tables)

    def padded(rows: Tensor) -> Tensor:
        return torch.cat([rows, rows.new_zeros(longest - len(rows), *rows.shape[1:])])

    mask = torch.stack([torch.arange(longest) < len(x) for x, _ in tables])
    return torch.stack([padded(x) for x, _ in tables]), torch.stack([padded(y) for _, y in tables]), mask
