"""CurveProcess: its slopes, its conditional distribution, what a fit finds, and functions."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dsvnp.pretrained import process
from dsvnp.pretrained.process import CurveProcess, covariance, slopes

LOGS = np.log([1.3, 0.5, 0.05, 0.2, 0.4, 0.8, 0.9, 0.7, 0.11])  # a, c, ρ, σ, ℓ and b, w, s, p
SURFACE = np.log([1.3, 0.5, 0.3, 0.2, 0.4, 0.2, 0.7])  # a, c, ρ, σ and three ℓ
RNG = np.random.default_rng(0)
X = np.sort(RNG.uniform(5, 25, 70))[:, None]
SPANS = np.array([20.0])
MADE = CurveProcess(LOGS, SPANS, 3.0, 2.0)
WIDE = np.array([20.0, 2.0, 0.1])  # spans of three inputs
POINTS = WIDE * RNG.uniform(0, 1, (70, 3))
OF_SURFACE = CurveProcess(SURFACE, WIDE, 3.0, 2.0)


def kernel(made, x, other):
    """k by its formula, one pair at a time, without noise."""
    a, c, rough, _, *lengths = np.exp(made.logs)
    found = np.empty((len(x), len(other)))
    for row, column in np.ndindex(found.shape):
        d = (x[row] - other[column]) / made.spans
        lengths, season = lengths[: len(d)], np.exp(made.logs[4 + len(d) :])
        r = math.sqrt(sum((d / lengths) ** 2))
        found[row, column] = a**2 * math.exp(-(r**2) / 2)
        found[row, column] += c**2 * math.exp(-r * math.prod(lengths) ** (1 / len(d)) / rough)
        if len(season):
            b, w, s, p = season
            wave = 2 * math.sin(math.pi * d[0] / p) ** 2 / w**2
            found[row, column] += b**2 * math.exp(-wave - d[0] ** 2 / (2 * s**2))
    return found


def drawn(x, seed=0, logs=LOGS):
    """A draw of the process at inputs [N, 1], with its noise."""
    k = kernel(CurveProcess(logs, SPANS, 0.0, 1.0), x, x) + math.exp(2 * logs[process.NOISE]) * np.eye(len(x))
    return 3.0 + 2.0 * np.linalg.cholesky(k) @ np.random.default_rng(seed).normal(size=len(x))


@pytest.mark.parametrize(("logs", "dims"), [(LOGS[:5], 1), (LOGS, 1), (SURFACE[:6], 2), (SURFACE, 3)])
def test_slopes_are_differences_of_the_kernel(logs, dims):
    d, step = np.vstack([np.zeros(dims), RNG.uniform(0, 0.9, (4, dims))]).T, 1e-6
    value, found = slopes(logs, d)
    np.testing.assert_allclose(value, covariance(logs, d), rtol=1e-12)
    assert set(found) == set(range(len(logs))) - {process.NOISE}
    for place, slope in found.items():
        moved = [covariance(logs + sign * step * (np.arange(len(logs)) == place), d) for sign in (1, -1)]
        np.testing.assert_allclose(slope, (moved[0] - moved[1]) / (2 * step), atol=1e-7)


@pytest.mark.parametrize(("period", "exact"), [(2.2, False), (2.2, True), (None, False)])
def test_a_fit_ends_where_the_posterior_is_highest(monkeypatch, period, exact):
    """At the end no parameter gains by a small step: a wrong gradient would have stopped elsewhere."""
    monkeypatch.setattr(process, "ITERATIONS", 500)
    x = POINTS if period is None else X
    y = drawn(X)
    fitted = CurveProcess.fit(x, y, period, exact)
    centres, widths = process._prior(*x.shape, period and period / fitted.spans[0])
    size = len(fitted.logs)
    assert size == (9 if period else 7)

    def density(logs):
        k = kernel(replace(fitted, logs=logs), x, x)
        k += (math.exp(2 * logs[process.NOISE]) + process.JITTER) * np.eye(len(x))
        z = (y - y.mean()) / y.std()
        prior = np.square((logs - centres) / widths).sum()
        return -0.5 * (z @ np.linalg.solve(k, z) + np.linalg.slogdet(k)[1] + prior)

    best = density(fitted.logs)
    for place in range(8 if exact else size):
        for sign in (1, -1):
            moved = fitted.logs + sign * 0.02 * widths[place] * (np.arange(size) == place)
            assert density(moved) < best + 1e-6
    if period:
        assert (fitted.period == pytest.approx(period, rel=1e-12)) is exact
    else:
        assert fitted.period is None


def test_a_smooth_function_that_varies_quickly_is_not_taken_for_noise():
    y = drawn(X, logs=np.log([1.0, 1e-3, 0.05, 0.05, 0.03]))
    fitted = CurveProcess.fit(X, y)
    assert math.exp(fitted.logs[process.LENGTH]) < 0.06
    assert fitted.std * math.exp(fitted.logs[process.NOISE]) < 0.3


def test_the_second_search_must_be_more_probable_by_a_margin(monkeypatch):
    rough = np.log([1e-3, 1.0, 0.05, 0.05, 0.5])
    x = X[::4]
    ends = {}
    for margin in (-math.inf, 0.0, process.MARGIN, math.inf):
        monkeypatch.setattr(process, "MARGIN", margin)
        ends[margin] = [CurveProcess.fit(x, drawn(x, seed, rough)).logs for seed in range(12)]
    same = {
        margin: [np.array_equal(*pair) for pair in zip(found, ends[math.inf], strict=True)]
        for margin, found in ends.items()
    }
    assert not any(same[-math.inf])  # two searches have two ends
    assert sum(same[0.0]) < sum(same[2.0])


def test_a_period_that_is_slightly_wrong_is_corrected():
    y = np.sin(2 * np.pi * X[:, 0]) + 0.1 * RNG.normal(size=len(X))
    assert CurveProcess.fit(X, y, 1.006).period == pytest.approx(1.0, abs=0.002)


@pytest.mark.parametrize(
    ("made", "x", "asked"),
    [(MADE, X, np.array([[4.0], [11.3], [26.0]])), (OF_SURFACE, POINTS, WIDE * RNG.random((3, 3)))],
)
def test_predictions_are_the_conditional_distribution(made, x, asked):
    y = drawn(X)
    both = np.concatenate([x, asked])
    k = kernel(made, both, both) + 0.2**2 * np.eye(len(both))
    gain = np.linalg.solve(k[:70, :70], k[:70, 70:]).T
    mean, std = made.predict(x, y, asked)
    np.testing.assert_allclose(mean, 3 + gain @ (y - 3), rtol=1e-6)
    spread = k[70:, 70:] - gain @ k[:70, 70:]
    np.testing.assert_allclose(std, 2 * np.sqrt(spread.diagonal()), rtol=1e-6)
    many = made.sample(x, y, asked, 20_000, True, np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(many), 4 * spread, atol=0.1)
    smooth = made.sample(x, y, asked, 20_000, False, np.random.default_rng(0))
    np.testing.assert_allclose(np.cov(smooth), 4 * (spread - 0.2**2 * np.eye(3)), atol=0.1)


def test_an_input_that_does_not_matter_has_a_long_length():
    y = np.sin(POINTS[:, 0] / 2) + 0.05 * np.random.default_rng(1).normal(size=70)
    lengths = np.exp(CurveProcess.fit(POINTS, y).logs[process.LENGTH :])
    assert 4 * lengths[0] < lengths[1:].min()


def test_long_series_are_fitted_to_runs_of_neighbours():
    rows = process._runs(5000)
    assert len(rows) == process.MOST_FITTED
    assert (rows[0], rows[-1]) == (0, 4999)
    assert (np.diff(rows) == 1).sum() == process.MOST_FITTED - process.MOST_FITTED // process.RUN
    assert process._runs(100).tolist() == list(range(100))


def test_large_surfaces_are_fitted_to_groups_of_neighbours():
    x = np.random.default_rng(0).random((5000, 2))
    rows = process._groups(x)
    assert 0.8 * process.MOST_FITTED < len(rows) <= process.MOST_FITTED
    away = np.linalg.norm(x[rows][:, None] - x[rows], axis=-1)
    assert (
        np.median(np.sort(away)[:, process.RUN // 2]) < 0.06
    )  # of evenly spread ones the eighth is 0.13 away
    assert away.max() > 0.8
    assert process._groups(x[:160]).tolist() == list(range(160))


def test_constant_outputs_and_repeated_inputs_have_a_fit():
    x = np.repeat(np.arange(10.0), 2)[:, None]
    for value in (7.0, 0.1):  # the mean of the second is not 0.1, by rounding
        y = np.full(20, value)
        mean, std = CurveProcess.fit(x, y).predict(x, y, np.array([[3.3]]))
        assert mean == pytest.approx(value)
        assert 1e-5 < std < 1
