"""NPRegressor and NPClassifier, trained as DSVNP, against scikit-learn's estimators, on tables not used for tuning.

    DSVNP_DATA=… python benchmarks/estimators.py --repeats 5

The script cross-validates every pair of a data set and an estimator with 5 folds, `--repeats` times. It writes each
finished fold at once, and a later run adds the missing ones. `--table` only rewrites the table. Errors are in units of
each output's deviation on the training fold; WQ and SCM20d need the data directory.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve, lapack
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPRegressor
from sklearn.preprocessing import StandardScaler

from dsvnp import NPClassifier, NPRegressor
from dsvnp.paper.datasets.catalogue import load_table

FOLDER = Path(__file__).parents[1] / "results" / "estimators"
FOLDS, MOST_GP_ROWS, BINS = 5, 2000, 15
Data = tuple[np.ndarray, np.ndarray]
Row = dict[str, Any]

# --- data sets ---


def friedman(make: Callable[..., Data], **settings: Any) -> Data:
    """1000 rows with noise of 0.2 standard deviations of y."""
    X, y = make(n_samples=1000, random_state=0, **settings)
    return X, y + 0.2 * y.std() * np.random.default_rng(0).normal(size=len(y))


def published(name: str) -> Data:
    table = load_table(name, None)
    return table.x, table.y


REGRESSION: dict[str, Callable[[], Data]] = {
    "diabetes": lambda: datasets.load_diabetes(return_X_y=True),
    "friedman1": lambda: friedman(datasets.make_friedman1),
    "friedman2": lambda: friedman(datasets.make_friedman2),
    "friedman3": lambda: friedman(datasets.make_friedman3),
    "WQ": lambda: published("water-quality"),
    "SCM20d": lambda: published("scm20d"),
    "linnerud": lambda: datasets.load_linnerud(return_X_y=True),  # 20 rows: reported, not judged
}
CLASSIFICATION: dict[str, Callable[[], Data]] = {
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "breast cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "digits": lambda: datasets.load_digits(return_X_y=True),
}
NOT_JUDGED = {"linnerud"}

# --- estimators: each is fitted to a training fold and answers for a test fold ---


def neural_process(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, seed: int) -> Row:
    fitted = NPRegressor("dsvnp", random_state=seed, device="cpu").fit(X, y)
    mean = fitted.predict(X_test)
    log_prob = np.stack([_marginal(fitted, X_test, y_test, i) for i in range(y.shape[1])], 1)
    nll = -log_prob - np.log(y.std(0))
    return {"rmse": rmse(mean, y_test, y), "nll": float(nll.mean()), "recipe": asdict(fitted.recipe_)}


def _marginal(fitted: NPRegressor, X: np.ndarray, y: np.ndarray, output: int) -> np.ndarray:
    """Log-density of one output by itself, like that of the Gaussian process."""
    alone = np.full_like(y, np.nan)
    alone[:, output] = y[:, output]
    return fitted.log_prob(X, alone)


def gaussian_process(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, seed: int) -> Row:
    rows = np.random.default_rng(seed).permutation(len(X))[:MOST_GP_ROWS]
    scale, unit = StandardScaler().fit(X), StandardScaler().fit(y)
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
    inputs, targets = scale.transform(X[rows]), unit.transform(y[rows])
    search = marginal_likelihood_of(inputs, targets)
    fitted = GaussianProcessRegressor(kernel, optimizer=search, random_state=seed).fit(inputs, targets)
    mean, std = fitted.predict(scale.transform(X_test), return_std=True)
    mean, std = mean.reshape(y_test.shape), std.reshape(len(y_test), -1)
    nll = -norm(mean, std).logpdf(unit.transform(y_test))
    error = rmse(unit.inverse_transform(mean), y_test, y)
    return {"rmse": error, "nll": float(nll.mean()), "gp_rows": len(rows)}


def marginal_likelihood_of(X: np.ndarray, y: np.ndarray) -> Callable[..., tuple[np.ndarray, float]]:
    """scikit-learn's own search for kernel parameters, with the same objective and gradient computed faster.

    scikit-learn holds ∂K/∂θ of every parameter and multiplies it with every output, which takes long for many of both.
    """
    jitter = 1e-10  # scikit-learn's

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        amplitude, lengths, noise = np.exp(theta[0]), np.exp(theta[1:-1]), np.exp(theta[-1])
        scaled = X / lengths
        norms = (scaled**2).sum(1)
        smooth = amplitude * np.exp(-0.5 * np.maximum(norms[:, None] + norms - 2 * scaled @ scaled.T, 0))
        factor = cho_factor(smooth + (noise + jitter) * np.eye(len(X)), lower=True)
        weights = cho_solve(factor, y)
        log_det = 2 * np.log(np.diag(factor[0])).sum()
        value = 0.5 * ((y * weights).sum() + y.shape[1] * (log_det + len(X) * np.log(2 * np.pi)))
        half = np.tril(lapack.dpotri(factor[0], lower=1)[0])
        inverse = half + np.tril(half, -1).T
        slope = 0.5 * (weights @ weights.T - y.shape[1] * inverse)  # of −value, by K
        pull = slope * smooth
        by_length = 2 * (pull.sum(1) @ scaled**2 - (scaled * (pull @ scaled)).sum(0))
        return value, -np.concatenate([[pull.sum()], by_length, [noise * np.trace(slope)]])

    def search(its: Callable[..., float], start: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, float]:
        found = minimize(objective, start, method="L-BFGS-B", jac=True, bounds=bounds)
        assert np.isclose(found.fun, its(found.x, eval_gradient=False), rtol=1e-6)
        return found.x, found.fun

    return search


def perceptron(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, seed: int) -> Row:
    scale, unit = StandardScaler().fit(X), StandardScaler().fit(y)
    target = unit.transform(y)
    fitted = MLPRegressor(random_state=seed)
    fitted.fit(scale.transform(X), target if y.shape[1] > 1 else target[:, 0])
    mean = fitted.predict(scale.transform(X_test)).reshape(y_test.shape)
    return {"rmse": rmse(unit.inverse_transform(mean), y_test, y)}


def rmse(mean: np.ndarray, y: np.ndarray, y_train: np.ndarray) -> float:
    """Root of the squared error in unit variance, over rows and outputs."""
    return float(np.sqrt(np.mean(((mean.reshape(y.shape) - y) / y_train.std(0)) ** 2)))


def classify(make: Callable[[int], Any]) -> Callable[..., Row]:
    def measure(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, seed: int) -> Row:
        fitted = make(seed).fit(X, y)
        probs = fitted.predict_proba(X_test)
        confidence, correct = probs.max(1), fitted.classes_[probs.argmax(1)] == y_test
        bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
        sums = [np.bincount(bins, weights, BINS).tolist() for weights in (None, confidence, correct)]
        own = probs[np.arange(len(y_test)), np.searchsorted(fitted.classes_, y_test)]
        return {
            "accuracy": float(correct.mean()),
            "nll": float(-np.log(own.clip(1e-12)).mean()),
            "bins": sums,
        }

    return measure


ESTIMATORS: dict[str, dict[str, Callable[..., Row]]] = {
    "regression": {"NPRegressor": neural_process, "GP": gaussian_process, "MLP": perceptron},
    "classification": {
        "NPClassifier": classify(lambda seed: NPClassifier("dsvnp", random_state=seed, device="cpu")),
        "HistGradientBoosting": classify(lambda seed: HistGradientBoostingClassifier(random_state=seed)),
    },
}


def kind_of(dataset: str) -> str:
    return "regression" if dataset in REGRESSION else "classification"


# --- running ---


def splits(
    dataset: str, X: np.ndarray, y: np.ndarray, repeat: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    folds = KFold if dataset in REGRESSION else StratifiedKFold
    made = folds(FOLDS, shuffle=True, random_state=repeat).split(X, y)
    yield from ((fold, train, test) for fold, (train, test) in enumerate(made))


def run(names: list[str], estimators: list[str], repeats: int, folder: Path) -> None:
    """Measure the missing folds, one repeat of all pairs after the other."""
    rows = load(folder)
    done = {(row["dataset"], row["estimator"], row["repeat"], row["fold"]) for row in rows}
    for repeat in range(repeats):
        for name in names:
            X, y = (REGRESSION | CLASSIFICATION)[name]()
            y = y.reshape(len(y), -1) if name in REGRESSION else y
            for fold, train, test in splits(name, X, y, repeat):
                for estimator, measure in ESTIMATORS[kind_of(name)].items():
                    if (name, estimator, repeat, fold) in done or (
                        estimators and estimator not in estimators
                    ):
                        continue
                    start = time.perf_counter()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # networks and kernels that did not converge
                        values = measure(X[train], y[train], X[test], y[test], FOLDS * repeat + fold)
                    seconds = round(time.perf_counter() - start, 1)
                    row = {"dataset": name, "estimator": estimator, "repeat": repeat, "fold": fold}
                    rows.append({**row, **values, "seconds": seconds})
                    save(rows, folder)
                    shown = {k: round(v, 4) for k, v in values.items() if isinstance(v, float)}
                    print(name, estimator, repeat, fold, shown, seconds, flush=True)


def load(folder: Path) -> list[Row]:
    path = folder / "rows.json"
    return json.loads(path.read_text()) if path.is_file() else []


def save(rows: list[Row], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row) for row in rows)
    (folder / "rows.tmp").write_text(f"[\n{lines}\n]\n")
    os.replace(folder / "rows.tmp", folder / "rows.json")


# --- the table ---


def column(rows: list[Row], dataset: str, estimator: str, metric: str) -> dict[tuple[int, int], float]:
    """Values of a metric by repeat and fold."""
    return {
        (row["repeat"], row["fold"]): row[metric]
        for row in rows
        if row["dataset"] == dataset and row["estimator"] == estimator and metric in row
    }


def paired(
    ours: dict[tuple[int, int], float], theirs: dict[tuple[int, int], float]
) -> tuple[float, float, int]:
    """Mean and standard error of ours − theirs over the folds that both have, and their number."""
    folds = sorted(ours.keys() & theirs.keys())
    gaps = np.array([ours[fold] - theirs[fold] for fold in folds])
    spread = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.inf
    return float(gaps.mean()) if len(gaps) else np.nan, float(spread), len(folds)


def ece(rows: list[Row], dataset: str, estimator: str) -> float:
    """Expected calibration error of all test rows of a repeat together, averaged over repeats."""
    each: dict[int, list[np.ndarray]] = {}
    for row in rows:
        if row["dataset"] == dataset and row["estimator"] == estimator:
            each.setdefault(row["repeat"], []).append(np.array(row["bins"]))
    errors = []
    for parts in each.values():
        count, confidence, correct = np.sum(parts, axis=0)
        errors.append(np.abs(correct - confidence).sum() / count.sum())
    return float(np.mean(errors)) if errors else np.nan


def regression_lines(rows: list[Row]) -> list[str]:
    lines = [
        "| data set | folds | NPRegressor | GP | MLP | to the better | RMSE held | NLL, NP | NLL, GP | NLL below |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in REGRESSION:
        found = {e: values for e in ESTIMATORS["regression"] if (values := column(rows, name, e, "rmse"))}
        shared = set.intersection(*(set(values) for values in found.values())) if found else set()
        if "NPRegressor" not in found or len(found) < 2 or not shared:
            lines.append(f"| {name} | 0 | – | – | – | – | not run | – | – | – |")
            continue
        means = {e: float(np.mean([values[fold] for fold in shared])) for e, values in found.items()}
        best = min(set(means) - {"NPRegressor"}, key=lambda e: means[e])
        ours, theirs = ({fold: found[e][fold] for fold in shared} for e in ("NPRegressor", best))
        gap, error, count = paired(ours, theirs)
        held = gap <= 0.05 * means[best] or (count > 1 and gap <= error)
        nll = {e: _mean(column(rows, name, e, "nll"), shared) for e in ("NPRegressor", "GP")}
        judged = name not in NOT_JUDGED
        verdicts = [_yes(held), _yes(nll["NPRegressor"] < nll["GP"]) if "GP" in found else "GP not run"]
        lines.append(
            f"| {name} | {count} | {means['NPRegressor']:.4f} | {_number(means.get('GP'))} | "
            f"{_number(means.get('MLP'))} | {100 * gap / means[best]:+.1f} %{_spread(100 * error / means[best])} | "
            f"{verdicts[0] if judged else 'not judged'} | {_number(nll['NPRegressor'])} | {_number(nll['GP'])} | "
            f"{verdicts[1] if judged else 'not judged'} |"
        )
    return lines


def _mean(values: dict[tuple[int, int], float], folds: set[tuple[int, int]]) -> float | None:
    there = [values[fold] for fold in folds if fold in values]
    return float(np.mean(there)) if there else None


def _spread(error: float) -> str:
    return f" ± {error:.1f}" if np.isfinite(error) else ", one fold"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def classification_lines(rows: list[Row]) -> list[str]:
    lines = [
        "| data set | folds | NPClassifier | HGB | difference | accuracy held | ECE, NP | ECE, HGB | ECE as good |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in CLASSIFICATION:
        ours, theirs = (column(rows, name, e, "accuracy") for e in ESTIMATORS["classification"])
        gap, error, count = paired(ours, theirs)
        if not count:
            lines.append(f"| {name} | 0 | – | – | – | not run | – | – | – |")
            continue
        means = [np.mean([values[fold] for fold in ours.keys() & theirs.keys()]) for values in (ours, theirs)]
        held = gap >= -0.01 or (count > 1 and -gap <= error)
        errors = [ece(rows, name, estimator) for estimator in ESTIMATORS["classification"]]
        lines.append(
            f"| {name} | {count} | {means[0]:.4f} | {means[1]:.4f} | {gap:+.4f} ± {error:.4f} | {_yes(held)} | "
            f"{errors[0]:.4f} | {errors[1]:.4f} | {_yes(errors[0] <= errors[1])} |"
        )
    return lines


def _yes(held: bool) -> str:
    return "yes" if held else "no"


def write_table(folder: Path) -> None:
    rows = load(folder)
    lines = [
        "# Estimators with their defaults",
        "",
        "Made by `python benchmarks/estimators.py` from `rows.json`. RMSE and NLL are per output, in units of each "
        f"output's deviation on the training fold, averaged over test folds (25 are asked for: 5 × {FOLDS}). GP: "
        f"constant · ARD-RBF + white, on at most {MOST_GP_ROWS} rows of the fold. ± is the paired standard error over "
        "folds. Held: within 5 % (accuracy: 1 %) or within one such error. ECE: 15 bins, all test rows of a repeat "
        "together. Each row of `rows.json` holds the recipe that its fit used.",
        "",
        *regression_lines(rows),
        "",
        *classification_lines(rows),
    ]
    (folder / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines[4:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join([*REGRESSION, *CLASSIFICATION]))
    parser.add_argument("--estimators", default="", help="only these, separated by commas")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--table", action="store_true", help="rewrite the table and measure nothing")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if not args.table:
        names = [name.strip() for name in args.datasets.split(",")]
        run(names, [name for name in args.estimators.split(",") if name], args.repeats, args.out)
    write_table(args.out)


if __name__ == "__main__":
    main()
