"""Other budgets of the default, as models: what sizes in `dsvnp.tabular.panel.choosing` were chosen by.

    python benchmarks/tables/run.py --kind regression --models boxes-4-512-256-300,boxes-2-512-256-160 \\
        --tables MASS/nlschools --adapters benchmarks/tables/budgets.py --out FILE.jsonl

`boxes-B-N-C-H`: a table with more rows than the network reads is cut into B boxes; N rows near a box are the context of
an answer, C of a comparison of views, by H held-out rows. `folds-F`: classes with at most F folds, from 100 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import ours
from registry import register

from dsvnp.tabular.panel import choosing

LARGE = [
    (4, 512, 512, 300),
    (4, 512, 256, 300),
    (4, 512, 128, 300),
    (4, 256, 256, 300),
    (2, 512, 512, 300),
    (2, 512, 256, 160),
    (2, 256, 256, 160),
]
FOLDS = (8, 6, 5)
FEW = 100  # rows that are left of a table
MAKE: dict[str, Callable[..., Callable[..., Any]]] = {
    "regression": ours.regressor,
    "classification": ours.classifier,
}
READING_OF, BUDGETS = choosing.reading_of, choosing.BUDGETS


def large(make: Callable[..., Any], boxes: int, near: int, compared: int, held: int) -> Callable[..., Any]:
    """The default with other sizes for large tables."""

    def reading_of(rows: int, width: int, most: int, budget: choosing.Budget) -> tuple[int, int, int]:
        return (near, 2, boxes) if rows > most else READING_OF(rows, width, most, budget)

    changes = {"reading_of": reading_of, "COMPARED_ROWS": compared, "ENOUGH_HELD_OUT": held}
    return changed(make, changes)


def few(make: Callable[..., Any], folds: int) -> Callable[..., Any]:
    """The default with so many folds of classes, from 100 rows of which one at least is of each class."""
    budgets = {**BUDGETS, "balanced": replace(BUDGETS["balanced"], label_folds=folds)}
    fit = changed(make, {"BUDGETS": budgets})

    def on_few(x: Any, y: Any, x_test: Any, categorical: Any, seed: int) -> Any:
        order = np.random.default_rng(seed).permutation(len(y))
        one_each = np.unique(y[order], return_index=True)[1]
        some = order[np.concatenate([one_each, np.setdiff1d(np.arange(len(y)), one_each)])[:FEW]]
        return fit(x[some], y[some], x_test, categorical, seed)

    return on_few


def changed(make: Callable[..., Any], changes: dict[str, Any]) -> Callable[..., Any]:
    """A model that is made while names in `choosing` have other values."""

    def fit(*args: Any, **settings: Any) -> Any:
        before = {name: getattr(choosing, name) for name in changes}
        vars(choosing).update(changes)
        try:
            return make(*args, **settings)
        finally:
            vars(choosing).update(before)

    return fit


for kind, make in MAKE.items():
    for sizes in LARGE:
        name = "-".join(map(str, ("boxes", *sizes)))
        register(name, kind, dict(zip(("boxes", "near", "compared", "held"), sizes, strict=True)))(
            large(make({}), *sizes)
        )
for folds in FOLDS:
    register(f"folds-{folds}", "classification", {"label_folds": folds, "rows": FEW})(
        few(ours.classifier({}), folds)
    )
