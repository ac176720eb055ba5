"""Families of functions: they depend on the columns that matter and on no other; processes have their kernel."""

import math

import pytest
import torch

from dsvnp.sources.priors.functions import (
    FAMILIES,
    draw_relevance,
    draw_table_functions,
    fourier_features,
    pick_columns,
)
from dsvnp.sources.priors.randomness import Random


def make(seed: int = 0) -> Random:
    return Random(torch.Generator().manual_seed(seed), torch.device("cpu"))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_a_family_depends_on_what_matters_and_on_nothing_else(family):
    z = make().normal(30, 50, 6)
    weight = torch.tensor([0.6, 0.8, 0, 0, 0, 0]).expand(30, 6)
    f = family(make(1), z, weight, 3)
    assert f.shape == (30, 50, 3)
    assert f.isfinite().all()
    assert (f.std(1) > 1e-4).float().mean() > 0.9
    other = torch.cat([z[..., :2], make(2).normal(30, 50, 4)], dim=-1)
    assert torch.allclose(family(make(1), other, weight, 3), f, atol=1e-5)
    moved = torch.cat([make(2).normal(30, 50, 2), z[..., 2:]], dim=-1)
    assert (family(make(1), moved, weight, 3) - f).abs().amax((1, 2)).gt(1e-3).float().mean() > 0.9


@pytest.mark.parametrize(
    ("freedom", "kernel"),
    [
        (0, lambda r: torch.exp(-0.5 * r**2)),
        (1, lambda r: torch.exp(-r)),
        (3, lambda r: (1 + 3**0.5 * r) * torch.exp(-(3**0.5) * r)),
        (5, lambda r: (1 + 5**0.5 * r + 5 / 3 * r**2) * torch.exp(-(5**0.5) * r)),
    ],
)
def test_fourier_features_have_the_ard_kernel(freedom, kernel):
    random, tables = make(), 400
    z = random.normal(7, 3)
    inverse = torch.tensor([1.0, 0.3, 2.0])
    scale = random.frequency_scale(torch.full((tables, 128), freedom), tables, 128)
    frequency = random.normal(tables, 128, 3) * scale.unsqueeze(-1) * inverse
    f = fourier_features(random, z.expand(tables, -1, -1), frequency, 50)
    found = torch.einsum("nto,nso->ts", f, f) / (tables * 50)
    distance = ((z[:, None] - z) * inverse).norm(dim=-1)
    assert (found - kernel(distance)).abs().max() < 6 / math.sqrt(tables * 50)


def test_between_one_and_all_columns_matter():
    used = torch.arange(8) < torch.arange(1, 9).repeat(200)[:, None]
    weight = draw_relevance(make(), used)
    assert torch.allclose(weight.square().sum(-1), torch.ones(1600))
    assert (weight[~used] == 0).all()
    number = (weight > 0).sum(-1)[used.all(-1)]
    assert number.min() == 1
    assert number.max() == 8
    assert (number == 8).float().mean() > 0.2


def test_columns_are_picked_as_often_as_their_weight_says():
    weight = torch.tensor([[0.0, 0.6, 0.0, 0.8, 0.0]])
    share = torch.bincount(pick_columns(make(), weight, 20_000)[0], minlength=5) / 20_000
    assert torch.allclose(share, weight[0].square(), atol=0.015)
    assert share[[0, 2, 4]].sum() == 0


def test_mixtures_are_standardised_and_ignore_unused_columns():
    used = (torch.arange(5) < 3).expand(64, 5)
    z = torch.where(used.unsqueeze(1), make().normal(64, 80, 5), 0.0)
    f = draw_table_functions(make(1), z, used, 4)
    assert (f.mean(1).abs() < 0.05).float().mean() > 0.95  # values cut at ±8 move a mean
    assert ((f.std(1) - 1).abs() < 0.1).float().mean() > 0.95
    junk = torch.where(used.unsqueeze(1), z, 5.0)
    assert torch.allclose(draw_table_functions(make(1), junk, used, 4), f, atol=1e-4)
