"""scikit-learn's own conformance suite over both estimators, with the pretrained default."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from dsvnp import NPClassifier, NPRegressor

SETTINGS = {"effort": "fast", "random_state": 0}
# Weights keep all copies of a row on one side when rows are held out; rows that were repeated by hand are on both. That
# a weight of 0 is a row that is not there, exactly, is tested in `test_weights`.
EXPECTED = {"check_sample_weight_equivalence_on_dense_data": "copies of a row are held out together"}


@parametrize_with_checks(
    [NPRegressor(**SETTINGS), NPClassifier(**SETTINGS)], expected_failed_checks=lambda _: EXPECTED
)
def test_scikit_learn_agrees(estimator, check):
    check(estimator)
