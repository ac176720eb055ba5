"""NPClassifier: labels of any kind, probabilities that add up."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from fitted import QUICK, classifier, labels
from scipy.stats import entropy
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    balanced_accuracy_score,
    log_loss,
    precision_recall_fscore_support,
    roc_auc_score,
)
from sklearn.model_selection import cross_val_score

from dsvnp import MODELS, NPClassifier
from dsvnp.tabular.rows.remoteness import remoteness


def test_it_tells_clusters_apart_by_name():
    X, y = labels(seed=1)
    fitted = classifier()
    assert fitted.classes_.tolist() == ["ash", "elm", "oak"]
    assert fitted.score(X, y) > 0.95
    assert set(fitted.sample_y(X, 3).flatten()) == {"ash", "elm", "oak"}


def test_probabilities_and_their_parts_add_up():
    X, y = labels(rows=20, seed=1)
    fitted = classifier()
    probs = fitted.predict_proba(X)
    np.testing.assert_allclose(probs.sum(1), 1)
    np.testing.assert_array_equal(fitted.predict(X), fitted.classes_[probs.argmax(1)])
    np.testing.assert_allclose(fitted.predict_log_proba(X), np.log(probs), rtol=1e-6)
    picked = probs[np.arange(20), np.searchsorted(fitted.classes_, y)]
    np.testing.assert_allclose(fitted.log_prob(X, y), np.log(picked), rtol=1e-6)
    aleatoric, epistemic = fitted.uncertainty(X)
    np.testing.assert_allclose(aleatoric + epistemic, entropy(probs, axis=1), atol=1e-9)
    inputs = fitted.ensemble_.replicas[0].inputs
    x, known = (inputs.scaled(rows) for rows in (torch.from_numpy(X), fitted.context_[0]))
    expected = entropy(probs, axis=1) + remoteness(x, known).numpy()
    np.testing.assert_allclose(fitted.ood_score(X), expected, atol=1e-9)
    for shift in (20.0, 500.0):  # however sure it is of a class there
        assert fitted.ood_score(X + shift).min() > np.median(fitted.ood_score(X))


def test_a_row_is_answered_alike_in_any_company():
    X, _ = labels(rows=20, seed=1)
    together = classifier().predict_proba(X)
    np.testing.assert_allclose(classifier().predict_proba(X[3:4])[0], together[3], rtol=1e-12)


def test_drawn_labels_follow_the_probabilities():
    between = np.zeros((1, 2))
    fitted = classifier()
    shares = [(fitted.sample_y(between, 1500) == label).mean() for label in fitted.classes_]
    np.testing.assert_allclose(shares, fitted.predict_proba(between)[0], atol=0.08)


@pytest.mark.parametrize("missing", [None, np.nan])
def test_rows_without_a_label_do_not_count(missing):
    X, y = labels(rows=40)
    holes = y.astype(object)
    holes[:7] = missing
    quick = {**QUICK, "max_steps": 5}
    fitted = NPClassifier(**quick).fit(X, holes)
    assert fitted.classes_.tolist() == ["ash", "elm", "oak"]
    expected = NPClassifier(**quick).fit(X[7:], y[7:]).predict_proba(X)
    np.testing.assert_allclose(fitted.predict_proba(X), expected)
    assert np.isnan(fitted.log_prob(X, holes)[:7]).all()
    assert fitted.score(X, holes) == fitted.score(X[7:], y[7:])


@pytest.mark.parametrize(
    "y",
    [
        pd.Series(["ash", pd.NA, "elm"] * 14, dtype="string"),
        pd.Series([True, pd.NA, False] * 14, dtype="boolean"),
        pd.Series([1, pd.NA, 3] * 14, dtype="Int64"),
        pl.Series([True, None, False] * 14),
        pl.Series(["ash", None, "elm"] * 14),
        np.array([1, None, 3] * 14, dtype=object),
    ],
    ids=lambda y: f"{type(y).__module__.partition('.')[0]} {y.dtype}",
)
def test_a_missing_label_of_any_kind_does_not_count(y):
    X, there = labels(rows=42)[0], np.arange(42) % 3 != 1
    fitted = NPClassifier(**{**QUICK, "max_steps": 5}).fit(X, y)
    known = np.asarray(y)[there].tolist()
    assert fitted.classes_.tolist() == sorted(set(known))
    assert fitted.score(X, y) == fitted.score(X[there], known)
    assert np.isnan(np.asarray(fitted.log_prob(X, y))).tolist() == (~there).tolist()


@pytest.mark.parametrize("values", [[0, 1, 5], [0.0, 1.0, 2.0], [True, False]])
def test_labels_keep_their_type(values):
    X, y = labels(rows=40)
    y = np.array(values)[np.unique(y, return_inverse=True)[1] % len(values)]
    fitted = NPClassifier(**{**QUICK, "max_steps": 5}).fit(X, y)
    assert fitted.predict(X).dtype == y.dtype
    assert set(fitted.predict(X)) <= set(values)


@pytest.mark.parametrize("kind", [pd, pl])
def test_frames_in_frames_out(kind):
    X, y = labels(rows=40)
    frame, series = kind.DataFrame({"a": X[:, 0], "b": X[:, 1]}), kind.Series(y.tolist())
    fitted = NPClassifier(**{**QUICK, "max_steps": 5}).fit(frame, series)
    assert isinstance(fitted.predict(frame), kind.Series)
    assert list(fitted.predict_proba(frame).columns) == ["ash", "elm", "oak"]
    assert isinstance(fitted.uncertainty(frame).epistemic, kind.Series)


def test_arrays_out_whatever_went_in_for_tools_that_want_them():
    X, y = labels(rows=40)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    own = NPClassifier(**{**QUICK, "max_steps": 5}, output="array")
    fitted = clone(own).fit(frame, y)
    answers = [fitted.predict(frame), fitted.predict_proba(frame), *fitted.uncertainty(frame)]
    assert all(type(values) is np.ndarray for values in [*answers, fitted.ood_score(frame)])
    scores = cross_val_score(own, frame, y == "ash", cv=2, scoring="roc_auc", error_score="raise")
    assert np.isfinite(scores).all()
    with pytest.raises(ValueError, match=r"unknown output 'arrays'\. Did you mean 'array'"):
        NPClassifier(output="arrays").fit(X, y)


def test_many_small_tables_keep_the_name_of_their_labels():
    X, y = labels(rows=40)
    tasks = [(X[:20], pd.Series(y[:20], name="kind")), (X[20:], pd.Series(y[20:], name="kind"))]
    fitted = NPClassifier(**{**QUICK, "model": "cnp", "max_steps": 3}).fit_tasks(tasks)
    assert fitted.target_names_ == ("kind",)


def test_many_small_tables_with_labels_of_their_own():
    X, y = labels(rows=60)
    tasks = [(X[i : i + 10], y[i : i + 10]) for i in range(0, 60, 10)]
    tasks[0] = (tasks[0][0], np.array(["ash"] * 10))  # a table may lack a class
    fitted = NPClassifier(**{**QUICK, "model": "cnp", "max_steps": 30}).fit_tasks(tasks)
    assert fitted.classes_.tolist() == ["ash", "elm", "oak"]
    assert fitted.predict_proba(X, context=(X[:5], y[:5])).shape == (60, 3)


def test_the_measures_of_classes_are_scikit_learns():
    X, y = labels(rows=80, seed=3)
    X = X + 2 * np.random.default_rng(0).normal(size=X.shape)  # not too easy
    fitted = classifier()
    found, probs = fitted.evaluate(X, y), fitted.predict_proba(X)
    ours = found.summary["neural process"]
    guess = fitted.predict(X)
    assert ours["auc"] == pytest.approx(roc_auc_score(y, probs, multi_class="ovr"))
    assert ours["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(y, guess))
    assert ours["nll"] == pytest.approx(log_loss(y, probs))
    precision, recall, _, support = precision_recall_fscore_support(y, guess)
    for row, *expected in zip(found.classes[1:], support, precision, recall, strict=True):
        np.testing.assert_allclose([float(row[1]), float(row[3]), float(row[4])], expected, rtol=1e-3)


def test_it_starts_from_logistic_regression():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4))
    y = rng.random(150) < 1 / (1 + np.exp(-2 * X[:, 0] + X[:, 1]))
    fitted = NPClassifier(**{**QUICK, "model": "cnp", "max_steps": 3}).fit(
        X[:100], y[:100]
    )  # the network knows nothing yet
    assert float(fitted.ensemble_.replicas[0].outputs.trust) == 1
    plain = LogisticRegression().fit(X[:100], y[:100]).predict_proba(X[100:])
    assert np.abs(fitted.predict_proba(X[100:]) - plain).max() < 0.15
    assert "logistic regression" in fitted.validation_


def test_a_class_that_a_fold_lacks_does_not_hurt():
    X, y = labels(rows=41)
    y = np.array(y, dtype=object)
    y[:] = np.where(np.arange(41) % 2, "ash", "elm")
    y[0] = "rare"
    fitted = NPClassifier(**{**QUICK, "max_steps": 3}).fit(X, y)
    assert np.isfinite(fitted.predict_proba(X)).all()


def test_cross_validation_and_clone():
    X, y = labels(rows=60)
    assert cross_val_score(clone(classifier()).set_params(max_steps=30), X, y, cv=3).mean() > 0.8


@pytest.mark.parametrize("model", MODELS)
def test_every_model_fits_and_predicts(model):
    X, y = labels(rows=40)
    fitted = NPClassifier(**{**QUICK, "model": model, "max_steps": 3}).fit(X, y)
    assert np.isfinite(fitted.predict_proba(X)).all()
    assert fitted.sample_y(X[:3], 3).shape == (3, 3)


def test_bad_labels_are_named():
    X, y = labels(rows=20)
    for rows in (1, 19):
        with pytest.raises(ValueError, match=f"y has {rows} rows but X has 20"):
            classifier().log_prob(X, y[:rows])
    with pytest.raises(ValueError, match="y has 21 rows but X has 20"):
        classifier().score(X, [*y, None])
    with pytest.raises(NotFittedError):
        NPClassifier().log_prob(X, y)
    with pytest.raises(ValueError, match="got 1 class in 20 rows"):
        NPClassifier(**QUICK).fit(X, ["ash"] * 20)
    with pytest.raises(ValueError, match=r"'fir'.* was not there in training; known: ash, elm, oak"):
        classifier().log_prob(X[:1], ["fir"])
    with pytest.raises(ValueError, match="infinity"):
        NPClassifier(**QUICK).fit(X, np.where(np.arange(20) < 3, np.inf, 1.0))
