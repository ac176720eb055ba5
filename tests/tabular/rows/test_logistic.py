"""Logistic regression: where scikit-learn's ends."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from dsvnp.tabular.rows.logistic import fit_logistic


@pytest.mark.parametrize("strength", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_coefficients_are_those_of_scikit_learn(classes, strength):
    rng = np.random.default_rng(classes)
    x = rng.normal(size=(120, 4))
    y = (x @ rng.normal(size=(4, classes)) + rng.gumbel(size=(120, classes))).argmax(1)
    coef, intercept = fit_logistic(x, y, strength)
    theirs = LogisticRegression(C=strength, max_iter=200).fit(x, y)
    np.testing.assert_allclose(coef, theirs.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(intercept, theirs.intercept_, rtol=1e-8, atol=1e-10)


def test_classes_that_a_plane_separates_end_as_scikit_learn_has_them():
    x = np.linspace(-1000, 1000, 20)[:, None]
    y = (x[:, 0] > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs = LogisticRegression(C=100.0, max_iter=200).fit(x, y)
    coef, intercept = fit_logistic(x, y, 100.0)
    assert np.isfinite([coef[0, 0], intercept[0]]).all()
    np.testing.assert_allclose(coef, theirs.coef_, rtol=1e-6)
