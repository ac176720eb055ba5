"""`NPRegressor` as it was when the goals were set (commit c3a2736), as a model of the benchmark.

    git worktree add --detach OLD c3a2736
    PYTHONPATH=OLD/src python benchmarks/tables/run.py --kind regression --models np-0.1 --folds 0 \\
        --adapters benchmarks/tables/version_0_1.py --out FILE.jsonl

It trains on each fold, without the early stop of today's `model="dsvnp"`, and refuses gaps: medians fill them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from dsvnp.estimators.columns import Columns
from numpy.typing import NDArray
from predictives import Quantiles
from registry import register

import dsvnp

Floats = NDArray[np.float64]
LEVELS = np.linspace(0.025, 0.975, 39)


class Fitted:
    """Its mean and density; CRPS and intervals from 39 quantiles, which are asked for after the time was taken."""

    def __init__(self, estimator: dsvnp.NPRegressor, x: Columns) -> None:
        self.estimator, self.x = estimator, x
        self.mean: Floats = estimator.predict(x)

    def log_prob(self, y: Floats) -> Floats:
        return self.estimator.log_prob(self.x, y)

    @cached_property
    def quantiles(self) -> Quantiles:
        return Quantiles(LEVELS, self.estimator.predict_quantiles(self.x, LEVELS.tolist()), self.mean)

    def cdf(self, y: Floats) -> Floats:
        return self.quantiles.cdf(y)

    def crps(self, y: Floats) -> Floats:
        return self.quantiles.crps(y)


def frame(x: Floats, medians: Floats, categorical: NDArray[np.bool_]) -> Columns:
    """A table with codes as texts and without gaps; a missing code is empty."""
    columns = [
        np.array(["" if np.isnan(code) else f"{int(code):03d}" for code in values], dtype=object)
        if is_category
        else np.where(np.isnan(values), median, values)
        for values, median, is_category in zip(x.T, medians, categorical, strict=True)
    ]
    return Columns(tuple(f"x{index}" for index in range(len(columns))), tuple(columns))


@register("np-0.1", "regression", {"dsvnp": dsvnp.__version__, "commit": "c3a2736", "device": "cpu"})
def fit(x: Floats, y: Floats, x_test: Floats, categorical: NDArray[np.bool_], seed: int) -> Fitted:
    made = dsvnp.NPRegressor(random_state=seed, device="cpu", output="array")
    medians = np.nan_to_num(np.nanmedian(x, axis=0))
    return Fitted(made.fit(frame(x, medians, categorical), y), frame(x_test, medians, categorical))
