"""Whole functions after `NPRegressor.fit_tasks`: the density of 40 readings together, on the families of `tasks`.

    OMP_NUM_THREADS=1 python benchmarks/tasks_functions.py

Each family is fitted once for each seed. Of 100 new tasks 5, 10 or 20 readings are known. Negative log-likelihood in
nats per reading of the other 40: each by itself, and all together, where a copula joins them; the share of the variance
that functions carry, the rest is noise; and how many of 50 functions that were drawn differ.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from dsvnp import NPRegressor
from tasks import ASKED, FAMILIES, KNOWN, LEARNED, NEW, Row, tables

OUT = Path(__file__).parents[1] / "results" / "tasks" / "functions.jsonl"
DRAWN = 50


def measure(family: str, seed: int, new: int) -> list[Row]:
    """A row for each number of known readings."""
    start = time.process_time()
    fitted = NPRegressor(random_state=seed, device="cpu").fit_tasks(tables(family, LEARNED, 1000 + seed))
    seconds = round(time.process_time() - start, 1)
    assert fitted.recipe_ is not None  # tables of tasks are trained on
    asked = tables(family, new, 2000 + seed, rows=max(KNOWN) + ASKED)
    rows = []
    for known in KNOWN:
        found = np.array([_measures(fitted, x, y, known) for x, y in asked])
        alone, together, share, functions = found.mean(0)
        gain = found[:, 0] - found[:, 1]
        row = {"family": family, "seed": seed, "model": fitted.recipe_.model, "cpu_seconds": seconds}
        row |= {"known": known, "alone": alone, "together": together, "gain": gain.mean()}
        row |= {"gain_error": gain.std(ddof=1) / len(gain) ** 0.5, "share": share, "functions": functions}
        rows.append({key: round(float(v), 4) if isinstance(v, float) else v for key, v in row.items()})
    return rows


def _measures(fitted: NPRegressor, x: np.ndarray, y: np.ndarray, known: int) -> tuple[float, ...]:
    """NLL of the asked readings of one task, alone and together, share of functions, and how many are different."""
    found = fitted.predict_dist(x[-ASKED:], context=(x[:known], y[:known]))
    predictive, outputs = found.predictive, torch.from_numpy(y[-ASKED:])[None, :, None]
    alone = -float(predictive.log_prob(outputs).mean())
    together = -float(predictive.log_prob_joint(outputs)) / ASKED
    share = float(predictive.epistemic.sum() / predictive.variance.sum())
    drawn = found.sample(DRAWN, 0, noise=False)
    return alone, together, share, float(len(np.unique(drawn[0].round(9))))


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--new", type=int, default=NEW, help="new tasks to predict")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    lines = []
    for seed in range(args.seeds):
        for family in args.families.split(","):
            lines += [json.dumps(row) for row in measure(family, seed, args.new)]
            print(*lines[-len(KNOWN) :], sep="\n", flush=True)
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
