"""TablePrior: synthetic tables to pretrain on, numbers and classes to predict, drawn on the device.

A table has 1 to 32 inputs (`inputs`), a function of them (`functions`) or a causal graph that makes inputs and output
together (`causal`), and an output with noise (`targets`). A pool holds one table per task of `refresh_every` steps;
each is used once. Tables are drawn in chunks: within one, each family of functions is computed for its own tables
only, all at once.

What a task holds
    x  [B, T, 2·D]  `standardise`: scaled values, then codes 0 observed, 1 missing, −1 column not used. The used columns
                    are the first ones, in no order: a network that reads cells can leave out the rest.
    y  [B, T, 2]    a number standardised by the context, or a label as a float; then 0 for a number, 1 for a label.
                    Without classes y is [B, T, 1].
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dsvnp.naming import at_least_one
from dsvnp.networks import Shape
from dsvnp.sources.base import TaskSource, Tensors, take_batch
from dsvnp.sources.priors.causal import draw_causal
from dsvnp.sources.priors.functions import draw_table_functions
from dsvnp.sources.priors.inputs import draw_hidden, observe
from dsvnp.sources.priors.randomness import Random
from dsvnp.sources.priors.scaling import context_sizes, output_scale, seen_classes, standardise
from dsvnp.sources.priors.targets import draw_classes, draw_numbers
from dsvnp.task import Task

CHUNK_ENTRIES = 2**24  # entries of x that are drawn at once: 64 MiB, and some ten times that while they are
CLIP_OUTPUT = 15.0  # standard deviations of the context


@dataclass(frozen=True)
class TableSettings:
    """Settings of synthetic tables."""

    batch_size: int = 64  # tables of a batch
    num_rows: int = 256  # rows of a table, context and targets together
    min_context: int = 5  # smallest context
    max_context: int | None = None  # largest context; seven eighths of the rows by default
    min_columns: int = 1  # smallest number of inputs
    max_columns: int = 32  # largest number of inputs, and the D of the module's docstring
    max_classes: int = 10  # largest number of classes
    classes: float = 0.5  # share of tables with classes; 0 gives regression only
    causal: float = 0.25  # share of tables from structural causal models
    refresh_every: int = 64  # steps that one pool serves
    dtype: torch.dtype = torch.float32  # floating-point type of the tasks

    def __post_init__(self) -> None:
        top = self.largest_context
        if not 1 <= self.min_context <= top < self.num_rows:
            raise ValueError(
                f"expected 1 ≤ min_context ≤ max_context < num_rows, got {self.min_context}, {top} and "
                f"{self.num_rows}; leave at least one row to predict"
            )
        if not 1 <= self.min_columns <= self.max_columns <= 64:
            raise ValueError(
                f"expected 1 ≤ min_columns ≤ max_columns ≤ 64, got {self.min_columns} and {self.max_columns}"
            )
        if not 2 <= self.max_classes <= 20:
            raise ValueError(f"max_classes must lie in 2 … 20, got {self.max_classes}")
        if not (0 <= self.classes <= 1 and 0 <= self.causal <= 1):
            raise ValueError(
                f"classes and causal are shares between 0 and 1, got {self.classes} and {self.causal}"
            )
        at_least_one(batch_size=self.batch_size, refresh_every=self.refresh_every)

    @property
    def largest_context(self) -> int:
        """The largest context, in numbers."""
        return self.num_rows - max(1, self.num_rows // 8) if self.max_context is None else self.max_context


class TablePrior(TaskSource):
    """A supply of synthetic tables; see the module's docstring."""

    def __init__(self, settings: TableSettings | None = None) -> None:
        self.settings = TableSettings() if settings is None else settings
        self.refresh_every = self.settings.refresh_every

    @property
    def dim_x(self) -> int:
        """Channels of an input: a value and a code per column."""
        return 2 * self.settings.max_columns

    @property
    def dim_y(self) -> int:
        """Channels of an output."""
        return 2 if self.settings.classes else 1

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """Draw tables: x with NaN where missing, y, which columns are used, and whether y are labels."""
        settings = self.settings
        random = Random(generator, device)
        count = settings.batch_size * settings.refresh_every
        size = max(1, CHUNK_ENTRIES // (settings.num_rows * settings.max_columns))
        chunks = [draw_tables(random, settings, min(size, count - done)) for done in range(0, count, size)]
        return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        return {"context": (self.settings.batch_size,)}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        """The next tables of the pool, scaled by their contexts.

        Rows whose class the context does not have are masked: in use no such class is known.
        """
        settings = self.settings
        x, y, used, is_class = (
            take_batch(tensors[name], step, settings.batch_size) for name in ("x", "y", "used", "is_class")
        )
        sizes = context_sizes(uniforms["context"], settings.min_context, settings.largest_context)
        in_context = torch.arange(settings.num_rows, device=x.device) < sizes.unsqueeze(1)  # [B, T]
        inputs = standardise(x, used, in_context, torch.ones_like(in_context))
        mean, std = output_scale(y, in_context)
        numbers = ((y - mean) / std).clamp(-CLIP_OUTPUT, CLIP_OUTPUT)
        if not settings.classes:
            return Task.from_points(inputs, numbers.unsqueeze(-1), in_context)
        labels, known = seen_classes(y.long(), in_context, settings.max_classes)
        flag = is_class.unsqueeze(1).expand_as(y)
        outputs = torch.stack([torch.where(flag, labels.to(y.dtype), numbers), flag.to(y.dtype)], dim=-1)
        return Task.from_points(inputs, outputs, in_context, known | ~flag)


def draw_tables(random: Random, settings: TableSettings, count: int) -> Tensors:
    """Draw tables: x [n, T, D] (NaN: missing), y [n, T], used [n, D], is_class [n]."""
    rows, columns, outputs = settings.num_rows, settings.max_columns, settings.max_classes
    # Between few and many columns, with more tables of few.
    span = settings.max_columns - settings.min_columns + 1
    number = settings.min_columns + (span * random.uniform(count, 1) ** 1.5).long()
    used = torch.arange(columns, device=random.device) < number
    graphs, others = random.allot(count, (settings.causal, 1 - settings.causal))
    hidden = draw_hidden(random, count, rows, columns)
    f = hidden.new_empty(count, rows, outputs)
    if len(graphs):
        hidden[graphs], f[graphs] = draw_causal(random, len(graphs), rows, columns, outputs)
    x, z = observe(random, hidden, used)
    if len(others):
        f[others] = draw_table_functions(random, z[others], used[others], outputs)
    labelled, numbered = random.allot(count, (settings.classes, 1 - settings.classes))
    y = f.new_empty(count, rows)
    if len(labelled):
        y[labelled] = draw_classes(random, f[labelled])
    if len(numbered):
        y[numbered] = draw_numbers(random, f[numbered, :, 0], f[numbered, :, -1])
    is_class = torch.zeros(count, dtype=torch.bool, device=random.device)
    is_class[labelled] = True
    return {"x": x.to(settings.dtype), "y": y.to(settings.dtype), "used": used, "is_class": is_class}
