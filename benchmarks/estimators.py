"""NPRegressor and NPClassifier against scikit-learn's estimators, on tables not used for tuning.

    DSVNP_DATA=… python benchmarks/estimators.py --repeats 5 --jobs 16

| name | what it is |
| --- | --- |
| NPRegressor, NPClassifier | the default: the pretrained network, nothing is trained |
| NPRegressor dsvnp, NPClassifier dsvnp | `model="dsvnp"`, trained on the fold |
| GP, MLP | scikit-learn's, on standardised numbers; the kernel's parameters by the marginal likelihood |
| logistic | multinomial, on standardised inputs, C by the log-loss of 5 inner folds |
| HistGradientBoosting | scikit-learn's with its defaults |

The script cross-validates every pair of a data set and an estimator with 5 folds, `--repeats` times. It writes each
finished fold at once, and a later run adds the missing ones; `--again` measures the named estimators again. `--table`
only rewrites the table. `--jobs` folds run at once, each in a process of one thread. Errors are in units of each
output's deviation on the training fold; WQ and SCM20d need the data directory.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg import cho_factor, cho_solve, lapack
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dsvnp import NPClassifier, NPRegressor
from dsvnp.files import gzipped, write_atomically
from dsvnp.paper.datasets.catalogue import load_table
from estimators_table import write_table

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

# --- estimators: each is fitted to a training fold and answers for a test fold ---


def neural_process(
    model: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray, seed: int
) -> Row:
    fitted = NPRegressor(model, random_state=seed, device="cpu").fit(X, y)
    found = fitted.predict_dist(X_test)
    log_prob = np.stack([found.log_prob(_alone(y_test, i)) for i in range(y.shape[1])], 1)
    nll = -log_prob - np.log(y.std(0))
    return {"rmse": rmse(found.mean, y_test, y), "nll": float(nll.mean()), **_how(fitted)}


def _alone(y: np.ndarray, output: int) -> np.ndarray:
    """One output, whose log-density is then comparable with that of the Gaussian process."""
    alone = np.full_like(y, np.nan)
    alone[:, output] = y[:, output]
    return alone


def _how(fitted: Any) -> Row:
    """The recipe of a training, or who sits on the panel."""
    if fitted.recipe_ is not None:
        return {"recipe": asdict(fitted.recipe_)}
    return {"how": fitted.how_it_predicts}


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
        nll = float(-np.log(own.clip(1e-12)).mean())
        how = _how(fitted) if isinstance(fitted, NPClassifier) else {}
        return {"accuracy": float(correct.mean()), "nll": nll, "bins": sums, **how}

    return measure


def our_classifier(model: str, seed: int) -> NPClassifier:
    return NPClassifier(model, random_state=seed, device="cpu")


def logistic(seed: int) -> Any:
    inner = StratifiedKFold(5, shuffle=True, random_state=seed)
    settings: dict[str, Any] = {"Cs": np.logspace(-3, 3, 13), "cv": inner, "scoring": "neg_log_loss"}
    return make_pipeline(StandardScaler(), LogisticRegressionCV(**settings, max_iter=2000))


ESTIMATORS: dict[str, dict[str, Callable[..., Row]]] = {
    "regression": {
        "NPRegressor": partial(neural_process, "auto"),
        "NPRegressor dsvnp": partial(neural_process, "dsvnp"),
        "GP": gaussian_process,
        "MLP": perceptron,
    },
    "classification": {
        "NPClassifier": classify(partial(our_classifier, "auto")),
        "NPClassifier dsvnp": classify(partial(our_classifier, "dsvnp")),
        "logistic": classify(logistic),
        "HistGradientBoosting": classify(lambda seed: HistGradientBoostingClassifier(random_state=seed)),
    },
}


def kind_of(dataset: str) -> str:
    return "regression" if dataset in REGRESSION else "classification"


# --- running ---


class Job(NamedTuple):
    """One fold of one estimator on one data set."""

    repeat: int
    dataset: str
    fold: int
    estimator: str


@cache
def data_of(dataset: str) -> Data:
    X, y = (REGRESSION | CLASSIFICATION)[dataset]()
    return X, y.reshape(len(y), -1) if dataset in REGRESSION else y


def split(job: Job) -> tuple[np.ndarray, np.ndarray]:
    folds = KFold if job.dataset in REGRESSION else StratifiedKFold
    made = folds(FOLDS, shuffle=True, random_state=job.repeat).split(*data_of(job.dataset))
    return list(made)[job.fold]


def measure(job: Job) -> Row:
    """Fit to the rows of a fold and measure the others."""
    (X, y), (train, test) = data_of(job.dataset), split(job)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # networks and kernels that did not converge
        how = ESTIMATORS[kind_of(job.dataset)][job.estimator]
        values = how(X[train], y[train], X[test], y[test], FOLDS * job.repeat + job.fold)
    return {**job._asdict(), **values, "seconds": round(time.process_time() - start, 1)}


def missing(names: list[str], estimators: list[str], repeats: int, rows: list[Row]) -> Iterator[Job]:
    """The folds to measure, one repeat of all pairs after the other."""
    done = {Job(*(row[field] for field in Job._fields)) for row in rows}
    for repeat in range(repeats):
        for name in names:
            for fold in range(FOLDS):
                for estimator in ESTIMATORS[kind_of(name)]:
                    job = Job(repeat, name, fold, estimator)
                    if job not in done and (not estimators or estimator in estimators):
                        yield job


def _asked(row: Row, names: list[str], estimators: list[str]) -> bool:
    return row["dataset"] in names and (not estimators or row["estimator"] in estimators)


def measured(jobs: list[Job], processes: int) -> Iterator[Row]:
    """Rows as they are finished."""
    if processes == 1:
        yield from map(measure, jobs)
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        yield from (done.result() for done in as_completed([pool.submit(measure, job) for job in jobs]))


def run(jobs: list[Job], rows: list[Row], folder: Path, processes: int) -> None:
    """Measure folds and write each at once."""
    for row in measured(jobs, processes):
        rows.append(row)
        save(rows, folder)
        shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
        print(*(v for k, v in shown.items() if k not in ("bins", "recipe", "how")), flush=True)


def load(folder: Path) -> list[Row]:
    path = folder / "rows.json.gz"
    return json.loads(gzip.decompress(path.read_bytes())) if path.is_file() else []


def save(rows: list[Row], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    order = [*REGRESSION, *CLASSIFICATION]
    rows = sorted(rows, key=lambda row: (row["repeat"], order.index(row["dataset"]), row["fold"]))
    lines = ",\n".join(json.dumps(row) for row in rows)
    write_atomically(folder / "rows.json.gz", gzipped(f"[\n{lines}\n]\n"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join([*REGRESSION, *CLASSIFICATION]))
    parser.add_argument("--estimators", default="", help="only these, separated by commas")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="folds at once, each in a process of its own")
    parser.add_argument("--again", action="store_true", help="measure folds again that were measured before")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--table", action="store_true", help="rewrite the table and measure nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = load(args.out)
    if not args.table:
        names = [name.strip() for name in args.datasets.split(",")]
        estimators = [name for name in args.estimators.split(",") if name]
        if args.again:
            rows = [row for row in rows if not _asked(row, names, estimators)]
        run(list(missing(names, estimators, args.repeats, rows)), rows, args.out, args.jobs)
    write_table(rows, args.out)


if __name__ == "__main__":
    main()
