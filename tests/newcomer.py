"""A model as CONTRIBUTING asks for it, with none of the networks of ours: a latent writes the weights of waves of x.

    z ~ q(z | T) or p(z | C),   y_* = W(z) · [sin(A x_* + a), 1]

`python -m pytest -p tests.newcomer -k newcomer` registers it and runs all tests that take every model; without `-k` the
whole suite runs with it: a model needs no edit but its file and its line.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from dsvnp import MODELS
from dsvnp.gaussian import DiagonalGaussian
from dsvnp.models.base import NeuralProcess, Noise
from dsvnp.networks import Shape, full_precision
from dsvnp.objectives import Draws
from dsvnp.task import Task

WAVES = 6


@final
class Newcomer(NeuralProcess):
    """A linear readout of waves, whose weights a latent writes."""

    name = "newcomer"
    summary = "a latent writes the weights of a readout over waves"

    def _build(self, embedding: nn.Module | None) -> None:
        width = self.arch.dim_lat
        self.reader = nn.Sequential(
            nn.Linear(self.arch.dim_x + self.likelihood.dim_encoded, width), nn.Tanh()
        )
        self.belief = nn.Linear(width + 1, 2 * width)
        self.waves = nn.Linear(self.arch.dim_x, WAVES)
        self.writer = nn.Linear(width, (WAVES + 1) * self.likelihood.dim_raw)

    def noise_shapes(
        self, num_tasks: int, num_targets: int, num_global: int, num_local: int, shared: bool
    ) -> dict[str, Shape]:
        """ε of z."""
        return {"global": (num_global, num_tasks, self.arch.dim_lat)}

    def draws(self, task: Task, noise: Noise) -> Draws:
        """Draw z from q(z | T) and score all points."""
        y_target, in_context = task.all_points()
        q = self._latent(task.x_target, y_target, task.mask_target)
        p = self._latent(task.x_target, y_target, in_context)
        z = q.unsqueeze(0).sample(noise.get("global"))  # [K, B, Z]
        counted = self.counted(task)
        log_likelihood = self.likelihood.score(self.decode(z, task.x_target, noise), y_target, counted)
        return Draws(log_likelihood, counted, q_global=q, p_global=p, z_global=z)

    def summarise(self, task: Task, noise: Noise) -> Tensor:
        """Draws of z from p(z | C), [K, B, Z]."""
        prior = self._latent(task.x_context, task.y_context, task.mask_context)
        return prior.unsqueeze(0).sample(noise.get("global"))

    def decode(self, summary: Tensor, x_target: Tensor, noise: Noise) -> Tensor:
        """Raw outputs of each draw of z."""
        weights = self.writer(summary).unflatten(-1, (WAVES + 1, -1))  # [K, B, W + 1, raw]
        waves = torch.cat(
            [self.waves(x_target).sin(), torch.ones_like(x_target[..., :1])], -1
        )  # [B, T, W + 1]
        return (waves[None].to(weights.dtype) @ weights)[:, None]  # [K, 1, B, T, raw]

    def _latent(self, x: Tensor, y: Tensor, mask: Tensor) -> DiagonalGaussian:
        """A belief in z from the points in `mask`, [B, Z]."""
        each = self.reader(torch.cat([x, self.likelihood.encode(y, x.dtype)], -1))
        count = mask.sum(-1, keepdim=True).to(x.dtype)
        mean = torch.where(mask[..., None], each, 0.0).sum(-2) / count.clamp(min=1)
        loc, scale = full_precision(self.belief(torch.cat([mean, count.log1p()], -1))).chunk(2, -1)
        return DiagonalGaussian(loc, 0.1 + 0.9 * scale.sigmoid())


MODELS[Newcomer.name] = Newcomer
