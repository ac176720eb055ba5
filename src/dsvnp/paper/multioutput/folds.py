"""Folds of a table: two random halves, ten times, each half once for training and once for the test.

Split 2r + f trains on half f of repeat r. Every model sees the same splits, the same rows held out of the training
half, and the same context rows at test: values of a row of results are paired over models.

Settings are chosen on *inner* splits (`RowPortions.judged_on`): a fifth of a training half takes the place of the test
half, which is not looked at. They too are the same for every model and every choice of settings.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from dsvnp.intervals import midpoints
from dsvnp.naming import lookup
from dsvnp.paper.datasets.catalogue import DataTable, load_table
from dsvnp.sources.base import Standardizer
from dsvnp.task import Task

PUBLISHED = {"sarcos": 48933, "wq": 1060, "scm20d": 8966}  # rows
JUDGED = {"test": False, "held-out": True}  # whether rows of the training half are judged on
FEW_VALUES = 10  # outputs that take no more have probabilities of intervals in place of densities
INNER = 0.2  # of the training half, where they are


class Rows(NamedTuple):
    """Inputs [N, dim_x] and outputs [N, dim_y], in unit variance of the rows that models learn from."""

    x: Tensor
    y: Tensor

    def take(self, index: Tensor) -> Self:
        """Some of the rows."""
        return type(self)(self.x[index], self.y[index])


@dataclass(frozen=True)
class RowPortions:
    """The uses of the rows of a split."""

    held_out: float = 0.05  # share of the training half that no model learns from; σ comes from it
    num_context: int = 30  # context rows at test
    # "test" for the test half; "held-out" for a fifth of the training half, which models then go without and no test
    # row is looked at: what settings are chosen on
    judged_on: str = "test"

    @property
    def inner(self) -> bool:
        """Whether rows of the training half are judged on."""
        return lookup(self.judged_on, JUDGED, "set to judge on")


@dataclass(frozen=True, eq=False)
class Split:
    """One training half and one test half of a table."""

    train: Rows  # what models learn from
    held_out: Rows  # rows of the training half that no model learns from: σ and choices come from them
    test: Rows  # the other half; of an inner split, the rows of the training half that stand for it
    context: Tensor  # rows of `train` that are the context at test
    # rows of `test` that are the context in the paper's way; the other rows are then predicted
    test_context: Tensor
    std: Tensor  # standard deviation of each output in raw units, by which `y` was divided
    # largest less smallest value of each output over all rows that may be looked at, in raw units
    span: Tensor
    edges: Tensor | None = None  # between the few values that outputs take, in unit variance, [E, dim_y]

    def task(self, targets: Rows) -> Task:
        """Predict rows from the training half's context."""
        return task_of(self.train.take(self.context), targets)

    def within_test(self) -> Task:
        """Predict test rows from other test rows."""
        others = torch.ones(len(self.test.x), dtype=torch.bool, device=self.test.x.device)
        others[self.test_context] = False
        return task_of(self.test.take(self.test_context), self.test.take(others))


def task_of(context: Rows, targets: Rows) -> Task:
    """One task of a context and of rows to predict."""
    return Task.from_sets(context.x[None], context.y[None], targets.x[None], targets.y[None])


def load_rows(name: str, directory: Path | None, max_rows: int | None, verify: bool) -> DataTable:
    """Load a table, or `max_rows` random rows of it; its name says so where it is not the whole."""
    published = lookup(name, PUBLISHED, "data set")
    table = load_table(name, directory, verify=verify)
    x, y = table.x, table.y
    if max_rows is not None and max_rows < len(x):
        chosen = np.sort(np.random.default_rng(0).permutation(len(x))[:max_rows])
        x, y = x[chosen], y[chosen]
    full = name if len(x) == published else f"{name} ({len(x)} of {published} rows)"
    return DataTable(full, x, y, table.x_names, table.y_names, table.note)


@lru_cache(maxsize=1)  # the units of a data set follow each other
def load_splits(
    name: str,
    directory: Path | None,
    max_rows: int | None,
    verify: bool,
    indices: tuple[int, ...],
    portions: RowPortions,
    device: torch.device,
) -> tuple[str, tuple[Split, ...]]:
    """Load a table and make some of its splits; return its name, with what is judged on, and the splits."""
    table = load_rows(name, directory, max_rows, verify)
    full = table.name.replace(name, f"{name}-held-out", 1) if portions.inner else table.name
    return full, tuple(make_split(table, index, portions, device) for index in indices)


def make_split(table: DataTable, index: int, portions: RowPortions, device: torch.device) -> Split:
    """Make one split, in float32.

    The replicas of a fleet need training sets of one size: where the table has an odd number of rows, the larger
    half goes without one of its rows in training. No row is left out of a test.
    """
    generator = torch.Generator().manual_seed(4_000_000 + index // 2)
    order = torch.randperm(len(table.x), generator=generator)
    half = len(order) // 2
    halves = order[:half], order[half:]
    mine, test = halves[index % 2][:half], halves[1 - index % 2]
    seen = order
    if portions.inner:
        num_test = round(INNER * half)
        seen, mine, test = mine, mine[num_test:], mine[:num_test]
    num_context = portions.num_context
    num_train = len(mine) - max(1, round(portions.held_out * len(mine)))
    if not 0 < num_context < min(num_train, len(test)):
        raise ValueError(
            f"{table.name}: {num_context} context rows cannot be taken from {num_train} training and {len(test)} "
            "test rows; lower num_context"
        )
    train, kept = mine[:num_train], mine[num_train:]
    x, y = torch.from_numpy(table.x), torch.from_numpy(table.y)
    scale_x, scale_y = Standardizer.fit(x[train]), Standardizer.fit(y[train])

    def rows(chosen: Tensor) -> Rows:
        parts = scale_x.transform(x[chosen]), scale_y.transform(y[chosen])
        return Rows(*(part.float().to(device) for part in parts))

    context, test_context = (
        torch.randperm(n, generator=generator)[:num_context].to(device) for n in (num_train, len(test))
    )
    span = y[seen].amax(0) - y[seen].amin(0)
    std, span = (each.float().to(device) for each in (scale_y.std, torch.where(span > 0, span, 1.0)))
    # The values of a scale belong to its definition; no output of a test row is read off them.
    values = y.unique()
    few = scale_y.transform(values[:, None].expand(-1, y.shape[1])) if len(values) <= FEW_VALUES else None
    edges = None if few is None else midpoints(few).float().to(device)
    return Split(rows(train), rows(kept), rows(test), context, test_context, std, span, edges)
