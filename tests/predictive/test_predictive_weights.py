"""Predictive distributions with weights, held against SciPy, numerical integrals, loops and large samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch

from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, Predictive, concatenate

K, S, M, B, T, D = 3, 2, 4, 2, 3, 2
EVERY = [(b, t, d) for b in range(B) for t in range(T) for d in range(D)]


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def weighted() -> GaussianPredictive:
    """As of a mixture head with M components: every draw of z_* has the same share of the weight."""
    within_draw = normal(K, S, M, B, T, seed=2).log_softmax(2).flatten(1, 2)
    scale = 0.2 + normal(K, S * M, B, T, D, seed=1).abs()
    return GaussianPredictive(normal(K, S * M, B, T, D), scale, within_draw, components_per_draw=M)


@pytest.fixture
def labels() -> CategoricalPredictive:
    log_probs = (2 * normal(K, S, B, T, 3)).log_softmax(-1)
    return CategoricalPredictive(log_probs, normal(K, S, B, T, seed=2))


def some_y() -> torch.Tensor:
    return torch.sin(torch.arange(B * T * D, dtype=torch.float64)).reshape(B, T, D)


def mixture(made: GaussianPredictive, b: int, t: int, d: int) -> tuple[np.ndarray, ...]:
    """Weights, means and deviations of one output's mixture, each [K·S·M]."""
    weights = made.log_weights[:, :, b, t].softmax(1) / len(made.loc)
    return tuple(v.flatten().numpy() for v in (weights, made.loc[:, :, b, t, d], made.scale[:, :, b, t, d]))


def density(made: GaussianPredictive, b: int, t: int, d: int, y: np.ndarray) -> np.ndarray:
    weights, loc, scale = mixture(made, b, t, d)
    return scipy.stats.norm.pdf(np.asarray(y)[..., None], loc, scale) @ weights


# --- log-densities ---


def test_log_densities_weigh_their_components(weighted):
    y = some_y()
    for b, t in np.ndindex(B, T):
        total = 0.0
        for k, s in np.ndindex(K, S * M):
            of = scipy.stats.norm.pdf(y[b, t], weighted.loc[k, s, b, t], weighted.scale[k, s, b, t]).prod()
            total += weighted.log_weights[k, s, b, t].exp().item() / K * of
        assert weighted.log_prob(y)[b, t].item() == pytest.approx(math.log(total), rel=1e-10)
    for b, t, d in EVERY:
        of = density(weighted, b, t, d, y[b, t, d].item())
        assert weighted.log_prob_each(y)[b, t, d].item() == pytest.approx(math.log(of), rel=1e-10)


def test_the_joint_log_density_weighs_within_each_draw_of_z_global(weighted):
    y, mask = some_y(), torch.tensor([[True, False, True], [True, True, True]])
    for b in range(B):
        tasks = []
        for k in range(K):
            points = weighted.component_log_prob(y)[k, :, b].exp() * weighted.log_weights[k, :, b].exp()
            tasks.append(points.sum(0)[mask[b]].prod().item())
        assert weighted.log_prob_joint(y, mask)[b].item() == pytest.approx(
            math.log(sum(tasks) / K), rel=1e-10
        )


def test_a_missing_output_is_left_out_and_has_no_density_of_its_own(weighted):
    y = some_y()
    y[0, 1, 0] = math.nan
    torch.testing.assert_close(weighted.log_prob(y)[0, 1], weighted.outputs([1]).log_prob(y[..., 1:])[0, 1])
    assert weighted.log_prob_each(y)[0, 1, 0].abs() < 1e-12
    torch.testing.assert_close(weighted.log_prob_each(y)[0, 1, 1], weighted.log_prob_each(some_y())[0, 1, 1])


@pytest.mark.parametrize("each", [1, 2, M])
def test_equal_weights_are_no_weights(weighted, each):
    plain = GaussianPredictive(weighted.loc, weighted.scale, components_per_draw=each)
    weights = torch.full((K, S * M, B, T), 7.0).double()
    equal = GaussianPredictive(weighted.loc, weighted.scale, weights, components_per_draw=each)
    y = some_y()
    for what in ("log_prob", "log_prob_joint", "log_prob_each", "cdf", "crps"):
        torch.testing.assert_close(getattr(equal, what)(y), getattr(plain, what)(y), msg=what)
    for what in ("mean", "variance", "aleatoric", "epistemic"):
        torch.testing.assert_close(getattr(equal, what), getattr(plain, what), msg=what)
    torch.testing.assert_close(equal.entropy(), plain.entropy())


