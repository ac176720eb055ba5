"""Low-rank Gaussians against SciPy's multivariate normal distribution."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from dsvnp.predictive import LowRankPredictive, concatenate
from dsvnp.predictive.low_rank import low_rank_log_prob

K, S, B, T, D, R = 2, 3, 2, 2, 4, 2


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(**changes) -> LowRankPredictive:
    parts = {
        "loc": normal(K, S, B, T, D),
        "noise": 0.1 + normal(K, S, B, T, D, seed=1).abs(),
        "factor": normal(K, S, B, T, D, R, seed=2),
    }
    return LowRankPredictive(**parts | changes)


def exact(p: LowRankPredictive, at: tuple[int, ...], there: list[int]) -> multivariate_normal:
    """The distribution of some outputs under component `at`."""
    factor = p.factor[at].numpy()
    covariance = np.diag(p.noise[at].numpy() ** 2) + factor @ factor.T
    return multivariate_normal(p.loc[at].numpy()[there], covariance[np.ix_(there, there)])


@pytest.mark.parametrize("rank", [1, 2, 3, 6])
@pytest.mark.parametrize("there", [[0, 1, 2, 3], [0, 2], [3]])
def test_the_log_density_is_scipys_with_missing_outputs_integrated_out(rank, there):
    p = made(factor=normal(K, S, B, T, D, rank, seed=2))
    y = normal(B, T, D, seed=3)
    y[..., [d for d in range(D) if d not in there]] = math.nan
    for k, s, b, t in np.ndindex(K, S, B, T):
        expected = exact(p, (k, s, b, t), there).logpdf(y[b, t, there].numpy())
        assert p.component_log_prob(y)[k, s, b, t].item() == pytest.approx(expected, rel=1e-9)


def test_a_point_without_any_output_adds_nothing():
    assert (made().component_log_prob(torch.full((B, T, D), math.nan)) == 0).all()


def test_the_log_density_keeps_its_digits_in_single_precision_for_a_small_sigma():
    """Shared noise 600 times the noise of each output: eᵀe is a million times what is left of it."""
    p = made(noise=torch.full((K, S, B, T, D), 1e-3).double())
    y = p.sample(1, torch.Generator().manual_seed(0))[0]
    single = low_rank_log_prob(y.float(), p.loc.float(), p.noise.float(), p.factor.float())[0, 0]
    double = low_rank_log_prob(y.float().double(), *(v.float().double() for v in (p.loc, p.noise, p.factor)))
    torch.testing.assert_close(single.double(), double[0, 0], rtol=1e-4, atol=0.01)


def test_gradients_are_finite_and_none_comes_from_a_missing_output():
    loc, noise, factor = made().loc, made().noise, torch.zeros(K, S, B, T, D, R).double()
    parts = [part.clone().requires_grad_() for part in (loc, noise, factor)]
    y = normal(B, T, D, seed=3)
    y[0, 0, 1] = math.nan
    low_rank_log_prob(y, *parts).sum().backward()
    for part in parts:
        assert part.grad.isfinite().all()
        assert (part.grad[:, :, 0, 0, 1] == 0).all()


def test_gradients_are_those_of_differences():
    parts = [v[0, 0, 0].clone().requires_grad_() for v in (made().loc, made().noise, made().factor)]
    assert torch.autograd.gradcheck(low_rank_log_prob, (normal(T, D, seed=3), *parts))


def test_each_output_by_itself_has_the_variance_of_the_diagonal():
    p, y = made(), normal(B, T, D, seed=3)
    for b, t, d in np.ndindex(B, T, D):
        each = [exact(p, (k, s, b, t), [d]) for k, s in itertools.product(range(K), range(S))]
        density = np.mean([one.pdf(y[b, t, d].item()) for one in each])
        assert p.log_prob_each(y)[b, t, d].item() == pytest.approx(math.log(density), rel=1e-9)
        cdf = np.mean([one.cdf(y[b, t, d].item()) for one in each])
        assert p.cdf(y)[b, t, d].item() == pytest.approx(cdf, rel=1e-9)


def test_the_log_density_of_a_point_mixes_joint_densities():
    p, y = made(), normal(B, T, D, seed=3)
    for b, t in np.ndindex(B, T):
        each = [exact(p, (k, s, b, t), [0, 1, 2, 3]).pdf(y[b, t].numpy()) for k, s in np.ndindex(K, S)]
        assert p.log_prob(y)[b, t].item() == pytest.approx(math.log(np.mean(each)), rel=1e-9)


def test_samples_have_the_covariance_of_the_outputs():
    p = made().map(lambda v: v[:1, :1, :1, :1].expand(-1, -1, -1, 5_000, -1))  # 5000 targets, all alike
    sample = p.sample(4, torch.Generator().manual_seed(0)).flatten(0, 2)
    covariance = torch.as_tensor(exact(p, (0, 0, 0, 0), [0, 1, 2, 3]).cov)
    torch.testing.assert_close(sample.T.cov(), covariance, atol=0.05 * covariance.max().item(), rtol=0)
    torch.testing.assert_close(sample.mean(0), p.mean[0, 0], atol=0.1, rtol=0)


def test_some_outputs_are_the_marginal_of_all():
    p, y = made(), normal(B, T, D, seed=3)
    hidden = y.clone()
    hidden[..., [0, 2]] = math.nan
    torch.testing.assert_close(p.outputs([1, 3]).log_prob(y[..., [1, 3]]), p.log_prob(hidden))


def test_other_units_turn_signs_and_stretch():
    p, y = made(), normal(B, T, D, seed=3)
    shift, factor = normal(D, seed=4), torch.tensor([2.0, -3.0, 0.5, -1.0]).double()
    moved = p.affine(shift, factor)
    torch.testing.assert_close(moved.log_prob(shift + factor * y), p.log_prob(y) - factor.abs().log().sum())
    torch.testing.assert_close(moved.variance, factor.square() * p.variance)
    one = p.affine(torch.tensor(1.0).double(), torch.tensor(-2.0).double())
    torch.testing.assert_close(one.log_prob(1 - 2 * y), p.log_prob(y) - D * math.log(2))


def test_parts_join_to_the_whole_and_weights_are_kept():
    p, y = made(log_weights=normal(K, S, B, T, seed=5)), normal(B, T, D, seed=3)
    joined = concatenate([p.map(lambda v: v[..., :1, :]), p.map(lambda v: v[..., 1:, :])], 3)
    torch.testing.assert_close(joined.log_prob(y), p.log_prob(y))
    torch.testing.assert_close(p.affine(torch.zeros(D), torch.ones(D)).log_prob(y), p.log_prob(y))
    weights = p.log_weights.exp()
    by_hand = (weights * p.component_log_prob(y).exp()).sum(1).mean(0).log()
    torch.testing.assert_close(p.log_prob(y), by_hand)


def test_noise_taken_away_from_each_output_leaves_the_dependence():
    p, known = made(), 0.08
    clean = p.without_noise(known)
    torch.testing.assert_close(clean.scale.square(), p.scale.square() - known**2)
    assert torch.equal(clean.factor, p.factor)
    with pytest.raises(ValueError, match=r"must not be negative, got -0.1"):
        p.without_noise(-0.1)
    torch.testing.assert_close(p.variance - clean.variance, torch.full((B, T, D), known**2).double())
