"""Coherent predictives: within a draw of z_G one η joins all targets of a task, and its draws are functions.

    y_t = F_t⁻¹(Φ(v_t)),   v_t = W_t η + √(1 − ‖W_t‖²) ε_t,   η ~ N(0, I_R) for the whole task,  ε_t ~ N(0, 1)

F_t is the distribution of a target by itself, on which W has no effect. v_t is its *normal score*, ‖W_t‖² the share of
the score's variance that the function carries, W_t·W_u the covariance of two scores (a Gaussian copula). With Gaussian
F_t all targets together are one low-rank Gaussian.
"""

from __future__ import annotations

import math
from typing import Any, Self

import torch
from torch import Tensor

from dsvnp.gaussian import HALF_LOG_2PI
from dsvnp.predictive.base import choose, log_mean_exp
from dsvnp.predictive.gaussian import GaussianPredictive
from dsvnp.predictive.low_rank import LowRankPredictive, low_rank_log_prob, moved
from dsvnp.predictive.mixtures import mixture_quantile

FURTHEST = 1e-30  # the smallest tail of a distribution: a normal score of 11.5


def copula_log_prob(score: Tensor, ties: Tensor) -> Tensor:
    """ln of the density of normal scores [..., T] over the product of their own, [...], with W [..., T, R].

    A score that is NaN is integrated out.
    """
    noise = (1 - ties.square().sum(-1)).sqrt()
    alone = torch.where(score.isnan(), 0.0, -0.5 * score.square() - HALF_LOG_2PI).sum(-1)
    return low_rank_log_prob(score, torch.zeros_like(score), noise, ties) - alone


def normal_score(y: Tensor, loc: Tensor, scale: Tensor, log_weights: Tensor) -> Tensor:
    """Φ⁻¹(F(y)) under mixtures of Gaussians whose components lie on the first axis of the last three."""
    z, weights = (y - loc) / (math.sqrt(2) * scale), 0.5 * log_weights.exp()
    # By erfc: torch's ndtr is 0.5 (1 + erf), which has no digits in a tail.
    low, high = ((weights * torch.erfc(side)).sum(0).clamp(min=FURTHEST) for side in (-z, z))
    lower = low < high
    tail = torch.special.ndtri(torch.where(lower, low, high))  # the other tail may be 1, up to rounding
    return torch.where(lower, tail, -tail)


class CoherentPredictive(LowRankPredictive):
    """Low-rank Gaussians over all targets of a task, [K, 1, B, T, D]; η decides the function, as a draw of z_G does."""

    def __init__(self, loc: Tensor, noise: Tensor, factor: Tensor, *args: Any, **kwargs: Any) -> None:
        _check_single(loc.shape[1])
        super().__init__(loc, noise, factor, *args, **kwargs)

    @property
    def epistemic(self) -> Tensor:
        """Var(E[y | z_G, η]), [B, T, D]."""
        return super().epistemic + self._average(self.factor.square().sum(-1))

    def log_prob_joint(self, y: Tensor, mask: Tensor | None = None) -> Tensor:
        """Log-density of all targets of a task together, [B]; with a mask [B, T], of those where it is True."""
        self._check_width(y, self.shape[-1])
        known = _known(y.expand_as(self.loc[0, 0]), mask).flatten(1)
        parts = (part.flatten(3, 4) for part in (self.loc, self.noise, self.factor))  # [K, 1, B, T·D, ·]
        return log_mean_exp(low_rank_log_prob(known, *parts), (0, 1))

    def function_mean(self, generator: torch.Generator | None = None) -> Tensor:
        """The mean of a function that one η of each task decides, [B, T, D]; of one draw of z_G."""
        return self.mean + self._shared(self.factor.squeeze((0, 1)), generator)

    def _shared(self, factor: Tensor, generator: torch.Generator | None) -> Tensor:
        return moved(factor, (len(factor), 1), generator)


