"""Predictive distributions, held against hand-written mixtures, torch.distributions and numerical integrals."""

from __future__ import annotations

import math

import pytest
import scipy.stats
import torch
from torch.distributions import Categorical, MixtureSameFamily, Normal

from dsvnp.predictive import (
    CategoricalPredictive,
    GaussianPredictive,
    LowRankPredictive,
    Predictive,
    entropy_of,
    log_mean_exp,
)

K, S, B, T, D = 3, 2, 2, 4, 2


@pytest.fixture
def gaussian():
    g = torch.Generator().manual_seed(0)
    loc = torch.randn(K, S, B, T, D, generator=g, dtype=torch.float64)
    scale = 0.2 + torch.rand(K, S, B, T, D, generator=g, dtype=torch.float64)
    return GaussianPredictive(loc, scale)


@pytest.fixture
def categorical():
    g = torch.Generator().manual_seed(0)
    return CategoricalPredictive(
        torch.randn(K, S, B, T, 3, generator=g, dtype=torch.float64).mul(2).log_softmax(-1)
    )


def some_y() -> torch.Tensor:
    return torch.sin(torch.arange(B * T * D, dtype=torch.float64)).reshape(B, T, D)


def some_labels() -> torch.Tensor:
    return torch.arange(B * T).reshape(B, T, 1) % 3


def mixture(gaussian: GaussianPredictive) -> MixtureSameFamily:
    """Each output's mixture by itself, as torch has it."""
    parts = [v.flatten(0, 1).movedim(0, -1) for v in (gaussian.loc, gaussian.scale)]  # [B, T, D, KS]
    return MixtureSameFamily(Categorical(torch.ones_like(parts[0])), Normal(*parts))


# --- log-probabilities ---


def test_the_log_density_of_a_point_is_that_of_a_mixture_over_all_draws(gaussian):
    y = some_y()
    density = torch.zeros(B, T, dtype=torch.float64)
    for k in range(K):
        for s in range(S):
            # Outputs are independent given the latents only: their product comes before the mean over draws.
            density += Normal(gaussian.loc[k, s], gaussian.scale[k, s]).log_prob(y).sum(-1).exp() / (K * S)
    torch.testing.assert_close(gaussian.log_prob(y), density.log())


def test_the_log_density_of_one_output_is_torchs(gaussian):
    one = GaussianPredictive(gaussian.loc[..., :1], gaussian.scale[..., :1])
    y = some_y()[..., :1]
    torch.testing.assert_close(one.log_prob(y), mixture(one).log_prob(y).squeeze(-1))


@pytest.mark.parametrize("masked", [False, True])
def test_the_joint_log_density_shares_z_global_over_a_task_and_draws_z_local_for_each_point(gaussian, masked):
    y = some_y()
    mask = torch.tensor([[True, True, False, True], [True, False, False, False]])
    for b in range(B):
        tasks = []
        for k in range(K):
            product = 1.0
            for t in range(T):
                if not masked or mask[b, t]:
                    draws = [Normal(gaussian.loc[k, s, b, t], gaussian.scale[k, s, b, t]) for s in range(S)]
                    product *= sum(draw.log_prob(y[b, t]).sum().exp().item() for draw in draws) / S
            tasks.append(product)
        joint = gaussian.log_prob_joint(y, mask if masked else None)[b].item()
        assert joint == pytest.approx(math.log(sum(tasks) / K), rel=1e-10)


def test_the_joint_log_probability_of_labels(categorical):
    y = some_labels()
    for b in range(B):
        probs = categorical.log_probs[:, :, b].exp()  # [K, S, T, classes]
        of_labels = torch.stack([probs[:, :, t, y[b, t, 0]] for t in range(T)], -1)  # [K, S, T]
        by_hand = of_labels.mean(1).prod(-1).mean(0).log()
        torch.testing.assert_close(categorical.log_prob_joint(y)[b], by_hand)


