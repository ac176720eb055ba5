"""Heads in a fleet: equal to single runs, and better than a Gaussian where it cannot say what there is."""

import math
from dataclasses import replace

import pytest
import torch
from small_fleet import ARCH, distance, make_fleet, rows_of, run_steps

from dsvnp.metrics import nll, nll_each
from dsvnp.models import Architecture
from dsvnp.sources.base import RowSource
from dsvnp.task import Task

HEADS = [
    replace(ARCH, likelihood="mixture", num_components=3),
    replace(ARCH, likelihood="low-rank", rank=2),
    replace(ARCH, sigma_floor=0.0, sigma_form="exp"),
]
COHERENT = [
    replace(ARCH, likelihood="coherent", dim_functions=3),
    replace(ARCH, likelihood="coherent-mixture", dim_functions=3, num_components=3),
]


@pytest.mark.parametrize("arch", HEADS, ids=["mixture", "low-rank", "exp"])
@pytest.mark.parametrize("name", ["cnp", "dsvnp", "tnp", "dsvtnp"])
def test_a_fleet_equals_its_single_runs_under_each_head(name, arch):
    fleet = run_steps(make_fleet(name, (11, 5), arch=arch), 30)
    for row, seed in enumerate((11, 5)):
        single = run_steps(make_fleet(name, [seed], arch=arch), 30)
        assert distance(rows_of(single, 0), rows_of(fleet, row)) < 1e-9


@pytest.mark.parametrize("arch", COHERENT, ids=["coherent", "coherent-mixture"])
@pytest.mark.parametrize("name", ["cnp", "np", "tnp"])
def test_a_fleet_equals_its_single_runs_under_coherent_heads(name, arch):
    test_a_fleet_equals_its_single_runs_under_each_head(name, arch)


def branches(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two outputs at (1, −1) or at (−1, 1), bent a little over x, with noise of 0.05."""
    g = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(rows, 1, generator=g) - 2
    sign = torch.randint(2, (rows, 1), generator=g) * 2.0 - 1
    y = sign * torch.tensor([1.0, -1.0]) + 0.1 * x + 0.05 * torch.randn(rows, 2, generator=g)
    return x, y


def shared_noise(rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two outputs with one noise of 0.5, and 0.05 each of their own."""
    g = torch.Generator().manual_seed(seed)
    x = 4 * torch.rand(rows, 1, generator=g) - 2
    both = 0.5 * torch.randn(rows, 1, generator=g)
    return x, 0.3 * x + both + 0.05 * torch.randn(rows, 2, generator=g)


def trained(data, likelihood: str) -> tuple[float, float]:
    """NLL per point and per output on new rows after a few hundred steps, the mean of two replicas."""
    arch = Architecture(1, 2, likelihood, encoder=(16,), dim_lat=16, decoder=(32,), sigma_floor=0.01)
    source = RowSource(*data(2000, 0), num_points=20, batch_size=8, max_context=10)
    chosen = {"source": source, "arch": arch, "precision": "float32", "learning_rate": 5e-3}
    fleet = run_steps(make_fleet("cnp", (0, 1), **chosen), 200)
    x, y = (part.unflatten(0, (10, 50)) for part in data(500, 1))
    task = Task.from_sets(x[:, :10], y[:, :10], x[:, 10:], y[:, 10:])
    made = [fleet.replica(row).predict(task) for row in (0, 1)]
    return tuple(sum(float(score(p, task)) for p in made) / 2 for score in (nll, nll_each))


def test_a_mixture_head_finds_two_branches_that_a_gaussian_cannot_say():
    gaussian, mixture = trained(branches, "gaussian"), trained(branches, "mixture")
    truth = math.log(2) + 2 * (math.log(0.05) + 0.5 * math.log(2 * math.pi * math.e))
    assert gaussian[0] > 2.5  # two outputs with a deviation of one
    assert mixture[0] < gaussian[0] - 2
    assert mixture[0] > truth - 0.1


def test_a_low_rank_head_finds_noise_that_outputs_share():
    gaussian, low_rank = trained(shared_noise, "gaussian"), trained(shared_noise, "low-rank")
    assert low_rank[0] < gaussian[0] - 1
    assert low_rank[1] == pytest.approx(
        gaussian[1], abs=0.15
    )  # each output by itself is as uncertain as before
