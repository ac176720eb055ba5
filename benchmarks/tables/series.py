"""Real time series with points held out, and a Gaussian process whose kernel maximum likelihood chooses.

    python benchmarks/tables/series.py --out results/series/rows.jsonl
    python benchmarks/tables/series_report.py results/series

| name | from statsmodels | points | block |
| --- | --- | --- | --- |
| co2 | Mauna Loa CO₂, weeks averaged to months | 521 of 526 months from March 1958 | a year |
| sunspots | yearly sunspots from 1700 | 309 | 11 years, about a cycle |
| nile | yearly flow at Aswan from 1871 | 100 | 10 years |
| elnino | monthly sea-surface temperature from 1950 | 732 | a year |

Two ways to hold out, five fixed seeds each: `points`, 70 % of the points at random; `blocks`, 30 % of the whole blocks.
y is standardised with the observed points, and NLL is per held-out point, each by itself, in these units. The rival
fits six kernels with noise and keeps the one with the highest marginal likelihood; all of its seconds count.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from predictives import Gaussian, Mixture, regression_scores
from run import read_lines
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    ExpSineSquared,
    Kernel,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

from dsvnp import CurveRegressor

Floats = NDArray[np.float64]
Way = Literal["points", "blocks"]
BLOCKS = {"co2": 12, "sunspots": 11, "nile": 10, "elnino": 12}  # points
PERIODS = {"co2": 1.0, "sunspots": 11.0, "nile": 10.0, "elnino": 1.0}  # years; where the search starts
WAYS: tuple[Way, ...] = ("points", "blocks")
HELD_POINTS, HELD_BLOCKS, NUM_SEEDS, STARTS = 0.7, 0.3, 5, 2


@dataclass(frozen=True)
class Series:
    """A series: years and values, [N] each, and which points are held out, [N]."""

    name: str
    x: Floats
    y: Floats
    held: NDArray[np.bool_]

    def standardised(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Years and values of observed points, then of held-out ones; values in units of the observed."""
        seen = self.y[~self.held]
        y = (self.y - seen.mean()) / seen.std()
        return self.x[~self.held], y[~self.held], self.x[self.held], y[self.held]


def values_of(name: str) -> tuple[Floats, Floats]:
    """Years and values of a whole series, [N] each."""
    frame = importlib.import_module(f"statsmodels.datasets.{name}").load_pandas().data
    if name == "co2":
        monthly = frame["co2"].groupby([frame.index.year, frame.index.month]).mean().dropna()
        years = monthly.index.get_level_values(0) + (monthly.index.get_level_values(1) - 0.5) / 12
        return np.asarray(years, float), monthly.to_numpy(float)
    if name == "elnino":
        months = frame.drop(columns="YEAR").to_numpy(float)  # [years, 12]
        years = frame["YEAR"].to_numpy(float)[:, None] + (np.arange(12) + 0.5) / 12
        return years.ravel(), months.ravel()
    numbers = frame.apply(pd.to_numeric).to_numpy(float)
    return numbers[:, 0], numbers[:, 1]


def held_out(num_points: int, block: int, way: Way, seed: int) -> NDArray[np.bool_]:
    """Which points are held out: 70 % of them at random, or 30 % of the whole blocks, [N]."""
    rng = np.random.default_rng([seed, WAYS.index(way)])
    if way == "points":
        held = np.zeros(num_points, bool)
        held[rng.permutation(num_points)[: round(HELD_POINTS * num_points)]] = True
        return held
    blocks = np.arange(num_points) // block
    count = blocks[-1] + 1
    return np.isin(blocks, rng.permutation(count)[: round(HELD_BLOCKS * count)])


def load_series(name: str, way: Way, seed: int) -> Series:
    """Read a series and hold out points of it."""
    if name not in BLOCKS:
        raise KeyError(f"no series is named {name!r}; there are {', '.join(BLOCKS)}")
    x, y = values_of(name)
    return Series(name, x, y, held_out(len(x), BLOCKS[name], way, seed))


# --- the rival ---


