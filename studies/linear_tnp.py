"""LinearTNP: a transformer neural process whose z_G moves the mean linearly, and is integrated out in closed form.

    y_t = μ(h_t) + σ(h_t) [φ(h_t)ᵀ z_G + ε_t],   z_G ~ N(0, I),   h_t the token of a target after TNP's trunk

The targets of a task are therefore one low-rank Gaussian, whose factor depends on the context. It is a relative of
TNP-ND (Nguyen & Grover, 2022). It meets the contract of the library's models and needs a Gaussian head with one output.
"""

from __future__ import annotations

import math
from typing import Any, final

import torch
from torch import Tensor, nn

from dsvnp.models import NeuralProcess
from dsvnp.models.base import Noise
from dsvnp.models.tnp import Backbone
from dsvnp.networks import MLP, Shape
from dsvnp.objectives import Draws
from dsvnp.predictive.low_rank import low_rank_log_prob
from dsvnp.task import Task

DIM_GLOBAL = 16  # size of z_G: of each, the likelihood orthogonalises one column


@final
class LinearTNP(NeuralProcess):
    """TNP with a z_G that is integrated out."""

    name = "linear-tnp"
    summary = "tnp whose z_G moves the mean linearly"
    scores_context = False

    def _build(self, embedding: nn.Module | None) -> None:
        width = self.arch.transformer.width
        self.backbone = Backbone(self.arch, self.likelihood, embedding)
        self.decoder = MLP([width], self.arch.decoder, self.likelihood.dim_raw)
        self.waves = MLP([width], self.arch.decoder, DIM_GLOBAL)

    def noise_shapes(
        self, num_tasks: int, num_targets: int, num_global: int, num_local: int, shared: bool
    ) -> dict[str, Shape]:
        return {"global": (num_global, num_tasks, DIM_GLOBAL)}

    def draws(self, task: Task, noise: Noise) -> Draws:
        """Share the exact ln p(y_T | C) equally among the counted points: there is no posterior, and no KL."""
        counted = self.counted(task)
        joint = self.joint(task) / counted.sum(-1).clamp(min=1)
        return Draws(joint[:, None].expand(counted.shape)[None, None], counted)

    def joint(self, task: Task) -> Tensor:
        """ln p(y_T | C), [B], in closed form; a missing output is integrated out."""
        y = torch.where(self.counted(task), task.all_points()[0][..., 0], math.nan)
        return low_rank_log_prob(y, *self.gaussian(task))

    def gaussian(self, task: Task) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and noise [B, T], and the factor of the covariance, [B, T, Z], at all points of a task."""
        _, h, _ = self.backbone.points(task, False)
        loc, noise = self.likelihood.components(self.decoder(h)[None, None])
        return loc[0, 0, ..., 0], noise[0, 0, ..., 0], noise[0, 0] * self.waves(h)

    def summarise(self, task: Task, noise: Noise) -> tuple[Any, Tensor]:
        memory = self.backbone.context(task)[-1]
        return memory, noise.get("global", task.x_context.new_zeros(1, task.num_tasks, DIM_GLOBAL))

    def decode(self, summary: tuple[Any, Tensor], x_target: Tensor, noise: Noise) -> Tensor:
        memory, z = summary
        h = self.backbone.targets(memory, x_target)
        raw = self.decoder(h)
        _, sigma = self.likelihood.components(raw[None, None])
        moved = (sigma[0, 0] * self.waves(h)) @ z.unsqueeze(-1)  # [K, B, T, 1]
        mean = raw[..., :1] + moved
        return torch.cat([mean, raw[..., 1:].expand_as(mean)], -1)[:, None]
