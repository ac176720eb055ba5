"""The estimators' benchmark in the report."""

import json

import pytest

from dsvnp.files import gzipped
from dsvnp.paper.report.contents import Report, facts_of
from dsvnp.paper.report.markdown import markdown_page
from dsvnp.paper.report.page import html_page
from dsvnp.paper.report.runs import read_folds
from dsvnp.paper.report.tables import tables_of

FOLDS = [
    {
        "dataset": "iris",
        "estimator": "NPClassifier",
        "accuracy": 0.9,
        "nll": 0.3,
        "bins": [[1]],
        "seconds": 2.0,
    },
    {"dataset": "iris", "estimator": "HistGradientBoosting", "accuracy": 0.8, "nll": 0.4, "seconds": 1.0},
    {"dataset": "WQ", "estimator": "NPRegressor", "rmse": 0.9, "nll": 1.2, "recipe": {}, "seconds": 3.0},
    {"dataset": "WQ", "estimator": "NPRegressor", "rmse": 0.7, "nll": 1.0, "recipe": {}, "seconds": 3.0},
    {"dataset": "WQ", "estimator": "MLP", "rmse": 1.0, "seconds": 1.0},
    {"dataset": "diabetes", "estimator": "MLP", "rmse": 0.5, "seconds": 1.0},
]


@pytest.fixture
def report(tmp_path):
    (tmp_path / "estimators").mkdir()
    (tmp_path / "estimators" / "rows.json.gz").write_bytes(gzipped(json.dumps(FOLDS)))
    return Report.find(tmp_path)


def test_folds_are_the_values_of_a_row(report):
    (run,) = report.runs
    (row,) = [row for row in run.rows if (row["model"], row["metric"]) == ("NPRegressor", "rmse")]
    assert row["seeds"] == [0.9, 0.7]
    assert row["mean"] == pytest.approx(0.8)
    assert row["std"] == pytest.approx(0.1 * 2**0.5)
    assert facts_of(run) == ["preset defaults", "folds: 1–2", "CPU", "11 s, units added up"]


def test_regression_and_classification_have_tables_of_their_own(report):
    tables = {table.title: table for table in tables_of(report.runs[0])}
    assert set(tables) == {"Iris", "RMSE, unit variance", "NLL, unit variance"}
    rmse = tables["RMSE, unit variance"]
    assert rmse.columns == ("model", "WQ", "diabetes")
    assert rmse.caption == "Lower is better; 2 folds."
    (name, (first, nothing)), _ = rmse.rows
    assert (name, first.text, first.best, nothing) == ("NPRegressor", "0.80 ± 0.14", False, None)


def test_a_single_file_can_be_read(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text("[]", encoding="utf-8")
    assert read_folds(path).rows == []


def test_without_settings_none_are_listed(report):
    assert "Settings" not in markdown_page(report)
    assert "<dl>" not in html_page(report)
