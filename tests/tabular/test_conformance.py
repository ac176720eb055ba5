"""scikit-learn's own conformance suite: the pretrained default of both estimators, and a trained regressor."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from dsvnp import NPClassifier, NPRegressor

PRETRAINED = {"effort": "fast", "random_state": 0}
TRAINED = {"n_replicas": 1, "max_steps": 40, "width": 32, "n_draws": 2, "random_state": 0}


@parametrize_with_checks(
    [
        NPRegressor(**PRETRAINED),
        NPClassifier(**PRETRAINED),
        NPRegressor("dsvnp", **TRAINED),
    ]
)
def test_scikit_learn_agrees(estimator, check):
    check(estimator)
