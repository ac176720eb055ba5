"""`NPRegressor.fit_tasks` with its defaults against a Gaussian process for each task, on five families of functions.

    OMP_NUM_THREADS=1 python benchmarks/tasks.py --seeds 3 --jobs 6

    sensors      y = A sin(t + φ)                     A ~ U[0.5, 3], φ ~ U[0, 2π]
    oscillators  y = A e^{−γt} cos(ωt + φ)            A ~ U[0.5, 3], γ ~ U[0.05, 0.5], ω ~ U[1, 3], φ ~ U[0, 2π]
    growth       y = K / (1 + e^{−r(t − m)})          K ~ U[0.5, 3], r ~ U[0.5, 3], m ~ U[2, 8]
    steps        y = K s(t − d), s the response of a damped oscillator (ω, ζ) to a step
                                                      K ~ U[0.5, 3], d ~ U[0, 4], ω ~ U[1, 4], ζ ~ U[0.2, 0.9]
    uncalibrated  y = g (sensor with its noise) + b   ln g ~ N(0, 0.5²), b ~ N(0, 10²)

All have t ~ U[0, 10] and noise of σ ~ U[0.05, 0.3] for each task. A fit reads 200 tasks with 20 to 60 readings; then 5,
10 or 20 readings of 100 new tasks are known, and 40 others are predicted. The GP has the kernel constant · RBF + white,
its parameters fitted to each task by the marginal likelihood from four starts. `results/tasks` holds one row for each
seed and family, with CPU seconds, and the table; a later run adds the missing ones. `--jobs` of them run at once, each
in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from dsvnp import NPRegressor

FOLDER = Path(__file__).parents[1] / "results" / "tasks"
KNOWN, ASKED = (5, 10, 20), 40
LEARNED, NEW = 200, 100
METRICS = ("rmse", "nll")

Floats = NDArray[np.float64]
Table = tuple[Floats, Floats]
Row = dict[str, Any]


# --- families: a function of t with random parameters ---


def sensor(t: Floats, rng: np.random.Generator) -> Floats:
    return rng.uniform(0.5, 3) * np.sin(t + rng.uniform(0, 2 * np.pi))


def oscillator(t: Floats, rng: np.random.Generator) -> Floats:
    wave = np.cos(rng.uniform(1, 3) * t + rng.uniform(0, 2 * np.pi))
    return rng.uniform(0.5, 3) * np.exp(-rng.uniform(0.05, 0.5) * t) * wave


def growth(t: Floats, rng: np.random.Generator) -> Floats:
    return rng.uniform(0.5, 3) / (1 + np.exp(-rng.uniform(0.5, 3) * (t - rng.uniform(2, 8))))


def step_response(t: Floats, rng: np.random.Generator) -> Floats:
    since = np.maximum(0, t - rng.uniform(0, 4))
    frequency, damping = rng.uniform(1, 4), rng.uniform(0.2, 0.9)
    rate, turns = damping * frequency, frequency * np.sqrt(1 - damping**2)
    swing = np.cos(turns * since) + rate / turns * np.sin(turns * since)
    return rng.uniform(0.5, 3) * (1 - np.exp(-rate * since) * swing)


FAMILIES: dict[str, Callable[[Floats, np.random.Generator], Floats]] = {
    "sensors": sensor,
    "oscillators": oscillator,
    "growth": growth,
    "steps": step_response,
    "uncalibrated": sensor,
}


def tables(family: str, count: int, seed: int, rows: int | None = None) -> list[Table]:
    """Noisy readings of functions, 20 to 60 of each unless `rows` says how many."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        t = rng.uniform(0, 10, rows or rng.integers(20, 61))
        y = FAMILIES[family](t, rng) + rng.uniform(0.05, 0.3) * rng.normal(size=len(t))
        if family == "uncalibrated":
            y = np.exp(0.5 * rng.normal()) * y + 10 * rng.normal()
        out.append((t[:, None], y))
    return out


# --- predictors: (context, inputs, outputs) → squared errors and −log-densities ---


def neural_process(fitted: NPRegressor, context: Table, X: Floats, y: Floats) -> Floats:
    found = fitted.predict_dist(X, context=context)
    return np.stack([(found.mean - y) ** 2, -found.log_prob(y)])