def test_weights_are_normalised_over_the_components_of_each_draw_of_z_global(weighted):
    made = GaussianPredictive(weighted.loc, weighted.scale, 5 + normal(K, S * M, B, T, seed=3))
    torch.testing.assert_close(made.log_weights.exp().sum(1), torch.ones(K, B, T).double())


def test_a_component_without_weight_counts_for_nothing(weighted):
    weights = weighted.log_weights.clone()
    weights[:, M:] = -math.inf
    without = weighted.map(lambda array: array[:, :M])
    made = GaussianPredictive(weighted.loc, weighted.scale, weights, components_per_draw=M)
    for what in ("log_prob", "log_prob_joint", "log_prob_each", "cdf", "crps"):
        torch.testing.assert_close(getattr(made, what)(some_y()), getattr(without, what)(some_y()), msg=what)
    torch.testing.assert_close(made.variance, without.variance)
    torch.testing.assert_close(made.quantile(0.3), without.quantile(0.3))


@pytest.mark.parametrize("shape", [(K, S * M, B), (K, 1, B, T), (K, S * M, B, T, 1)])
def test_weights_of_another_shape_are_refused(weighted, shape):
    with pytest.raises(ValueError, match=r"one number per component and target, \(3, 8, 2, 3\), got"):
        GaussianPredictive(weighted.loc, weighted.scale, torch.zeros(shape))


def test_draws_of_unequal_numbers_of_components_are_refused(weighted):
    with pytest.raises(ValueError, match="8 components for each z_G cannot be 3 per draw"):
        GaussianPredictive(weighted.loc, weighted.scale, components_per_draw=3)


# --- moments ---


def test_moments_are_those_of_the_weighted_mixture(weighted):
    for b, t, d in EVERY:
        weights, loc, scale = mixture(weighted, b, t, d)
        mean = weights @ loc
        assert weighted.mean[b, t, d].item() == pytest.approx(mean, rel=1e-10)
        variance = weights @ (scale**2 + (loc - mean) ** 2)
        assert weighted.variance[b, t, d].item() == pytest.approx(variance, rel=1e-10)
    torch.testing.assert_close(weighted.aleatoric + weighted.epistemic, weighted.variance)


def test_one_draw_of_a_mixture_head_has_its_spread_in_the_noise(weighted):
    """With one z_* each, E[y | z_G] is the exact mean of the M components: nothing is corrected for."""
    one = weighted.map(lambda array: array[:, :M])
    means = (one.log_weights.exp().unsqueeze(-1) * one.loc).sum(1)
    torch.testing.assert_close(one.epistemic, means.var(0, correction=0))


def test_only_draws_of_z_local_are_corrected_for():
    """M components that stand apart in every draw, draws of z_* that move them, and z_G that moves them all."""
    count, draws, apart, local, across = 4000, 3, 2.0, 0.7, 0.5
    centre = across * normal(count, 1, 1, 1, 1, 1) + local * normal(count, draws, 1, 1, 1, 1, seed=1)
    loc = (centre + apart * torch.tensor([-1.0, 1.0]).reshape(1, 1, 2, 1, 1, 1)).flatten(1, 2)
    weights = torch.zeros(count, 2 * draws, 1, 1).double()
    made = GaussianPredictive(loc, torch.tensor(0.1).double(), weights, components_per_draw=2)
    assert made.epistemic.item() == pytest.approx(across**2, rel=0.1)
    assert made.aleatoric.item() == pytest.approx(apart**2 + local**2 + 0.01, rel=0.02)
    # The same numbers taken for six draws of z_*: the correction would be too large by apart²/S.
    wrong = GaussianPredictive(loc, torch.tensor(0.1).double(), weights)
    assert wrong.epistemic.item() == 0


def test_a_draw_without_weight_is_not_corrected_for():
    loc = normal(K, S, B, T, D)
    weights = torch.zeros(K, S, B, T).double()
    weights[:, 1:] = -math.inf
    made = GaussianPredictive(loc, torch.ones_like(loc), weights)
    torch.testing.assert_close(made.epistemic, loc[:, 0].var(0, correction=0))


