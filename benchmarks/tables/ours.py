"""This package's own estimators as models of the benchmark, with their defaults.

    python benchmarks/tables/run.py --kind regression --models np --adapters benchmarks/tables/ours.py --out FILE.jsonl

They get what `preparing.design` makes of a table, since missing inputs are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from predictives import Quantiles
from preparing import design
from registry import register

import dsvnp

Floats = NDArray[np.float64]
SETTINGS = {"dsvnp": dsvnp.__version__, "device": "cpu"}
LEVELS = np.arange(0.01, 1, 0.01).round(2)  # CRPS and coverage come from these quantiles


class Fitted:
    """Density from the estimator itself; distribution function and CRPS from its quantiles."""

    def __init__(self, estimator: Any, x: Floats) -> None:
        self.estimator, self.x = estimator, x
        self.mean = estimator.predict(x)
        values = estimator.predict_quantiles(x, LEVELS.tolist())
        self.quantiles = Quantiles(LEVELS, values, self.mean, least_gap=1e-6)
        self.notes: dict[str, Any] = {}

    def log_prob(self, y: Floats) -> Floats:
        return self.estimator.log_prob(self.x, y)

    def cdf(self, y: Floats) -> Floats:
        return self.quantiles.cdf(y)

    def crps(self, y: Floats) -> Floats:
        return self.quantiles.crps(y)


@register("np", "regression", SETTINGS)
def regressor(x: Floats, y: Floats, x_test: Floats, categorical: NDArray[np.bool_], seed: int) -> Fitted:
    a, b, _ = design(x, x_test, categorical)
    return Fitted(dsvnp.NPRegressor(random_state=seed, device="cpu").fit(a, y), b)


@register("np", "classification", SETTINGS)
def classifier(
    x: Floats, y: NDArray[np.int64], x_test: Floats, categorical: NDArray[np.bool_], seed: int
) -> Floats:
    a, b, _ = design(x, x_test, categorical)
    return dsvnp.NPClassifier(random_state=seed, device="cpu").fit(a, y).predict_proba(b)
