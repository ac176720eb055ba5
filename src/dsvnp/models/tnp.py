"""TNP-D: deep attention over the context (Nguyen & Grover, 2022).

h_i⁰ = MLP(x_i, y_i, seen) in the context,  h_*⁰ = MLP(x_*, 0, not seen) for a target
h ← layers in which every token attends to the context's tokens,  p(y_* | h_*)

Targets do not attend to each other. A context point is a token with its y, any other point a token without y: one pass
over all points of a training task scores the points outside the context.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor, nn

from dsvnp.likelihoods import Categorical, Likelihood
from dsvnp.models.architecture import Architecture, make_likelihood
from dsvnp.models.base import NeuralProcess, Noise
from dsvnp.models.parts import Embeddings
from dsvnp.models.transformer import Rotary, Slots, Trunk, turn
from dsvnp.networks import MLP, Shape, full_precision
from dsvnp.objectives import Draws
from dsvnp.task import Task

FASTEST = 40.0  # of the waves of a coherent likelihood, where attention has none, in radians per unit of x


class Backbone(nn.Module):
    """Points → tokens → trunk, for models that read a target through a transformer.

    A token reads (x, y or 0, which outputs are known): the flags distinguish a missing value from a zero. An
    equivariant token reads no x.
    """

    def __init__(self, arch: Architecture, likelihood: Likelihood, embedding: nn.Module | None) -> None:
        super().__init__()
        settings = arch.transformer
        if settings.equivariant and (embedding is not None or arch.embed_x != "none"):
            raise ValueError(
                "an equivariant transformer reads differences of x itself, got an embedding of x, which would make "
                "predictions depend on where the inputs lie; use embed_x='none' or equivariant=False"
            )
        self.embed = Embeddings(arch, likelihood.dim_encoded, embedding)
        self.encode_y = likelihood.encode
        self.equivariant = settings.equivariant
        self.num_flags = 1 if isinstance(likelihood, Categorical) else arch.dim_y
        dims = [self.embed.dim_y, self.num_flags]
        dims = dims if settings.equivariant else [self.embed.dim_x, *dims]
        self.embedder = MLP(dims, settings.embedder, settings.width)
        self.trunk = Trunk(settings, arch.dim_values)

    def tokens(self, x: Tensor, y: Tensor | None = None, in_context: Tensor | None = None) -> Tensor:
        """Make tokens [B, T, W] of embedded x [B, T, ...] and of y [B, T, ...] in the context; of x alone elsewhere."""
        seen = x.new_zeros(*x.shape[:-1], self.num_flags)
        known = x.new_zeros(*x.shape[:-1], self.embed.dim_y)
        if y is not None and in_context is not None:
            inside = in_context.unsqueeze(-1)
            seen = (inside & ~y.isnan()).to(x.dtype)
            known = torch.where(inside, self.embed.y(self.encode_y(y, x.dtype)), 0.0)
        inputs = (known, seen) if self.equivariant else (x, known, seen)
        return full_precision(self.embedder(*inputs))

    def points(self, task: Task, scored_all: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Embedded x of all points of a training task, and tokens [B, T, W]: as targets, and as members of the task.

        A member has seen its own y if it is in the context. As a target it has not; where the context is not scored
        (`scored_all` is False) the two are one, and targets of the context are not to be used.
        """
        y, in_context = task.all_points()
        x = self.embed.x(task.x_target)
        members, memory = self.trunk.among(self.tokens(x, y, in_context), task.x_target, in_context)
        if not scored_all:
            return x, members, members
        return x, self.trunk.onto(self.tokens(x), task.x_target, memory), members

    def context(self, task: Task) -> tuple[Tensor, Tensor, list[Slots]]:
        """Embedded x of the context, its tokens after the trunk, [B, N, W], and what each layer knows of it."""
        x = self.embed.x(task.x_context)
        tokens = self.tokens(x, task.y_context, task.mask_context)
        return x, *self.trunk.among(tokens, task.x_context, task.mask_context)

    def targets(self, memory: list[Slots], x_target: Tensor) -> Tensor:
        """Tokens of targets after the trunk, [B, T, W]."""
        return self.trunk.onto(self.tokens(self.embed.x(x_target)), x_target, memory)