def test_draws_of_unequal_weight_are_corrected_for_by_their_effective_number():
    """Weights that do not depend on the draws: m̄ varies by Σ w² of the variance of one draw."""
    shares = torch.tensor([0.6, 0.3, 0.1]).double()
    loc = 0.5 * normal(8000, 1, 1, 1, 1) + normal(8000, 3, 1, 1, 1, seed=1)
    weights = shares.log().reshape(1, 3, 1, 1).expand(8000, 3, 1, 1)
    made = GaussianPredictive(loc, torch.tensor(0.1).double(), weights)
    assert made.epistemic.item() == pytest.approx(0.25, rel=0.15)
    assert made.variance.item() == pytest.approx(0.01 + 0.25 + 1, rel=0.05)


# --- one output's distribution ---


def test_the_cdf_is_the_integral_of_the_density(weighted):
    y = some_y()
    for b, t, d in EVERY[::3]:
        grid = np.linspace(-40, y[b, t, d].item(), 20_001)
        area = np.trapezoid(density(weighted, b, t, d, grid), grid)
        assert weighted.cdf(y)[b, t, d].item() == pytest.approx(area, abs=1e-6)
    assert weighted.cdf(torch.stack([y, y + 1])).shape == (2, B, T, D)


def test_quantiles_invert_the_cdf(weighted):
    levels = torch.tensor([1e-6, 0.1, 0.5, 0.975]).double()
    expected = levels[:, None, None, None].expand(4, B, T, D)
    torch.testing.assert_close(weighted.cdf(weighted.quantile(levels)), expected, rtol=1e-11, atol=1e-13)


def test_the_entropy_is_the_integral(weighted):
    y = np.linspace(-15, 15, 40_001)
    for b, t, d in EVERY:
        p = density(weighted, b, t, d, y)
        integral = np.trapezoid(-p * np.log(p), y)
        assert weighted.entropy()[b, t, d].item() == pytest.approx(integral, abs=1e-2)


@pytest.mark.parametrize("equal", [False, True])
def test_the_crps_is_the_integral_of_squared_distances_of_the_cdf(weighted, equal):
    made = GaussianPredictive(weighted.loc, weighted.scale) if equal else weighted
    grid = torch.linspace(-15, 15, 20_001, dtype=torch.float64)
    y = some_y()
    cdf = made.cdf(grid[:, None, None, None].expand(-1, B, T, D))
    step = (grid[:, None, None, None] >= y).double()
    integral = torch.trapezoid((cdf - step).square(), grid, dim=0)
    torch.testing.assert_close(made.crps(y), integral, rtol=0, atol=2e-3)


def test_the_crps_of_one_gaussian_is_the_closed_form():
    one = GaussianPredictive(torch.full((1, 1, 1, 1, 1), 0.3), torch.tensor(0.8)).crps(
        torch.tensor([[[1.1]]])
    )
    z = (1.1 - 0.3) / 0.8
    norm = scipy.stats.norm
    expected = 0.8 * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / math.sqrt(math.pi))
    assert one.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("equal", [False, True])
def test_the_crps_is_the_mean_distance_less_half_of_that_between_two(weighted, equal):
    made = GaussianPredictive(weighted.loc, weighted.scale) if equal else weighted
    y, norm = some_y(), scipy.stats.norm

    def distance(mean: float, deviation: float) -> float:
        """E|N(mean, deviation²)|."""
        z = mean / deviation
        return mean * (2 * norm.cdf(z) - 1) + 2 * deviation * norm.pdf(z)

    for b, t, d in EVERY[:2]:
        weights, loc, scale = mixture(weighted, b, t, d)
        weights = np.full_like(weights, 1 / len(weights)) if equal else weights
        out = sum(w * distance(y[b, t, d].item() - m, s) for w, m, s in zip(weights, loc, scale, strict=True))
        for i, j in np.ndindex(len(loc), len(loc)):
            out -= weights[i] * weights[j] * distance(loc[i] - loc[j], math.hypot(scale[i], scale[j])) / 2
        assert made.crps(y)[b, t, d].item() == pytest.approx(out, rel=1e-9)


