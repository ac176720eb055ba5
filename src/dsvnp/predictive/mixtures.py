"""Mixtures of Gaussians in one number, and the energy score of samples.

    p(y) = Σ_i w_i N(y; μ_i, σ_i²)

The I components lie on the first axis; all other axes are batch axes. `log_weights` holds ln w_i, broadcastable to
the means; None means equal weights 1/I.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from dsvnp.gaussian import gaussian_log_prob

MOST_NUMBERS = 2**24  # of an intermediate array over pairs, which is cut into blocks of at most this size


def mixture_entropy(loc: Tensor, scale: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """Differential entropy H = −Σ_i w_i E_{N_i}[ln p], each expectation by Gauss–Hermite quadrature with 32 nodes.

    Args:
        loc: component means, [I, ...].
        scale: component standard deviations, [I, ...].
        log_weights: ln w_i, broadcastable to `loc`.
    """
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

    With A(m, s) = E|N(m, s²)|:  Σ_i w_i A(y − μ_i, σ_i) − ½ Σ_ij w_i w_j A(μ_i − μ_j, √(σ_i² + σ_j²)). The pairs are
    cut into blocks, so that the memory stays in proportion to `loc`.

    Args:
        y: what came out, [...]; NaN gives NaN.
        loc: component means, [I, ...].
        scale: component standard deviations, [I, ...].
        log_weights: ln w_i, broadcastable to `loc`.
    """
    count = len(loc)
    weights = torch.full_like(loc[:, :1], 1 / count) if log_weights is None else log_weights.exp()
    distance = (weights * _mean_abs(y - loc, scale)).sum(0)
    spread = torch.zeros_like(distance)
    for rows in _blocks(count, loc.numel()):
        between = torch.hypot(scale[rows, None], scale)  # [block, I, ...]
        each = (weights * _mean_abs(loc[rows, None] - loc, between)).sum(1)
        spread = spread + (weights[rows] * each).sum(0)
    return distance - 0.5 * spread


def energy_score(samples: Tensor, y: Tensor) -> Tensor:
    """Energy score E‖Y − y‖ − ½ E‖Y − Y'‖ over the last axis, [...], an unbiased estimate from all pairs of samples.

    Args:
        samples: draws of all outputs together, [N, ..., D], with N of at least 2.
        y: what came out, [..., D]; a missing output (NaN) does not count in the distances.
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
    for rows in _blocks(count, samples.numel()):
        spread = spread + torch.linalg.vector_norm(samples[rows, None] - samples, dim=-1).sum((0, 1))
    return distance - 0.5 * spread / (count * (count - 1))  # a sample is at distance 0 from itself


def _log_mix(value: Tensor, log_weights: Tensor | None) -> Tensor:
    """ln Σ_i w_i exp(value_i) over the first axis."""
    if log_weights is None:
        return value.logsumexp(0) - math.log(len(value))
    return (value + log_weights).logsumexp(0)


def _mean_abs(mean: Tensor, scale: Tensor) -> Tensor:
    """E|N(mean, scale²)|."""
    z = mean / scale
    return mean * torch.erf(z / math.sqrt(2)) + scale * math.sqrt(2 / math.pi) * torch.exp(-0.5 * z.square())


def _blocks(count: int, numbers: int) -> list[slice]:
    """Cut `count` rows, each of which is paired with an array of `numbers`, into blocks that fit in memory."""
    step = max(1, MOST_NUMBERS // max(1, numbers))
    return [slice(start, start + step) for start in range(0, count, step)]