class TurnedRows(nn.Module):
    """Turn pairs of a coherent likelihood's rows U, the last of the raw outputs, by angles ω·x.

    An equivariant token does not say where it is. With U_t = R(x_t) u(h_t) the covariance of two targets is a sum of
    waves of x_t − x_u: a shift of all inputs still changes nothing.
    """

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.dim_y, self.dim_x, self.rank = arch.dim_y, arch.dim_values, arch.dim_functions
        if self.rank % 2:
            raise ValueError(
                f"an equivariant transformer turns pairs of rows, got dim_functions={self.rank}; use an even one"
            )
        self.place = Rotary(self.dim_x, 1, self.rank, arch.transformer.rotary or FASTEST)

    def forward(self, raw: Tensor, x: Tensor) -> Tensor:
        rest, rows = raw.split([raw.shape[-1] - self.dim_y * self.rank, self.dim_y * self.rank], dim=-1)
        rows = rows.unflatten(-1, (self.dim_y, self.rank)).transpose(-2, -3)  # [..., D, T, R]
        rows = turn(rows, self.place(x[..., : self.dim_x]))
        return torch.cat([rest, rows.transpose(-2, -3).flatten(-2)], dim=-1)


@final
class TNP(NeuralProcess):
    """Transformer neural process with independent targets (TNP-D)."""

    name = "tnp"
    summary = "transformer neural process: deep attention from all points to the context, no latent variable"
    scores_context = False

    def _build(self, embedding: nn.Module | None) -> None:
        self.backbone = Backbone(self.arch, self.likelihood, embedding)
        self._make_head()

    def _make_head(self) -> None:
        """Make what turns tokens into raw outputs."""
        self.decoder = MLP([self.arch.transformer.width], self.arch.decoder, self.likelihood.dim_raw)
        self.turned: TurnedRows | None = None
        if self.likelihood.coherent and self.arch.transformer.equivariant:
            self.turned = TurnedRows(self.arch)

    def noise_shapes(
        self, num_tasks: int, num_targets: int, num_global: int, num_local: int, shared: bool
    ) -> dict[str, Shape]:
        """Nothing is random."""
        return {}

    def draws(self, task: Task, noise: Noise) -> Draws:
        """Score the targets outside the context; all points if the architecture asks for it."""
        y_target, _ = task.all_points()
        _, h, _ = self.backbone.points(task, bool(self.arch.score_context))
        raw = self._raw(h, task.x_target)
        counted = self.counted(task)
        return Draws(self.likelihood.score(raw, y_target, counted), counted)

    def summarise(self, task: Task, noise: Noise) -> list[Slots]:
        """Keys and values of the context in each layer."""
        return self.backbone.context(task)[-1]

    def decode(self, summary: list[Slots], x_target: Tensor, noise: Noise) -> Tensor:
        """Raw outputs, one component."""
        return self._raw(self.backbone.targets(summary, x_target), x_target)

    def _raw(self, h: Tensor, x: Tensor) -> Tensor:
        """Raw outputs of tokens [B, T, W] at x, one component, [1, 1, B, T, raw]."""
        return self.turn_rows(self.decoder(h), x)[None, None]

    def with_head(self, arch: Architecture, decoder: Mapping[str, Tensor]) -> TNP:
        """A copy with the same trunk and another likelihood, that of `arch`, whose decoder has these weights."""
        made = copy.deepcopy(self)
        made.arch, made.likelihood = arch, make_likelihood(arch)
        made._make_head()
        made.decoder.load_state_dict(dict(decoder))
        like = next(self.parameters())
        return made.to(like.device, like.dtype).train(self.training)

    def turn_rows(self, raw: Tensor, x: Tensor) -> Tensor:
        """Raw outputs at x with the rows of a coherent likelihood turned, where tokens do not say where they are."""
        return raw if self.turned is None else self.turned(raw, x)
