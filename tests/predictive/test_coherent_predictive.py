"""Coherent predictives against dense Gaussians of SciPy and a change of variables."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from dsvnp.autoregression import functions_of
from dsvnp.predictive import CoherentMixturePredictive, CoherentPredictive, Predictive, concatenate
from dsvnp.predictive.coherent import normal_score

K, M, B, T, D, R = 2, 3, 2, 5, 2, 3


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gaussian(num_global: int = K) -> CoherentPredictive:
    shape = (num_global, 1, B, T, D)
    return CoherentPredictive(normal(*shape), 0.1 + normal(*shape, seed=1).abs(), normal(*shape, R, seed=2))


def mixture(num_global: int = K) -> CoherentMixturePredictive:
    shape = (num_global, M, B, T)
    ties = normal(num_global, 1, B, T, R, seed=2)
    ties = 0.9 * ties / ties.norm(dim=-1, keepdim=True) * torch.linspace(0.3, 1, T)[:, None]
    return CoherentMixturePredictive(
        2 * normal(*shape, 1), 0.2 + normal(*shape, 1, seed=1).abs(), normal(*shape, seed=3), ties
    )


KINDS = {"gaussian": gaussian, "mixture": mixture}
kinds = pytest.mark.parametrize("kind", list(KINDS))


def some_y(predictive: Predictive) -> torch.Tensor:
    return normal(*predictive.mean.shape, seed=4)


def dense(p: CoherentPredictive, k: int, b: int) -> multivariate_normal:
    """All targets and outputs of a task as one Gaussian."""
    factor = p.factor[k, 0, b].flatten(0, 1).numpy()
    covariance = np.diag(p.noise[k, 0, b].flatten().numpy() ** 2) + factor @ factor.T
    return multivariate_normal(p.loc[k, 0, b].flatten().numpy(), covariance)


def correlation(p: CoherentMixturePredictive, k: int, b: int) -> np.ndarray:
    """Of the normal scores of a task's targets."""
    ties = p.ties[k, 0, b].numpy()
    covariance = ties @ ties.T
    np.fill_diagonal(covariance, 1)
    return covariance


def test_all_targets_of_a_task_are_one_gaussian():
    p, y = gaussian(), some_y(gaussian())
    for b in range(B):
        each = [dense(p, k, b).pdf(y[b].flatten().numpy()) for k in range(K)]
        assert p.log_prob_joint(y)[b].item() == pytest.approx(math.log(np.mean(each)), rel=1e-9)


def test_mixtures_are_joined_by_the_density_of_their_normal_scores():
    """ln p(y_T) = Σ ln f_t(y_t) + ln N(v; 0, C) − Σ ln N(v_t; 0, 1), with each F_t written out."""
    p, y = mixture(), some_y(mixture())
    for b in range(B):
        each = []
        for k in range(K):
            weights = p.log_weights[k, :, b].exp().numpy()
            loc, scale = p.loc[k, :, b, :, 0].numpy(), p.scale[k, :, b, :, 0].numpy()
            at = y[b, :, 0].numpy()
            density = (weights * norm.pdf(at, loc, scale)).sum(0)
            v = norm.ppf((weights * norm.cdf(at, loc, scale)).sum(0))
            joint = multivariate_normal(np.zeros(T), correlation(p, k, b)).pdf(v)
            each.append(joint * (density / norm.pdf(v)).prod())
        assert p.log_prob_joint(y)[b].item() == pytest.approx(math.log(np.mean(each)), rel=1e-8)


@kinds
def test_one_target_has_its_own_density(kind):
    p, y = KINDS[kind](), some_y(KINDS[kind]())
    for t in range(T):
        one = p.map(lambda array, t=t: array[:, :, :, t : t + 1])
        torch.testing.assert_close(one.log_prob_joint(y[:, t : t + 1]), p.log_prob(y)[:, t])


@kinds
def test_the_density_of_some_targets_is_that_of_a_predictive_of_these_alone(kind):
    p, y = KINDS[kind](), some_y(KINDS[kind]())
    mask = torch.tensor([True, False, True, True, False]).expand(B, -1)
    some = p.map(lambda array: array[:, :, :, mask[0]])
    torch.testing.assert_close(p.log_prob_joint(y, mask), some.log_prob_joint(y[:, mask[0]]))
    missing = torch.where(mask.unsqueeze(-1), y, math.nan)
    torch.testing.assert_close(p.log_prob_joint(missing), p.log_prob_joint(y, mask))
    torch.testing.assert_close(p.log_prob_joint(y, torch.zeros_like(mask)), torch.zeros(B).double())


def test_samples_of_a_gaussian_have_the_covariance_of_all_targets():
    p = gaussian(1)
    sample = p.sample(20_000, torch.Generator().manual_seed(0))
    means = torch.stack([p.function_mean(torch.Generator().manual_seed(i)) for i in range(4000)])
    for b in range(B):
        exact = torch.as_tensor(dense(p, 0, b).cov)
        close = {"atol": 0.06 * float(exact.max()), "rtol": 0}
        torch.testing.assert_close(sample[:, b].flatten(1).T.cov(), exact, **close)
        factor = p.factor[0, 0, b].flatten(0, 1)
        torch.testing.assert_close(means[:, b].flatten(1).T.cov(), factor @ factor.T, **close)


