"""Log-densities that the problems' truths are made of.

    mixture of equals      ln (1/K) Σ_k N(y; m_k, σ² I)
    one shared direction   ln N(r; 0, σ² I + d dᵀ) = −½ [|r|²/σ² − (d·r)²/(σ²(σ² + |d|²)) + ln |σ² I + d dᵀ| + D ln 2π]
    contaminated           r = σ ε + A u t,    u ~ U[0, 1],    t = z √(ν/c),    z ~ N(0, 1),    c ~ χ² of ν degrees

The last is a Gaussian of variance σ² + A² ν w averaged over w = u²/c. The density of s = ln w follows from that of χ²
and is, with the regularised incomplete gamma function P, proportional to exp(s/2) P((ν + 1)/2, exp(−s)/2).

Axes: `...` is any batch shape, D outputs.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dsvnp.gaussian import HALF_LOG_2PI, gaussian_log_prob

CHUNK = 4096  # points that are integrated at once


def equal_mixture(y: Tensor, means: Tensor, noise: float) -> Tensor:
    """ln (1/K) Σ_k N(y; m_k, noise² I), [...], of values [..., D] and centres [K, ..., D]."""
    scale = torch.full_like(y, noise)
    return gaussian_log_prob(y, means, scale).sum(-1).logsumexp(0) - math.log(len(means))


def shared_direction(residual: Tensor, direction: Tensor, noise: float) -> Tensor:
    """ln N(residual; 0, noise² I + d dᵀ), [...], for residuals and directions d of shape [..., D]."""
    along = (residual * direction).sum(-1)
    total = noise**2 + direction.square().sum(-1)  # the largest eigenvalue of the covariance
    distance = residual.square().sum(-1) / noise**2 - along.square() / (noise**2 * total)
    dim = residual.shape[-1]
    return -0.5 * (distance + total.log()) - (dim - 1) * math.log(noise) - dim * HALF_LOG_2PI


def full_gaussian(y: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """ln N(y; mean, covariance), [...], for a covariance [..., D, D]."""
    factor = torch.linalg.cholesky(covariance)
    white = torch.linalg.solve_triangular(factor, (y - mean).unsqueeze(-1), upper=False).squeeze(-1)
    log_scale = factor.diagonal(dim1=-2, dim2=-1).log()
    return (-0.5 * white.square() - log_scale - HALF_LOG_2PI).sum(-1)


def diagonal_gaussian(y: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """ln N(y; mean, diag of the covariance), [...]."""
    return gaussian_log_prob(y, mean, covariance.diagonal(dim1=-2, dim2=-1).sqrt()).sum(-1)


def contaminated(residual: Tensor, noise: float, amplitude: float, degrees_of_freedom: float) -> Tensor:
    """Log-density of σ ε + A u t at each entry of `residual`, by the trapezoidal rule over s.

    The rule is exact to rounding for so smooth an integrand. Outside its ends s has less than 1e-10 of its mass: the
    density of s falls as exp(s/2) to the left and as exp(−ν s/2) to the right.
    """
    s = torch.arange(-46.0, 46.0 / degrees_of_freedom, 0.25, dtype=residual.dtype, device=residual.device)
    upper = torch.special.gammainc(torch.full_like(s, (degrees_of_freedom + 1) / 2), torch.exp(-s) / 2)
    log_weight = (s / 2 + upper.log()).log_softmax(0)
    std = (noise**2 + amplitude**2 * degrees_of_freedom * s.exp()).sqrt()

    def density(part: Tensor) -> Tensor:
        return (gaussian_log_prob(part[:, None], torch.zeros_like(std), std) + log_weight).logsumexp(-1)

    return in_chunks(density, residual.flatten()).reshape(residual.shape)


def gauss_legendre(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss-Legendre quadrature on [−1, 1], with the type and device of a tensor."""
    nodes, weights = (
        torch.as_tensor(each, dtype=like.dtype, device=like.device)
        for each in np.polynomial.legendre.leggauss(count)
    )
    return nodes, weights


def in_chunks(function: Callable[..., Tensor], *rows: Tensor, size: int = CHUNK) -> Tensor:
    """Apply a function to rows [P, ...] of its arguments, some at a time, which bounds the memory it takes."""
    return torch.cat([function(*parts) for parts in zip(*(row.split(size) for row in rows), strict=True)])
