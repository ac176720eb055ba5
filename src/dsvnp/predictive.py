"""Predictive: what every model returns, an equal-weight mixture over latent draws (Eq. 17).

Axes: K draws of z_G, S draws of each z_*, B tasks, T targets, D outputs or classes. The components keep K and
S apart, [K, S, B, T, D], because a joint likelihood shares z_G over a task's points and draws z_* anew for
each. An axis that a model has no draws for is of size 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from dsvnp.gaussian import gaussian_log_prob


class Predictive(ABC):
    """An equal-weight mixture of K × S components for each target; see the two kinds below."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """Predictive mean [B, T, D]; class probabilities for a classifier."""

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Predictive variance [B, T, D], of each output or of each class indicator."""

    @property
    @abstractmethod
    def aleatoric(self) -> Tensor:
        """The part of the uncertainty that is left when the latents are known."""

    @property
    @abstractmethod
    def epistemic(self) -> Tensor:
        """The part of the uncertainty that is due to not knowing the latents."""

    @abstractmethod
    def component_log_prob(self, y: Tensor) -> Tensor:
        """Log-probability of y under each component, summed over outputs, [K, S, B, T]."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy of the mixture; see the kinds for its shape."""

    @abstractmethod
    def _pick(self, k: Tensor, s: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw y from the components with indices k, s of shape [B, T]."""

    @property
    @abstractmethod
    def shape(self) -> torch.Size:
        """Shape of the components, [K, S, B, T, D]."""

    @property
    def stddev(self) -> Tensor:
        """Predictive standard deviation, [B, T, D]."""
        return self.variance.sqrt()

    def log_prob(self, y: Tensor) -> Tensor:
        """Log-density of each target by itself, [B, T]: log-mean-exp over all K·S draws (Eq. 17)."""
        return log_mean_exp(self.component_log_prob(y), (0, 1))

    def log_prob_joint(self, y: Tensor, mask: Tensor | None = None) -> Tensor:
        """Log-density of all targets of a task together, [B]: ln mean_k Π_t mean_s p(y_t | z_G^k, z_t^s).

        Args:
            y: outputs, [B, T, D] or [B, T, 1] for labels.
            mask: True where a target counts, [B, T]; all of them by default.
        """
        per_point = log_mean_exp(self.component_log_prob(y), 1)  # [K, B, T]
        if mask is not None:
            per_point = torch.where(mask, per_point, 0.0)
        return log_mean_exp(per_point.sum(-1), 0)

    def sample(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw functions with their noise, [num_samples, B, T, D or 1]; a draw keeps one z_G per task."""
        num_global, num_local, tasks, targets = self.shape[:4]
        device = self.mean.device
        out = []
        for _ in range(num_samples):
            k = torch.randint(num_global, (tasks, 1), generator=generator, device=device)
            s = torch.randint(num_local, (tasks, targets), generator=generator, device=device)
            out.append(self._pick(k.expand_as(s), s, generator))
        return torch.stack(out)


class GaussianPredictive(Predictive):
    """A mixture of Gaussians for each target, independent over outputs given the latents.

    Args:
        loc: component means, [K, S, B, T, D].
        scale: component standard deviations, broadcastable to `loc`.
    """

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        self.loc = loc
        self.scale = scale.expand_as(loc)

    @property
    def shape(self) -> torch.Size:
        """Shape of the components, [K, S, B, T, D]."""
        return self.loc.shape

    @property
    def mean(self) -> Tensor:
        """Predictive mean, [B, T, D]."""
        return self.loc.mean((0, 1))

    @property
    def aleatoric(self) -> Tensor:
        """E[Var(y | z_G)], [B, T, D]: the noise and, told by two or more draws of it, what z_* varies."""
        return self.variance - self.epistemic

    @property
    def epistemic(self) -> Tensor:
        """Var(E[y | z_G]), [B, T, D]: what knowing the function would take away.

        The variance of all draws, less that within a draw of z_G; with one z_* each (S = 1) that cannot be told.
        """
        return (self.loc.var((0, 1), correction=0) - within(self.loc)).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        """Law of total variance over all draws, [B, T, D]."""
        return self.scale.square().mean((0, 1)) + self.loc.var((0, 1), correction=0)

    def component_log_prob(self, y: Tensor) -> Tensor:
        """Log-density of y under each component, [K, S, B, T]; a missing output (NaN) adds nothing."""
        missing = torch.isnan(y)
        log_prob = gaussian_log_prob(torch.where(missing, 0.0, y), self.loc, self.scale)
        return torch.where(missing, 0.0, log_prob).sum(-1)

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y ≤ y) of each output, with y broadcastable to [..., B, T, D] in front of any axes."""
        y = y.reshape(*y.shape[:-3], 1, 1, *y.shape[-3:])
        return torch.special.ndtr((y - self.loc) / self.scale).mean((-5, -4))

    def quantile(self, probability: float | list[float] | Tensor) -> Tensor:
        """Quantiles of each output by bisection on the mixture's CDF, [Q, B, T, D] ([B, T, D] for a number).

        Args:
            probability: one or more numbers strictly between 0 and 1.
        """
        p = torch.as_tensor(probability, dtype=self.loc.dtype, device=self.loc.device)
        if not bool(((p > 0) & (p < 1)).all()):
            raise ValueError(f"probabilities must lie strictly between 0 and 1, got {probability}")
        level = p.reshape(-1, 1, 1, 1)
        # A mixture's quantile lies between the smallest and the largest of its components'.
        each = torch.special.ndtri(level)[:, None, None] * self.scale + self.loc  # [Q, K, S, B, T, D]
        low, high = each.amin((1, 2)), each.amax((1, 2))
        for _ in range(60 if p.dtype == torch.float64 else 30):
            middle = 0.5 * (low + high)
            below = self.cdf(middle) < level
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        out = 0.5 * (low + high)
        return out if p.ndim else out[0]

    def entropy(self) -> Tensor:
        """Differential entropy of each output's mixture, [B, T, D], by Gauss–Hermite quadrature.

        H = −(1/KS) Σ_i E_{N_i}[ln p], each expectation with 32 nodes.
        """
        loc, scale = self.loc.flatten(0, 1), self.scale.flatten(0, 1)  # [I, B, T, D]
        nodes, weights = np.polynomial.hermite_e.hermegauss(32)
        total = torch.zeros_like(loc[0])
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            y = loc + scale * float(node)
            density = torch.stack([log_mean_exp(gaussian_log_prob(point, loc, scale), 0) for point in y])
            total = total - float(weight) * density.mean(0)
        return total

    def affine(self, shift: Tensor, factor: Tensor) -> GaussianPredictive:
        """Return the predictive of shift + factor · y, as when going back to the user's units."""
        return GaussianPredictive(shift + factor * self.loc, factor.abs() * self.scale)

    def _pick(self, k: Tensor, s: Tensor, generator: torch.Generator | None) -> Tensor:
        loc, scale = _choose(self.loc, k, s), _choose(self.scale, k, s)
        noise = torch.randn(loc.shape, generator=generator, dtype=loc.dtype, device=loc.device)
        return loc + scale * noise