def test_the_log_probability_of_a_label_is_the_log_of_its_mean_probability(categorical):
    by_hand = categorical.mean.gather(-1, some_labels()).squeeze(-1).log()
    torch.testing.assert_close(categorical.log_prob(some_labels()), by_hand)


def test_a_missing_output_adds_nothing_to_a_log_density(gaussian):
    y = some_y()
    y[0, 1, 0] = torch.nan
    y[1, 2] = torch.nan
    without = GaussianPredictive(gaussian.loc[..., 1:], gaussian.scale[..., 1:])
    torch.testing.assert_close(gaussian.log_prob(y)[0, 1], without.log_prob(y[..., 1:])[0, 1])
    assert gaussian.log_prob(y)[1, 2] == 0
    rest = torch.ones(B, T, dtype=torch.bool)
    rest[0, 1] = rest[1, 2] = False
    torch.testing.assert_close(gaussian.log_prob(y)[rest], gaussian.log_prob(some_y())[rest])


def test_a_missing_output_gives_no_gradient(gaussian):
    y = some_y()
    y[0, 1, 0] = torch.nan
    loc = gaussian.loc.clone().requires_grad_()
    GaussianPredictive(loc, gaussian.scale).log_prob(y).sum().backward()
    assert loc.grad.isfinite().all()
    assert (loc.grad[:, :, 0, 1, 0] == 0).all()
    assert (loc.grad[:, :, 0, 1, 1] != 0).all()


def test_a_masked_point_adds_nothing_to_a_joint_log_density_whatever_stands_there(gaussian):
    y, mask = some_y(), torch.ones(B, T, dtype=torch.bool)
    mask[0, 3] = False
    y[0, 3] = 1e200
    assert gaussian.log_prob_joint(y, mask).isfinite().all()


def test_the_log_mean_exp_does_not_overflow():
    value = torch.tensor([[1000.0, 1000.0], [-1000.0, -1000.0]])
    torch.testing.assert_close(log_mean_exp(value, 1), torch.tensor([1000.0, -1000.0]))
    torch.testing.assert_close(log_mean_exp(value, (0, 1)), torch.tensor(1000.0 - math.log(2)))


# --- moments and uncertainty ---


def test_mean_and_variance_are_torchs(gaussian):
    torch.testing.assert_close(gaussian.mean, mixture(gaussian).mean)
    torch.testing.assert_close(gaussian.variance, mixture(gaussian).variance)
    torch.testing.assert_close(gaussian.stddev, mixture(gaussian).variance.sqrt())


def test_variance_splits_into_what_is_left_given_the_global_latent_and_what_it_explains(gaussian):
    # The variance between z_G, unbiased by the draws within each, by analysis of variance.
    total = gaussian.loc.var((0, 1), correction=0)
    inside = torch.stack([gaussian.loc[k].var(0) for k in range(K)]).mean(0)
    torch.testing.assert_close(gaussian.epistemic, (total - inside).clamp(min=0))
    torch.testing.assert_close(gaussian.aleatoric + gaussian.epistemic, gaussian.variance)
    one = GaussianPredictive(
        gaussian.loc[:, :1], gaussian.scale[:, :1]
    )  # a single z_* each tells nothing of it
    torch.testing.assert_close(one.aleatoric, one.scale.square().mean((0, 1)))
    torch.testing.assert_close(one.epistemic, one.loc[:, 0].var(0, correction=0))


def test_what_the_local_latent_varies_is_noise():
    generator = torch.Generator().manual_seed(0)
    local, across = 0.7, 0.3
    noise = torch.randn(400, 50, 1, 1, 1, generator=generator, dtype=torch.float64)
    loc = local * noise + across * torch.randn(400, 1, 1, 1, 1, generator=generator, dtype=torch.float64)
    made = GaussianPredictive(loc, torch.full_like(loc, 0.1))
    assert float(made.epistemic) == pytest.approx(across**2, rel=0.15)
    assert float(made.aleatoric) == pytest.approx(local**2 + 0.01, rel=0.05)


