"""Coherent likelihoods: all targets of a task have one density together, and a draw of it is a function.

    v_t = W_t η + √(1 − ‖W_t‖²) ε_t,   W_t = √ρ_t U_t,   η ~ N(0, I_R) for the whole task,  ε_t ~ N(0, 1)

v_t is the normal score of an output: of a Gaussian (y − μ)/s, of a mixture Φ⁻¹(F(y)). ρ_t is the share of its variance
that the function carries, and the rows U_t have length 1. η is a global latent that is integrated out: there is no
posterior to learn, and nothing favours its collapse. The Gaussian NP (Markou et al., 2022) and TNP-ND (Nguyen & Grover,
2022) are relatives of the Gaussian one; the copula of the other keeps any marginal distributions.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from dsvnp.likelihoods.numbers import GaussianMixture, LearnedSigma
from dsvnp.naming import at_least_one
from dsvnp.networks import full_precision
from dsvnp.predictive import CoherentMixturePredictive, CoherentPredictive, Predictive
from dsvnp.predictive.coherent import copula_log_prob, normal_score
from dsvnp.predictive.low_rank import low_rank_log_prob

MOST = 1 - 1e-5  # share of a normal score that a function carries at most: noise is never 0


class Coherent(LearnedSigma):
    """One Gaussian over all targets and outputs of a task, with a low-rank covariance.

    s, the standard deviation of an output by itself, has the forms of σ in `LearnedSigma`. Its floor bounds the noise,
    √(1 − ρ) s, as well.
    """

    coherent = True

    def __init__(self, dim_y: int, rank: int = 32, floor: float = 0.1, form: str = "softplus") -> None:
        super().__init__(dim_y, floor, form)
        at_least_one(rank=rank)
        self.rank = rank
        self.dim_raw = dim_y * (3 + rank)

    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """μ and the noise's σ, [K, S, B, T, D], and s W with its rows side by side, [K, S, B, T, D·R]."""
        mean, noise, factor = self._split(raw)
        return mean, noise, factor.flatten(-2)

    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """Log-density of the outputs of each point that are there, together, whatever the other points are."""
        return low_rank_log_prob(y, *self._split(raw))

    def score(self, raw: Tensor, y: Tensor, counted: Tensor) -> Tensor:
        """An equal share, for each counted point, of the log-density of all of them together; 0 for the others."""
        mean, noise, factor = self._split(raw)
        known = torch.where(counted.unsqueeze(-1), y, math.nan).flatten(-2)  # [B, T·D]
        parts = (mean.flatten(-2), noise.flatten(-2), factor.flatten(-3, -2))
        return _shared(low_rank_log_prob(known, *parts), counted)

    def predictive(self, *components: Tensor) -> Predictive:
        """Low-rank Gaussians over all targets of a task, one for each draw of z_G."""
        mean, noise, factor = components
        return CoherentPredictive(mean, noise, factor.unflatten(-1, (self.dim_y, self.rank)))

    def _split(self, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """μ and the noise's σ, [..., D], and s W, [..., D, R]."""
        d = self.dim_y
        mean, scale, share, rows = full_precision(raw).split([d, d, d, d * self.rank], dim=-1)
        above = (self.sigma(scale).square() - self.floor**2).clamp(min=torch.finfo(scale.dtype).tiny)
        noise = (self.floor**2 + above * torch.sigmoid(-share)).sqrt()
        length = (above * torch.sigmoid(share)).sqrt()
        rows = F.normalize(rows.unflatten(-1, (d, self.rank)), dim=-1)
        return mean, self.held(noise), length.unsqueeze(-1) * rows


class CoherentMixture(GaussianMixture):
    """A mixture of Gaussians for each target, with one output, joined by a Gaussian copula; see `GaussianMixture`."""

    coherent = True

    def __init__(
        self,
        dim_y: int,
        rank: int = 32,
        num_components: int = 20,
        floor: float = 0.1,
        form: str = "softplus",
        background: float = 0.0,
    ) -> None:
        if dim_y != 1:
            raise ValueError(
                f"a coherent mixture needs one output, got dim_y={dim_y}; use 'coherent' for several"
            )
        super().__init__(dim_y, num_components, floor, form, background)
        at_least_one(rank=rank)
        self.rank = rank
        self.dim_mixture = self.dim_raw
        self.dim_raw += 1 + rank

    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """μ, σ and ln(w/S) as `GaussianMixture` has them, and W, [K, S, B, T, R]."""
        return *super().components(raw[..., : self.dim_mixture]), self._ties(raw)

    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """Log-density of each point by itself."""
        return super().log_prob(raw[..., : self.dim_mixture], y)

    def score(self, raw: Tensor, y: Tensor, counted: Tensor) -> Tensor:
        """An equal share, for each counted point, of the log-density of all of them together; 0 for the others."""
        log_weights, mean, scale = self._split(raw[..., : self.dim_mixture])
        known = torch.where(counted, y[..., 0], math.nan)
        held = torch.where(known.isnan(), mean[..., 0, 0], known)  # a gradient through NaN would be NaN
        parts = (mean[..., 0].movedim(-1, 0), scale[..., 0].movedim(-1, 0), log_weights.movedim(-1, 0))
        score = torch.where(known.isnan(), math.nan, normal_score(held, *parts))
        alone = torch.where(counted, self.log_prob(raw, y), 0.0).sum(-1)
        return _shared(alone + copula_log_prob(score, self._ties(raw)), counted)

    def predictive(self, *components: Tensor) -> Predictive:
        """The mixtures of all targets and what joins them, for each draw of z_G."""
        mean, scale, log_weights, ties = components
        return CoherentMixturePredictive(mean, scale, log_weights.squeeze(-1), ties)

    def _ties(self, raw: Tensor) -> Tensor:
        """W = √ρ U, [..., R]."""
        share, rows = full_precision(raw[..., self.dim_mixture :]).split([1, self.rank], dim=-1)
        return (MOST * torch.sigmoid(share)).sqrt() * F.normalize(rows, dim=-1)


def _shared(joint: Tensor, counted: Tensor) -> Tensor:
    """Share a task's number [...] equally among its counted points, [..., T]."""
    return joint.unsqueeze(-1) * counted / counted.sum(-1, keepdim=True).clamp(min=1)
