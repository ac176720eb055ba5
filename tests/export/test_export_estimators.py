"""Fitted estimators as files: onnxruntime answers as `predict_dist` does, gaps and context included."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from fitted import QUICK, classifier, labels, offset_sines, sines, table
from runtime import NEAR, answer, same, session_of

from dsvnp import NPClassifier, NPRegressor
from dsvnp.export import graph_of
from dsvnp.export.filling import FillingModule
from dsvnp.tabular.columns import Columns
from dsvnp.tabular.rows.encoding import Filling

pytestmark = pytest.mark.filterwarnings("ignore:(rows|tables) that were held out:UserWarning")


def test_a_regressor_with_gaps_and_categories(tmp_path):
    X, Y = table(80)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=np.where(X[:, 0] > 0, "up", "down"))
    frame.loc[::7, "b"] = np.nan
    estimator = NPRegressor(**QUICK).fit(frame, Y)
    session = session_of(estimator.to_onnx(tmp_path / "model.onnx"))
    numbers = estimator.encoding_.transform  # what a user of the file does to a table
    rows = frame.iloc[5:30]
    got = answer(session, {"X": torch.from_numpy(numbers(Columns.of(rows)))})
    wanted = estimator.predict_dist(rows).predictive
    same({name: value[None] for name, value in got.items()}, wanted)
    # Another context, as `context=` has it.
    other = frame.iloc[40:60], Y[40:60]
    context = {
        "X_context": torch.from_numpy(numbers(Columns.of(other[0]))),
        "y_context": torch.from_numpy(other[1]),
    }
    got = answer(session, {"X": torch.from_numpy(numbers(Columns.of(rows))), **context})
    same({name: value[None] for name, value in got.items()}, estimator.predict_dist(rows, other).predictive)


def test_a_classifier(tmp_path):
    estimator, (X, _) = classifier(), labels()
    session = session_of(estimator.to_onnx(tmp_path / "model.onnx"))
    got = answer(session, {"X": torch.from_numpy(X[:20])})
    np.testing.assert_allclose(got["probabilities"], estimator.predict_proba(X[:20]), atol=1e-5)
    facts = session.get_modelmeta().custom_metadata_map["dsvnp"]
    assert '"classes": ["ash", "elm", "oak"]' in facts


@pytest.mark.parametrize("tasks", [sines, offset_sines], ids=["common", "own units"])
def test_an_estimator_of_tasks_needs_a_context(tasks):
    """The module that is traced, without a file."""
    estimator = NPRegressor(**QUICK | {"model": "cnp"}).fit_tasks(tasks())
    assert estimator.recipe_.own_units is (tasks is offset_sines)
    graph = graph_of(estimator)
    assert set(graph.axes) - set(graph.defaults) == {"X", "X_context", "y_context"}
    (X, y), (other, _) = tasks(2, seed=5)
    for rows in (5, 0):
        inputs = {"X": other, "X_context": X[:rows], "y_context": y[:rows, None]}
        got = graph.module({name: torch.from_numpy(value) for name, value in inputs.items()})
        assert all(value.isfinite().all() for value in got.values())
        if rows:
            mean, std = estimator.predict(other, return_std=True, context=(X[:rows], y[:rows]))
            assert np.max(np.abs(got["mean"][:, 0].numpy() - mean) / std) < NEAR


def test_gaps_are_filled_as_by_the_estimator():
    X = np.array([[1.0, np.nan, np.nan], [2.0, np.nan, 5.0], [4.0, np.nan, 7.0]])
    with pytest.warns(UserWarning, match="is empty"):
        filling = Filling.fit(X, "abc")
    new = np.array([[np.nan, 3.0, np.nan], [5.0, np.nan, 1.0]])
    with pytest.warns(UserWarning, match="'a' has missing values"):
        expected = filling.transform(new, "abc")
    np.testing.assert_array_equal(FillingModule(filling)(torch.from_numpy(new)), expected)


def test_a_file_of_an_estimator_in_own_units_takes_an_empty_context(tmp_path):
    estimator = NPRegressor(**QUICK | {"model": "cnp", "max_steps": 2}).fit_tasks(offset_sines())
    session = session_of(estimator.to_onnx(tmp_path / "model.onnx"))
    (X, y), (other, _) = offset_sines(2, seed=5)
    for rows in (0, 1, 5):
        inputs = {"X": other, "X_context": X[:rows], "y_context": y[:rows, None]}
        got = answer(session, {name: torch.from_numpy(value) for name, value in inputs.items()})
        assert got["mean"].isfinite().all()
        if rows:
            mean, std = estimator.predict(other, return_std=True, context=(X[:rows], y[:rows]))
            assert np.max(np.abs(got["mean"][:, 0].numpy() - mean) / std) < NEAR


@pytest.mark.parametrize("effort", ["fast", "balanced"])
def test_estimators_that_train_nothing(effort):
    """The module that is traced, without a file: the pretrained network takes long to translate."""
    X, Y = table(60)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=np.where(X[:, 0] > 0, "up", "down"))
    frame.loc[::7, "b"] = np.nan
    estimator = NPRegressor(effort=effort, random_state=0).fit(frame, Y)
    graph, rows = graph_of(estimator), frame.iloc[5:30]
    assert list(graph.axes) == ["X"]
    got = graph.module({"X": torch.from_numpy(estimator.encoding_.transform(Columns.of(rows)))})
    wanted = estimator.predict_dist(rows).predictive
    sigma = wanted.stddev[0]
    for name, value in (("mean", wanted.mean), ("std", wanted.stddev)):
        assert (got[name] - value[0]).abs().div(sigma).max() < NEAR
    torch.testing.assert_close((got["weights"] * got["means"]).sum(1), got["mean"])
    points, names = labels(60)
    classes = NPClassifier(effort=effort, random_state=0).fit(points, names)
    got = graph_of(classes).module({"X": torch.from_numpy(points[:9])})
    np.testing.assert_allclose(got["probabilities"], classes.predict_proba(points[:9]), atol=1e-5)
    crowd = replace(classes.ensemble_, leaves=4, most_rows=20)
    classes.ensemble_ = crowd
    with pytest.raises(ValueError, match="at most 20 rows, got 60, which the fit cut into 4 boxes"):
        graph_of(classes)
