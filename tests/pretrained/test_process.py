"""SeriesProcess: its slopes, its conditional distribution, what a fit finds, and functions."""

import math

import numpy as np
import pytest

from dsvnp.pretrained import process
from dsvnp.pretrained.process import SeriesProcess, covariance, slopes

LOGS = np.log([1.3, 0.4, 0.5, 0.05, 0.2, 0.8, 0.9, 0.7, 0.11])
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(5, 25, 70))
MADE = SeriesProcess(LOGS, 20.0, 3.0, 2.0)


def drawn(x, seed=0, logs=LOGS):
    """A draw of the process at inputs, with its noise."""
    k = covariance(logs, np.abs(x[:, None] - x) / 20.0) + math.exp(2 * logs[4]) * np.eye(len(x))
    return 3.0 + 2.0 * np.linalg.cholesky(k) @ np.random.default_rng(seed).normal(size=len(x))


@pytest.mark.parametrize("size", [5, 9])
def test_slopes_are_differences_of_the_kernel(size):
    d, step = np.array([0.0, 0.03, 0.2, 0.9]), 1e-6
    value, found = slopes(LOGS[:size], d)
    np.testing.assert_allclose(value, covariance(LOGS[:size], d), rtol=1e-12)
    assert set(found) == set(range(size)) - {process.NOISE}
    for place, slope in found.items():
        moved = [covariance(LOGS[:size] + sign * step * (np.arange(size) == place), d) for sign in (1, -1)]
        np.testing.assert_allclose(slope, (moved[0] - moved[1]) / (2 * step), atol=1e-7)


@pytest.mark.parametrize("exact", [False, True])
def test_a_fit_ends_where_the_posterior_is_highest(monkeypatch, exact):
    """At the end no parameter gains by a small step: a wrong gradient would have stopped elsewhere."""
    monkeypatch.setattr(process, "ITERATIONS", 500)
    y = drawn(X)
    period = 2.2
    fitted = SeriesProcess.fit(X, y, period, exact)
    centres, widths = process._prior(len(X), period / fitted.span)

    def density(logs):
        k = covariance(logs, np.abs(X[:, None] - X) / fitted.span)
        k += (math.exp(2 * logs[4]) + process.JITTER) * np.eye(len(X))
        z = (y - y.mean()) / y.std()
        prior = np.square((logs - centres) / widths).sum()
        return -0.5 * (z @ np.linalg.solve(k, z) + np.linalg.slogdet(k)[1] + prior)

    best = density(fitted.logs)
    for place in range(8 if exact else 9):
        for sign in (1, -1):
            moved = fitted.logs + sign * 0.02 * widths[place] * (np.arange(9) == place)
            assert density(moved) < best + 1e-6
    assert (fitted.period == pytest.approx(period, rel=1e-12)) is exact


def test_a_smooth_function_that_varies_quickly_is_not_taken_for_noise():
    y = drawn(X, logs=np.log([1.0, 0.03, 1e-3, 0.05, 0.05]))
    fitted = SeriesProcess.fit(X, y, None)
    assert math.exp(fitted.logs[process.LENGTH]) < 0.06
    assert fitted.std * math.exp(fitted.logs[process.NOISE]) < 0.3


def test_the_second_search_must_be_more_probable_by_a_margin(monkeypatch):
    rough = np.log([1e-3, 0.5, 1.0, 0.05, 0.05])
    x = X[::4]
    ends = {}
    for margin in (-math.inf, 0.0, process.MARGIN, math.inf):
        monkeypatch.setattr(process, "MARGIN", margin)
        ends[margin] = [SeriesProcess.fit(x, drawn(x, seed, rough), None).logs for seed in range(12)]
    same = {
        margin: [np.array_equal(*pair) for pair in zip(found, ends[math.inf], strict=True)]
        for margin, found in ends.items()
    }
    assert not any(same[-math.inf])  # two searches have two ends
    assert sum(same[0.0]) < sum(same[2.0])


def test_a_period_that_is_slightly_wrong_is_corrected():
    y = np.sin(2 * np.pi * X) + 0.1 * RNG.normal(size=len(X))
    assert SeriesProcess.fit(X, y, 1.006).period == pytest.approx(1.0, abs=0.002)


def test_predictions_are_the_conditional_distribution():
    asked = np.array([4.0, 11.3, 26.0])
    y = drawn(X)
    both = np.concatenate([X, asked])
    k = covariance(LOGS, np.abs(both[:, None] - both) / 20.0) + 0.2**2 * np.eye(len(both))
    gain = np.linalg.solve(k[:70, :70], k[:70, 70:]).T
    mean, std = MADE.predict(X, y, asked)
    np.testing.assert_allclose(mean, 3 + gain @ (y - 3), rtol=1e-6)
    spread = k[70:, 70:] - gain @ k[:70, 70:]
    np.testing.assert_allclose(std, 2 * np.sqrt(spread.diagonal()), rtol=1e-6)
    many = MADE.sample(X, y, asked, 20_000, True, np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(many), 4 * spread, atol=0.06)
    smooth = MADE.sample(X, y, asked, 20_000, False, np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(smooth), 4 * (spread - 0.2**2 * np.eye(3)), atol=0.06)


def test_long_series_are_fitted_to_runs_of_neighbours():
    rows = process._runs(5000)
    assert len(rows) == process.MOST_FITTED
    assert (rows[0], rows[-1]) == (0, 4999)
    assert (np.diff(rows) == 1).sum() == process.MOST_FITTED - process.MOST_FITTED // process.RUN
    assert process._runs(100).tolist() == list(range(100))


def test_constant_outputs_and_repeated_inputs_have_a_fit():
    x = np.repeat(np.arange(10.0), 2)
    mean, std = SeriesProcess.fit(x, np.full(20, 7.0), None).predict(x, np.full(20, 7.0), np.array([3.3]))
    assert mean == pytest.approx(7.0)
    assert 0 < std < 1
