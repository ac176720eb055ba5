"""Likelihoods: from raw outputs to distributions of y, and from y to what an encoder reads."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch
import torch.nn.functional as F
from torch import distributions

from dsvnp.likelihoods import (
    Categorical,
    FixedGaussian,
    Gaussian,
    GaussianMixture,
    LowRankGaussian,
    NumberOrClass,
)
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, LowRankPredictive

K, S, B, T = 3, 2, 2, 4


def some_raw(size: int) -> torch.Tensor:
    return torch.sin(torch.arange(K * S * B * T * size, dtype=torch.float64)).reshape(K, S, B, T, size) * 3


def some_y(dim: int) -> torch.Tensor:
    return torch.cos(torch.arange(B * T * dim, dtype=torch.float64)).reshape(B, T, dim)


def some_labels() -> torch.Tensor:
    return torch.arange(B * T).reshape(B, T, 1) % 3


# --- Gaussian ---


def test_gaussian_takes_a_mean_and_a_scale_above_the_floor_from_the_raw_output():
    raw = some_raw(6)
    mean, scale = Gaussian(3, floor=0.2).components(raw)
    torch.testing.assert_close(mean, raw[..., :3])
    torch.testing.assert_close(scale, 0.2 + 0.8 * F.softplus(raw[..., 3:]))


def test_the_scale_of_a_gaussian_never_falls_below_the_floor():
    scale = Gaussian(1).components(torch.tensor([0.0, -1e4]))[1]
    assert scale.item() == pytest.approx(0.1)


def test_gaussian_scores_y_by_its_density_summed_over_outputs():
    likelihood, raw, y = Gaussian(2), some_raw(4), some_y(2)
    expected = distributions.Normal(*likelihood.components(raw)).log_prob(y).sum(-1)
    torch.testing.assert_close(likelihood.log_prob(raw, y), expected)


def test_with_the_customary_floor_a_log_density_is_at_most_1_384_per_output():
    best = Gaussian(1).log_prob(torch.tensor([[[0.0, -1e4]]]), torch.zeros(1, 1, 1))
    assert best.item() == pytest.approx(1.3836, abs=1e-4)


def test_gaussian_predicts_a_mixture_of_gaussians_that_scores_as_training_does():
    likelihood, raw, y = Gaussian(2), some_raw(4), some_y(2)
    predictive = likelihood.predictive(*likelihood.components(raw))
    assert isinstance(predictive, GaussianPredictive)
    torch.testing.assert_close(predictive.component_log_prob(y), likelihood.log_prob(raw, y))


@pytest.mark.parametrize("common", [0.0, 0.25, 1.0])
def test_training_may_score_all_outputs_with_one_sigma(common):
    likelihood, raw, y = Gaussian(3, floor=0.01), some_raw(6), some_y(3)
    mean, own = likelihood.components(raw)
    one = own.square().mean(-1, keepdim=True).sqrt()
    likelihood.common = torch.tensor(common)
    expected = distributions.Normal(mean, one**common * own ** (1 - common)).log_prob(y).sum(-1)
    torch.testing.assert_close(likelihood.log_prob(raw, y), expected)
    assert torch.equal(likelihood.components(raw)[1], own)  # a prediction has each output's own
    alone = Gaussian(1, floor=0.01)
    before = alone.log_prob(some_raw(2), some_y(1))
    alone.common = torch.tensor(common)
    torch.testing.assert_close(alone.log_prob(some_raw(2), some_y(1)), before)


# --- squared error ---


def test_squared_error_is_averaged_over_outputs():
    raw, y = some_raw(3), some_y(3)
    torch.testing.assert_close(FixedGaussian(3).log_prob(raw, y), -(raw - y).square().mean(-1))
    one = FixedGaussian(1).log_prob(raw[..., :1], y[..., :1])
    torch.testing.assert_close(one, -(raw - y)[..., 0].square())


def test_squared_error_predicts_around_the_raw_output_with_its_own_sigma_per_output():
    likelihood, raw = FixedGaussian(2).double(), some_raw(2)
    predictive = likelihood.predictive(*likelihood.components(raw))
    assert torch.equal(predictive.loc, raw)
    assert (predictive.scale == 1).all()
    likelihood.sigma.copy_(torch.tensor([0.5, 2.0]))
    predictive = likelihood.predictive(*likelihood.components(raw))
    assert torch.equal(predictive.scale[0, 0, 0, 0], torch.tensor([0.5, 2.0]).double())


def test_the_sigma_of_squared_error_is_saved_but_not_trained():
    assert list(FixedGaussian(2).state_dict()) == ["sigma"]
    assert not list(FixedGaussian(2).parameters())


# --- missing outputs, both regressions ---


def test_a_missing_output_is_left_out_of_a_gaussian_score():
    raw, y = some_raw(4), some_y(2)
    y[0, 1, 0] = torch.nan
    y[1, 2] = torch.nan
    score = Gaussian(2).log_prob(raw, y)
    alone = Gaussian(1).log_prob(raw[..., 1::2], y[..., 1:])  # mean and scale of the output that is there
    torch.testing.assert_close(score[:, :, 0, 1], alone[:, :, 0, 1])
    assert (score[:, :, 1, 2] == 0).all()


def test_a_missing_output_is_left_out_of_a_mean_squared_error():
    raw, y = some_raw(3), some_y(3)
    y[0, 1, 0] = torch.nan
    y[1, 2] = torch.nan
    score = FixedGaussian(3).log_prob(raw, y)
    torch.testing.assert_close(score[:, :, 0, 1], -(raw - y)[:, :, 0, 1, 1:].square().mean(-1))
    assert (score[:, :, 1, 2] == 0).all()


@pytest.mark.parametrize(("likelihood", "size"), [(Gaussian(2), 4), (FixedGaussian(2), 2)])
def test_a_missing_output_gives_no_gradient(likelihood, size):
    raw, y = some_raw(size).requires_grad_(), some_y(2)
    y[0, 1, 0] = torch.nan
    likelihood.log_prob(raw, y).sum().backward()
    assert raw.grad.isfinite().all()
    assert (raw.grad[:, :, 0, 1, ::2] == 0).all()
    assert (raw.grad[:, :, 0, 1, 1::2] != 0).all()


@pytest.mark.parametrize("likelihood", [Gaussian(2), FixedGaussian(2)])
def test_a_missing_output_is_read_as_zero(likelihood):
    y = some_y(2)
    y[0, 1, 0] = torch.nan
    encoded = likelihood.encode(y, torch.float32)
    assert encoded.dtype == torch.float32
    torch.testing.assert_close(encoded, y.nan_to_num(0.0).float())


# --- classes ---


def test_labels_are_read_as_one_hot_vectors():
    encoded = Categorical(3).encode(some_labels(), torch.float64)
    assert torch.equal(encoded, F.one_hot(some_labels().squeeze(-1), 3).double())


def test_a_label_is_scored_by_its_log_probability():
    raw = some_raw(3)
    expected = distributions.Categorical(logits=raw).log_prob(some_labels().squeeze(-1))
    torch.testing.assert_close(Categorical(3).log_prob(raw, some_labels()), expected)


def test_classes_predict_a_mixture_that_scores_as_training_does():
    likelihood, raw = Categorical(3), some_raw(3)
    predictive = likelihood.predictive(*likelihood.components(raw))
    assert isinstance(predictive, CategoricalPredictive)
    torch.testing.assert_close(predictive.log_probs.exp(), raw.softmax(-1))
    expected = likelihood.log_prob(raw, some_labels())
    torch.testing.assert_close(predictive.component_log_prob(some_labels()), expected)


# --- sizes, precision and refusals ---


@pytest.mark.parametrize(
    ("likelihood", "dim_raw", "dim_encoded"),
    [(Gaussian(5), 10, 5), (FixedGaussian(5), 5, 5), (Categorical(5), 5, 5)],
)
def test_each_likelihood_says_what_the_decoder_must_give_and_what_an_encoder_gets(
    likelihood, dim_raw, dim_encoded
):
    assert (likelihood.dim_raw, likelihood.dim_encoded) == (dim_raw, dim_encoded)


@pytest.mark.parametrize(
    ("likelihood", "size", "y"), [(Gaussian(2), 4, 2), (FixedGaussian(2), 2, 2), (Categorical(3), 3, None)]
)
def test_distributions_leave_the_half_precision_of_autocast(likelihood, size, y):
    raw = some_raw(size).bfloat16()
    y = some_labels() if y is None else some_y(y).float()
    assert likelihood.log_prob(raw, y).dtype == torch.float32
    assert all(part.dtype == torch.float32 for part in likelihood.components(raw))


@pytest.mark.parametrize("floor", [-0.1, 1.0, float("nan")])
def test_a_floor_out_of_range_is_refused(floor):
    with pytest.raises(ValueError, match=f"floor of sigma must be at least 0 and below 1, got {floor}"):
        Gaussian(1, floor)


def test_a_floor_of_zero_leaves_a_sigma_whose_logarithm_and_gradient_are_finite():
    raw = torch.tensor([0.0, -1e4]).requires_grad_()
    log_prob = Gaussian(1, 0.0).log_prob(raw, torch.tensor([3.0]))
    assert log_prob.isfinite()
    assert torch.autograd.grad(log_prob, raw)[0].isfinite().all()


@pytest.mark.parametrize("likelihood", [Gaussian(2), FixedGaussian(2)])
def test_regression_accepts_its_outputs_and_refuses_others(likelihood):
    likelihood.check(torch.zeros(1, 3, 2), "y_context")
    with pytest.raises(ValueError, match="y_context has 3 outputs but the model was made for 2"):
        likelihood.check(torch.zeros(1, 3, 3), "y_context")
    with pytest.raises(
        ValueError, match=r"y_target must be floating point for regression, got torch.int64; pass"
    ):
        likelihood.check(torch.zeros(1, 3, 2, dtype=torch.long), "y_target")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_classes_refuse_labels_that_are_not_integers(dtype):
    with pytest.raises(
        ValueError, match=f"y_target must hold integer class labels, got {dtype}; pass y.long()"
    ):
        Categorical(3).check(torch.zeros(1, 3, 1, dtype=dtype), "y_target")


def test_classes_accept_one_label_per_point():
    Categorical(3).check(torch.zeros(1, 4, 1, dtype=torch.long), "y_context")


def test_classes_refuse_one_hot_labels():
    with pytest.raises(
        ValueError, match=r"one label per point, .* got \(1, 4, 3\); pass class indices, not one-hot"
    ):
        Categorical(3).check(torch.zeros(1, 4, 3, dtype=torch.long), "y_context")


@pytest.mark.parametrize(("label", "got"), [(3, "0 to 3"), (-1, "-1 to 2")])
def test_classes_refuse_labels_out_of_range_unless_the_slot_is_empty(label, got):
    y, mask = some_labels(), torch.ones(B, T, dtype=torch.bool)
    Categorical(3).check_values(y, mask, "y_context")
    y[1, 3] = label
    with pytest.raises(
        ValueError, match=f"y_context must hold labels from 0 to 2, got {got}; renumber the classes"
    ):
        Categorical(3).check_values(y, mask, "y_context")
    mask[1, 3] = False
    Categorical(3).check_values(y, mask, "y_context")
    Categorical(3).check_values(y, torch.zeros_like(mask), "y_context")


# --- the mixture and the low-rank head ---


def mixture_of(likelihood: GaussianMixture, raw: torch.Tensor) -> distributions.MixtureSameFamily:
    """The distribution of all outputs together, as torch has it."""
    count, dim = likelihood.num_components, likelihood.dim_y
    logits, mean, scale = raw.split([count, count * dim, count * dim], -1)
    mean = mean.reshape(*raw.shape[:-1], count, dim) + likelihood.offsets
    scale = 0.1 + 0.9 * F.softplus(scale.reshape(*raw.shape[:-1], count, dim))
    each = distributions.Independent(distributions.Normal(mean, scale), 1)
    return distributions.MixtureSameFamily(distributions.Categorical(logits=logits), each)


def test_a_mixture_head_scores_as_torchs_mixture_whose_components_hold_all_outputs():
    likelihood = GaussianMixture(2, 3).double()
    raw, y = some_raw(likelihood.dim_raw), some_y(2)
    torch.testing.assert_close(likelihood.log_prob(raw, y), mixture_of(likelihood, raw).log_prob(y))


def test_a_mixture_head_predicts_what_it_scores():
    likelihood = GaussianMixture(2, 3).double()
    raw, y = some_raw(likelihood.dim_raw), some_y(2)
    predictive = likelihood.predictive(*likelihood.components(raw))
    assert predictive.shape == (K, 3 * S, B, T, 2)
    expected = likelihood.log_prob(raw, y).flatten(0, 1).logsumexp(0) - math.log(K * S)
    torch.testing.assert_close(predictive.log_prob(y), expected)
    torch.testing.assert_close(predictive.mean, mixture_of(likelihood, raw).mean.mean((0, 1)))
    weights = likelihood.components(raw)[2]
    torch.testing.assert_close(weights[..., 0], predictive.log_weights)  # normalised as they come


@pytest.mark.parametrize(("count", "dim"), [(1, 1), (20, 1), (20, 2), (60, 8)])
def test_the_components_of_a_mixture_start_apart_and_cover_a_standard_normal(count, dim):
    offsets = GaussianMixture(dim, count).offsets
    assert offsets.shape == (count, dim)
    quantiles = torch.as_tensor(scipy.stats.norm.ppf((np.arange(count) + 0.5) / count)).float()
    torch.testing.assert_close(offsets.sort(0).values, quantiles[:, None].expand(count, dim))
    if dim > 1:  # not all on one line through the outputs
        assert torch.corrcoef(offsets.T).fill_diagonal_(0).abs().max() < 0.6


def low_rank_of(likelihood: LowRankGaussian, raw: torch.Tensor) -> distributions.LowRankMultivariateNormal:
    dim, rank = likelihood.dim_y, likelihood.rank
    mean, scale, factor = raw.split([dim, dim, dim * rank], -1)
    factor = factor.reshape(*raw.shape[:-1], dim, rank) + likelihood.offsets
    return distributions.LowRankMultivariateNormal(mean, factor, (0.1 + 0.9 * F.softplus(scale)).square())


def test_a_low_rank_head_scores_and_predicts_as_torchs_does():
    likelihood = LowRankGaussian(3, 2).double()
    raw, y = some_raw(likelihood.dim_raw), some_y(3)
    exact = low_rank_of(likelihood, raw)
    torch.testing.assert_close(likelihood.log_prob(raw, y), exact.log_prob(y))
    predictive = likelihood.predictive(*likelihood.components(raw))
    assert isinstance(predictive, LowRankPredictive)
    torch.testing.assert_close(predictive.component_log_prob(y), exact.log_prob(y))
    torch.testing.assert_close(predictive.scale, exact.variance.sqrt())


@pytest.mark.parametrize(("dim", "rank"), [(1, 2), (2, 2), (8, 3)])
def test_the_factor_of_a_low_rank_head_starts_away_from_zero(dim, rank):
    """At zero it would have no gradient."""
    likelihood = LowRankGaussian(dim, rank)
    raw = torch.zeros(1, 1, B, T, likelihood.dim_raw, requires_grad=True)
    likelihood.log_prob(raw, some_y(dim).float()).sum().backward()
    assert (raw.grad[..., 2 * dim :].abs().sum((0, 1, 2, 3)) > 0).all()
    columns = likelihood.offsets[:, : min(dim, rank)]
    gram = columns.T @ columns
    torch.testing.assert_close(gram, torch.diag(gram.diag()), atol=1e-6, rtol=0)


@pytest.mark.parametrize("likelihood", [GaussianMixture(2, 3), LowRankGaussian(2, 1)])
def test_heads_leave_missing_outputs_out(likelihood):
    raw, y = some_raw(likelihood.dim_raw).requires_grad_(), some_y(2)
    y[0, 1, 0] = torch.nan
    y[1, 2] = torch.nan
    score = likelihood.log_prob(raw, y)
    marginal = likelihood.predictive(*likelihood.components(raw[:1, :1])).outputs([1])
    torch.testing.assert_close(score[0, 0, 0, 1], marginal.log_prob(y[..., 1:])[0, 1])
    torch.testing.assert_close(score[:, :, 1, 2], torch.zeros_like(score[:, :, 1, 2]), atol=1e-12, rtol=0)
    score.sum().backward()
    assert raw.grad.isfinite().all()
    assert (raw.grad[:, :, 1, 2].abs() < 1e-12).all()


@pytest.mark.parametrize(
    ("likelihood", "dim_raw"), [(GaussianMixture(3, 5), 5 + 15 + 15), (LowRankGaussian(3, 2), 3 + 3 + 6)]
)
def test_heads_say_what_the_decoder_must_give(likelihood, dim_raw):
    assert (likelihood.dim_raw, likelihood.dim_encoded) == (dim_raw, 3)
    assert list(likelihood.state_dict()) == ["offsets"]
    assert not list(likelihood.parameters())


def test_heads_of_no_size_are_refused():
    with pytest.raises(ValueError, match="at least 1 component, got num_components=0"):
        GaussianMixture(1, 0)
    with pytest.raises(ValueError, match="at least 1 column, got rank=0"):
        LowRankGaussian(1, 0)


def test_the_components_of_a_mixture_lie_by_the_golden_ratio_and_its_kin():
    """Rank of component n on axis j: that of the fraction of n g^−j, where g > 1 solves g^(D+1) = g + 1."""
    for count, dim in ((7, 1), (9, 2), (11, 3)):
        g = scipy.optimize.brentq(lambda g, dim=dim: g ** (dim + 1) - g - 1, 1.0, 2.0)
        offsets = GaussianMixture(dim, count).offsets
        for axis in range(dim):
            place = [math.modf(n * g ** -(axis + 1))[0] for n in range(count)]
            rank = [sorted(place).index(each) for each in place]
            expected = scipy.stats.norm.ppf((np.array(rank) + 0.5) / count)
            torch.testing.assert_close(
                offsets[:, axis].double(), torch.as_tensor(expected), atol=1e-6, rtol=0
            )


def test_the_columns_of_a_low_rank_head_start_as_cosines():
    for dim, rank in ((4, 3), (2, 5)):
        offsets = LowRankGaussian(dim, rank).offsets
        for d, r in np.ndindex(dim, rank):
            expected = 0.3 * math.cos(math.pi * (d + 0.5) * (r % dim) / dim)
            assert offsets[d, r].item() == pytest.approx(expected, abs=1e-6)


def test_heads_have_the_customary_sizes_unless_told():
    assert [make(3).floor for make in (Gaussian, GaussianMixture, LowRankGaussian)] == [0.1] * 3
    assert (GaussianMixture(3).num_components, GaussianMixture(3).background) == (20, 0.0)
    assert (LowRankGaussian(3).rank, GaussianMixture(3, 1).num_components, LowRankGaussian(3, 1).rank) == (
        2,
        1,
        1,
    )


def test_the_weights_of_all_draws_and_components_sum_to_one():
    head = GaussianMixture(2, 5)
    raw = torch.randn(2, 3, 4, 6, head.dim_raw, generator=torch.Generator().manual_seed(0))  # [K, S, B, T, ·]
    log_weights = head.components(raw)[2]
    assert log_weights.shape == (2, 3 * 5, 4, 6, 1)
    torch.testing.assert_close(log_weights.exp().sum(1), torch.ones(2, 4, 6, 1))


@pytest.mark.parametrize("background", [-0.1, 1.0, math.nan])
def test_a_background_that_is_no_weight_is_refused(background):
    with pytest.raises(ValueError, match="background is a weight, at least 0 and below 1"):
        GaussianMixture(1, background=background)


# --- the form of sigma ---


def test_an_exponential_sigma_is_the_exponential_of_the_raw_output():
    raw = torch.tensor([-5.0, -2.0, 0.0, 3.0]).double()
    torch.testing.assert_close(Gaussian(1, 0.0, "exp").sigma(raw), raw.exp(), rtol=2e-3, atol=0)
    torch.testing.assert_close(Gaussian(1, 0.2, "exp").sigma(raw), 0.2 + raw.exp(), rtol=2e-3, atol=0)


def test_the_logarithm_of_a_sigma_without_a_floor_is_held_above_minus_12():
    low = torch.tensor([-1e4, -12.0]).double()
    expected = torch.tensor([math.exp(-12), math.exp(-12 + math.log(2))]).double()
    torch.testing.assert_close(Gaussian(1, 0.0, "exp").sigma(low), expected)
    plain = Gaussian(1, 0.0)
    torch.testing.assert_close(plain.held(plain.sigma(low[:1])), expected[:1])
    floored = Gaussian(1, 1e-9)
    assert floored.held(torch.tensor(1e-8)) == 1e-8


def test_an_unknown_form_of_sigma_is_refused():
    with pytest.raises(ValueError, match=r"unknown form of sigma 'expo'. Did you mean 'exp'"):
        Gaussian(1, form="expo")


@pytest.mark.parametrize("form", ["softplus", "exp"])
@pytest.mark.parametrize("make", [Gaussian, GaussianMixture, LowRankGaussian])
def test_without_a_floor_a_density_and_its_gradient_stay_finite(make, form):
    likelihood = make(2, floor=0.0, form=form)
    raw = torch.full((1, 1, B, T, likelihood.dim_raw), -1e4, requires_grad=True)
    y = some_y(2).float()
    score = likelihood.log_prob(raw, y)
    score.sum().backward()
    assert score.isfinite().all()
    assert raw.grad.isfinite().all()
    predictive = likelihood.predictive(*likelihood.components(raw.detach()))
    assert predictive.log_prob(y).isfinite().all()
    assert (predictive.scale > 0).all()


def test_a_background_bounds_what_an_outlier_costs_and_is_one_component_of_fixed_weight():
    head, plain = GaussianMixture(1, 3, 1e-3, background=0.01), GaussianMixture(1, 3, 1e-3)
    raw = torch.randn(
        1, 1, 2, 5, head.dim_raw, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    raw[..., -3:] = -20.0  # σ at its floor
    outlier = torch.full((2, 5, 1), 12.0, dtype=torch.float64)
    wide = torch.distributions.Normal(0.0, 4.0).log_prob(outlier).squeeze(-1)
    assert plain.log_prob(raw, outlier).max() < -1e6
    assert torch.allclose(head.log_prob(raw, outlier)[0, 0], wide + math.log(0.01))
    near = plain.components(raw)[0][0, 0]  # the first component's mean
    both = torch.logaddexp(
        plain.log_prob(raw, near) + math.log(0.99),
        wide.new_tensor(math.log(0.01)) + torch.distributions.Normal(0.0, 4.0).log_prob(near).squeeze(-1),
    )
    assert torch.allclose(head.log_prob(raw, near), both)
    predictive = head.predictive(*head.components(raw))
    assert torch.allclose(predictive.log_prob(near), both[0, 0])
    assert predictive.shape[1] == head.num_components == 4


def both_kinds() -> tuple[NumberOrClass, torch.Tensor, torch.Tensor]:
    head = NumberOrClass(3, GaussianMixture(1, 2, 0.01))
    g = torch.Generator().manual_seed(0)
    raw = torch.randn(1, 1, 2, 4, head.dim_raw, generator=g, dtype=torch.float64)
    numbers = torch.stack([torch.randn(4, generator=g, dtype=torch.float64), torch.zeros(4).double()], -1)
    labels = torch.tensor([[0.0, 1.0], [2.0, 1.0], [1.0, 1.0], [2.0, 1.0]], dtype=torch.float64)
    return head, raw, torch.stack([numbers, labels])


def test_each_task_is_scored_by_the_head_of_its_kind():
    head, raw, y = both_kinds()
    of_number, of_class = raw[..., : head.numbers.dim_raw], raw[..., head.numbers.dim_raw :]
    scored = head.log_prob(raw, y)[0, 0]
    assert torch.equal(scored[0], head.numbers.log_prob(of_number, y[..., :1])[0, 0, 0])
    assert torch.equal(scored[1], head.classes.log_prob(of_class, y[..., :1].long())[0, 0, 1])


def test_the_other_head_gets_no_gradient():
    head, raw, y = both_kinds()
    raw.requires_grad_()
    (grad,) = torch.autograd.grad(head.log_prob(raw, y).sum(), raw)
    size = head.numbers.dim_raw
    assert (grad[0, 0, 0, :, size:] == 0).all()
    assert (grad[0, 0, 1, :, :size] == 0).all()
    assert (grad[0, 0, 0, :, :size] != 0).any()


def test_a_number_and_a_label_enter_an_encoder_apart():
    head, _, y = both_kinds()
    encoded = head.encode(y, torch.float64)
    assert torch.equal(encoded[0], torch.cat([y[0], torch.zeros(4, 3)], -1))
    assert encoded[1].tolist()[1] == [0.0, 1.0, 0.0, 0.0, 1.0]
    assert head.dim_encoded == encoded.shape[-1]
    assert head.dim_raw == head.numbers.dim_raw + 3


def test_without_a_choice_of_kind_nothing_is_predicted_and_y_needs_its_flag():
    head, raw, y = both_kinds()
    with pytest.raises(ValueError, match="for_numbers"):
        head.components(raw)
    head.check(y, "y_context")
    for wrong in (y[..., :1], y.long()):
        with pytest.raises(ValueError, match="a value and its kind"):
            head.check(wrong, "y_context")