class CoherentMixturePredictive(GaussianPredictive):
    """A mixture of Gaussians for each target, [K, M, B, T, 1], whose targets are joined by W, [K, 1, B, T, R]."""

    def __init__(
        self,
        loc: Tensor,  # component means, [K, M, B, T, 1]
        scale: Tensor,  # component standard deviations
        log_weights: Tensor,  # ln of the components' weights, [K, M, B, T]
        ties: Tensor,  # W
    ) -> None:
        if loc.shape[-1] != 1:
            raise ValueError(f"normal scores join targets with one output each, got {loc.shape[-1]} outputs")
        super().__init__(loc, scale, log_weights, components_per_draw=loc.shape[1])
        self.ties = ties

    @property
    def epistemic(self) -> Tensor:
        """What knowing the function takes away, [B, T, 1]: between draws of z_G all, within one the share ‖W‖²."""
        between = super().epistemic
        return between + self.ties.square().sum(-1, keepdim=True).mean((0, 1)) * (self.variance - between)

    def log_prob_joint(self, y: Tensor, mask: Tensor | None = None) -> Tensor:
        """Log-density of all targets of a task together, [B]; with a mask [B, T], of those where it is True."""
        known = _known(y, mask)
        alone = self._log_mix_local(self.component_log_prob(known)).sum(-1)  # [K, B]
        return log_mean_exp(alone + copula_log_prob(self._scores(known), self.ties[:, 0]), 0)

    def function_mean(self, generator: torch.Generator | None = None) -> Tensor:
        """A function without its noise, [B, T, 1]: ε = 0, the median of observations given η; of one draw of z_G."""
        return self._at(moved(self.ties[0, 0].unsqueeze(-2), (self.shape[2], 1), generator), 0)

    def affine(self, shift: Tensor, factor: Tensor) -> Self:
        """Return the predictive of shift + factor · y."""
        plain = super().affine(shift, factor)
        return type(self)(plain.loc, plain.scale, self._weights(), self.ties * factor.sign())

    def arrays(self) -> tuple[Tensor, ...]:
        """Means, standard deviations, W, and the log-weights."""
        return (self.loc, self.scale, self.ties, *self._weight_array())

    def like(self, *arrays: Tensor) -> Self:
        """Make a predictive of such arrays."""
        loc, scale, ties, log_weights = arrays
        return type(self)(loc, scale, log_weights.squeeze(-1), ties)

    def outputs(self, index: list[int]) -> Self:
        """Return the predictive of the one output."""
        if index != [0]:
            raise ValueError(f"there is one output, [0], got {index}")
        return self

    def sample(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw functions with their noise, [num_samples, B, T, 1]."""
        return torch.stack([self._function(generator) for _ in range(num_samples)])

    def _function(self, generator: torch.Generator | None) -> Tensor:
        num_global, _, tasks, targets = self.shape[:4]
        k = torch.randint(num_global, (tasks, 1), generator=generator, device=self.loc.device).expand(
            -1, targets
        )
        ties = choose(self.ties, k, torch.zeros_like(k)).unsqueeze(-2)  # [B, T, 1, R]
        own = torch.randn(*k.shape, 1, generator=generator, dtype=ties.dtype, device=ties.device)
        noise = (1 - ties.square().sum(-1)).sqrt() * own
        return self._at(moved(ties, (tasks, 1), generator) + noise, k)

    def _at(self, score: Tensor, k: Tensor | int) -> Tensor:
        """The outputs with some normal scores, each [B, T, 1], under draw k of z_G."""
        if isinstance(k, int):
            loc, scale, log_weights = self.loc[k], self.scale[k], self._weights()[k]
        else:
            picked = k[None, None, ..., None]
            loc, scale = (part.take_along_dim(picked, 0)[0] for part in (self.loc, self.scale))
            log_weights = self._weights().take_along_dim(k[None, None], 0)[0]
        level = torch.special.ndtr(score.double()).clamp(FURTHEST, 1 - 1e-16)
        double = (part.double() for part in (loc, scale, log_weights.unsqueeze(-1)))
        return mixture_quantile(level[None], *double)[0].to(self.loc.dtype)

    def _scores(self, y: Tensor) -> Tensor:
        """Normal scores of outputs [B, T, 1] under each draw of z_G, [K, B, T]; NaN for a missing one."""
        loc, scale = (part.movedim(1, 0)[..., 0] for part in (self.loc, self.scale))
        return normal_score(y[..., 0], loc, scale, self._weights().movedim(1, 0))

    def _weights(self) -> Tensor:
        assert self.log_weights is not None
        return self.log_weights


def _known(y: Tensor, mask: Tensor | None) -> Tensor:
    """y with NaN where the mask is False."""
    return y if mask is None else torch.where(mask.unsqueeze(-1), y, torch.nan)


def _check_single(size: int) -> None:
    """Refuse several components for a draw of z_G: targets could not share its η."""
    if size != 1:
        raise ValueError(
            f"targets that share η need one component for each draw of z_G, got {size}; use a model without z_*"
        )
