"""Likelihoods of numbers: Gaussians with a learned or a fixed σ, mixtures, covariances of outputs."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from dsvnp.gaussian import gaussian_log_prob
from dsvnp.likelihoods.base import Likelihood
from dsvnp.naming import lookup
from dsvnp.networks import full_precision
from dsvnp.predictive import GaussianPredictive, LowRankPredictive, Predictive
from dsvnp.predictive.low_rank import low_rank_log_prob

LOWEST_LOG_SIGMA = -12.0  # σ of 6e-6: below, squared residuals over σ² leave what single precision can sum
BACKGROUND_SIGMA = 4.0


class Regression(Likelihood):
    """What the likelihoods of numbers share: y enters an encoder as it is."""

    def __init__(self, dim_y: int) -> None:
        super().__init__()
        self.dim_y = self.dim_encoded = dim_y

    def encode(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """y itself, with zero for a missing value."""
        return torch.where(torch.isnan(y), 0.0, y).to(dtype)

    def check(self, y: Tensor, name: str) -> None:
        """Refuse a wrong number of outputs, and integers."""
        if y.shape[-1] != self.dim_y:
            raise ValueError(f"{name} has {y.shape[-1]} outputs but the model was made for {self.dim_y}")
        if not y.is_floating_point():
            raise ValueError(f"{name} must be floating point for regression, got {y.dtype}; pass y.float()")


class LearnedSigma(Regression):
    """A regression whose decoder puts out σ, in one of two forms, with a floor in the units of y.

    "softplus": σ = floor + (1 − floor)·softplus(·). With the floor of 0.1 that is customary, a negative log-likelihood
    cannot fall below −1.384 per output. "exp": σ = floor + exp(·), with ln σ held smoothly above −12, which keeps a
    density finite where there is no floor.
    """

    def __init__(self, dim_y: int, floor: float, form: str) -> None:
        super().__init__(dim_y)
        if not 0 <= floor < 1:
            raise ValueError(f"the floor of sigma must be at least 0 and below 1, got {floor}")
        lookup(form, {"softplus": None, "exp": None}, "form of sigma")
        self.floor, self.form = floor, form

    def sigma(self, raw: Tensor) -> Tensor:
        """Turn raw numbers into standard deviations."""
        if self.form == "exp":
            return self.floor + torch.exp(LOWEST_LOG_SIGMA + F.softplus(raw - LOWEST_LOG_SIGMA))
        return self.floor + (1 - self.floor) * F.softplus(raw)

    def held(self, sigma: Tensor) -> Tensor:
        """σ for a density: where softplus has no floor it runs out of digits at 0, and is held above e^−12."""
        return sigma if self.floor > 0 else sigma.clamp(min=math.exp(LOWEST_LOG_SIGMA))

    def shared(self, sigma: Tensor) -> Tensor:
        """σ that training scores: one for all outputs, the root of their mean variance, to the extent of `common`."""
        if self.common is None:
            return sigma
        log_one = 0.5 * sigma.square().mean(-1, keepdim=True).log()
        return torch.exp(self.common * log_one + (1 - self.common) * sigma.log())


class Gaussian(LearnedSigma):
    """N(μ, σ²) for each output with a learned σ; see `LearnedSigma` for its arguments."""

    def __init__(self, dim_y: int, floor: float = 0.1, form: str = "softplus") -> None:
        super().__init__(dim_y, floor, form)
        self.dim_raw = 2 * dim_y

    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """μ and σ."""
        mean, raw_scale = full_precision(raw).chunk(2, dim=-1)
        return mean, self.sigma(raw_scale)

    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """ln N(y; μ, σ²) summed over the outputs that are there."""
        mean, scale = self.components(raw)
        return _log_prob_there(y, mean, self.shared(self.held(scale)))

    def predictive(self, *components: Tensor) -> Predictive:
        """A mixture of Gaussians over the draws."""
        mean, scale = components
        return GaussianPredictive(mean, self.held(scale))


class GaussianMixture(LearnedSigma):
    """Σ_m w_m Π_d N(y_d; μ_md, σ_md²): the components are shared by all outputs, which makes these dependent.

    A decoder's outputs are near zero at the start. Components that all start there get the same gradient and take long
    to part, or never do: μ is therefore the decoder's output plus a fixed offset of each component, and the offsets
    cover a standard normal distribution evenly. The decoder learns to undo them where it must.

    A narrow σ far from an outlier has a loss of any size, and its gradient drowns all others. With `background` one
    more component, of which nothing is learned, always has that weight: N(0, 4²) in units of standardised outputs. It
    bounds what an outlier costs, and all other points pay ln(1 − background).
    """

    offsets: Tensor

    def __init__(
        self,
        dim_y: int,  # number of outputs
        num_components: int = 20,  # M
        floor: float = 0.1,  # smallest σ, in the units of y
        form: str = "softplus",  # "softplus" or "exp", see `LearnedSigma`
        background: float = 0.0,  # weight of the wide component; 0 for none
    ) -> None:
        super().__init__(dim_y, floor, form)
        if num_components < 1:
            raise ValueError(f"a mixture needs at least 1 component, got num_components={num_components}")
        if not 0 <= background < 1:
            raise ValueError(f"background is a weight, at least 0 and below 1, got {background}")
        self.num_learned, self.background = num_components, background
        self.num_components = num_components + (background > 0)
        self.dim_raw = num_components * (1 + 2 * dim_y)
        self.register_buffer("offsets", _spread(num_components, dim_y))

    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """μ and σ, [K, S·M, B, T, D], and ln(w/S), [K, S·M, B, T, 1]: the components of a draw are neighbours."""
        log_weights, mean, scale = self._split(raw)
        log_weights = log_weights.unsqueeze(-1) - math.log(raw.shape[1])
        mean, scale, log_weights = (
            part.movedim(-2, 2).flatten(1, 2)
            for part in (mean, scale, log_weights)  # [K, S, B, T, M, ·] before
        )
        return mean, scale, log_weights

    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """Log-density of the outputs that are there, together."""
        log_weights, mean, scale = self._split(raw)
        return (log_weights + _log_prob_there(y.unsqueeze(-2), mean, scale)).logsumexp(-1)

    def predictive(self, *components: Tensor) -> Predictive:
        """A mixture of Gaussians over the draws and the components of each."""
        mean, scale, log_weights = components
        return GaussianPredictive(
            mean, scale, log_weights.squeeze(-1), components_per_draw=self.num_components
        )

    def _split(self, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """ln w [..., M], μ and σ [..., M, D]."""
        size = (self.num_learned, self.dim_y)
        logits, mean, scale = full_precision(raw).split([size[0], math.prod(size), math.prod(size)], dim=-1)
        mean = mean.unflatten(-1, size) + self.offsets
        log_weights, scale = logits.log_softmax(-1), self.held(self.sigma(scale.unflatten(-1, size)))
        if not self.background:
            return log_weights, mean, scale
        log_weights = F.pad(
            log_weights + math.log1p(-self.background), (0, 1), value=math.log(self.background)
        )
        last = (0, 0, 0, 1)  # one more component, [..., M, D] -> [..., M + 1, D]
        return log_weights, F.pad(mean, last), F.pad(scale, last, value=BACKGROUND_SIGMA)


class LowRankGaussian(LearnedSigma):
    """N(y; μ, diag(σ²) + W Wᵀ) over all outputs of a point, with W of `rank` columns; σ as in `LearnedSigma`.

    At W = 0 the gradient with respect to W is zero: a decoder that starts near zero would leave it slowly. W is
    therefore the decoder's output plus a fixed offset with orthogonal columns, cosines of rising frequency over the
    outputs; the first lets all outputs vary together.
    """

    offsets: Tensor

    def __init__(self, dim_y: int, rank: int = 2, floor: float = 0.1, form: str = "softplus") -> None:
        super().__init__(dim_y, floor, form)
        if rank < 1:
            raise ValueError(f"a low-rank covariance needs at least 1 column, got rank={rank}")
        self.rank = rank
        self.dim_raw = dim_y * (2 + rank)
        frequency = torch.arange(rank) % dim_y  # beyond D no further column is orthogonal
        angle = math.pi / dim_y * (torch.arange(dim_y)[:, None] + 0.5) * frequency
        self.register_buffer("offsets", 0.3 * torch.cos(angle))  # [D, R]

    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """μ and σ, [K, S, B, T, D], and W with its rows side by side, [K, S, B, T, D·R]."""
        mean, scale, factor = self._split(raw)
        return mean, scale, factor.flatten(-2)

    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """Log-density of the outputs that are there, together."""
        return low_rank_log_prob(y, *self._split(raw))

    def predictive(self, *components: Tensor) -> Predictive:
        """A mixture of low-rank Gaussians over the draws."""
        mean, scale, factor = components
        return LowRankPredictive(mean, scale, factor.unflatten(-1, (self.dim_y, self.rank)))

    def _split(self, raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """μ and σ, [..., D], and W, [..., D, R]."""
        size = (self.dim_y, self.rank)
        mean, scale, factor = full_precision(raw).split([self.dim_y, self.dim_y, math.prod(size)], dim=-1)
        return mean, self.held(self.sigma(scale)), factor.unflatten(-1, size) + self.offsets


class FixedGaussian(Regression):
    """Squared error, averaged over outputs, as the training term (Sec. 4.3); σ is not learned.

    For prediction σ is a buffer, one value per output: 1 until someone who has held-out residuals sets it.
    """

    sigma: Tensor

    def __init__(self, dim_y: int) -> None:
        super().__init__(dim_y)
        self.dim_raw = dim_y
        self.register_buffer("sigma", torch.ones(dim_y))

    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """−mean over the outputs that are there of (y − μ)²."""
        there = ~torch.isnan(y)
        error = torch.where(there, y - full_precision(raw), 0.0)
        return -error.square().sum(-1) / there.sum(-1).clamp(min=1)

    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """μ alone."""
        return (full_precision(raw),)

    def predictive(self, *components: Tensor) -> Predictive:
        """A mixture of Gaussians around the decoder's outputs, all with the fixed σ."""
        return GaussianPredictive(components[0], self.sigma)


def _log_prob_there(y: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """ln N(y; mean, scale²) summed over the outputs that are there."""
    missing = torch.isnan(y)
    log_prob = gaussian_log_prob(torch.where(missing, 0.0, y), mean, scale)
    return torch.where(missing, 0.0, log_prob).sum(-1)


def _spread(num_points: int, dim: int) -> Tensor:
    """Points that cover N(0, I) evenly, [num_points, dim]: on each axis the same quantiles, in an order of its own.

    The orders are those of an additive recurrence with steps g^−1, g^−2, …, where g > 1 solves g^(dim+1) = g + 1: the
    golden ratio for one axis and its generalisation for several (Roberts, 2018).
    """
    g = 2.0
    for _ in range(64):
        g = (1 + g) ** (1 / (dim + 1))
    step = g ** -torch.arange(1, dim + 1, dtype=torch.float64)
    place = torch.arange(num_points, dtype=torch.float64)[:, None] * step % 1
    rank = place.argsort(0).argsort(0)
    return torch.special.ndtri((rank + 0.5) / num_points)