def test_a_single_component_has_no_epistemic_uncertainty(gaussian):
    one = GaussianPredictive(gaussian.loc[:1, :1], gaussian.scale[:1, :1])
    assert (one.epistemic == 0).all()


def test_mean_and_variance_are_those_of_a_large_sample(gaussian):
    sample = gaussian.sample(8_000, torch.Generator().manual_seed(0))
    assert sample.shape == (8_000, B, T, D)
    error = 5 * gaussian.variance.max().sqrt().item() / math.sqrt(8_000)
    torch.testing.assert_close(sample.mean(0), gaussian.mean, atol=error, rtol=0)
    torch.testing.assert_close(sample.var(0), gaussian.variance, atol=0, rtol=0.1)


def test_class_probabilities_are_the_mean_over_draws(categorical):
    torch.testing.assert_close(categorical.mean, categorical.log_probs.exp().sum((0, 1)) / (K * S))
    torch.testing.assert_close(categorical.mean.sum(-1), torch.ones(B, T, dtype=torch.float64))
    torch.testing.assert_close(categorical.variance, categorical.mean - categorical.mean.square())


def test_class_entropy_splits_into_expected_entropy_and_mutual_information(categorical):
    torch.testing.assert_close(categorical.entropy(), Categorical(categorical.mean).entropy())
    given = categorical.log_probs.exp().mean(1)  # p(y | z_G), z_* averaged over
    torch.testing.assert_close(categorical.aleatoric, Categorical(given).entropy().mean(0))
    # I(y; z_G) = E KL[p(y | z_G) ‖ p(y)]
    divergence = (given * (given.log() - categorical.mean.log())).sum(-1)
    torch.testing.assert_close(categorical.epistemic, divergence.mean(0))


def test_a_certain_class_has_no_entropy():
    assert entropy_of(torch.tensor([1.0, 0.0, 0.0])) == 0


def test_label_samples_follow_the_class_probabilities(categorical):
    sample = categorical.sample(8_000, torch.Generator().manual_seed(0))
    assert sample.shape == (8_000, B, T, 1)
    frequency = torch.stack([(sample == c).double().mean(0).squeeze(-1) for c in range(3)], -1)
    torch.testing.assert_close(frequency, categorical.mean, atol=0.02, rtol=0)


# --- samples ---


def test_a_sample_keeps_one_z_global_per_task_and_another_z_local_for_each_point():
    k, s = torch.meshgrid(torch.arange(5.0), torch.arange(4.0), indexing="ij")
    loc = (10 * k + s)[:, :, None, None, None].expand(5, 4, 3, 50, 1)  # says which component it came from
    sample = GaussianPredictive(loc, torch.tensor(1e-3)).sample(20, torch.Generator().manual_seed(0)).round()
    from_k, from_s = sample // 10, sample % 10
    assert (from_k == from_k[:, :, :1]).all()  # one per task
    assert len(from_k[:, :, 0].unique(dim=0)) > 10  # tasks and samples differ
    assert any(len(row.unique()) > 1 for row in from_k[:, :, 0, 0])
    assert sorted(from_k.unique().tolist()) == [0, 1, 2, 3, 4]
    assert sorted(from_s[0, 0].unique().tolist()) == [0, 1, 2, 3]


def test_a_label_sample_keeps_one_z_global_per_task():
    """Draw k is certain of class k: a label shows its draw."""
    certain = torch.eye(3).clamp(min=1e-30).log()[:, None, None, None].expand(3, 1, 2, 40, 3)
    sample = CategoricalPredictive(certain).sample(20, torch.Generator().manual_seed(0))
    assert (sample == sample[:, :, :1]).all()
    assert sorted(sample.unique().tolist()) == [0, 1, 2]
    assert (sample[:, 0, 0] != sample[:, 1, 0]).any()


