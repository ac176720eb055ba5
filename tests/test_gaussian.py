"""Diagonal Gaussians, held against torch.distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.distributions import Independent, Normal, kl_divergence

from dsvnp.gaussian import DiagonalGaussian, gaussian_log_mass, gaussian_log_prob


@pytest.fixture
def pair():
    """Two Gaussians of three dimensions, four of each."""
    g = torch.Generator().manual_seed(0)
    means = torch.randn(2, 4, 3, generator=g, dtype=torch.float64)
    scales = 0.1 + torch.rand(2, 4, 3, generator=g, dtype=torch.float64)
    return [DiagonalGaussian(m, s) for m, s in zip(means, scales, strict=True)]


def reference(gaussian: DiagonalGaussian) -> Independent:
    return Independent(Normal(gaussian.mean, gaussian.scale), 1)


def test_the_divergence_of_one_from_the_other(pair):
    q, p = pair
    torch.testing.assert_close(q.kl(p), kl_divergence(reference(q), reference(p)))
    torch.testing.assert_close(p.kl(q), kl_divergence(reference(p), reference(q)))


def test_the_divergence_from_itself_is_zero(pair):
    assert torch.equal(pair[0].kl(pair[0]), torch.zeros(4, dtype=torch.float64))


def test_the_log_density(pair):
    value = torch.linspace(-2, 2, 5 * 4 * 3, dtype=torch.float64).reshape(5, 4, 3)
    torch.testing.assert_close(pair[0].log_prob(value), reference(pair[0]).log_prob(value))


def test_the_log_density_of_each_dimension():
    value, mean, scale = (torch.tensor([v], dtype=torch.float64) for v in (1.5, -0.5, 0.3))
    torch.testing.assert_close(gaussian_log_prob(value, mean, scale), Normal(mean, scale).log_prob(value))


def test_a_sample_is_the_mean_moved_by_noise(pair):
    q = pair[0]
    noise = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(2, 4, 3)
    torch.testing.assert_close(q.sample(noise), q.mean + q.scale * noise)
    assert q.sample(None) is q.mean


def test_a_sample_passes_gradients_to_mean_and_scale():
    mean, scale = torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)
    noise = torch.tensor([0.5, -2.0])
    DiagonalGaussian(mean, scale).sample(noise).sum().backward()
    assert torch.equal(mean.grad, torch.ones(2))
    assert torch.equal(scale.grad, noise)


def test_an_axis_is_inserted_into_mean_and_scale(pair):
    assert [v.shape for v in pair[0].unsqueeze(1)] == [(4, 1, 3), (4, 1, 3)]


def test_mass_of_an_interval_keeps_its_digits_far_out_on_either_side():
    low = torch.tensor([-math.inf, -1.0, 8.0, -9.0, 5.0, -math.inf], dtype=torch.float64)
    high = torch.tensor([0.5, 2.0, 9.0, -8.0, math.inf, math.inf], dtype=torch.float64)
    mean, scale = torch.tensor(0.3, dtype=torch.float64), torch.tensor(0.7, dtype=torch.float64)
    a, b = ((edge.numpy() - 0.3) / 0.7 for edge in (low, high))
    exact = [
        norm.cdf(y) - norm.cdf(x) if x < 0 else norm.sf(x) - norm.sf(y) for x, y in zip(a, b, strict=True)
    ]
    found = gaussian_log_mass(low, high, mean, scale).numpy()
    assert found == pytest.approx(np.log(exact), rel=1e-10, abs=1e-12)
    assert gaussian_log_mass(low.float(), high.float(), mean.float(), scale.float()).isfinite().all()
