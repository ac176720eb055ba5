"""Baselines: they see what the models see, and their σ comes from held-out rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from tiny_tables import smooth_rows

from dsvnp.paper.datasets.catalogue import DataTable
from dsvnp.paper.multioutput import exact_gp
from dsvnp.paper.multioutput.baselines import REGRESSORS, measure_baseline
from dsvnp.paper.multioutput.exact_gp import ExactGP, fit_exact_gp, measure_exact_gp, negative_log_evidence
from dsvnp.paper.multioutput.folds import RowPortions, Split, make_split
from dsvnp.paper.multioutput.gp import SparseGP, measure_gp

TEST = ("mse", "test", "standard")


def splits(num_rows: int = 121, dim_x: int = 3) -> list[Split]:
    rows = smooth_rows(num_rows, dim_x, 2)
    table = DataTable("made", rows[:, :dim_x], rows[:, dim_x:], (), (), "")
    return [make_split(table, index, RowPortions(0.1, 5), torch.device("cpu")) for index in range(2)]


def test_extra_trees_are_scikit_learns_on_the_training_rows():
    made = splits()
    for measured, split in zip(measure_baseline("extra-trees", made, 20, 1), made, strict=True):
        trees = ExtraTreesRegressor(20, random_state=0).fit(split.train.x.double(), split.train.y.double())
        error = np.square(trees.predict(split.test.x.double()) - split.test.y.numpy()).mean()
        assert measured.scores[TEST] == pytest.approx(error, rel=1e-5)
        assert measured.scores["mse", "train", "standard"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", REGRESSORS)
def test_every_baseline_is_better_than_the_mean_and_roughly_calibrated(name):
    for measured in measure_baseline(name, splits(), 20, 1):
        assert measured.scores[TEST] < 0.7
        assert 0.6 < measured.scores["coverage-90", "test", "share"] <= 1
        assert {part for _, part, _ in measured.scores} == {"test", "train"}


def test_an_unknown_baseline():
    with pytest.raises(ValueError, match=r"unknown baseline 'extra-tree'. Did you mean 'extra-trees'\?"):
        measure_baseline("extra-tree", [], 1, 1)


class TestExactGP:
    def test_evidence_and_gradient_are_scikit_learns(self):
        (split, _) = splits()
        x, y = split.train.x.double(), split.train.y.double()[:, 0]
        theta = torch.tensor([0.3, -0.2, 0.9, 0.4, -1.1], dtype=torch.float64)
        lengths = theta[:3].exp().numpy()
        kernel = ConstantKernel(np.exp(0.8)) * Matern(lengths, nu=2.5) + WhiteKernel(np.exp(-2.2))
        gp = GaussianProcessRegressor(kernel, alpha=0, optimizer=None).fit(x, y)
        exact, slope = gp.log_marginal_likelihood(kernel.theta, eval_gradient=True)
        value, gradient = negative_log_evidence(theta, x, y)
        assert value == pytest.approx(-exact, rel=1e-10)
        # scikit-learn's order is ln s², ln ℓ, ln σ²
        expected = [*(-slope[1:4]), -2 * slope[0], -2 * slope[4]]
        assert gradient.tolist() == pytest.approx(expected, rel=1e-8)

    def test_as_good_a_fit_and_the_same_predictions_as_scikit_learns(self):
        (split, _) = splits(dim_x=2)
        kernel = ConstantKernel() * Matern(length_scale=np.ones(2), nu=2.5) + WhiteKernel(0.1)
        x, errors = split.train.x.double(), []
        for y in split.train.y.double().T:
            gp = GaussianProcessRegressor(kernel, alpha=0).fit(x, y)
            errors.append((gp.predict(split.test.x.double()) - split.test.y[:, len(errors)].numpy()) ** 2)
            best, _ = negative_log_evidence(fit_exact_gp(ExactGP(), x, y), x, y)
            assert best <= -gp.log_marginal_likelihood_value_ + 0.01
        (measured,) = measure_exact_gp(ExactGP(), [split])
        assert measured.scores[TEST] == pytest.approx(np.mean(errors), rel=1e-2)
        assert 0.8 < measured.scores["coverage-90", "test", "share"] <= 1

    def test_a_large_table_has_most_of_its_search_on_a_part_and_ends_where_a_search_on_all_does(
        self, monkeypatch
    ):
        (split, _) = splits(401, 2)
        x, y = split.train.x.double(), split.train.y.double()[:, 0]
        alone = fit_exact_gp(ExactGP(start_rows=40), x, y)
        rows = []

        def counted(theta, some, outputs):
            rows.append(len(some))
            return negative_log_evidence(theta, some, outputs)

        monkeypatch.setattr(exact_gp, "negative_log_evidence", counted)
        found = fit_exact_gp(ExactGP(start_rows=40, middle_rows=90, last_steps=8), x, y)
        assert rows == sorted(rows)
        assert set(rows) == {40, 90, len(x)}
        assert rows.count(len(x)) <= 2 * 8 + 1  # a step may look at two places
        best = negative_log_evidence(alone, x, y)[0]
        assert negative_log_evidence(found, x, y)[0] <= best + 0.01 * len(x)  # there are several optima


class TestSparseGP:
    def test_close_to_the_exact_gp(self):
        made = splits(dim_x=2)
        kernel = ConstantKernel() * Matern(length_scale=np.ones(2), nu=2.5) + WhiteKernel(0.1)
        for measured, split in zip(measure_gp(SparseGP(40, 300, 64, 0.05), made), made, strict=True):
            exact = []
            for output in split.train.y.double().T:
                gp = GaussianProcessRegressor(kernel).fit(split.train.x.double(), output)
                exact.append(gp.predict(split.test.x.double()))
            error = np.square(np.stack(exact, 1) - split.test.y.numpy()).mean()
            assert measured.scores[TEST] == pytest.approx(error, rel=0.15)
            assert measured.scores["mse", "train", "standard"] < 0.2
            assert 0.8 < measured.scores["coverage-90", "test", "share"] <= 1
