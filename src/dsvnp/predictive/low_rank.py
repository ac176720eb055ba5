"""Gaussians over all outputs with a low-rank covariance: their log-density and their predictive distributions.

    y = μ + W η + σ ∘ ε,   η ~ N(0, I_R),  ε ~ N(0, I_D),   so Cov(y) = diag(σ²) + W Wᵀ

With A = W/σ and e = (y − μ)/σ (row by row), Woodbury's identity and the determinant lemma give

    ln |Cov| = Σ_d ln σ_d² + ln |I + AᵀA|,      (y − μ)ᵀ Cov⁻¹ (y − μ) = min_η ‖e − A η‖² + ‖η‖².
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from dsvnp.gaussian import HALF_LOG_2PI
from dsvnp.predictive.base import choose
from dsvnp.predictive.gaussian import GaussianPredictive


def low_rank_log_prob(y: Tensor, loc: Tensor, noise: Tensor, factor: Tensor) -> Tensor:
    """ln N(y; loc, diag(noise²) + factor factorᵀ), [...], of y, loc and noise [..., D] and a factor [..., D, R].

    A missing output (NaN) is integrated out exactly. The minimum over η is a least-squares problem with the matrix [A;
    I], solved by modified Gram–Schmidt: the squares stay sums of squares, while eᵀe − eᵀA(I + AᵀA)⁻¹Aᵀe loses all
    digits of single precision for a small σ. The loop over R columns has a fixed length and no factorisation call,
    which `vmap`, compilation and CUDA graphs all take.
    """
    there = ~torch.isnan(y)
    error = torch.where(there, (torch.where(there, y, 0.0) - loc) / noise, 0.0)
    slope = torch.where(there.unsqueeze(-1), factor / noise.unsqueeze(-1), 0.0)  # A, 0 for a missing output
    rank = factor.shape[-1]
    upper = torch.cat([slope, error.unsqueeze(-1)], -1)  # [A, e], [..., D, R + 1]
    lower = torch.eye(rank, rank + 1, dtype=upper.dtype, device=upper.device)
    rest = torch.cat([upper, lower.expand(*upper.shape[:-2], -1, -1)], -2)  # [A, e; I, 0]
    log_det = torch.where(there, 2 * (torch.log(noise) + HALF_LOG_2PI), 0.0).sum(-1)  # of 2π Cov
    for _ in range(rank):
        # The first column leaves the others. Those before it hold 0 where it holds its own 1: it is at least 1 long.
        column, rest = rest[..., :1], rest[..., 1:]
        squared = column.square().sum(-2, keepdim=True)
        log_det = log_det + torch.log(squared[..., 0, 0])
        rest = rest - column * ((column * rest).sum(-2, keepdim=True) / squared)
    return -0.5 * (rest.square().sum((-2, -1)) + log_det)


class LowRankPredictive(GaussianPredictive):
    """A mixture of low-rank Gaussians for each target: the outputs depend on each other within a component.

    `scale` is the standard deviation of each output by itself, √(σ² + Σ_r W²), from which all that concerns one
    output alone follows: mean, variance, CDF, quantiles, entropy, CRPS.
    """

    def __init__(
        self,
        loc: Tensor,  # component means, [K, S, B, T, D]
        noise: Tensor,  # σ of each output, [K, S, B, T, D]
        factor: Tensor,  # W, [K, S, B, T, D, R]
        log_weights: Tensor | None = None,  # ln of the components' weights; see `GaussianPredictive`
        *,
        components_per_draw: int = 1,  # see `GaussianPredictive`
    ) -> None:
        scale = (noise.square() + factor.square().sum(-1)).sqrt()
        super().__init__(loc, scale, log_weights, components_per_draw=components_per_draw)
        self.noise = noise.expand_as(loc)
        self.factor = factor

    def component_log_prob(self, y: Tensor) -> Tensor:
        """Log-density of all outputs together under each component, [K, S, B, T]; missing ones integrated out."""
        self._check_width(y, self.shape[-1])
        return low_rank_log_prob(y, self.loc, self.noise, self.factor)

    def log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        """Refuse: outputs that depend on each other have no closed form."""
        raise NotImplementedError(
            "a low-rank Gaussian has no closed form for several intervals; use log_mass_each"
        )

    def affine(self, shift: Tensor, factor: Tensor) -> LowRankPredictive:
        """Return the predictive of shift + factor · y; a negative factor turns the sign of a dependence."""
        return self._with(
            shift + factor * self.loc, factor.abs() * self.noise, factor.unsqueeze(-1) * self.factor
        )

    def arrays(self) -> tuple[Tensor, ...]:
        """Means, σ, W flattened to [K, S, B, T, D·R], and the log-weights if there are any."""
        return (self.loc, self.noise, self.factor.flatten(-2), *self._weight_array())

    def like(self, *arrays: Tensor) -> Self:
        """Make a predictive of such arrays."""
        loc, noise, flat, *weights = arrays
        factor = flat.unflatten(-1, (loc.shape[-1], -1))
        log_weights = weights[0].squeeze(-1) if weights else None
        return type(self)(loc, noise, factor, log_weights, components_per_draw=self.components_per_draw)

    def outputs(self, index: list[int]) -> LowRankPredictive:
        """Return the predictive of some outputs, the others integrated out."""
        return self._with(self.loc[..., index], self.noise[..., index], self.factor[..., index, :])

    def _with(self, loc: Tensor, noise: Tensor, factor: Tensor) -> Self:
        return type(self)(loc, noise, factor, self.log_weights, components_per_draw=self.components_per_draw)

    def _pick(self, k: Tensor, s: Tensor, generator: torch.Generator | None) -> Tensor:
        loc, noise, factor = (choose(part, k, s) for part in (self.loc, self.noise, self.factor))
        own = torch.randn(loc.shape, generator=generator, dtype=loc.dtype, device=loc.device)
        return loc + self._shared(factor, generator) + noise * own

    def _shared(self, factor: Tensor, generator: torch.Generator | None) -> Tensor:
        """W η, [B, T, D], for a new η of each target."""
        return moved(factor, factor.shape[:2], generator)


def moved(factor: Tensor, like: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """W η of a factor [B, T, D, R], with as many draws of η as `like` says, [B, T] or [B, 1]."""
    drawn = torch.randn(
        *like, factor.shape[-1], generator=generator, dtype=factor.dtype, device=factor.device
    )
    return (factor * drawn.unsqueeze(-2)).sum(-1)
