"""The estimators in the benchmark of tables: the default, and parts of it."""

import budgets
import numpy as np
import ours
import pytest
from registry import MODELS

from dsvnp.tabular.panel import choosing

ROWS = 60


@pytest.mark.parametrize("kind", ["regression", "classification"])
@pytest.mark.parametrize(
    ("name", "network", "others"), [("np-no-network", False, True), ("np-network", True, False)]
)
def test_a_part_of_the_default_seats_none_of_the_rest(kind, name, network, others):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 3))
    y = x[:, 0] + 0.1 * rng.normal(size=ROWS)
    y = y if kind == "regression" else (y > 0).astype(int)
    found = MODELS[kind, name].fit(x[10:], y[10:], x[:10], np.zeros(3, dtype=bool), seed=0)
    how = found.notes["how"]
    assert any(view in how for view in ("columns", "components")) == network
    assert any(view in how for view in ("linear", "gaussian", "discriminant")) == others
    assert "residuals" not in how


def test_a_classifier_says_how_it_predicts_and_gives_probabilities():
    x = np.random.default_rng(0).normal(size=(ROWS, 2))
    found = ours.classifier({"effort": "fast"})(
        x, (x[:, 0] > 0).astype(int), x[:5], np.array([False, False]), 0
    )
    assert "without training" in found.notes["how"]
    np.testing.assert_allclose(found.sum(1), 1)


def test_a_budget_holds_for_its_model_alone():
    before = choosing.BUDGETS, choosing.reading_of, choosing.COMPARED_ROWS
    seen = {}

    def make(x, y):
        seen.update(
            reading=choosing.reading_of(5000, 5, 1024, choosing.BUDGETS["balanced"]),
            compared=choosing.COMPARED_ROWS,
        )

    budgets.large(make, 2, 256, 128, 160)([], [])
    assert seen == {"reading": (256, 2, 2), "compared": 128}
    assert before == (choosing.BUDGETS, choosing.reading_of, choosing.COMPARED_ROWS)


def test_few_rows_are_left_with_all_classes():
    y, read = np.array([0] * 300 + [1, 2]), []
    budgets.few(lambda x, y, *rest: read.append(y), 5)(np.zeros((302, 1)), y, [], [], 0)
    assert len(read[0]) == budgets.FEW
    assert set(read[0]) == {0, 1, 2}
