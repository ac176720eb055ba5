"""Densities of the ambiguity problems against SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from dsvnp.paper.ambiguity.densities import (
    contaminated,
    diagonal_gaussian,
    equal_mixture,
    full_gaussian,
    in_chunks,
    shared_direction,
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_mixture_of_equals():
    y, means = normal(5, 3), normal(4, 5, 3, seed=1)
    ours = equal_mixture(y, means, 0.7)
    for row in range(5):
        parts = [
            stats.multivariate_normal(means[k, row], 0.49 * np.eye(3)).pdf(y[row].numpy()) for k in range(4)
        ]
        assert float(ours[row]) == pytest.approx(math.log(np.mean(parts)))


def test_a_shared_direction():
    residual, direction = normal(6, 4), normal(6, 4, seed=1)
    ours = shared_direction(residual, direction, 0.3)
    for row in range(6):
        covariance = 0.09 * np.eye(4) + np.outer(direction[row], direction[row])
        assert float(ours[row]) == pytest.approx(
            stats.multivariate_normal(np.zeros(4), covariance).logpdf(residual[row].numpy())
        )


def test_gaussians_by_their_moments():
    y, mean, root = normal(6, 3), normal(6, 3, seed=1), normal(6, 3, 3, seed=2)
    covariance = root @ root.mT + 0.1 * torch.eye(3, dtype=torch.float64)
    full, diagonal = full_gaussian(y, mean, covariance), diagonal_gaussian(y, mean, covariance)
    for row in range(6):
        c = covariance[row].numpy()
        assert float(full[row]) == pytest.approx(
            stats.multivariate_normal(mean[row], c).logpdf(y[row].numpy())
        )
        assert float(diagonal[row]) == pytest.approx(
            stats.norm(mean[row], np.sqrt(np.diag(c))).logpdf(y[row].numpy()).sum()
        )


@pytest.mark.parametrize("r", [0.0, 0.03, -0.2, 3.0])
def test_contamination_is_the_convolution_it_says(r):
    # p(r) = ∫∫ N(r − 0.15 u t; 0, 0.02²) p(t) dt du; t in units that spread its tails evenly
    def over_u(t: float) -> float:
        span = stats.norm(0, 0.02)
        if abs(t) < 1e-9:
            return span.pdf(r)
        return (span.cdf(r / 1.0) - span.cdf(r - 0.15 * t)) / (0.15 * t)

    value = sum(
        integrate.quad(lambda z: over_u(math.sinh(z)) * stats.t(2.1).pdf(math.sinh(z)) * math.cosh(z), a, b)[
            0
        ]
        for a, b in [(-15, -4), (-4, -1), (-1, 0), (0, 1), (1, 4), (4, 15)]
    )
    ours = contaminated(torch.tensor([r], dtype=torch.float64), 0.02, 0.15, 2.1)
    assert float(ours) == pytest.approx(math.log(value), abs=1e-6)


def test_contamination_far_out_and_its_mass():
    r = torch.sinh(torch.linspace(-14, 14, 8001, dtype=torch.float64))
    log_density = contaminated(r, 0.02, 0.15, 2.1)
    assert log_density.isfinite().all()
    assert float(torch.trapezoid(log_density.exp(), r)) == pytest.approx(1, abs=1e-5)


def test_chunks_change_nothing():
    x, y = normal(10), normal(10, seed=1)
    assert torch.equal(in_chunks(torch.add, x, y, size=3), x + y)
