"""Mixtures of Gaussians in one number, and the energy score of samples.

    p(y) = Σ_i w_i N(y; μ_i, σ_i²)

The I components lie on the first axis; all other axes are batch axes. `log_weights` holds ln w_i, broadcastable to
the means; None means equal weights 1/I.
"""

import math

import numpy as np
import torch
from torch import Tensor

from dsvnp.gaussian import gaussian_log_prob


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

    With A(m, s) = E|N(m, s²)|:  Σ_i w_i A(y − μ_i, σ_i) − ½ Σ_ij w_i w_j A(μ_i − μ_j, √(σ_i² + σ_j²)). The I²/2 pairs
    are taken one i after the other: their memory never exceeds that of `loc`.

    Args:
        y: what came out, [...]; NaN gives NaN.
        loc: component means, [I, ...].
        scale: component standard deviations, [I, ...].
        log_weights: ln w_i, broadcastable to `loc`.
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
