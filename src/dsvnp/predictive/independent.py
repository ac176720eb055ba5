"""IndependentPredictive: a mixture of Gaussians for each output by itself, with weights of its own.

    p(y_t) = 1/K Σ_k Π_d Σ_s w_kstd N(y_td; μ_kstd, σ_kstd²)

A network that answers for one output at a time gives each output its own mixture. What ties outputs together is only
which of the K draws, or members, is right.
"""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor

from dsvnp.predictive.base import log_mean_exp
from dsvnp.predictive.gaussian import GaussianPredictive


class IndependentPredictive(GaussianPredictive):
    """Mixtures of outputs that are independent given k: of each output weights of its own, [K, S, B, T, D]."""

    log_weights: Tensor

    def __init__(self, loc: Tensor, scale: Tensor, log_weights: Tensor) -> None:
        self.loc, self.scale = loc, scale.expand_as(loc)
        self.log_weights = log_weights.expand_as(loc).log_softmax(1)
        self.components_per_draw = loc.shape[1]

    def log_prob(self, y: Tensor) -> Tensor:
        """Log-density of each target's outputs together, [B, T]."""
        return log_mean_exp(self._given(y), 0)

    def log_prob_joint(self, y: Tensor, mask: Tensor | None = None) -> Tensor:
        """Log-density of all targets of a task together, [B]: one k for all of them."""
        each = self._given(y)
        return log_mean_exp((each if mask is None else torch.where(mask, each, 0.0)).sum(-1), 0)

    def component_log_prob(self, y: Tensor) -> Tensor:
        """Log-density of y given each k, [K, 1, B, T]: components belong to single outputs."""
        return self._given(y).unsqueeze(1)

    def sample(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw functions with their noise, [num_samples, B, T, D]; a draw keeps one k per task."""
        return torch.stack([self._sample_one(generator) for _ in range(num_samples)])

    def affine(self, shift: Tensor, factor: Tensor) -> IndependentPredictive:
        return IndependentPredictive(shift + factor * self.loc, factor.abs() * self.scale, self.log_weights)

    def outputs(self, index: list[int]) -> IndependentPredictive:
        """Return the predictive of some outputs."""
        return self.map(lambda array: array[..., index])

    def like(self, *arrays: Tensor) -> Self:
        """Make a predictive of such arrays."""
        return type(self)(*arrays)

    def _given(self, y: Tensor) -> Tensor:
        """Log-density of a target's outputs given k, [K, B, T]."""
        return self._log_mix_local(self._each_log_prob(y)).sum(-1)

    def _sample_one(self, generator: torch.Generator | None) -> Tensor:
        """One function, [B, T, D]."""
        tasks, device, dtype = self.shape[2], self.loc.device, self.loc.dtype
        k = torch.randint(self.shape[0], (tasks,), generator=generator, device=device)
        every = torch.arange(tasks, device=device)
        loc, scale, weights = (array[k, :, every] for array in self.arrays())  # [B, S, T, D]
        u = torch.rand(loc[:, :1].shape, generator=generator, dtype=dtype, device=device)
        s = (weights.exp().cumsum(1) <= u).sum(1, keepdim=True).clamp(max=self.shape[1] - 1)
        noise = torch.randn(u.shape, generator=generator, dtype=dtype, device=device)
        return (loc.gather(1, s) + scale.gather(1, s) * noise)[:, 0]

    def _average(self, value: Tensor) -> Tensor:
        return (self.log_weights.exp() * value).sum(-4).mean(-4)

    def _log_mix_local(self, value: Tensor) -> Tensor:
        return (value + self.log_weights).logsumexp(1)

    def _weight_array(self) -> tuple[Tensor, ...]:
        return (self.log_weights,)

    def _draws(self) -> tuple[Tensor, Tensor]:
        means = (self.log_weights.exp() * self.loc).sum(1, keepdim=True)
        return torch.ones_like(means), means

    def _flat(self) -> tuple[Tensor, Tensor, Tensor | None]:
        loc, scale, weights = (array.flatten(0, 1) for array in self.arrays())
        return loc, scale, weights - math.log(self.shape[0])
