"""Measures, ranks and inputs of `benchmarks/tables` against independent calculations."""

from __future__ import annotations

import itertools

import numpy as np
import predictives
import preparing
import pytest
import ranks
import summary
from scipy.integrate import quad
from scipy.stats import friedmanchisquare, norm
from sklearn.metrics import log_loss
from sklearn.preprocessing import PowerTransformer

# --- measures ---


def integrated_crps(predictive, y: float) -> float:
    def gap(z: float, above: bool) -> float:
        return (predictive.cdf(np.array([z]))[0] - above) ** 2

    knots = [-40, *np.linspace(-5, 5, 41), 40]
    ends = sorted({*knots, y})
    pieces = itertools.pairwise(ends)
    return sum(quad(gap, low, high, args=(low >= y,))[0] for low, high in pieces)


def one_row(kind: str):
    if kind == "mixture":
        return predictives.Mixture(np.array([[0.3, 0.7]]), np.array([[-1.0, 0.8]]), np.array([[0.4, 1.1]]))
    levels = np.array([0.05, 0.25, 0.5, 0.9])
    return predictives.Quantiles(levels, np.array([[-1.2, -0.1, 0.3, 1.9]]), np.zeros(1))


@pytest.mark.parametrize("kind", ["mixture", "quantiles"])
@pytest.mark.parametrize("y", [-2.5, -0.6, 0.25, 1.0, 3.1])
def test_crps_is_the_integral_of_the_squared_gap(kind, y):
    predictive = one_row(kind)
    assert predictive.crps(np.array([y]))[0] == pytest.approx(integrated_crps(predictive, y), abs=1e-6)


@pytest.mark.parametrize("kind", ["mixture", "quantiles"])
def test_density_is_the_slope_of_the_distribution_function(kind):
    predictive, y = one_row(kind), np.array([-3.0, -0.7, 0.1, 1.0, 2.7])
    for value in y:
        low, high = np.array([value - 1e-5]), np.array([value + 1e-5])
        slope = (predictive.cdf(high) - predictive.cdf(low))[0] / 2e-5
        assert np.exp(predictive.log_prob(np.array([value]))[0]) == pytest.approx(slope, rel=1e-5)
    far = np.array([-60.0]), np.array([60.0])
    assert predictive.cdf(far[0])[0] == pytest.approx(0, abs=1e-6)
    assert predictive.cdf(far[1])[0] == pytest.approx(1, abs=1e-6)


def test_quantiles_are_where_they_say():
    predictive = one_row("quantiles")
    for level, value in zip(predictive.levels, predictive.values[0], strict=True):
        assert predictive.cdf(np.array([value]))[0] == pytest.approx(level)


def test_quantiles_that_cross_are_sorted_and_those_that_meet_are_parted():
    crossed = predictives.Quantiles(
        np.array([0.1, 0.5, 0.9]), np.array([[1.0, 0.0, 2.0], [3.0, 3.0, 3.0]]), np.zeros(2), 0.1
    )
    np.testing.assert_allclose(crossed.knots, [[0, 1, 2], [2.9, 3.0, 3.1]])
    assert np.isfinite(crossed.log_prob(np.array([1.0, 3.0]))).all()


def test_scores_of_a_gaussian():
    rng = np.random.default_rng(0)
    mean, y = rng.normal(size=4000), rng.normal(size=4000)
    found = predictives.regression_scores(predictives.Gaussian(mean, np.sqrt(2)), mean + np.sqrt(2) * y)
    z = y
    crps = np.sqrt(2) * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert found["crps"] == pytest.approx(crps.mean())
    assert found["nll"] == pytest.approx(-norm.logpdf(np.sqrt(2) * y, 0, np.sqrt(2)).mean())
    assert found["rmse"] == pytest.approx(np.sqrt(2) * np.sqrt((y**2).mean()))
    assert found["coverage"] == pytest.approx((np.abs(z) <= norm.ppf(0.95)).mean())


def test_class_scores():
    rng = np.random.default_rng(0)
    probs, y = rng.dirichlet(np.ones(3), 500), rng.integers(0, 3, 500)
    found = predictives.class_scores(probs, y)
    assert found["log_loss"] == pytest.approx(log_loss(y, probs))
    assert found["accuracy"] == (probs.argmax(1) == y).mean()
    error = 0.0
    for edge in range(15):
        inside = [i for i in range(500) if edge / 15 <= probs[i].max() < (edge + 1) / 15]
        if inside:
            right = np.mean([probs[i].argmax() == y[i] for i in inside])
            error += len(inside) / 500 * abs(right - np.mean([probs[i].max() for i in inside]))
    assert found["ece"] == pytest.approx(error)