def test_the_mass_between_bounds_is_a_difference_of_cdfs(weighted):
    low, high = some_y() - 0.3, some_y() + torch.tensor([0.4, 40.0])
    torch.testing.assert_close(
        weighted.log_mass_each(low, high).exp(), weighted.cdf(high) - weighted.cdf(low)
    )
    for b, t in np.ndindex(B, T):
        total = 0.0
        for k, s in np.ndindex(K, S * M):
            normals = scipy.stats.norm(weighted.loc[k, s, b, t], weighted.scale[k, s, b, t])
            of = (normals.cdf(high[b, t]) - normals.cdf(low[b, t])).prod()
            total += weighted.log_weights[k, s, b, t].exp().item() / K * of
        assert weighted.log_mass(low, high)[b, t].item() == pytest.approx(math.log(total), rel=1e-8)


def test_a_missing_output_has_no_crps(weighted):
    y = some_y()
    y[1, 2, 0] = math.nan
    crps = weighted.crps(y)
    assert crps[1, 2, 0].isnan()
    assert crps.isnan().sum() == 1


# --- samples and the energy score ---


def test_a_large_sample_has_the_moments_of_the_mixture(weighted):
    sample = weighted.sample(3_000, torch.Generator().manual_seed(0))
    error = 5 * weighted.variance.max().sqrt().item() / math.sqrt(3_000)
    torch.testing.assert_close(sample.mean(0), weighted.mean, atol=error, rtol=0)
    torch.testing.assert_close(sample.var(0), weighted.variance, atol=0, rtol=0.15)


def test_samples_take_components_by_weight_and_keep_outputs_together():
    """Component i stands at (i, −i) with weight (i + 1)/10."""
    place = torch.arange(4.0).reshape(1, 4, 1, 1, 1)
    loc = torch.cat([place, -place], -1).expand(2, 4, 1, 2000, 2)
    weights = torch.arange(1.0, 5.0).log().reshape(1, 4, 1, 1).expand(2, 4, 1, 2000)
    sample = (
        GaussianPredictive(loc, torch.tensor(1e-3), weights)
        .sample(4, torch.Generator().manual_seed(0))
        .round()
    )
    assert torch.equal(sample[..., 0], -sample[..., 1])
    shares = torch.stack([(sample[..., 0] == i).float().mean() for i in range(4)])
    torch.testing.assert_close(shares, torch.tensor([0.1, 0.2, 0.3, 0.4]), atol=0.02, rtol=0)


def test_the_last_component_is_taken_where_rounding_leaves_a_rest_above_the_last_edge(monkeypatch):
    """A uniform number just below 1 may lie above a sum of weights that is rounded."""
    loc = torch.arange(3.0).reshape(1, 3, 1, 1, 1)
    made = GaussianPredictive(loc, torch.tensor(1e-6), torch.zeros(1, 3, 1, 1))
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.full(shape, 1.5))
    assert made.sample(1).round().item() == 2


def test_a_sample_of_a_prediction_that_is_not_a_number_shows_it(weighted):
    weights, loc = weighted.log_weights.clone(), weighted.loc.clone()
    weights[:, :, 0, 1], loc[:, :, 0, 1] = math.nan, math.nan
    sample = GaussianPredictive(loc, weighted.scale, weights).sample(3)
    assert sample[:, 0, 1].isnan().all()
    assert sample[:, 1].isfinite().all()


