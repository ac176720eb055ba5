"""Rivals for regression. Each gives a whole predictive distribution, its spread from rows that were held out.

| name | mean | spread |
| --- | --- | --- |
| ridge | penalty by leave-one-out error | Gaussian, σ: RMS of the leave-one-out errors |
| gp | ARD Matérn-5/2, best of 3 starts, at most 1,000 rows | its own |
| forest, extra-trees | 300 trees, leaf size and share of inputs by out-of-bag error | Gaussian, σ: RMS of that error |
| hgb | boosted trees, iterations by 3-fold cross-validation | constant σ or 7 quantiles |
| mlp | 3 networks, weight decay by 3-fold cross-validation | Gaussian, σ: RMS of the errors of held-out rows |

Boosted trees use the likelihood with the lower cross-validated NLL: a Gaussian with a constant σ (RMS of the errors of
held-out rows), or a density between quantiles that are boosted one by one.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from gaussian_process import fit_gp
from numpy.typing import NDArray
from predictives import Gaussian, Mixture, Quantiles
from preparing import design
from registry import register
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPRegressor

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

RIDGE = {"penalties": [float(p) for p in np.logspace(-3, 4, 29).round(6)], "most_levels": 20}
GP = {"most_rows": 1000, "starts": 3, "max_steps": 100, "most_levels": 10}
FOREST = {"trees": 300, "leaf": [1, 5], "share": [0.4, 1.0]}
HGB = {
    "most_iterations": 200,
    "learning_rate": 0.1,
    "levels": [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95],
    "folds": 3,
}
MLP = {"width": [64, 64], "decay": [0.01, 1.0], "networks": 3, "max_iter": 200, "folds": 3, "most_levels": 20}
LEAST_GAP = 0.02  # between quantiles, in deviations of y: no density above 12.5


@register("ridge", "regression", RIDGE)
def ridge(x: Floats, y: Floats, x_test: Floats, categorical: Bools, seed: int) -> Mixture:
    a, b, _ = design(x, x_test, categorical, RIDGE["most_levels"])
    fitted = RidgeCV(RIDGE["penalties"], store_cv_results=True).fit(a, y)
    errors = fitted.cv_results_[:, RIDGE["penalties"].index(fitted.alpha_)]  # squared, leave one out
    return Gaussian(fitted.predict(b), np.sqrt(errors.mean()), {"penalty": float(fitted.alpha_)})


@register("gp", "regression", GP)
def gaussian_process(x: Floats, y: Floats, x_test: Floats, categorical: Bools, seed: int) -> Mixture:
    a, b, inputs = design(x, x_test, categorical, GP["most_levels"])
    rows = np.random.default_rng(seed).permutation(len(a))[: GP["most_rows"]]
    fitted = fit_gp(a[rows], y[rows], inputs, GP["starts"], GP["max_steps"], seed)
    return Gaussian(*fitted.predict(b), {"rows": len(rows)})


def forest_of(kind: Any) -> Any:
    """A model of many trees; they split codes as numbers, and take NaN as they find it."""

    def fit(x: Floats, y: Floats, x_test: Floats, categorical: Bools, seed: int) -> Mixture:
        tried = []
        for leaf, share in itertools.product(FOREST["leaf"], FOREST["share"]):
            made = kind(
                FOREST["trees"],
                min_samples_leaf=leaf,
                max_features=share,
                bootstrap=True,
                oob_score=True,
                random_state=seed,
            ).fit(x, y)
            error = float(np.mean((made.oob_prediction_ - y) ** 2))
            tried.append((error, {"leaf": leaf, "share": share}, made))
        error, notes, best = min(tried, key=lambda trial: trial[0])
        return Gaussian(best.predict(x_test), np.sqrt(error), notes)

    return fit


register("forest", "regression", FOREST)(forest_of(RandomForestRegressor))
register("extra-trees", "regression", FOREST)(forest_of(ExtraTreesRegressor))


# --- boosted trees ---


def boosted(categorical: Bools, rows: int, seed: int, **settings: Any) -> HistGradientBoostingRegressor:
    """Trees with smaller leaves where there are few rows: the default of 20 rows would leave hardly a split."""
    return HistGradientBoostingRegressor(
        learning_rate=HGB["learning_rate"],
        categorical_features=categorical,
        min_samples_leaf=int(np.clip(rows // 20, 3, 20)),
        early_stopping=False,
        random_state=seed,
        **settings,
    )


def staged(x: Floats, y: Floats, categorical: Bools, seed: int, **settings: Any) -> Floats:
    """Predictions for held-out rows after each iteration, [iterations, N]."""
    held = np.empty((HGB["most_iterations"], len(y)))
    for train, test in KFold(HGB["folds"], shuffle=True, random_state=seed).split(x):
        made = boosted(categorical, len(train), seed, max_iter=HGB["most_iterations"], **settings)
        made.fit(x[train], y[train])
        for step, values in enumerate(made.staged_predict(x[test])):
            held[step, test] = values
    return held


def pinball(y: Floats, values: Floats, level: float) -> Floats:
    """Loss of which the quantile at `level` is the minimum, averaged over the last axis."""
    gap = y - values
    return np.maximum(level * gap, (level - 1) * gap).mean(-1)


@register("hgb", "regression", HGB)
def hgb(x: Floats, y: Floats, x_test: Floats, categorical: Bools, seed: int) -> Mixture | Quantiles:
    levels = np.array(HGB["levels"])
    held = staged(x, y, categorical, seed)
    best = int(((held - y) ** 2).mean(1).argmin())
    std = float(np.sqrt(((held[best] - y) ** 2).mean()))
    constant = -Gaussian(held[best], std).log_prob(y).mean()
    by_level = np.stack([staged(x, y, categorical, seed, loss="quantile", quantile=q) for q in levels])
    losses = sum(pinball(y, values, q) for values, q in zip(by_level, levels, strict=True))
    steps = int(np.argmin(losses))
    quantile = -Quantiles(levels, by_level[:, steps].T, held[best], LEAST_GAP).log_prob(y).mean()
    mean = boosted(categorical, len(y), seed, max_iter=best + 1).fit(x, y).predict(x_test)
    if constant <= quantile:
        return Gaussian(mean, std, {"likelihood": "constant", "iterations": best + 1})
    values = [
        boosted(categorical, len(y), seed, max_iter=steps + 1, loss="quantile", quantile=q)
        .fit(x, y)
        .predict(x_test)
        for q in levels
    ]
    notes = {"likelihood": "quantiles", "iterations": best + 1, "quantile_iterations": steps + 1}
    return Quantiles(levels, np.stack(values, 1), mean, LEAST_GAP, notes)


# --- networks ---


def network(decay: float, seed: int) -> MLPRegressor:
    return MLPRegressor(
        hidden_layer_sizes=tuple(MLP["width"]), alpha=decay, max_iter=MLP["max_iter"], random_state=seed
    )


@register("mlp", "regression", MLP)
def mlp(x: Floats, y: Floats, x_test: Floats, categorical: Bools, seed: int) -> Mixture:
    a, b, _ = design(x, x_test, categorical, MLP["most_levels"])
    errors = {decay: np.empty(len(y)) for decay in MLP["decay"]}
    for train, test in KFold(MLP["folds"], shuffle=True, random_state=seed).split(a):
        for decay, error in errors.items():
            error[test] = network(decay, seed).fit(a[train], y[train]).predict(a[test]) - y[test]
    best = min(errors, key=lambda decay: float((errors[decay] ** 2).mean()))
    runs = [network(best, seed + run).fit(a, y).predict(b) for run in range(MLP["networks"])]
    return Gaussian(np.mean(runs, 0), float(np.sqrt((errors[best] ** 2).mean())), {"decay": best})
