"""Branches, shared noise and the controls: what a point is made of."""

import math

import pytest
import torch
from scipy import stats

from dsvnp.paper.ambiguity.curves import (
    Branches,
    Contamination,
    GaussianNoise,
    SharedNoise,
    VaryingNoise,
    draw_latent_curves,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_curves_are_the_fields_rbf_process():
    x, f = draw_latent_curves(2000, 3, 2, generator())
    assert f.shape == (2000, 3, 2)
    assert -2 <= x.min() < -1.99 < 1.99 < x.max() <= 2
    # E s² over U[0.1, 1] is (1 − 0.001)/2.7
    assert float(f.square().mean()) == pytest.approx(0.999 / 2.7, abs=0.03)


def test_a_point_lies_on_one_branch_of_all_outputs():
    _, y, parameters = Branches().draw(200, 50, generator())
    first, second = ((y - parameters[name]).square().sum(-1) for name in ("u", "v"))
    nearest = torch.minimum(first, second).flatten()
    assert nearest.sqrt().quantile(0.999) < 5 * 0.05
    clear = (parameters["u"] - parameters["v"]).square().sum(-1) > 0.5**2
    share = (first < second)[clear].double()
    assert abs(float(share.mean()) - 0.5) < 4 * 0.5 / math.sqrt(len(share))
    chosen = torch.where((first < second)[..., None], parameters["u"], parameters["v"])
    assert float((y - chosen)[clear].std()) == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize("dim", [2, 8])
def test_shared_noise_moves_all_outputs_of_a_point(dim):
    _, y, parameters = SharedNoise(dim_y=dim).draw(300, 50, generator())
    a, residual = parameters["a"], y - parameters["f"]
    assert 0.2 <= a.min() < 0.22 < 0.58 < a.max() <= 0.6
    common = (residual / a).mean(-1)
    assert stats.kstest(common.flatten().numpy(), "norm").pvalue > 1e-3
    own = residual - residual.mean(-1, keepdim=True)
    assert float(own.square().sum(-1).mean()) == pytest.approx((dim - 1) * 0.02**2, rel=0.05)


@pytest.mark.parametrize(("dim", "gain"), [(2, 2.606), (8, 19.627)])
def test_what_shared_noise_gains_with_curves_known(dim, gain):
    """½ [D ln(a² + σ²) − (D − 1) ln σ² − ln(σ² + D a²)], averaged over a."""
    problem = SharedNoise(dim_y=dim)
    [known] = problem.tasks(400, generator(), batch_size=400, num_points=20, context=(3, 8))
    gains = (problem.truth(known) - problem.diagonal(known)).mean(1)
    assert abs(float(gains.mean()) - gain) < 3.5 * float(gains.std()) / 20
    assert torch.allclose(problem.truth(known), problem.full(known))


def test_controls_have_the_noise_they_say():
    x, y, parameters = GaussianNoise().draw(300, 50, generator())
    assert stats.kstest(((y - parameters["f"]) / 0.1).flatten().numpy(), "norm").pvalue > 1e-3
    x, y, parameters = VaryingNoise().draw(300, 50, generator())
    std = 0.02 + 0.15 * (1 + torch.sin(2 * x + parameters["phase"]))
    assert stats.kstest(((y - parameters["f"]) / std).flatten().numpy(), "norm").pvalue > 1e-3
    assert std.min() < 0.025
    assert std.max() > 0.31
    assert parameters["phase"].max() > 6


def test_the_truth_of_contamination_is_the_density_of_its_draws():
    problem = Contamination()
    _, y, parameters = problem.draw(400, 50, generator())
    residual = (y - parameters["f"]).flatten()
    edges = torch.tensor([-math.inf, -0.3, -0.1, -0.03, 0.0, 0.03, 0.1, 0.3, math.inf], dtype=torch.float64)
    counts = torch.histc(torch.bucketize(residual, edges).double(), 8, 1, 8)
    grid = torch.linspace(0, 0.3, 3001, dtype=torch.float64)
    zeros = torch.zeros(1, 3001, 1, dtype=torch.float64)
    density = problem.log_density(zeros, grid[None, :, None], {"f": zeros}).exp()[0]
    below = torch.cat([torch.zeros(1), torch.cumulative_trapezoid(density, grid)])  # mass between 0 and r
    half = torch.tensor([float(below[i]) for i in (0, 300, 1000, 3000)] + [0.5]).diff()
    expected = torch.cat([half.flip(0), half]).numpy().astype(float)
    assert stats.chisquare(counts.numpy(), expected / expected.sum() * len(residual)).pvalue > 1e-3
