"""Diagonal Gaussians, the distributions of all latent variables.

A plain named tuple rather than `torch.distributions.Normal`: it passes through `vmap` and graph capture
unchanged, and takes its noise as an argument. The tests compare it with `torch.distributions`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class DiagonalGaussian(NamedTuple):
    """N(mean, scale²), independent over the last axis."""

    mean: Tensor
    scale: Tensor

    def unsqueeze(self, dim: int) -> DiagonalGaussian:
        """Insert an axis, as for draws that share one distribution."""
        return DiagonalGaussian(self.mean.unsqueeze(dim), self.scale.unsqueeze(dim))

    def sample(self, noise: Tensor | None) -> Tensor:
        """Return mean + scale · noise (the reparameterisation trick), or the mean where there is no noise."""
        return self.mean if noise is None else self.mean + self.scale * noise

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-density, summed over the last axis."""
        return gaussian_log_prob(value, self.mean, self.scale).sum(-1)

    def kl(self, other: DiagonalGaussian) -> Tensor:
        """KL[self ‖ other], summed over the last axis."""
        return self.kl_each(other).sum(-1)

    def kl_each(self, other: DiagonalGaussian) -> Tensor:
        """KL[self ‖ other] of each dimension, [..., Z]."""
        ratio = (self.scale / other.scale).square()
        distance = ((self.mean - other.mean) / other.scale).square()
        return 0.5 * (ratio + distance - 1 - ratio.log())


def gaussian_log_prob(value: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """ln N(value; mean, scale²), elementwise."""
    return -0.5 * ((value - mean) / scale).square() - torch.log(scale) - HALF_LOG_2PI


def gaussian_log_mass(low: Tensor, high: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """ln P(low < value < high) under N(mean, scale²), elementwise; the ends may be infinite."""
    a, b = (low - mean) / scale, (high - mean) / scale
    # Above the mean both probabilities are near 1: the mirrored interval keeps the digits of their difference.
    a, b = torch.where(a > 0, -b, a), torch.where(a > 0, -a, b)
    below_a, below_b = torch.special.log_ndtr(a), torch.special.log_ndtr(b)
    return below_b + torch.log(-torch.expm1(below_a - below_b))
