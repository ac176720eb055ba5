"""Mixtures of Gaussians in one number, and the energy score of samples.

    p(y) = Σ_i w_i N(y; μ_i, σ_i²)

The I components lie on the first axis; all other axes are batch axes. `log_weights` holds ln w_i, broadcastable to
the means; None means equal weights 1/I.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from dsvnp.gaussian import gaussian_log_prob

MANY = 2**14  # numbers from which on single precision saves time


def mixture_entropy(loc: Tensor, scale: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """Differential entropy H = −Σ_i w_i E_{N_i}[ln p], each expectation by Gauss–Hermite quadrature with 32 nodes."""
    nodes, quadrature = np.polynomial.hermite_e.hermegauss(32)
    total = torch.zeros_like(loc[0])
    for node, share in zip(nodes, quadrature / quadrature.sum(), strict=True):
        y = loc + scale * float(node)
        density = torch.stack([_log_mix(gaussian_log_prob(point, loc, scale), log_weights) for point in y])
        mean = density.mean(0) if log_weights is None else (log_weights.exp() * density).sum(0)
        total = total - float(share) * mean
    return total


def mixture_crps(y: Tensor, loc: Tensor, scale: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """Continuous ranked probability score E|Y − y| − ½ E|Y − Y'| in closed form (Grimit et al., 2006), [...].

    With A(m, s) = E|N(m, s²)|: Σ_i w_i A(y − μ_i, σ_i) − ½ Σ_ij w_i w_j A(μ_i − μ_j, √(σ_i² + σ_j²)). The I²/2 pairs
    are taken one i after the other: their memory never exceeds that of `loc`. A y that is NaN gives NaN.
    """
    count = len(loc)
    weights = torch.full_like(loc[:, :1], 1 / count) if log_weights is None else log_weights.exp()
    distance = (weights * _mean_abs(y - loc, scale)).sum(0)
    spread = (weights.square() * scale).sum(0) * (2 / math.sqrt(math.pi))  # i = j: A(0, √2 σ)
    for i in range(count - 1):
        rest = slice(i + 1, None)  # each pair i < j stands for two
        apart = _mean_abs(loc[i] - loc[rest], torch.hypot(scale[i], scale[rest]))
        spread = spread + 2 * weights[i] * (weights[rest] * apart).sum(0)
    return distance - 0.5 * spread


def mixture_quantile(p: Tensor, loc: Tensor, scale: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """Quantiles at levels p strictly between 0 and 1, [Q, ...]; p is [Q], or [Q, ...] with levels for each number.

    By Newton's method on the CDF, in units of the mixture's deviation. Where there are many they are found in single
    precision first, which takes half the time; steps in double precision then give the other digits.
    """
    weights = torch.full_like(loc[:1], 1 / len(loc)) if log_weights is None else log_weights.exp()
    wide, deviation = loc.double(), scale.double()  # a single number's square may overflow
    mean = (weights * wide).sum(0)
    variance = (weights * (deviation.square() + (wide - mean).square())).sum(0)
    unit = torch.maximum(variance.sqrt(), deviation.amin(0))
    level = p.reshape(-1, *[1] * mean.ndim) if p.ndim == 1 else p
    start = torch.special.ndtri(level).expand(-1, *mean.shape)
    parts = [(wide - mean) / unit, deviation / unit, weights]
    if loc.dtype == torch.float64 and len(level) * loc.numel() > MANY:
        start = _solve(level.float(), [part.float() for part in parts], start.float(), 1e-5).double()
    close = 1e-10 if loc.dtype == torch.float64 else 1e-6
    out = _solve(level, [part.to(loc.dtype) for part in parts], start, close)
    return (mean + unit * out).to(loc.dtype)


def _solve(level: Tensor, mixture: Sequence[Tensor], start: Tensor, close: float) -> Tensor:
    """Where the CDF reaches a level [Q, ...]: Newton's steps until all are small, held between bounds that close in.

    A step that is not half of the one before, as between narrow peaks, goes to the middle of the bounds instead. The
    mixture is means, deviations and weights.
    """
    loc, scale, weights = mixture
    each = torch.special.ndtri(level).unsqueeze(1) * scale + loc  # [Q, I, ...]
    # A mixture's quantile lies between the smallest and the largest of its components'.
    low, high = each.amin(1), each.amax(1)
    out, sharpness = start.clamp(low, high), 1 / scale
    heights, last = weights * sharpness / math.sqrt(2 * math.pi), high - low
    for _ in range(60):
        z = (out.unsqueeze(1) - loc) * sharpness
        miss = (weights * torch.special.ndtr(z)).sum(1) - level
        density = (heights * torch.exp(-0.5 * z.square())).sum(1).clamp(min=torch.finfo(z.dtype).tiny)
        low, high = torch.where(miss < 0, out, low), torch.where(miss < 0, high, out)
        newton = out - miss / density
        held = (newton >= low) & (newton <= high) & ((newton - out).abs() <= (0.5 * last).clamp(min=close))
        step = torch.where(held, newton, 0.5 * (low + high)) - out
        last = step.abs()
        out = out + step
        if bool((last <= close).all()):
            break
    return out


def sampled_energy_score(samples: Tensor, y: Tensor) -> Tensor:
    """Energy score E‖Y − y‖ − ½ E‖Y − Y'‖ over the last axis, [...], an unbiased estimate from all pairs of samples.

    Samples are [N, ..., D] with N of at least 2; a missing output (NaN) does not count in the distances.
    """
    count = len(samples)
    if count < 2:
        raise ValueError(
            f"an energy score compares samples with each other: 2 or more are needed, got {count}"
        )
    missing = torch.isnan(y)
    samples, y = torch.where(missing, 0.0, samples), torch.where(missing, 0.0, y)
    distance = torch.linalg.vector_norm(samples - y, dim=-1).mean(0)
    spread = torch.zeros_like(distance)
    for i in range(count - 1):
        spread = spread + torch.linalg.vector_norm(samples[i + 1 :] - samples[i], dim=-1).sum(0)
    # ½ of the mean over pairs i ≠ j, of which half were summed
    return distance - spread / (count * (count - 1))


def _log_mix(value: Tensor, log_weights: Tensor | None) -> Tensor:
    """ln Σ_i w_i exp(value_i) over the first axis."""
    if log_weights is None:
        return value.logsumexp(0) - math.log(len(value))
    return (value + log_weights).logsumexp(0)


def _mean_abs(mean: Tensor, scale: Tensor) -> Tensor:
    """E|N(mean, scale²)|."""
    z = mean / scale
    return mean * torch.erf(z / math.sqrt(2)) + scale * math.sqrt(2 / math.pi) * torch.exp(-0.5 * z.square())