def test_bins_of_two_halves_add_up_to_those_of_all():
    rng = np.random.default_rng(1)
    probs, y = rng.dirichlet(np.ones(2), 300), rng.integers(0, 2, 300)
    halves = [
        predictives.class_scores(probs[rows], y[rows])["bins"] for rows in (slice(150), slice(150, None))
    ]
    lines = [{"bins": bins} for bins in halves]
    assert summary.score_of(lines, "ece") == pytest.approx(
        predictives.class_scores(probs, y)["ece"], abs=1e-4
    )


def test_the_floor_of_a_calibration_error_is_that_of_labels_drawn_from_the_probabilities():
    rng = np.random.default_rng(2)
    probs = rng.dirichlet(np.full(3, 0.5), 200)
    probs = np.sort(probs, 1)[:, ::-1].round(1)  # few different confidences, the same within a bin
    drawn = [
        predictives.class_scores(probs, (rng.random((200, 1)) > probs.cumsum(1)).sum(1).clip(max=2))
        for _ in range(400)
    ]
    error = [found["ece"] for found in drawn]
    floor = summary.score_of([{"bins": drawn[0]["bins"]}], "ece_floor")
    assert floor == pytest.approx(np.mean(error), abs=4 * np.std(error) / 20)
    assert predictives.calibration_floor(np.array([[1.0, 0, 1], [0.8, 0, 1.0], [1, 0, 1]])) == pytest.approx(
        0.16
    )


# --- ranks ---


def test_friedman_is_scipys():
    scores = np.random.default_rng(0).normal(size=(12, 4)).round(1)  # with ties
    found = ranks.friedman(ranks.rank_rows(scores))
    np.testing.assert_allclose(found, friedmanchisquare(*scores.T))
    assert ranks.friedman(np.full((3, 2), 1.5)) == (0.0, 1.0)


@pytest.mark.parametrize(("models", "q"), [(2, 1.960), (4, 2.569), (7, 2.949), (10, 3.164)])
def test_critical_difference_has_the_printed_constants(models, q):
    wanted = q * np.sqrt(models * (models + 1) / (6 * 30))  # q of Demšar's table 5
    assert ranks.critical_difference(models, 30) == pytest.approx(wanted, abs=1e-3)


def test_higher_is_better_turns_ranks_around():
    np.testing.assert_array_equal(ranks.rank_rows(np.array([[0.1, 0.9, 0.9]]), False), [[3, 1.5, 1.5]])


def test_cliques_are_the_longest_runs():
    assert ranks.cliques(np.array([4.0, 1.0, 1.5, 2.2, 5.5]), 1.0) == [(0, 1), (1, 2)]
    assert ranks.cliques(np.array([1.0, 3.0]), 1.0) == []


# --- inputs ---


def test_design_learns_from_training_rows_alone():
    train = np.array([[1.0, 0, 5], [3.0, 1, 5], [np.nan, 2, 5], [5.0, np.nan, 5]])
    test = np.array([[np.nan, 7.0, 9.0], [3.0, 1.0, 5.0]])
    a, b, inputs = preparing.design(train, test, np.array([False, True, False]))
    np.testing.assert_array_equal(inputs, [0, 0, 1, 1, 1, 1])  # number, its flag, three levels and missing
    np.testing.assert_allclose(a.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(a.std(0), 1)
    assert b[0, 0] == pytest.approx(0)  # the median of 1, 3, 5 is their mean
    unknown = b[0, 2:]
    assert (unknown < 0).all()  # a level that training has not
    assert (b[1, 2:] > 0).sum() == 1


def test_skewed_inputs_are_transformed_as_scikit_learn_does():
    rng = np.random.default_rng(0)
    x, x_test = np.exp(rng.normal(size=(200, 1))), np.exp(rng.normal(size=(20, 1)))
    found = preparing.design(x, x_test, np.array([False]))
    mean, std = x.mean(), x.std()
    power = PowerTransformer().fit((x - mean) / std)
    np.testing.assert_allclose(found.train, power.transform((x - mean) / std), atol=1e-3)
    np.testing.assert_allclose(found.test, power.transform((x_test - mean) / std), atol=1e-3)
