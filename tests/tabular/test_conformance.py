"""scikit-learn's own conformance suite over both estimators, with the pretrained default."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from dsvnp import NPClassifier, NPRegressor

SETTINGS = {"effort": "fast", "random_state": 0}


@parametrize_with_checks([NPRegressor(**SETTINGS), NPClassifier(**SETTINGS)])
def test_scikit_learn_agrees(estimator, check):
    check(estimator)