def test_the_same_generator_state_gives_the_same_sample(gaussian, categorical):
    for predictive in (gaussian, categorical):
        first, again, other = (predictive.sample(8, torch.Generator().manual_seed(n)) for n in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)


# --- quantiles ---


def test_the_cdf_is_torchs(gaussian):
    torch.testing.assert_close(gaussian.cdf(some_y()), mixture(gaussian).cdf(some_y()))


def test_the_cdf_takes_leading_axes(gaussian):
    y = torch.stack([some_y(), some_y() + 1])[None]
    assert gaussian.cdf(y).shape == (1, 2, B, T, D)
    torch.testing.assert_close(gaussian.cdf(y)[0, 1], gaussian.cdf(some_y() + 1))


def test_quantiles_invert_the_cdf(gaussian):
    levels = torch.tensor([1e-6, 0.025, 0.5, 0.9, 0.975], dtype=torch.float64)
    quantiles = gaussian.quantile(levels)
    assert quantiles.shape == (5, B, T, D)
    expected = levels[:, None, None, None].expand(5, B, T, D)
    torch.testing.assert_close(gaussian.cdf(quantiles), expected, rtol=1e-12, atol=1e-14)


def test_many_quantiles_found_in_single_precision_first_have_all_digits():
    generator = torch.Generator().manual_seed(0)
    loc = 1e6 + 3 * torch.randn(6, 2, 1, 2000, 1, generator=generator, dtype=torch.float64)  # far from 0
    scale = 0.01 + torch.rand(loc.shape, generator=generator, dtype=torch.float64)  # with narrow peaks
    mixture = GaussianPredictive(loc, scale)
    levels = [0.001, 0.05, 0.5, 0.95]
    found = mixture.quantile(levels)
    expected = torch.tensor(levels, dtype=torch.float64).reshape(4, 1, 1, 1).expand_as(found)
    torch.testing.assert_close(mixture.cdf(found), expected, rtol=0, atol=1e-8)


def test_quantiles_of_one_component_are_scipys(gaussian):
    one = GaussianPredictive(gaussian.loc[:1, :1], gaussian.scale[:1, :1])
    expected = scipy.stats.norm.ppf(0.1, one.loc[0, 0], one.scale[0, 0])
    torch.testing.assert_close(one.quantile(0.1), torch.as_tensor(expected), rtol=1e-12, atol=1e-12)


def test_a_number_gives_a_quantile_without_an_axis_for_it(gaussian):
    assert gaussian.quantile(0.3).shape == (B, T, D)
    torch.testing.assert_close(gaussian.quantile([0.3])[0], gaussian.quantile(0.3))


def test_quantiles_in_single_precision(gaussian):
    single = GaussianPredictive(gaussian.loc.float(), gaussian.scale.float())
    assert single.quantile(0.9).dtype == torch.float32
    torch.testing.assert_close(single.quantile(0.9).double(), gaussian.quantile(0.9), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, [0.5, 1.5], math.nan])
def test_probabilities_out_of_range_are_refused(gaussian, probability):
    with pytest.raises(ValueError, match=r"probabilities must lie strictly between 0 and 1, got"):
        gaussian.quantile(probability)


# --- entropy and units ---


def test_the_entropy_of_one_gaussian_is_the_closed_form(gaussian):
    one = GaussianPredictive(gaussian.loc[:1, :1], gaussian.scale[:1, :1])
    torch.testing.assert_close(one.entropy(), Normal(one.loc[0, 0], one.scale[0, 0]).entropy())


@pytest.mark.parametrize("spread", [1.0, 3.0, 100.0])
def test_the_entropy_of_a_mixture_is_the_integral(gaussian, spread):
    predictive = GaussianPredictive(spread * gaussian.loc, gaussian.scale)
    reach = 4 * spread + 12
    y = torch.linspace(-reach, reach, 40_001, dtype=torch.float64)[:, None, None, None]
    log_density = mixture(predictive).log_prob(y.expand(-1, B, T, D))
    integral = torch.trapezoid(-log_density.exp() * log_density, y.expand(-1, B, T, D), dim=0)
    torch.testing.assert_close(predictive.entropy(), integral, atol=5e-3, rtol=0)


