"""GaussianPredictive: a mixture of Gaussians for each target."""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor

from dsvnp.gaussian import gaussian_log_mass, gaussian_log_prob
from dsvnp.predictive.base import Predictive, choose
from dsvnp.predictive.mixtures import mixture_crps, mixture_entropy, mixture_quantile, sampled_energy_score


class GaussianPredictive(Predictive):
    """A mixture of Gaussians for each target, independent over outputs within a component.

    Args:
        loc: component means, [K, S, B, T, D].
        scale: component standard deviations, broadcastable to `loc`.
        log_weights: ln of the components' weights, [K, S, B, T], normalised here over S; None for equal weights.
        components_per_draw: how many neighbours on the S axis come from one draw of z_*: 1, or M of a mixture head.
    """

    def __init__(
        self, loc: Tensor, scale: Tensor, log_weights: Tensor | None = None, *, components_per_draw: int = 1
    ) -> None:
        self.loc = loc
        self.scale = scale.expand_as(loc)
        self._weigh(log_weights, components_per_draw)

    @property
    def shape(self) -> torch.Size:
        return self.loc.shape

    @property
    def mean(self) -> Tensor:
        """Predictive mean, [B, T, D]."""
        return self._average(self.loc)

    @property
    def aleatoric(self) -> Tensor:
        """E[Var(y | z_G)], [B, T, D]: the noise and, with two or more draws of z_*, the variance due to z_*."""
        return self.variance - self.epistemic

    @property
    def epistemic(self) -> Tensor:
        """Var(E[y | z_G]), [B, T, D]: what knowing the function would take away.

        The variance between draws of z_G of their means, less what those means owe to the few draws of z_* that each
        is taken over; with one z_* each (S = 1) that cannot be measured. The components of one draw are no sample but
        the whole of a mixture: their mean is exact and only the number of draws of z_* enters.
        """
        if self.log_weights is None and self.components_per_draw == 1:
            return (self._variance_of_means() - within(self.loc)).clamp(min=0)
        weights, means = self._draws()
        given = (weights * means).sum(1, keepdim=True)  # E[y | z_G], [K, 1, B, T, D]
        between = given.var((0, 1), correction=0)
        if weights.shape[1] == 1:
            return between
        # Σ w (m − m̄)² of S draws with weights w has the mean (1 − Σ w²)·Var, and m̄ itself the variance Σ w²·Var.
        inside = (weights * (means - given).square()).sum(1)
        squares = weights.square().sum(1)
        owed = inside * squares / (1 - squares).clamp(min=torch.finfo(squares.dtype).eps)
        return (between - owed.mean(0)).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        """Law of total variance over all components, [B, T, D]."""
        return self._average(self.scale.square()) + self._variance_of_means()

    def _variance_of_means(self) -> Tensor:
        """Variance of the components' means, [B, T, D]."""
        if not self.loc.numel():  # torch warns of the variance of nothing
            return self.mean
        if self.log_weights is None:
            return self.loc.var((0, 1), correction=0)
        return self._average((self.loc - self.mean).square())

    def _draws(self) -> tuple[Tensor, Tensor]:
        """Weight [K, S, B, T, 1] and mean [K, S, B, T, D] of each draw of z_*, its components summed up exactly."""
        shape = self.loc[..., :1].shape
        weights = self.loc.new_full(shape, 1 / shape[1])
        if self.log_weights is not None:
            weights = self.log_weights.exp().unsqueeze(-1)
        folded = weights.unflatten(1, (-1, self.components_per_draw))  # [K, S, M, B, T, 1]
        total = folded.sum(2)
        means = (folded * self.loc.unflatten(1, (-1, self.components_per_draw))).sum(2)
        return total, means / total.clamp(min=torch.finfo(total.dtype).tiny)

    def component_log_prob(self, y: Tensor) -> Tensor:
        """Log-density of y under each component, [K, S, B, T]; a missing output (NaN) adds nothing."""
        return self._each_log_prob(y).sum(-1)

    def log_prob_each(self, y: Tensor) -> Tensor:
        """Log-density of each output by itself, the others integrated out, [B, T, D]; 0 for a missing one (NaN)."""
        return self._log_mix(self._each_log_prob(y))

    def _each_log_prob(self, y: Tensor) -> Tensor:
        """Log-density of each output under each component, [K, S, B, T, D]; 0 for a missing one."""
        self._check_width(y, self.shape[-1])
        missing = torch.isnan(y)
        log_prob = gaussian_log_prob(torch.where(missing, 0.0, y), self.loc, self.scale)
        return torch.where(missing, 0.0, log_prob)

    def log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        """ln P(low < y < high) of all outputs of a target together, [B, T], between bounds [B, T, D]."""
        return self._log_mix(gaussian_log_mass(low, high, self.loc, self.scale).sum(-1))

    def log_mass_each(self, low: Tensor, high: Tensor) -> Tensor:
        """ln P(low < y < high) of each output by itself, [B, T, D]."""
        return self._log_mix(gaussian_log_mass(low, high, self.loc, self.scale))

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y ≤ y) of each output, with y broadcastable to [..., B, T, D] in front of any axes."""
        y = y.reshape(*y.shape[:-3], 1, 1, *y.shape[-3:])
        return self._average(torch.special.ndtr((y - self.loc) / self.scale))

    def quantile(self, probability: float | list[float] | Tensor) -> Tensor:
        """Quantiles of each output at probabilities strictly between 0 and 1, [Q, B, T, D] ([B, T, D] for a number)."""
        p = torch.as_tensor(probability, dtype=self.loc.dtype, device=self.loc.device)
        if not bool(((p > 0) & (p < 1)).all()):
            raise ValueError(f"probabilities must lie strictly between 0 and 1, got {probability}")
        out = mixture_quantile(p.reshape(-1), *self._flat())
        return out if p.ndim else out[0]

    def entropy(self) -> Tensor:
        """Differential entropy of each output's mixture, [B, T, D], by Gauss–Hermite quadrature."""
        return mixture_entropy(*self._flat())

    def crps(self, y: Tensor) -> Tensor:
        """Continuous ranked probability score of each output, [B, T, D], in closed form; NaN for a missing one."""
        return mixture_crps(y, *self._flat())

    def energy_score(
        self, y: Tensor, num_samples: int = 256, generator: torch.Generator | None = None
    ) -> Tensor:
        """Energy score of all outputs of a target together, [B, T], estimated without bias from samples.

        A missing output (NaN) does not count. Time grows with the square of `num_samples`, memory with itself.
        """
        return sampled_energy_score(self.sample(num_samples, generator), y)

    def affine(self, shift: Tensor, factor: Tensor) -> GaussianPredictive:
        """Return the predictive of shift + factor · y, as when going back to the user's units."""
        loc, scale = shift + factor * self.loc, factor.abs() * self.scale
        return GaussianPredictive(loc, scale, self.log_weights, components_per_draw=self.components_per_draw)

    def _without_noise(self, sigma: float) -> Self:
        loc, scale, *others = self.arrays()
        tiny = torch.finfo(scale.dtype).tiny
        return self.like(loc, (scale.square() - sigma**2).clamp(min=tiny).sqrt(), *others)

    def arrays(self) -> tuple[Tensor, ...]:
        """Means, standard deviations, and the log-weights if there are any."""
        return (self.loc, self.scale, *self._weight_array())

    def like(self, *arrays: Tensor) -> Self:
        """Make a predictive of such arrays."""
        loc, scale, *weights = arrays
        log_weights = weights[0].squeeze(-1) if weights else None
        return type(self)(loc, scale, log_weights, components_per_draw=self.components_per_draw)

    def outputs(self, index: list[int]) -> GaussianPredictive:
        """Return the predictive of some outputs, the others integrated out."""
        loc, scale = self.loc[..., index], self.scale[..., index]
        return GaussianPredictive(loc, scale, self.log_weights, components_per_draw=self.components_per_draw)

    def _flat(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Means and deviations, [I, B, T, D], and log-weights, [I, B, T, 1], of I = K·S components."""
        loc, scale = self.loc.flatten(0, 1), self.scale.flatten(0, 1)
        if self.log_weights is None:
            return loc, scale, None
        return loc, scale, self.log_weights.flatten(0, 1).unsqueeze(-1) - math.log(self.shape[0])

    def _pick(self, k: Tensor, s: Tensor, generator: torch.Generator | None) -> Tensor:
        loc, scale = choose(self.loc, k, s), choose(self.scale, k, s)
        noise = torch.randn(loc.shape, generator=generator, dtype=loc.dtype, device=loc.device)
        return loc + scale * noise


def within(loc: Tensor) -> Tensor:
    """Variance over draws of z_* within a draw of z_G, averaged over those, [B, T, D]; 0 where there is one each."""
    return loc.var(1).mean(0) if loc.shape[1] > 1 else torch.zeros_like(loc[0, 0])
