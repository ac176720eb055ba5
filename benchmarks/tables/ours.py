"""This package's own estimators as models of the benchmark: the pretrained default, and the trained model.

    python benchmarks/tables/run.py --kind regression --models np --adapters benchmarks/tables/ours.py --out FILE.jsonl

They get the table as a person has it: a data frame with gaps, and categories as texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from registry import register

import dsvnp

Floats = NDArray[np.float64]
LEVELS = np.arange(0.01, 1, 0.01).round(
    2
)  # the distribution function is interpolated between these quantiles
MODELS: dict[str, dict[str, Any]] = {
    "np": {},
    "np-thorough": {"effort": "thorough"},
    "np-refined": {"refine": True},
    "np-trained": {"model": "dsvnp"},
}


class Fitted:
    """The estimator's own distribution as the benchmark asks for it."""

    def __init__(self, estimator: Any, x: pd.DataFrame) -> None:
        found = estimator.predict_dist(x)
        self.mean, self.log_prob, self.cdf, self.crps = found.mean, found.log_prob, found.cdf, found.crps
        self.notes: dict[str, Any] = {"how": estimator.how_it_predicts}


def frame(x: Floats, categorical: NDArray[np.bool_]) -> pd.DataFrame:
    """A table with codes as texts; a missing one is empty."""
    columns: dict[str, Any] = {}
    for index, is_category in enumerate(categorical):
        values = x[:, index]
        texts = (
            [None if np.isnan(value) else f"{int(value):03d}" for value in values] if is_category else None
        )
        columns[f"x{index}"] = values if texts is None else np.array(texts, dtype=object)
    return pd.DataFrame(columns)


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
