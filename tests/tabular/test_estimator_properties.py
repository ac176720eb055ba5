"""Estimators on tables of every size and scale, degenerate ones too: finite predictions, or one line that says why."""

import warnings

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dsvnp import NPClassifier, NPRegressor

QUICK = {"n_replicas": 1, "max_steps": 2, "width": 4, "n_draws": 2, "random_state": 0, "device": "cpu"}
SOME = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.generate],  # a fit takes too long to look for the smallest table that fails
)
exponents = st.integers(-30, 30)


@st.composite
def tables(draw):
    """Inputs with columns of several scales, of which some are constant, copied, or missing here and there."""
    rows, columns = draw(st.integers(0, 14)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 9)))
    scales = [10.0 ** draw(exponents) for _ in range(columns)]
    X = rng.normal(size=(rows, columns)) * scales
    if draw(st.booleans()):
        X[:, 0] = draw(st.sampled_from([0.0, 1.0, -1e30, 1e-30]))
    if columns > 1 and draw(st.booleans()):
        X[:, 1] = X[:, 0]
    if draw(st.booleans()):
        X[::3, -1] = np.nan
    return X


def outcome(estimator, X, y):
    """The fitted estimator, or None where a table is refused in one line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few rows are no good
        try:
            return estimator.fit(X, y)
        except ValueError as error:
            reason = str(error)
    assert "\n" not in reason
    return None


@SOME
@given(tables(), exponents, st.integers(1, 2), st.booleans(), st.sampled_from(["cnp", "dsvnp", "auto"]))
def test_numbers_are_predicted_finite_or_refused(X, exponent, outputs, constant, model):
    rng = np.random.default_rng(0)
    y = rng.normal(size=(len(X), outputs)) * 10.0**exponent
    y = np.full_like(y, 10.0**exponent) if constant else y
    how = (
        {"effort": "fast", "random_state": 0, "device": "cpu"}
        if model == "auto"
        else {"model": model, **QUICK}
    )
    fitted = outcome(NPRegressor(**how), X, y[:, 0] if outputs == 1 else y)
    assert fitted is not None or len(X) < 6
    if fitted is not None:
        mean, std = fitted.predict(X, return_std=True)
        assert mean.shape == std.shape == ((len(X),) if outputs == 1 else (len(X), outputs))
        assert np.isfinite(mean).all()
        assert (std >= 0).all()
        assert np.isfinite(fitted.predict_quantiles(X)).all()
        if len(X):
            np.testing.assert_allclose(fitted.predict(X[:1]), mean[:1], rtol=1e-9, atol=0)


@SOME
@given(tables(), st.integers(1, 4), st.sampled_from(["cnp", "dsvnp", "auto"]))
def test_classes_have_probabilities_or_are_refused(X, classes, model):
    y = np.array(["a", "b", "c", "d"])[np.arange(len(X)) % classes]
    how = (
        {"effort": "fast", "random_state": 0, "device": "cpu"}
        if model == "auto"
        else {"model": model, **QUICK}
    )
    fitted = outcome(NPClassifier(**how), X, y)
    assert fitted is not None or len(X) < 6 or classes == 1
    if fitted is not None:
        probability = fitted.predict_proba(X)
        assert probability.shape == (len(X), len(set(y)))
        assert (probability >= 0).all()
        np.testing.assert_allclose(probability.sum(1), 1, rtol=1e-6)
        assert set(fitted.predict(X)) <= set(y)
