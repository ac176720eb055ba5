"""Rivals for classes: probabilities [rows, classes] from models whose settings held-out rows choose by log-loss.

| name | what it is |
| --- | --- |
| logistic | multinomial regression, penalty by 3-fold cross-validation |
| forest, extra-trees | 300 trees, leaf size and share of inputs by out-of-bag log-loss |
| hgb | boosted trees, iterations by 3-fold cross-validation |
| gp | one Matérn-5/2 process against the rest per class (Laplace), one length for all inputs, at most 500 rows |
| mlp | 3 networks, weight decay by 3-fold cross-validation |

A forest gets one more vote for each class: 300 trees that agree do not make a class certain.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from predictives import LEAST_PROBABILITY
from preparing import design
from registry import register
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.neural_network import MLPClassifier

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

LOGISTIC = {"strength": [float(c) for c in np.logspace(-3, 2, 11).round(6)], "folds": 3, "most_levels": 20}
FOREST = {"trees": 300, "leaf": [1, 5], "share": ["sqrt", 0.5]}
HGB = {"most_iterations": 200, "learning_rate": 0.1, "folds": 3}
GP = {"most_rows": 500, "restarts": 1, "most_levels": 10}
MLP = {"width": [64, 64], "decay": [0.01, 1.0], "networks": 3, "max_iter": 200, "folds": 3, "most_levels": 20}


def log_loss(probs: Floats, y: Ints) -> float:
    """−ln of the probability of the true class, averaged over rows."""
    own = np.take_along_axis(probs, y[:, None], 1)[:, 0]
    return float(-np.log(own.clip(LEAST_PROBABILITY)).mean())


def held_out(make: Callable[[], Any], a: Floats, y: Ints, folds: int, seed: int) -> float:
    """Log-loss of rows that were held out in turn."""
    probs = np.empty((len(y), y.max() + 1))
    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(a, y):
        probs[test] = make().fit(a[train], y[train]).predict_proba(a[test])
    return log_loss(probs, y)


@register("logistic", "classification", LOGISTIC)
def logistic(x: Floats, y: Ints, x_test: Floats, categorical: Bools, seed: int) -> Floats:
    a, b, _ = design(x, x_test, categorical, LOGISTIC["most_levels"])

    def make(strength: float) -> LogisticRegression:
        return LogisticRegression(C=strength, max_iter=1000)

    losses = {c: held_out(lambda c=c: make(c), a, y, LOGISTIC["folds"], seed) for c in LOGISTIC["strength"]}
    return make(min(losses, key=losses.__getitem__)).fit(a, y).predict_proba(b)


def forest_of(kind: Any) -> Any:
    """A model of many trees; they split codes as numbers, and take NaN as they find it."""

    def fit(x: Floats, y: Ints, x_test: Floats, categorical: Bools, seed: int) -> Floats:
        trees, classes = FOREST["trees"], y.max() + 1

        def smoothed(votes: Floats) -> Floats:
            return (trees * votes + 1) / (trees + classes)

        tried = []
        for leaf, share in itertools.product(FOREST["leaf"], FOREST["share"]):
            options = {"min_samples_leaf": leaf, "max_features": share, "bootstrap": True, "oob_score": True}
            made = kind(trees, random_state=seed, **options).fit(x, y)
            tried.append((log_loss(smoothed(made.oob_decision_function_), y), made))
        best = min(tried, key=lambda trial: trial[0])[1]
        return smoothed(best.predict_proba(x_test))

    return fit


register("forest", "classification", FOREST)(forest_of(RandomForestClassifier))
register("extra-trees", "classification", FOREST)(forest_of(ExtraTreesClassifier))


@register("hgb", "classification", HGB)
def hgb(x: Floats, y: Ints, x_test: Floats, categorical: Bools, seed: int) -> Floats:
    def make(iterations: int, rows: int) -> HistGradientBoostingClassifier:
        return HistGradientBoostingClassifier(
            learning_rate=HGB["learning_rate"],
            max_iter=iterations,
            categorical_features=categorical,
            min_samples_leaf=int(
                np.clip(rows // 20, 3, 20)
            ),  # few rows: the default would leave hardly a split
            early_stopping=False,
            random_state=seed,
        )

    losses = np.zeros(HGB["most_iterations"])
    for train, test in StratifiedKFold(HGB["folds"], shuffle=True, random_state=seed).split(x, y):
        made = make(HGB["most_iterations"], len(train)).fit(x[train], y[train])
        for step, probs in enumerate(made.staged_predict_proba(x[test])):
            losses[step] += len(test) * log_loss(probs, y[test])
    return make(int(losses.argmin()) + 1, len(y)).fit(x, y).predict_proba(x_test)


@register("gp", "classification", GP)
def gaussian_process(x: Floats, y: Ints, x_test: Floats, categorical: Bools, seed: int) -> Floats:
    a, b, _ = design(x, x_test, categorical, GP["most_levels"])
    if len(a) > GP["most_rows"]:
        a, _, y, _ = train_test_split(a, y, train_size=GP["most_rows"], stratify=y, random_state=seed)
    kernel = ConstantKernel() * Matern(np.sqrt(a.shape[1]), nu=2.5)
    made = GaussianProcessClassifier(kernel, n_restarts_optimizer=GP["restarts"], random_state=seed)
    return made.fit(a, y).predict_proba(b)


@register("mlp", "classification", MLP)
def mlp(x: Floats, y: Ints, x_test: Floats, categorical: Bools, seed: int) -> Floats:
    a, b, _ = design(x, x_test, categorical, MLP["most_levels"])

    def make(decay: float, run: int = 0) -> MLPClassifier:
        return MLPClassifier(
            tuple(MLP["width"]), alpha=decay, max_iter=MLP["max_iter"], random_state=seed + run
        )

    losses = {decay: held_out(lambda d=decay: make(d), a, y, MLP["folds"], seed) for decay in MLP["decay"]}
    best = min(losses, key=losses.__getitem__)
    return np.mean([make(best, run).fit(a, y).predict_proba(b) for run in range(MLP["networks"])], 0)