def test_the_energy_score_of_one_output_is_its_crps(weighted):
    y = some_y()[..., :1]
    one = weighted.outputs([0])
    score = one.energy_score(y, 2000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(score, one.crps(y)[..., 0], atol=0.05, rtol=0)


def test_the_energy_score_compares_distances_in_all_outputs(weighted):
    y = some_y()
    samples = weighted.sample(6, torch.Generator().manual_seed(5))
    score = weighted.energy_score(y, 6, torch.Generator().manual_seed(5))
    for b, t in np.ndindex(B, T):
        x = samples[:, b, t].numpy()
        near = np.mean([np.linalg.norm(a - y[b, t].numpy()) for a in x])
        pairs = [np.linalg.norm(x[i] - x[j]) for i in range(6) for j in range(6) if i != j]
        assert score[b, t].item() == pytest.approx(near - 0.5 * np.mean(pairs), rel=1e-10)


def test_the_energy_score_leaves_missing_outputs_out(weighted):
    y = some_y()
    y[0, 0, 1] = math.nan
    score = weighted.energy_score(y, 5, torch.Generator().manual_seed(5))
    x = weighted.sample(5, torch.Generator().manual_seed(5))[:, 0, 0, :1]
    near = (x - y[0, 0, 0]).abs().mean()
    apart = (x - x.T).abs().sum() / 20
    torch.testing.assert_close(score[0, 0], near - 0.5 * apart)


def test_two_samples_suffice_for_an_energy_score_and_256_are_drawn_unless_told(weighted, monkeypatch):
    score = weighted.energy_score(some_y(), 2, torch.Generator().manual_seed(5))
    a, b = weighted.sample(2, torch.Generator().manual_seed(5))
    near = ((a - some_y()).norm(dim=-1) + (b - some_y()).norm(dim=-1)) / 2
    torch.testing.assert_close(score, near - (a - b).norm(dim=-1) / 2)
    asked = []
    monkeypatch.setattr(weighted, "sample", lambda count, g: asked.append(count) or torch.zeros(2, B, T, D))
    weighted.energy_score(some_y())
    assert asked == [256]


def test_one_sample_is_too_few_for_an_energy_score(weighted):
    with pytest.raises(ValueError, match="2 or more are needed, got 1"):
        weighted.energy_score(some_y(), 1)


# --- classes ---


def test_classes_are_weighed(labels):
    y = torch.arange(B * T).reshape(B, T, 1) % 3
    weights = labels.log_weights.exp().unsqueeze(-1)
    given = (weights * labels.log_probs.exp()).sum(1)  # p(y | z_G)
    torch.testing.assert_close(labels.mean, given.mean(0))
    torch.testing.assert_close(labels.log_prob(y), given.mean(0).gather(-1, y)[..., 0].log())
    torch.testing.assert_close(labels.log_prob_each(y)[..., 0], labels.log_prob(y))
    of_labels = given.gather(-1, y.expand(K, B, T, 1))[..., 0]
    torch.testing.assert_close(labels.log_prob_joint(y), of_labels.prod(-1).mean(0).log())
    entropy = -(given * given.log()).sum(-1).mean(0)
    torch.testing.assert_close(labels.aleatoric, entropy)
    torch.testing.assert_close(labels.aleatoric + labels.epistemic, labels.entropy())
    sample = labels.sample(3_000, torch.Generator().manual_seed(0))
    shares = torch.stack([(sample == c).double().mean(0).squeeze(-1) for c in range(3)], -1)
    torch.testing.assert_close(shares, labels.mean, atol=0.03, rtol=0)


# --- units and parts ---


def test_other_units_keep_the_weights(weighted):
    shift, factor = torch.tensor([5.0, -1.0]).double(), torch.tensor([2.0, -3.0]).double()
    moved, y = weighted.affine(shift, factor), some_y()
    change = factor.abs().log()
    torch.testing.assert_close(moved.log_prob(shift + factor * y), weighted.log_prob(y) - change.sum())
    torch.testing.assert_close(moved.log_prob_each(shift + factor * y), weighted.log_prob_each(y) - change)
    torch.testing.assert_close(moved.crps(shift + factor * y), factor.abs() * weighted.crps(y))
    torch.testing.assert_close(moved.epistemic, factor.square() * weighted.epistemic)


@pytest.mark.parametrize("kind", ["weighted", "labels"])
def test_parts_of_a_predictive_join_to_the_whole(kind, request):
    made: Predictive = request.getfixturevalue(kind)
    y = some_y() if kind == "weighted" else torch.zeros(B, T, 1, dtype=torch.long)
    targets = concatenate([made.map(lambda v: v[..., :1, :]), made.map(lambda v: v[..., 1:, :])], 3)
    draws = concatenate([made.map(lambda v: v[[0]]), made.map(lambda v: v[1:])], 0)
    for joined in (targets, draws):
        assert type(joined) is type(made)
        assert joined.components_per_draw == made.components_per_draw
        torch.testing.assert_close(joined.log_prob_joint(y), made.log_prob_joint(y))
        torch.testing.assert_close(joined.epistemic, made.epistemic)


def test_predictives_with_and_without_weights_do_not_join(weighted):
    with pytest.raises(ValueError, match="shorter"):
        concatenate([weighted, GaussianPredictive(weighted.loc, weighted.scale)], 0)
