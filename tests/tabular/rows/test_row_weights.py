"""Weights of rows and classes: a row of weight w counts as w rows, one of weight 0 as none."""

from __future__ import annotations

import numpy as np
import pytest

from dsvnp import NPClassifier, NPRegressor
from dsvnp.tabular.rows.folds import BY_CHANCE, parts_of_table
from dsvnp.tabular.rows.weights import Weights

TRAINED = {"model": "cnp", "n_replicas": 1, "max_steps": 20, "width": 16}


def test_rows_come_as_often_as_their_weights_say():
    rows = np.array([4, 0, 2])
    weights = Weights(np.array([1.0, 9.0, 2.0, 9.0, 1.0]))
    whole = Weights(np.array([1.0, 1.0, 2.0, 1.0, 1.0]))
    np.testing.assert_array_equal(
        whole.repeated(rows, 0), [4, 0, 2, 2]
    )  # 3 rows × 1.2, and 2 is twice as heavy
    found = np.stack([np.bincount(weights.repeated(rows, seed), minlength=5) for seed in range(2000)])
    assert set(found.sum(1)) == {6}  # twice the rows at most
    np.testing.assert_allclose(found.mean(0), [1.5, 0, 3, 0, 1.5], atol=0.05)
    assert Weights().repeated(rows, 0) is rows


@pytest.mark.parametrize("settings", [{}, TRAINED], ids=["pretrained", "trained"])
@pytest.mark.parametrize("kind", [NPRegressor, NPClassifier])
def test_a_weight_of_zero_is_a_row_that_is_not_there(kind, settings, recwarn):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    y = y if kind is NPRegressor else (y > 0).astype(int)
    X[:5], groups, keep = 1e3, np.arange(60) % 12, np.arange(60) >= 5
    made = kind(random_state=0, effort="fast", **settings)
    weighted = made.fit(X, y, groups=groups, sample_weight=keep.astype(float)).predict_dist(X[keep]).mean
    removed = made.fit(X[keep], y[keep], groups=groups[keep]).predict_dist(X[keep]).mean
    np.testing.assert_array_equal(weighted, removed)


def test_copies_of_a_held_out_row_are_not_learned_from():
    import torch

    x = torch.arange(20.0, dtype=torch.float64)[:, None]
    weights = Weights(np.linspace(1, 3, 20))
    for part in parts_of_table(x, x, 3, 0, BY_CHANCE, weights):
        learned, asked = set(part.tables[0][0][:, 0].tolist()), set(part.questions[0].x[:, 0].tolist())
        assert not learned & asked
        assert len(part.tables[0][0]) > len(learned)


@pytest.mark.parametrize("settings", [{}, TRAINED | {"max_steps": 100}], ids=["pretrained", "trained"])
def test_weights_move_a_mean(settings, recwarn):
    """Half of the rows are 0 and half are 1, wherever x is: the mean is the share of weight of the ones."""
    X = np.random.default_rng(0).normal(size=(120, 1))
    y = np.arange(120) % 2.0
    made = NPRegressor(random_state=0, effort="fast", **settings).fit(X, y, sample_weight=1 + 2 * y)
    assert made.predict(X).mean() == pytest.approx(0.75, abs=0.06)
    assert made.validation_["mean predictor"]["mse"] == pytest.approx(0.75 * 0.25, abs=0.02)


def test_class_weights_move_probabilities():
    """Odds are multiplied by the ratio of the weights: that is what minimises a weighted log-loss."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    y = np.where(rng.random(400) < 0.2, "rare", "usual")
    plain, balanced = (
        NPClassifier(random_state=0, effort="fast", class_weight=weight)
        .fit(X, y)
        .predict_proba(X)[:, 0]
        .mean()
        for weight in (None, "balanced")
    )
    assert plain == pytest.approx((y == "rare").mean(), abs=0.05)
    assert balanced == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("weight", ["balanced", {np.int64(3): 2.0, np.int64(5): np.float64(1.0)}])
def test_class_weights_are_saved_with_their_labels(weight, tmp_path):
    X, y = np.arange(30.0)[:, None], np.where(np.arange(30) < 12, 3, 5)
    made = NPClassifier(random_state=0, effort="fast", class_weight=weight).fit(X, y)
    made.save(tmp_path / "m")
    assert NPClassifier.load(tmp_path / "m").class_weight == weight


def test_weights_that_cannot_be_are_refused():
    X, y = np.arange(12.0)[:, None], np.arange(12) % 2
    with pytest.raises(ValueError, match="at least one non-zero"):
        NPRegressor().fit(X, y, sample_weight=np.zeros(12))
    with pytest.raises(ValueError, match="Negative values"):
        NPRegressor().fit(X, y, sample_weight=-np.ones(12))
    with pytest.raises(ValueError, match="class_weight must be positive"):
        NPClassifier(class_weight={0: 0.0, 1: 1.0}).fit(X, y)
    with pytest.raises(ValueError, match="groups has 3 rows but X has 12"):
        NPRegressor().fit(X, y, groups=[1, 2, 3], sample_weight=y)
