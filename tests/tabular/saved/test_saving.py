"""Folders that can be read years later, without pickle."""

import json

import numpy as np
import pandas as pd
import pytest
from fitted import QUICK, classifier, labels, offset_sines, regressor, sines, table

from dsvnp import NPClassifier, NPRegressor
from dsvnp.tabular.saved.content import VERSION


@pytest.mark.parametrize("outputs", [1, 2])
def test_a_regressor_comes_back_as_it_was(tmp_path, outputs):
    X, Y = table(rows=30)
    Y = Y if outputs == 2 else Y[:, 0]
    fitted = regressor(outputs)
    fitted.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "estimator.json",
        "tensors.safetensors",
    ]
    again = NPRegressor.load(tmp_path / "model", device="cpu")
    assert again.get_params() == fitted.get_params()
    for ask in ("predict", "predict_quantiles", "ood_score", "sample_y"):
        np.testing.assert_array_equal(getattr(again, ask)(X), getattr(fitted, ask)(X))
    np.testing.assert_array_equal(again.log_prob(X, Y), fitted.log_prob(X, Y))
    assert again.validation_ == fitted.validation_
    np.testing.assert_array_equal(again.ensemble_.calibration, fitted.ensemble_.calibration)
    again.condition(X, Y).predict(X)


@pytest.mark.parametrize("names", [["ash", "elm"], [3, 5], [0.0, 1.0], [False, True]])
def test_a_classifier_comes_back_with_its_labels(tmp_path, names):
    X, y = labels(rows=40)
    y = np.array(names)[(y == "oak").astype(int)]
    fitted = NPClassifier(**{**QUICK, "max_steps": 3}).fit(X, y)
    fitted.save(tmp_path / "model")
    again = NPClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.classes_.dtype == fitted.classes_.dtype
    assert again.predict(X).tolist() == fitted.predict(X).tolist()


def test_columns_of_categories_and_tasks_come_back(tmp_path):
    X, Y = table(rows=40)
    frame = pd.DataFrame({"a": X[:, 0], "town": ["Ely", "Bath"] * 20})
    fitted = NPRegressor(**{**QUICK, "max_steps": 3}).fit(frame, pd.Series(Y[:, 0], name="flow"))
    again = NPRegressor.load(fitted.save(tmp_path / "model"))
    pd.testing.assert_series_equal(again.predict(frame), fitted.predict(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(frame[["town", "a"]])
    tasks = sines(6)
    learned = NPRegressor(**{**QUICK, "model": "np", "max_steps": 3}).fit_tasks(tasks)
    back = NPRegressor.load(learned.save(tmp_path / "tasks"))
    with pytest.warns(UserWarning, match="there is no context"):
        np.testing.assert_array_equal(back.predict(tasks[0][0]), learned.predict(tasks[0][0]))


def test_units_of_contexts_come_back(tmp_path):
    tasks = offset_sines(12)
    fitted = NPRegressor(**{**QUICK, "model": "cnp"}).fit_tasks(tasks)
    assert fitted.recipe_.own_units
    again = NPRegressor.load(fitted.save(tmp_path / "model"))
    answers = [each.predict(tasks[0][0], context=tasks[1]) for each in (fitted, again)]
    np.testing.assert_array_equal(*answers)


def test_a_generator_as_random_state_is_not_kept(tmp_path):
    X, Y = table(rows=30)
    settings = {**QUICK, "max_steps": 2, "random_state": np.random.RandomState(0)}
    fitted = NPRegressor(**settings).fit(X, Y)
    again = NPRegressor.load(fitted.save(tmp_path / "model"))
    assert again.random_state is None
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_an_estimator_is_replaced_but_nothing_else_is(tmp_path):
    regressor(1).save(tmp_path / "model")
    classifier().save(tmp_path / "model")
    assert isinstance(NPClassifier.load(tmp_path / "model"), NPClassifier)
    (tmp_path / "model" / "notes.txt").write_text("important")
    (tmp_path / "model" / "calibration.png").write_text("of the model before")
    regressor(1).save(tmp_path / "model")
    assert not (tmp_path / "model" / "calibration.png").exists()
    assert (tmp_path / "model" / "notes.txt").read_text() == "important"
    assert isinstance(NPRegressor.load(tmp_path / "model"), NPRegressor)
    (tmp_path / "holiday").mkdir()
    (tmp_path / "holiday" / "photo.jpg").write_text("")
    with pytest.raises(FileExistsError, match="holds no estimator"):
        classifier().save(tmp_path / "holiday")
    assert [path.name for path in (tmp_path / "holiday").iterdir()] == ["photo.jpg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["holiday", "model"]  # nothing half-written


def test_what_cannot_be_used_is_refused_with_a_reason(tmp_path):
    path = regressor(1).save(tmp_path / "model")
    record = json.loads((path / "estimator.json").read_text())
    with pytest.raises(ValueError, match="holds a NPRegressor, not a NPClassifier"):
        NPClassifier.load(path)
    with pytest.raises(ValueError, match="holds no estimator"):
        NPRegressor.load(tmp_path)
    (path / "estimator.json").write_text(json.dumps({**record, "version": VERSION + 1, "dsvnp": "9.0"}))
    with pytest.raises(
        ValueError,
        match=rf"written by dsvnp 9\.0 in format {VERSION + 1}.*reads format {VERSION}: install that version",
    ):
        NPRegressor.load(path)
    (path / "estimator.json").write_text(json.dumps({**record, "format": "other"}))
    with pytest.raises(ValueError, match="is no estimator's"):
        NPRegressor.load(path)
    (path / "estimator.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        NPRegressor.load(path)
    (path / "estimator.json").write_text(json.dumps(record))
    (path / "tensors.safetensors").write_bytes(b"no")
    with pytest.raises(ValueError, match=r"tensors.safetensors cannot be read: .* checksum"):
        NPRegressor.load(path)
