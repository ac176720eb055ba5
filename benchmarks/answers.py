"""Time of answers: `python -m benchmarks.answers --out benchmarks/answers.json`, on an idle machine.

Predictions of an estimator that was trained with default settings, with intervals, on one thread; fits and predictions
of the pretrained network on two, for tables that a Gaussian process suits and for tables that the network suits best.
Each is repeated; the fastest is what an idle machine takes, and the median says what to expect. CPU time is that of all
threads together; where threads wait for others' work it says more than wall time.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import make_friedman1

from dsvnp import NPClassifier, NPRegressor

COLUMNS = 10  # of the table of the trained estimator
TABLES = ((100, 5, 25), (1000, 20, 250))  # rows, columns and rows asked for


class Goal(NamedTuple):
    """What a time is compared with, in seconds of wall time on an idle machine."""

    name: str
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.answers", description=__doc__)
    parser.add_argument(
        "--trained", type=int, default=1000, help="rows that the trained estimator is fitted to"
    )
    parser.add_argument("--rows", type=int, default=100_000, help="rows that it predicts")
    parser.add_argument("--many", type=int, default=2000, help="rows that the pretrained network predicts")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="of the pretrained network")
    parser.add_argument("--steps", type=int, help="of the training; the default is the recipe's")
    parser.add_argument("--out", type=Path, help="file for the measurements, in JSON")
    given = parser.parse_args()
    settings = {name: value for name, value in vars(given).items() if name != "out"}
    about = {"settings": settings, "machine": platform.machine(), "torch": torch.__version__}
    rows = []
    for row in measure(given):
        print(row, flush=True)
        rows.append(row)
        if given.out is not None:
            record = {**about, "times": rows}
            given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def measure(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every time that has a goal."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    yield from trained(given)
    torch.set_num_threads(given.threads)
    for size in TABLES:
        for made, make in ((NPRegressor, table), (NPRegressor, jumps), (NPClassifier, classes)):
            yield from pretrained(made, make, *size, given)


def trained(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """An estimator with default settings of its training."""
    X, y = table(given.trained + given.rows, COLUMNS)
    new = X[given.trained :]
    made = NPRegressor("dsvnp", max_steps=given.steps, random_state=0, device="cpu")
    made.fit(X[: given.trained], y[: given.trained])

    def with_interval(rows: Any) -> None:
        found = made.predict_dist(rows)
        found.reduce(lambda p, _: p.mean[0], lambda p, _: p.stddev[0])
        found.interval()

    name = f"trained, {given.rows} rows with intervals, 1 thread"
    yield timed(Goal(name, 4.0), lambda: with_interval(new), given.repeats)
    yield timed(Goal("trained, 1 row, 1 thread", 0.004), lambda: made.predict(new[:1]), 20 * given.repeats)


def pretrained(
    estimator: type[NPRegressor | NPClassifier],
    make: Callable[[int, int], tuple[Any, Any]],
    rows: int,
    columns: int,
    asked: int,
    given: argparse.Namespace,
) -> Iterator[dict[str, Any]]:
    """The default: a network that is not trained, on a table of so many rows and columns."""
    X, y = make(rows + given.many, columns)
    made = estimator(random_state=0, device="cpu")

    def answer() -> None:
        made.fit(X[:rows], y[:rows]).predict(X[rows : rows + asked])

    size = f"{make.__name__}, {rows} x {columns}, {given.threads} threads"
    goal = {100: 0.3, 1000: 2.0}[rows]
    name = estimator.__name__
    whole = timed(Goal(f"{name}, fit and {asked} rows, {size}", goal), answer, given.repeats)
    yield whole | {"chosen": made.how_it_predicts}
    yield timed(Goal(f"{name}, 1 row, {size}", 0.03), lambda: made.predict(X[-1:]), 10 * given.repeats)
    yield timed(
        Goal(f"{name}, {given.many} rows, {size}", 0.0016 * given.many), lambda: made.predict(X[rows:]), 2
    )


def table(rows: int, columns: int) -> tuple[Any, Any]:
    """Friedman's first function with noise: smooth, which suits a Gaussian process."""
    return make_friedman1(rows, columns, noise=1.0, random_state=0)


def jumps(rows: int, columns: int) -> tuple[Any, Any]:
    """Jumps, a skewed size and noise in some rows only, of three columns: this suits the network best."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, columns))
    noise = 0.5 * rng.normal(size=rows) * (X[:, 1] > 0)
    return X, np.sign(X[:, 0]) * np.exp(X[:, 2] + noise)


def classes(rows: int, columns: int) -> tuple[Any, Any]:
    """Three classes by a tree of three columns, which suits the network best."""
    X = np.random.default_rng(0).normal(size=(rows, columns))
    return X, np.where(X[:, 0] > 0, 2 * (X[:, 1] > 0), X[:, 2] > 0).astype(int)


def timed(goal: Goal, action: Callable[[], Any], repeats: int) -> dict[str, Any]:
    """The fastest and the median of some repeats, after one that fills caches."""
    action()
    wall, cpu = [], []
    for _ in range(repeats):
        start = time.perf_counter(), time.process_time()
        action()
        wall.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
    seconds = {
        "seconds": round(min(wall), 4),
        "median_seconds": round(float(np.median(wall)), 4),
        "cpu_seconds": round(min(cpu), 4),
    }
    return {"what": goal.name, **seconds, "goal": goal.seconds}


if __name__ == "__main__":
    main()
