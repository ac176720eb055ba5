"""What both kinds of estimator share: an answer that says nothing is said to."""

import warnings

import numpy as np
import pytest
from fitted import QUICK, table

from dsvnp import NPRegressor


@pytest.mark.parametrize("model", ["cnp", "nn"])
def test_a_single_answer_has_no_score_of_strangeness(model):
    X, Y = table(rows=40)
    quick = {**QUICK, "max_steps": 3}
    one = NPRegressor(model, **{**quick, "n_replicas": 1}).fit(X, Y)
    with pytest.warns(
        UserWarning, match="ood_score is the same for every row.*use more n_replicas"
    ) as caught:
        assert len(np.unique(one.ood_score(X))) == 1
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(np.unique(NPRegressor(model, **quick).fit(X, Y).ood_score(X))) > 1