def gaussian_process(context: Table, X: Floats, y: Floats, seed: int) -> Floats:
    kernel = ConstantKernel(1.0, (1e-2, 1e2)) * RBF(1.0, (1e-1, 1e2)) + WhiteKernel(1e-1, (1e-3, 1e1))
    made = GaussianProcessRegressor(kernel, n_restarts_optimizer=3, normalize_y=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a parameter at the end of its range
        mean, deviation = made.fit(*context).predict(X, return_std=True)
    squares = (mean - y) ** 2
    return np.stack([squares, 0.5 * np.log(2 * np.pi * deviation**2) + squares / (2 * deviation**2)])


def averages(each: list[Floats]) -> dict[str, float]:
    """RMSE and NLL over tasks, each with as many readings."""
    squares, costs = np.mean(each, axis=(0, 2))
    return {"rmse": round(float(np.sqrt(squares)), 4), "nll": round(float(costs), 4)}


def measure(family: str, seed: int, new: int = NEW, **settings: Any) -> Row:
    """Fit to the tasks of one seed, and predict new ones by both methods."""
    start = time.process_time()
    fitted = NPRegressor(random_state=seed, device="cpu", **settings)
    fitted.fit_tasks(tables(family, LEARNED, 1000 + seed))
    row: Row = {"family": family, "seed": seed, "cpu_seconds": round(time.process_time() - start, 1)}
    assert fitted.recipe_ is not None  # tables of tasks are trained on
    recipe = fitted.recipe_
    row |= {"model": recipe.model, "own_units": recipe.own_units, "best_steps": fitted.best_steps_}
    asked = tables(family, new, 2000 + seed, rows=max(KNOWN) + ASKED)
    for known in KNOWN:
        parts = [((x[:known], y[:known]), x[-ASKED:], y[-ASKED:]) for x, y in asked]
        row[f"NP {known}"] = averages([neural_process(fitted, *part) for part in parts])
        row[f"GP {known}"] = averages([gaussian_process(*part, seed) for part in parts])
    return row


def table(rows: list[Row]) -> list[str]:
    """Means over seeds, with the spread over seeds where there are several."""
    columns = [f"{metric.upper()} {known}" for metric in METRICS for known in KNOWN]
    lines = [f"| family | | {' | '.join(columns)} | CPU s |", "| --- " * (len(columns) + 3) + "|"]
    for family in [name for name in FAMILIES if name in {row["family"] for row in rows}]:
        some = [row for row in rows if row["family"] == family]
        for method, called in (("NP", "`fit_tasks`"), ("GP", "GP per task")):
            cells = []
            for metric in METRICS:
                for known in KNOWN:
                    values = [row[f"{method} {known}"][metric] for row in some]
                    spread = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
                    cells.append(f"{np.mean(values):.2f}{spread}")
            seconds = f"{np.mean([row['cpu_seconds'] for row in some]):.0f}" if method == "NP" else "–"
            lines.append(f"| {family} | {called} | {' | '.join(cells)} | {seconds} |")
    return lines


def write(rows: list[Row], folder: Path) -> None:
    """The rows and the table made of them."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row) for row in rows)
    (folder / "rows.json").write_text(f"[\n{lines}\n]\n")
    seeds = [sum(row["family"] == family for row in rows) for family in FAMILIES]
    text = [
        "# Many small tasks",
        "",
        "Made by `python benchmarks/tasks.py`, whose first lines define the families, from `rows.json`: errors for 100 "
        f"new tasks of which 5, 10 or 20 readings are known, mean ± deviation over {', '.join(map(str, seeds))} "
        "seeds of the families. The estimator has its defaults; CPU seconds are those of its fit, on one thread.",
        "",
        *table(rows),
        "",
        "`common-units.json` has the uncalibrated sensors by the commit before tasks were read in units of their "
        "contexts (fd66b7e, docs/decisions/0011); `pretrained.jsonl` is of docs/decisions/0008.",
        "",
        "Since these rows were measured a fit also trains a copula, which joins the rows of a task, in about a fifth "
        "more time; predictions of single rows stay the same. `functions.jsonl` (`benchmarks/tasks_functions.py`) has "
        "what it gains.",
    ]
    (folder / "README.md").write_text("\n".join(text) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--new", type=int, default=NEW, help="new tasks to predict")
    parser.add_argument("--jobs", type=int, default=1, help="seeds and families at once")
    parser.add_argument("--set", type=json.loads, default={}, help="settings of NPRegressor, as JSON")
    parser.add_argument("--out", type=Path, default=FOLDER)
    args = parser.parse_args()
    path = args.out / "rows.json"
    rows: list[Row] = json.loads(path.read_text()) if path.is_file() else []
    done = {(row["family"], row["seed"]) for row in rows}
    asked = [(family, seed) for seed in range(args.seeds) for family in args.families.split(",")]
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        made = [pool.submit(measure, *job, args.new, **args.set) for job in asked if job not in done]
        for row in as_completed(made):
            rows = sorted(
                [*rows, row.result()], key=lambda each: (each["seed"], [*FAMILIES].index(each["family"]))
            )
            write(rows, args.out)
            print(json.dumps(row.result()), flush=True)


if __name__ == "__main__":
    main()