def kernels(span: float, period: float) -> dict[str, Kernel]:
    """Kernels to choose from, without noise; `span` is the length of the series in years."""
    lengths = {"length_scale_bounds": (1e-3 * span, 1e2 * span)}

    def scaled(kernel: Kernel) -> Kernel:
        return ConstantKernel(1.0, (1e-4, 1e4)) * kernel

    def smooth(length: float) -> Kernel:
        return scaled(RBF(length, **lengths))

    cycle = ExpSineSquared(1.0, period, (1e-1, 1e2), (0.5 * period, 2 * period))
    rough = scaled(Matern(0.1 * span, nu=1.5, **lengths))
    mixed = RationalQuadratic(0.1 * span, 1.0, alpha_bounds=(1e-2, 1e3), **lengths)
    return {
        "rbf": smooth(0.1 * span),
        "matern-3/2": rough,
        "rational quadratic": scaled(mixed),
        "rbf + periodic": smooth(0.3 * span) + scaled(cycle),
        "rbf + periodic × rbf": smooth(0.3 * span) + scaled(cycle) * RBF(0.5 * span, **lengths),
        "rbf + periodic × rbf + matern-3/2": smooth(span) + scaled(cycle) * RBF(span, **lengths) + rough,
    }


def maximum_likelihood(x: Floats, y: Floats, x_test: Floats, period: float, seed: int) -> Mixture:
    """Prediction of the kernel with the highest marginal likelihood, each fitted from two starts."""
    fitted: dict[str, GaussianProcessRegressor] = {}
    for name, kernel in kernels(float(np.ptp(x)), period).items():
        noisy = kernel + WhiteKernel(0.1, (1e-6, 1e1))
        made = GaussianProcessRegressor(noisy, n_restarts_optimizer=STARTS - 1, random_state=seed)
        fitted[name] = made.fit(x[:, None], y)
    best = max(fitted, key=lambda name: fitted[name].log_marginal_likelihood_value_)
    mean, std = fitted[best].predict(x_test[:, None], return_std=True)
    found = fitted[best].log_marginal_likelihood_value_
    return Gaussian(mean, std, {"kernel": best, "log_likelihood": round(float(found), 3)})


def curves(x: Floats, y: Floats, x_test: Floats, period: float, seed: int) -> Mixture:
    """Prediction of `CurveRegressor`, which is told neither the period nor a kernel."""
    curve = CurveRegressor().fit(x, y)
    found = curve.predict_dist(x_test)
    assert found.log_weights is not None
    arrays = (found.log_weights.exp()[..., None], found.loc, found.scale)
    view = {"period": curve.view_.period, "circle": curve.view_.circle, "weights": len(curve.view_.weights)}
    view["share of the process"] = round(curve.share_, 3)
    return Mixture(*(array[0, :, 0, :, 0].T.numpy() for array in arrays), notes=view)


Rival = Callable[[Floats, Floats, Floats, float, int], Any]
# (x, y, x_test, period, seed) -> predictive
MODELS: dict[str, Rival] = {"gp": maximum_likelihood, "curves": curves}


def measure(model: str, name: str, way: Way, seed: int) -> dict[str, Any]:
    """Scores of a model on one series with points held out."""
    x, y, x_test, y_test = load_series(name, way, seed).standardised()
    start, start_cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # searches that end at a bound
        found = MODELS[model](x, y, x_test, PERIODS[name], seed)
    spent = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - start_cpu}
    rounded = {key: round(value, 6) for key, value in {**regression_scores(found, y_test), **spent}.items()}
    return {"points": len(x), "held_points": len(x_test), **rounded, "notes": found.notes}


def main() -> None:
    """Measure what is missing in a file, one line at a time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="gp,curves")
    parser.add_argument("--series", default=",".join(BLOCKS))
    parser.add_argument("--seeds", type=int, default=NUM_SEEDS)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    done = {(line["model"], line["series"], line["way"], line["seed"]) for line in read_lines(args.out)}
    for seed in range(args.seeds):
        for name in args.series.split(","):
            for way in WAYS:
                for model in args.models.split(","):
                    if (model, name, way, seed) in done:
                        continue
                    about = {"series": name, "way": way, "seed": seed, "model": model}
                    line = json.dumps({**about, **measure(model, name, way, seed)})
                    with args.out.open("a", encoding="utf-8") as file:
                        file.write(line + "\n")
                    print(line, flush=True)


if __name__ == "__main__":
    main()
