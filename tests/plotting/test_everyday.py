"""The plots for everyday use show the numbers that they should, in the order of x, and leave matplotlib alone."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.stats import norm

from dsvnp.plotting import plot_calibration, plot_functions, plot_predictive, plot_residuals
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive

RNG = np.random.default_rng(0)
X = RNG.permutation(np.linspace(0, 1, 30))
LOC = torch.tensor(np.stack([np.sin(X), np.sin(X) + 1])).reshape(2, 1, 1, 30, 1)  # two draws of z_G
TWO = GaussianPredictive(LOC, torch.tensor(0.3))
ONE = GaussianPredictive(torch.zeros(1, 1, 1, 30, 1).double(), torch.tensor(2.0).double())


def axes():
    return Figure().subplots()


def labelled(ax):
    return {line.get_label(): line for line in ax.lines}


def test_mean_and_bands_are_drawn_along_a_sorted_x():
    ax = axes()
    assert plot_predictive(TWO, X, ax, parts=True, truth=np.sin(X), known=(X[:3], X[:3])) is ax
    order = X.argsort()
    np.testing.assert_array_equal(labelled(ax)["mean"].get_xdata(), X[order])
    np.testing.assert_allclose(labelled(ax)["mean"].get_ydata(), np.sin(X[order]) + 0.5)
    np.testing.assert_allclose(labelled(ax)["truth"].get_ydata(), np.sin(X[order]))
    whole, epistemic = (band.get_paths()[0].vertices[:, 1] for band in ax.collections)
    reach = norm.ppf(0.95) * np.std([0, 1])  # draws that differ by 1: mean 1/2, deviation 1/2
    assert epistemic.max() == pytest.approx(np.sin(1) + 0.5 + reach)
    assert whole.max() == pytest.approx(TWO.quantile([0.95]).max().item())
    assert ax.get_legend() is None


def test_an_interval_of_a_normal_is_that_of_scipy():
    ax = plot_predictive(ONE, X, axes(), coverage=0.5)
    assert ax.collections[0].get_paths()[0].vertices[:, 1].max() == pytest.approx(2 * norm.ppf(0.75))


def test_classes_are_lines_of_probabilities():
    probs = torch.tensor(RNG.dirichlet([1, 1, 1], 30))
    ax = plot_predictive(CategoricalPredictive(probs.log()[None, None, None]), X, axes())
    assert len(ax.lines) == 3
    np.testing.assert_allclose(labelled(ax)["P(2)"].get_ydata(), probs[X.argsort(), 2])


def test_functions_are_one_line_each():
    values = np.stack([X, 2 * X], 1)
    ax = plot_functions(values, X, axes())
    assert [line.get_ydata()[-1] for line in ax.lines] == [1, 2]


def test_calibration_is_the_share_inside_intervals():
    y = 2 * RNG.normal(size=30)
    y[0] = np.nan
    ax = plot_calibration(ONE, y, axes())
    levels, shares = labelled(ax)["coverage"].get_data()
    inside = [np.mean(np.abs(y[1:]) <= 2 * norm.ppf((1 + level) / 2)) for level in levels]
    np.testing.assert_allclose(shares, inside)


def test_calibration_of_classes_is_accuracy_by_confidence():
    probs = torch.tensor([[0.95, 0.05]] * 4 + [[0.35, 0.65]] * 2).double()
    found = CategoricalPredictive(probs.log()[None, None, None])
    ax = plot_calibration(found, [0, 0, 0, 1, 1, 0], axes())
    np.testing.assert_allclose(labelled(ax)["accuracy"].get_data(), [[0.65, 0.95], [0.5, 0.75]])
    with pytest.raises(ValueError, match="label 7 is not one of 0, 1"):
        plot_calibration(found, [0, 0, 0, 1, 1, 7], axes())
    with pytest.raises(ValueError, match="residuals are of numbers"):
        plot_residuals(found, [0, 0, 0, 1, 1, 0], axes())


def test_residuals_of_a_normal_are_standardised():
    y = RNG.normal(size=30)
    ax = plot_residuals(ONE, y, axes())
    np.testing.assert_allclose(labelled(ax)["rows"].get_ydata(), y / 2, atol=1e-9)


def test_wrong_lengths_are_named():
    with pytest.raises(ValueError, match="x must give one place per row, 30, got 29"):
        plot_predictive(TWO, X[1:], axes())
    with pytest.raises(ValueError, match="y must give one value per prediction, 30, got 29"):
        plot_calibration(TWO, X[1:], axes())


def test_matplotlib_is_imported_by_a_plot_alone_and_its_backend_stays():
    code = """
import sys, dsvnp.plotting
assert "matplotlib" not in sys.modules
import matplotlib; matplotlib.use("svg")
import torch
from dsvnp.predictive import GaussianPredictive
ax = dsvnp.plotting.plot_predictive(GaussianPredictive(torch.zeros(1, 1, 1, 2, 1), torch.tensor(1.0)), [0, 1])
assert matplotlib.get_backend() == "svg" and ax.get_legend() and matplotlib.rcParams["font.size"] == 10
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
