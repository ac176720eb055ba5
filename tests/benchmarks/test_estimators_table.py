"""The tables of the estimators' benchmark, against differences computed by hand."""

from __future__ import annotations

import math

import pytest

from benchmarks import estimators_table as made


def rows(estimator: str, losses: list[float]) -> list[dict]:
    line = {"dataset": "iris", "estimator": estimator, "repeat": 0, "accuracy": 0.9, "seconds": 1.0}
    return [{**line, "fold": fold, "nll": loss} for fold, loss in enumerate(losses)]


def test_the_difference_is_paired_and_taken_from_the_better_rival():
    found = (
        rows("NPClassifier", [0.1, 0.3]) + rows("logistic", [0.2, 0.5]) + rows("HistGradientBoosting", [9.0])
    )
    gap, error, count = made.paired(
        *(made.column(found, "iris", name, "nll") for name in ("NPClassifier", "logistic"))
    )
    assert (gap, error, count) == (pytest.approx(-0.15), pytest.approx(math.sqrt(0.005 / 2)), 2)
    line = made.table(found, "classification", "nll", 0.0)[-1]
    assert line == "| iris | 0.2000 | 0.3500 | 9.0000 | -0.1500 ± 0.0500, 2 folds, better |"


@pytest.mark.parametrize(("ours", "word"), [([0.3, 0.4], "worse"), ([0.1, 0.4], "level")])
def test_level_is_within_one_error(ours, word):
    found = rows("NPClassifier", ours) + rows("logistic", [0.2, 0.29])
    assert made.table(found, "classification", "nll", 0.0)[-1].endswith(f"{word} |")