def test_samples_of_a_mixture_have_its_marginals_and_the_correlation_of_its_scores():
    p = mixture(1)
    sample = p.sample(6000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(sample.mean(0), p.mean, atol=0.08, rtol=0)
    torch.testing.assert_close(sample.var(0), p.variance, atol=0, rtol=0.1)
    levels = torch.stack([(sample <= p.quantile(q)).double().mean(0) for q in (0.1, 0.5, 0.9)])
    torch.testing.assert_close(
        levels.mean((1, 2, 3)), torch.tensor([0.1, 0.5, 0.9]).double(), atol=0.01, rtol=0
    )
    scores = torch.special.ndtri(torch.stack([p.cdf(y)[..., 0] for y in sample]))
    for b in range(B):
        found = torch.as_tensor(correlation(p, 0, b))
        torch.testing.assert_close(torch.corrcoef(scores[:, b].T), found, atol=0.06, rtol=0)


def test_each_function_of_several_draws_keeps_one_of_them():
    """Two draws of z_G far apart, with next to no noise: a function lies near one of both everywhere."""
    p = mixture()
    apart = CoherentMixturePredictive(
        torch.tensor([-50.0, 50.0]).double().reshape(2, 1, 1, 1, 1).expand_as(p.loc),
        p.scale,
        p.log_weights,
        p.ties,
    )
    sides = apart.sample(40, torch.Generator().manual_seed(0))[..., 0].sign()
    assert (sides == sides[..., :1]).all()
    assert -1 < sides.mean() < 1
    functions = functions_of(apart, noise=False, generator=torch.Generator().manual_seed(0))
    assert functions.shape == (K, B, T, 1)
    assert (functions[0] < 0).all()
    assert (functions[1] > 0).all()


@kinds
def test_what_functions_move_is_epistemic(kind):
    p = KINDS[kind]()
    torch.testing.assert_close(p.aleatoric + p.epistemic, p.variance)
    one = KINDS[kind](1)
    if kind == "gaussian":
        torch.testing.assert_close(one.aleatoric, one.noise[0, 0].square())
    else:
        share = one.ties[0, 0].square().sum(-1, keepdim=True)
        torch.testing.assert_close(one.epistemic, share * one.variance)


@kinds
def test_other_units_keep_what_joins_targets(kind):
    p, y = KINDS[kind](), some_y(KINDS[kind]())
    shift, factor = normal(y.shape[-1], seed=5), -2 - normal(y.shape[-1], seed=6).abs()
    moved = p.affine(shift, factor)
    cost = T * factor.abs().log().sum()
    torch.testing.assert_close(moved.log_prob_joint(shift + factor * y), p.log_prob_joint(y) - cost)
    one, seed = KINDS[kind](1), torch.Generator()
    function = shift + factor * one.function_mean(seed.manual_seed(0))
    torch.testing.assert_close(one.affine(shift, factor).function_mean(seed.manual_seed(0)), function)


@kinds
def test_parts_join_to_the_whole(kind):
    p, y = KINDS[kind](), some_y(KINDS[kind]())
    joint = concatenate([p.map(lambda v: v[:, :, :, :2]), p.map(lambda v: v[:, :, :, 2:])], 3)
    torch.testing.assert_close(joint.log_prob_joint(y), p.log_prob_joint(y))
    draws = concatenate([p.map(lambda v: v[:1]), p.map(lambda v: v[1:])], 0)
    torch.testing.assert_close(draws.log_prob_joint(y), p.log_prob_joint(y))


def test_scores_keep_their_digits_in_either_tail():
    y = torch.tensor([-9.0, -3.0, 0.0, 3.0, 9.0])
    one = torch.zeros(1, 5)
    torch.testing.assert_close(normal_score(y, one, one + 1, one), y, atol=1e-3, rtol=0)
    y.requires_grad_()
    normal_score(y, one, one + 1, one).sum().backward()
    torch.testing.assert_close(y.grad, torch.ones(5), atol=1e-2, rtol=0)
    far = normal_score(torch.tensor([-40.0, 40.0]), one[:, :2], one[:, :2] + 1, one[:, :2])
    assert far.isfinite().all()
    assert far[0] < -11 < 11 < far[1]


def test_targets_that_could_not_share_a_function_are_refused():
    p = gaussian()
    with pytest.raises(ValueError, match="one component for each draw of z_G, got 2"):
        CoherentPredictive(*(part.expand(-1, 2, *part.shape[2:]) for part in (p.loc, p.noise, p.factor)))
    q = mixture()
    with pytest.raises(ValueError, match="one output each, got 2 outputs"):
        CoherentMixturePredictive(q.loc.expand(-1, -1, -1, -1, 2), q.scale, q.log_weights, q.ties)
    with pytest.raises(ValueError, match=r"there is one output, \[0\], got \[1\]"):
        q.outputs([1])
