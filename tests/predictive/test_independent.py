"""Mixtures of outputs with weights of their own, held against loops over every draw, component and output."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch

from dsvnp.predictive import IndependentPredictive

K, S, B, T, D = 3, 4, 2, 3, 2


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made() -> IndependentPredictive:
    shape = (K, S, B, T, D)
    return IndependentPredictive(normal(*shape), 0.2 + normal(*shape, seed=1).abs(), normal(*shape, seed=2))


def some_y() -> torch.Tensor:
    return torch.sin(torch.arange(B * T * D, dtype=torch.float64)).reshape(B, T, D)


def parts(p: IndependentPredictive, k: int, b: int, t: int, d: int) -> tuple[np.ndarray, ...]:
    """Weights, means and deviations of one output given k, each [S]."""
    weights = np.exp(p.log_weights[k, :, b, t, d].numpy())
    return weights, p.loc[k, :, b, t, d].numpy(), p.scale[k, :, b, t, d].numpy()


def density(p: IndependentPredictive, y: torch.Tensor, k: int, b: int, t: int, d: int) -> float:
    weights, loc, scale = parts(p, k, b, t, d)
    return float(weights @ scipy.stats.norm.pdf(y[b, t, d].item(), loc, scale))


def test_weights_are_normalised_over_the_components_and_serve_all_that_they_broadcast_to():
    torch.testing.assert_close(made().log_weights.exp().sum(1), torch.ones(K, B, T, D).double())
    one = IndependentPredictive(normal(K, S, B, T, D), torch.tensor(0.5).double(), normal(K, S, 1, 1, 1))
    assert one.log_weights.shape == one.scale.shape == one.loc.shape
    assert one.components_per_draw == S


def test_outputs_are_independent_given_the_draw_and_no_further():
    p, y = made(), some_y()
    for b, t in np.ndindex(B, T):
        each = [[density(p, y, k, b, t, d) for d in range(D)] for k in range(K)]
        together = np.mean([math.prod(one) for one in each])
        assert p.log_prob(y)[b, t].item() == pytest.approx(math.log(together), rel=1e-10)
        alone = np.mean(each, 0)
        np.testing.assert_allclose(p.log_prob_each(y)[b, t], np.log(alone), rtol=1e-10)
        for k in range(K):
            given = p.component_log_prob(y)[k, 0, b, t].item()
            assert given == pytest.approx(math.log(math.prod(each[k])), rel=1e-10)
    assert p.component_log_prob(y).shape == (K, 1, B, T)


@pytest.mark.parametrize("masked", [False, True])
def test_all_targets_of_a_task_share_a_draw(masked):
    p, y = made(), some_y()
    mask = torch.tensor([[True, False, True], [False, True, True]])
    for b in range(B):
        there = [t for t in range(T) if not masked or mask[b, t]]
        products = [math.prod(density(p, y, k, b, t, d) for t in there for d in range(D)) for k in range(K)]
        joint = p.log_prob_joint(y, mask if masked else None)[b].item()
        assert joint == pytest.approx(math.log(np.mean(products)), rel=1e-10)


def test_a_missing_output_adds_nothing():
    p, y = made(), some_y()
    y[0, 1, 0] = math.nan
    torch.testing.assert_close(p.log_prob(y)[0, 1], p.outputs([1]).log_prob(y[..., 1:])[0, 1])


def test_moments_are_those_of_the_mixture_of_all_draws():
    p = made()
    for b, t, d in np.ndindex(B, T, D):
        given, squares = [], []
        for k in range(K):
            weights, loc, scale = parts(p, k, b, t, d)
            given.append(weights @ loc)
            squares.append(weights @ (loc**2 + scale**2))
        assert p.mean[b, t, d].item() == pytest.approx(np.mean(given), rel=1e-10)
        assert p.variance[b, t, d].item() == pytest.approx(np.mean(squares) - np.mean(given) ** 2, rel=1e-9)
        assert p.epistemic[b, t, d].item() == pytest.approx(np.var(given), rel=1e-9)
    torch.testing.assert_close(p.aleatoric, p.variance - p.epistemic)


def test_the_crps_and_the_entropy_are_integrals():
    p, y = made(), some_y()
    grid = np.linspace(-12, 12, 20_001)
    cdf = p.cdf(torch.as_tensor(grid)[:, None, None, None].expand(-1, B, T, D))
    above = torch.as_tensor(grid)[:, None, None, None] >= y
    crps = torch.trapezoid((cdf - above.double()).square(), torch.as_tensor(grid), dim=0)
    torch.testing.assert_close(p.crps(y), crps, rtol=0, atol=2e-3)
    for b, t, d in np.ndindex(B, T, D):
        each = [parts(p, k, b, t, d) for k in range(K)]
        curve = np.mean([scipy.stats.norm.pdf(grid[:, None], loc, s) @ w for w, loc, s in each], 0)
        entropy = np.trapezoid(-curve * np.log(curve), grid)
        assert p.entropy()[b, t, d].item() == pytest.approx(entropy, abs=1e-2)


def test_other_units_move_and_stretch():
    p, y = made(), some_y()
    shift, factor = torch.tensor([5.0, -1.0]).double(), torch.tensor([2.0, -3.0]).double()
    moved = p.affine(shift, factor)
    change = factor.abs().log().sum()
    torch.testing.assert_close(moved.log_prob(shift + factor * y), p.log_prob(y) - change)
    torch.testing.assert_close(moved.variance, factor.square() * p.variance)


def test_parts_are_those_of_the_whole():
    p, y = made(), some_y()
    some = p.map(lambda array: array[:, :, :, 1:])
    assert type(some) is IndependentPredictive
    torch.testing.assert_close(some.log_prob(y[:, 1:]), p.log_prob(y)[:, 1:])
    torch.testing.assert_close(p.outputs([1, 0]).log_prob(y.flip(-1)), p.log_prob(y))


def test_a_sample_keeps_its_draw_and_takes_each_output_by_its_own_weights():
    """Draw k and component s stand at 10 k + s; output 0 has most of the last component, output 1 of the first."""
    place = 10 * torch.arange(2.0)[:, None] + torch.arange(4.0)  # [K, S]
    loc = place[:, :, None, None, None].expand(2, 4, 3, 500, 2)
    rising = torch.arange(1.0, 5.0).log()
    weights = torch.stack([rising, rising.flip(0)], -1)[None, :, None, None].expand(2, 4, 3, 500, 2)
    p = IndependentPredictive(loc, torch.tensor(1e-3), weights)
    sample = p.sample(20, torch.Generator().manual_seed(0)).round()
    assert sample.shape == (20, 3, 500, 2)
    draw, component = sample // 10, sample % 10
    assert (draw == draw[:, :, :1, :1]).all()
    assert sorted(draw.unique().tolist()) == [0, 1]
    assert (draw[:, 0] != draw[:, 1]).any()
    for d, shares in enumerate(([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1])):
        found = torch.stack([(component[..., d] == s).float().mean() for s in range(4)])
        torch.testing.assert_close(found, torch.tensor(shares), atol=0.02, rtol=0)
    assert (component[..., 0] != component[..., 1]).any()


def test_samples_have_the_spread_of_the_mixture():
    p = made().map(lambda array: array[:, :, :1, :1].expand(-1, -1, -1, 4000, -1))
    sample = p.sample(5, torch.Generator().manual_seed(0))
    given = p.map(lambda array: array[:1])  # one draw: nothing is shared
    inside = given.sample(1, torch.Generator().manual_seed(0))[0, 0]
    torch.testing.assert_close(inside.var(0), given.variance[0, 0], atol=0, rtol=0.15)
    assert sample.shape == (5, 1, 4000, D)