class CategoricalPredictive(Predictive):
    """A mixture of categorical distributions for each target.

    Args:
        log_probs: log-probabilities of the classes under each component, [K, S, B, T, classes].
    """

    def __init__(self, log_probs: Tensor) -> None:
        self.log_probs = log_probs

    @property
    def shape(self) -> torch.Size:
        """Shape of the components, [K, S, B, T, classes]."""
        return self.log_probs.shape

    @property
    def mean(self) -> Tensor:
        """Class probabilities, [B, T, classes]."""
        return self.log_probs.exp().mean((0, 1))

    @property
    def variance(self) -> Tensor:
        """Variance p(1 − p) of each class indicator, [B, T, classes]."""
        return self.mean * (1 - self.mean)

    @property
    def aleatoric(self) -> Tensor:
        """Expected entropy given z_G, [B, T], in nats: z_* is averaged over before."""
        return entropy_of(self.log_probs.exp().mean(1)).mean(0)

    @property
    def epistemic(self) -> Tensor:
        """Mutual information between the label and z_G, [B, T], in nats."""
        return self.entropy() - self.aleatoric

    def component_log_prob(self, y: Tensor) -> Tensor:
        """Log-probability of the labels y [B, T, 1] under each component, [K, S, B, T]."""
        index = y.long().expand(*self.shape[:4], 1)
        return self.log_probs.gather(-1, index).squeeze(-1)

    def entropy(self) -> Tensor:
        """Entropy of the predictive distribution, [B, T], in nats (Sec. 4.4)."""
        return entropy_of(self.mean)

    def _pick(self, k: Tensor, s: Tensor, generator: torch.Generator | None) -> Tensor:
        probs = _choose(self.log_probs, k, s).exp()
        flat = torch.multinomial(probs.flatten(0, 1), 1, generator=generator)
        return flat.unflatten(0, probs.shape[:2])


def within(loc: Tensor) -> Tensor:
    """Variance over draws of z_* within a draw of z_G, averaged over those, [B, T, D]; 0 where there is one each."""
    return loc.var(1).mean(0) if loc.shape[1] > 1 else torch.zeros_like(loc[0, 0])


def log_mean_exp(value: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """ln mean exp over `dim`."""
    dims = (dim,) if isinstance(dim, int) else dim
    return value.logsumexp(dims) - math.log(math.prod(value.shape[d] for d in dims))


def entropy_of(probs: Tensor) -> Tensor:
    """−Σ p ln p over the last axis, with 0 ln 0 = 0."""
    return torch.special.entr(probs).sum(-1)


def _choose(components: Tensor, k: Tensor, s: Tensor) -> Tensor:
    """Take component (k[b, t], s[b, t]) of [K, S, B, T, D] for each b and t, giving [B, T, D]."""
    tasks, targets = torch.meshgrid(
        torch.arange(k.shape[0], device=k.device), torch.arange(k.shape[1], device=k.device), indexing="ij"
    )
    return components[k, s, tasks, targets]