def test_going_back_to_the_users_units_moves_and_stretches_everything(gaussian):
    shift, factor = torch.tensor([5.0, -1.0]).double(), torch.tensor([2.0, -3.0]).double()
    moved, y = gaussian.affine(shift, factor), some_y()
    torch.testing.assert_close(moved.mean, shift + factor * gaussian.mean)
    torch.testing.assert_close(moved.aleatoric, factor.square() * gaussian.aleatoric)
    torch.testing.assert_close(moved.epistemic, factor.square() * gaussian.epistemic)
    assert (moved.scale > 0).all()
    change = factor.abs().log().sum()
    torch.testing.assert_close(moved.log_prob(shift + factor * y), gaussian.log_prob(y) - change)


def test_the_shape_is_that_of_the_components(gaussian, categorical):
    assert gaussian.shape == (K, S, B, T, D)
    assert categorical.shape == (K, S, B, T, 3)


def test_one_scale_serves_all_components():
    predictive = GaussianPredictive(torch.zeros(2, 1, 1, 3, 2), torch.tensor([0.5, 2.0]))
    assert predictive.scale.shape == predictive.loc.shape
    torch.testing.assert_close(predictive.variance[0, 0], torch.tensor([0.25, 4.0]))


# --- outputs that do not fit ---


def fitting(kind: str) -> Predictive:
    g = torch.Generator().manual_seed(0)
    loc = torch.randn(2, 3, 4, 5, 6, generator=g)
    if kind == "categorical":
        return CategoricalPredictive(loc.log_softmax(-1))
    if kind == "low-rank":
        return LowRankPredictive(loc, torch.ones_like(loc), torch.randn(2, 3, 4, 5, 6, 2, generator=g))
    return GaussianPredictive(loc, torch.ones_like(loc))


@pytest.mark.parametrize("method", ["log_prob", "log_prob_each", "log_prob_joint"])
@pytest.mark.parametrize(
    ("kind", "width"),
    [("gaussian", 1), ("gaussian", 5), ("low-rank", 1), ("categorical", 2), ("categorical", 6)],
)
def test_another_number_of_outputs_is_refused(kind, width, method):
    with pytest.raises(ValueError, match=r"y must have [16] outputs? per target, .* got \(4, 5, \d\)"):
        getattr(fitting(kind), method)(torch.zeros(4, 5, width))


@pytest.mark.parametrize("kind", ["gaussian", "low-rank", "categorical"])
def test_another_number_of_tasks_or_targets_is_refused_and_one_is_repeated(kind):
    predictive = fitting(kind)
    width = 1 if kind == "categorical" else 6
    for tasks, targets in ((3, 5), (4, 6), (5, 4)):
        with pytest.raises(ValueError, match=rf"= \[4, 5, {width}\], got \({tasks}, {targets}, {width}\)"):
            predictive.log_prob(torch.zeros(tasks, targets, width))
    whole = predictive.log_prob(torch.zeros(4, 5, width))
    for shape in ((1, 5, width), (4, 1, width), (5, width)):
        torch.testing.assert_close(predictive.log_prob(torch.zeros(shape)), whole)


def test_labels_that_are_not_whole_are_refused_and_whole_ones_are_not():
    predictive = fitting("categorical")
    labels = torch.randint(6, (4, 5, 1))
    assert torch.equal(predictive.log_prob(labels.float()), predictive.log_prob(labels))
    labels = labels.float()
    labels[1, 2] = 1.7
    with pytest.raises(ValueError, match=r"labels must be whole numbers, got 1\.7"):
        predictive.log_prob(labels)
    with pytest.raises(ValueError, match="labels must be whole numbers, got nan"):
        predictive.log_prob(labels * math.nan)
