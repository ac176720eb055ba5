"""TabTNP: a transformer neural process for tables, which reads cells before it reads rows.

c_ij⁰ = E(x_ij) + code_j  for the cell in row i and column j,  c_iy⁰ = E(y_i) in the context, "unknown" for a target
cells:  c ← attention among the cells of a row,  c ← attention from each cell to the context's cells of its column
rows:   h_i⁰ = W [c_iy, mean_j c_ij] + E'(y_i),  h ← layers in which every row attends to the context's rows
p(y_* | h_*)

A table may have any number of columns, in any order; a fixed random code distinguishes them, as in TabPFN (Hollmann et
al., 2025). Attention among cells before attention among rows follows TabICL (Qu et al., 2025). A row reads the y of
context rows only.
"""

import math
from dataclasses import replace
from typing import NamedTuple, cast, final

import torch
from torch import Tensor, nn

from dsvnp.models.architecture import Architecture
from dsvnp.models.base import NeuralProcess, Noise
from dsvnp.models.parts import Embeddings
from dsvnp.models.transformer import Layer, Slots, Trunk
from dsvnp.networks import MLP, ConcatLinear, Shape, full_precision
from dsvnp.objectives import Draws
from dsvnp.task import Task

MISSING, UNUSED = 1.0, -1.0  # codes of a value, see `Architecture.coded_x`
FREQUENCIES = 4  # a value is read as itself and as waves of 8, 4, 2 and 1 standard deviations
DIM_CODE, NUM_CODES = 16, 64


class Summary(NamedTuple):
    """A summary of the context: the slots of each layer among cells, and of each layer among rows."""

    cells: list[Slots]
    rows: list[Slots]


class Cells(nn.Module):
    """Tables → tokens of rows: layers that alternate between the columns of a row and the rows of a column."""

    codes: Tensor

    def __init__(self, arch: Architecture, dim_y: int) -> None:
        super().__init__()
        settings, width = arch.cells, arch.cells.width
        self.coded = arch.coded_x
        self.value = nn.Linear(2 + 2 * FREQUENCIES, width)
        self.name = nn.Linear(DIM_CODE, width, bias=False)
        self.output = nn.Linear(dim_y, width)
        self.unknown = nn.Parameter(torch.randn(width) / math.sqrt(width))
        short = replace(settings, fused=False)  # a row has few cells: torch's kernels are made for long sets
        self.in_row = cast("list[Layer]", nn.ModuleList(Layer(short) for _ in range(settings.num_layers)))
        self.in_column = cast(
            "list[Layer]", nn.ModuleList(Layer(settings) for _ in range(settings.num_layers))
        )
        self.pool = ConcatLinear([width, width], arch.transformer.width)
        # The same for all networks, whatever their seed: weights of one serve another.
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("codes", torch.randn(NUM_CODES, DIM_CODE, generator=generator))

    def forward(
        self, x: Tensor, y: Tensor, seen: Tensor, memory: list[Slots] | None = None
    ) -> tuple[Tensor, list[Slots]]:
        """Tokens of rows, [B, T, W], and the slots of each layer among the rows of a column.

        x [B, T, D or 2·D] holds values, and codes where there are any; encoded outputs y [B, T, dim_y] are read where
        `seen` [B, T]. Rows attend to the seen ones or, with `memory`, to the slots of a context that was read before.
        """
        values, code = x.unflatten(-1, (2, -1)).unbind(-2) if self.coded else (x, torch.zeros_like(x))
        used = (code > UNUSED / 2).all(1)  # [B, D]
        # [B, T, D+1, W]
        h = torch.cat([self._embed(values, code), self._outputs(y, seen).unsqueeze(-2)], dim=-2)
        there = torch.cat([used, torch.ones_like(used[:, :1])], dim=-1)[:, None]  # [B, 1, D+1]
        slots = []
        for number, (row, column) in enumerate(zip(self.in_row, self.in_column, strict=True)):
            h, _ = row(h, h, there.expand(h.shape[:-1]))
            down = h.transpose(1, 2)  # [B, D+1, T, W]
            if memory is None:
                down, found = column(down, down, seen[:, None])
                slots.append(found)
            else:
                down = column.onto(down, down, memory[number])
            h = down.transpose(1, 2)
        cells, output = h[..., :-1, :], h[..., -1, :]
        some = used[:, None, :, None]
        mean = torch.where(some, cells, 0.0).sum(-2) / some.sum(-2).clamp(min=1)
        return self.pool(output, mean), slots

    def _embed(self, values: Tensor, code: Tensor) -> Tensor:
        """Cells of inputs, [B, T, D, W]."""
        missing = (code > MISSING / 2).to(values.dtype)
        powers = torch.arange(FREQUENCIES, device=values.device, dtype=values.dtype)
        angles = values.unsqueeze(-1) * (math.pi / 4 * 2**powers)
        features = [values.unsqueeze(-1), missing.unsqueeze(-1), angles.sin(), angles.cos()]
        names = self.name(self.codes[: values.shape[-1]].to(values.dtype))  # [D, W]
        return full_precision(self.value(torch.cat(features, dim=-1)) + names)

    def _outputs(self, y: Tensor, seen: Tensor) -> Tensor:
        """Cells of the output, [B, T, W]."""
        return full_precision(torch.where(seen.unsqueeze(-1), self.output(y), self.unknown))


