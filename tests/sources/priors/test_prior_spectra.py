"""Kernels by their spectra: the features' covariance against each kernel's formula."""

import math

import pytest
import torch
from torch import Tensor

from dsvnp.sources.priors import spectra
from dsvnp.sources.priors.randomness import Random
from dsvnp.sources.priors.spectra import Kernels, draw_frequencies, draw_kernels, draw_process

LENGTH, PERIOD, SMOOTH, TASKS = 0.3, 0.5, 0.8, 200


def make(seed: int = 0) -> Random:
    return Random(torch.Generator().manual_seed(seed), torch.device("cpu"))


def one_kernel(envelope: int, freedom: int, second: int, dims: int) -> Kernels:
    def full(value: float | int) -> Tensor:
        return torch.full((TASKS, 3), value)

    base = torch.zeros(TASKS, 3, 3)
    base[..., 0] = 2 * math.pi / PERIOD
    inverse = torch.where(torch.arange(3) < dims, 1 / LENGTH, 0.0).expand(TASKS, 3, 3)
    one = torch.ones(TASKS, 1, dtype=torch.long)
    return Kernels(one, full(envelope), full(freedom), inverse, full(second), base, full(SMOOTH), full(1.0))


def covariance(kernels: Kernels, lags: Tensor) -> Tensor:
    """Of the features, given their frequencies: Σ amplitude² cos(ω·d), [n, lags]."""
    frequency, amplitude = draw_frequencies(make(), kernels)
    return (amplitude.square().unsqueeze(-1) * torch.cos(frequency @ lags.T)).sum(1)


def periodic(r: Tensor) -> Tensor:
    return torch.exp(-2 * torch.sin(math.pi * r / PERIOD) ** 2 / SMOOTH**2)


FORMULAS = {
    "rbf": (spectra.RBF, 1, 0, lambda r: torch.exp(-0.5 * (r / LENGTH) ** 2)),
    "matern-1/2": (spectra.MATERN, 1, 0, lambda r: torch.exp(-r / LENGTH)),
    "matern-3/2": (
        spectra.MATERN,
        3,
        0,
        lambda r: (1 + 3**0.5 * r / LENGTH) * torch.exp(-(3**0.5) * r / LENGTH),
    ),
    "matern-5/2": (
        spectra.MATERN,
        5,
        0,
        lambda r: (1 + 5**0.5 * r / LENGTH + 5 * r**2 / (3 * LENGTH**2)) * torch.exp(-(5**0.5) * r / LENGTH),
    ),
    "rational quadratic 1/2": (spectra.RATIONAL, 1, 0, lambda r: (1 + r**2 / LENGTH**2) ** -0.5),
    "rational quadratic 5/2": (spectra.RATIONAL, 5, 0, lambda r: (1 + r**2 / (5 * LENGTH**2)) ** -2.5),
    "periodic": (spectra.NONE, 1, spectra.PERIODIC, periodic),
    "locally periodic": (
        spectra.RBF,
        1,
        spectra.PERIODIC,
        lambda r: periodic(r) * torch.exp(-0.5 * (r / LENGTH) ** 2),
    ),
    "cosine × rbf": (
        spectra.RBF,
        1,
        spectra.COSINE,
        lambda r: torch.cos(2 * math.pi * r / PERIOD) * torch.exp(-0.5 * (r / LENGTH) ** 2),
    ),
}


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("name", FORMULAS)
def test_the_covariance_is_the_kernels(name, dims):
    *kind, formula = FORMULAS[name]
    r = torch.linspace(0, 2, 60)
    lags = torch.stack([r, 0 * r, 0 * r], dim=-1)
    found = covariance(one_kernel(*kind, dims), lags)
    assert (found.mean(0) - formula(r)).abs().max() < 0.012
    # For one task too, with 256 features: plain Monte Carlo has 1/√512 = 0.044.
    assert (found - formula(r)).square().mean().sqrt() < (0.02 if dims == 1 else 0.035)


def test_kernels_in_three_dimensions_are_isotropic():
    lags = torch.tensor([[0.4, 0, 0], [0, 0.4, 0], [0, 0, 0.4], [0.4 / 3**0.5] * 3])
    found = covariance(one_kernel(spectra.MATERN, 3, 0, 3), lags).mean(0)
    assert (found - FORMULAS["matern-3/2"][3](torch.tensor(0.4))).abs().max() < 0.012


def test_a_sum_adds_its_kernels():
    kernels = one_kernel(spectra.RBF, 1, 0, 1)
    kernels.number.fill_(2)
    kernels.envelope[:, 1] = spectra.MATERN
    kernels.amplitude[:, 1] = 0.5
    r = torch.linspace(0, 1, 30)
    found = covariance(kernels, torch.stack([r, 0 * r, 0 * r], dim=-1)).mean(0)
    expected = FORMULAS["rbf"][3](r) + 0.25 * FORMULAS["matern-1/2"][3](r)
    assert (found - expected).abs().max() < 0.012


def test_draws_have_that_covariance():
    x = torch.tensor([0.0, 0.1, 0.35, 0.9])
    places = torch.stack([x, 0 * x, 0 * x], dim=-1).expand(TASKS, -1, -1)
    random = make()
    draws = torch.cat([draw_process(random, places, one_kernel(spectra.RBF, 1, 0, 1)) for _ in range(40)])
    expected = FORMULAS["rbf"][3](x[:, None] - x)
    assert (draws.T @ draws / len(draws) - expected).abs().max() < 5 / math.sqrt(len(draws))


def test_random_kernels_ignore_inputs_that_are_not_used():
    used = torch.arange(3) < torch.tensor([[1], [2], [3]] * 20)
    frequency, amplitude = draw_frequencies(make(), draw_kernels(make(1), used))
    assert (frequency[~used.unsqueeze(1).expand_as(frequency)] == 0).all()
    assert frequency.isfinite().all()
    assert (amplitude > 0).all()
