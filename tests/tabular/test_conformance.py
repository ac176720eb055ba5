"""scikit-learn's own conformance suite over both estimators, with the default model and few steps."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from dsvnp import NPClassifier, NPRegressor

SETTINGS = {"n_replicas": 1, "max_steps": 8, "width": 16, "n_draws": 2, "random_state": 0}


@parametrize_with_checks([NPRegressor(**SETTINGS), NPClassifier(**SETTINGS)])
def test_scikit_learn_agrees(estimator, check):
    check(estimator)