@final
class TabTNP(NeuralProcess):
    """Transformer neural process for tables."""

    name = "tabtnp"
    summary = (
        "transformer neural process for tables: attention among cells, then among rows; any number of columns"
    )
    scores_context = False

    def _build(self, embedding: nn.Module | None) -> None:
        # of x: its outputs are the columns
        self.embed = Embeddings(self.arch, self.likelihood.dim_encoded, embedding)
        self.embeds = embedding is not None or self.arch.embed_x != "none"
        if self.embeds and self.arch.coded_x:
            raise ValueError("coded_x says what each column holds, got an embedding of x; use one of the two")
        if not 1 <= self._columns(self.embed.dim_x) <= NUM_CODES:
            raise ValueError(f"tabtnp reads 1 to {NUM_CODES} columns, got {self._columns(self.embed.dim_x)}")
        width = self.arch.transformer.width
        self.cells = Cells(self.arch, self.embed.dim_y)
        self.output = nn.Linear(self.embed.dim_y, width)
        self.trunk = Trunk(self.arch.transformer, 1)
        self.decoder = MLP([width], self.arch.decoder, self.likelihood.dim_raw)

    def takes(self, dim_x: int) -> bool:
        """Any number of columns for which there are codes; what an embedding was made for, if there is one."""
        if self.embeds:
            return dim_x == self.arch.dim_x
        return 1 <= self._columns(dim_x) <= NUM_CODES

    def _columns(self, dim_x: int) -> int:
        """Columns of so many features; 0 if codes are missing."""
        columns, odd = divmod(dim_x, 2 if self.arch.coded_x else 1)
        return 0 if odd else columns

    def noise_shapes(
        self, num_tasks: int, num_targets: int, num_global: int, num_local: int, shared: bool
    ) -> dict[str, Shape]:
        """Nothing is random."""
        return {}

    def draws(self, task: Task, noise: Noise) -> Draws:
        """Score the rows outside the context; all of them, each without its own y, if the architecture asks for it."""
        y_target, in_context = task.all_points()
        h, summary = self._read(task.x_target, y_target, in_context)
        raw = (
            self.decoder(h)[None, None]
            if not self.arch.score_context
            else self.decode(summary, task.x_target, noise)
        )
        counted = self.counted(task)
        return Draws(self.likelihood.score(raw, y_target, counted), counted)

    def summarise(self, task: Task, noise: Noise) -> Summary:
        """Keys and values of the context in each layer."""
        return self._read(task.x_context, task.y_context, task.mask_context, finish=False)[1]

    def decode(self, summary: Summary, x_target: Tensor, noise: Noise) -> Tensor:
        """Raw outputs, one component."""
        x = self.embed.x(x_target)
        y = x.new_zeros(*x.shape[:-1], self.embed.dim_y)
        unseen = torch.zeros_like(y[..., 0], dtype=torch.bool)
        h, _ = self.cells(x, y, unseen, summary.cells)
        raw: Tensor = self.decoder(self.trunk.onto(h, h, summary.rows))
        return raw[None, None]

    def _read(self, x: Tensor, y: Tensor, seen: Tensor, finish: bool = True) -> tuple[Tensor, Summary]:
        """Rows after all layers (see `Trunk.among`), [B, T, W], of which those seen are the context; what it says."""
        x, known = self.embed.pair(x, y, self.likelihood)
        h, cells = self.cells(x, known, seen)
        h = h + torch.where(seen.unsqueeze(-1), self.output(known), 0.0)
        h, rows = self.trunk.among(full_precision(h), h, seen, finish)
        return h, Summary(cells, rows)
