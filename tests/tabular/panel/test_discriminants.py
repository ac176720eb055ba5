"""Normal distributions of classes: what they know, and what they say of classes without rows."""

import numpy as np
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis

from dsvnp.tabular.panel.discriminants import Discriminant


def rows(number, seed=0):
    """Two normal classes with different means and covariances, and their labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=number)
    x = rng.normal(size=(number, 3)) * np.where(y, 1.0, 2.0)[:, None] + y[:, None] * [1.0, 0.5, 0.0]
    return torch.from_numpy(x), torch.from_numpy(y)


def test_covariances_apart_and_alike_are_those_of_known_discriminants():
    (x, y), (new, _) = rows(20_000), rows(200, seed=1)
    alike, apart = (Discriminant.fit(x, y, 2, share) for share in (1e6, 1e-6))
    known = (
        LinearDiscriminantAnalysis().fit(alike.inputs.transform(x), y),
        QuadraticDiscriminantAnalysis().fit(apart.inputs.transform(x), y),
    )
    for ours, theirs in zip((alike, apart), known, strict=True):
        expected = theirs.predict_proba(ours.inputs.transform(new))
        np.testing.assert_allclose(ours(new).softmax(-1), expected, atol=0.03)


def test_a_class_without_rows_is_the_least_likely_and_few_rows_are_enough():
    x, y = rows(40)
    odds = Discriminant.fit(x, 2 * y, 4, 1.0)(x)
    assert odds.isfinite().all()
    assert (odds[:, [1, 3]].amax(1) < odds[:, [0, 2]].amin(1)).all()
    assert Discriminant.fit(x[:2], torch.tensor([0, 1]), 2, 1.0)(x).isfinite().all()
