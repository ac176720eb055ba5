"""This package's own estimators as models of the benchmark: the pretrained default, and the trained model.

    python benchmarks/tables/run.py --kind regression --models np --adapters benchmarks/tables/ours.py --out FILE.jsonl

They get the table as a data frame is read: columns with names and gaps, and categories as texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from registry import register

import dsvnp
from dsvnp.tabular.columns import Columns

Floats = NDArray[np.float64]
MODELS: dict[str, dict[str, Any]] = {
    "np": {},
    "np-fast": {"effort": "fast"},
    "np-thorough": {"effort": "thorough"},
    "np-refined": {"refine": True},
    "np-trained": {"model": "dsvnp"},
}


class Fitted:
    """The estimator's own distribution as the benchmark asks for it."""

    def __init__(self, estimator: Any, x: Columns) -> None:
        found = estimator.predict_dist(x)
        self.mean, self.log_prob, self.cdf, self.crps = found.mean, found.log_prob, found.cdf, found.crps
        self.notes: dict[str, Any] = {"how": estimator.how_it_predicts}


def frame(x: Floats, categorical: NDArray[np.bool_]) -> Columns:
    """A table with codes as texts; a missing one is empty."""
    columns = [
        np.array(["" if np.isnan(code) else f"{int(code):03d}" for code in values], dtype=object)
        if is_category
        else values
        for values, is_category in zip(x.T, categorical, strict=True)
    ]
    return Columns(tuple(f"x{index}" for index in range(len(columns))), tuple(columns))


def regressor(settings: dict[str, Any]) -> Callable[..., Fitted]:
    """A model for numbers."""

    def fit(x: Floats, y: Floats, x_test: Floats, categorical: NDArray[np.bool_], seed: int) -> Fitted:
        made = dsvnp.NPRegressor(random_state=seed, device="cpu", output="array", **settings)
        return Fitted(made.fit(frame(x, categorical), y), frame(x_test, categorical))

    return fit


def classifier(settings: dict[str, Any]) -> Callable[..., Floats]:
    """A model for classes."""

    def fit(
        x: Floats, y: NDArray[np.int64], x_test: Floats, categorical: NDArray[np.bool_], seed: int
    ) -> Floats:
        made = dsvnp.NPClassifier(random_state=seed, device="cpu", output="array", **settings)
        return made.fit(frame(x, categorical), y).predict_proba(frame(x_test, categorical))

    return fit


for name, settings in MODELS.items():
    about = {"dsvnp": dsvnp.__version__, "device": "cpu", **settings}
    register(name, "regression", about)(regressor(settings))
    register(name, "classification", about)(classifier(settings))
