"""How coherent the functions are that the network for curves draws: at once by its copula, or by autoregression.

    python -m studies.curve_functions WEIGHTS OUT.json --tasks 128

Log-likelihoods of all targets of a task together, divided by their number, on processes of one input whose exact one is
known, the tasks of `curves_validation`; and seconds to draw functions at 200 inputs from 12 points, on one thread.

    single     the product of the marginals: independent targets
    copula     one pass, targets joined by the network's copula
    chain      autoregression, one target after the other in two random orders
    exact      the process that the tasks were drawn from
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dsvnp import CurveRegressor
from dsvnp.models import NeuralProcess
from dsvnp.pretrained import load_pretrained
from dsvnp.sources.gp import gp_tasks
from dsvnp.sources.gp_exact import exact
from studies.curves_validation import FIELD, SEED, in_units, summary

ORDERS, POINTS = 2, 64
INPUTS, KNOWN = 200, 12
DRAWN = (1, 10, 100)


@torch.no_grad()
def likelihoods(model: NeuralProcess, kernel: str, count: int) -> dict[str, Any]:
    """The four log-likelihoods with their standard errors, and what the copula is behind the chain."""
    prior = FIELD[kernel]
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in ("single", "copula", "chain", "exact")}
    generator = torch.Generator().manual_seed(SEED)
    for known in gp_tasks(prior, count, generator, batch_size=32, share=1, num_points=POINTS):
        task, std = in_units(known.task.joined())
        y, _ = task.all_points()
        counted = model.counted(task)
        number = counted.sum(1)
        predictive = model.predict(task, 1)
        single = torch.where(counted, predictive.log_prob(y), 0.0).sum(1)
        chain = model.log_prob_joint(task, ORDERS, generator=generator)
        for name, value in {
            "single": single,
            "copula": predictive.log_prob_joint(y, counted),
            "chain": chain,
        }.items():
            parts[name].append(value / number - std.log())
        parts["exact"].append(exact(known.task, known.hyper, prior).per_task)
    found = {name: torch.cat(values).double() for name, values in parts.items()}
    pairs = {"copula_gain": ("copula", "single"), "chain_gain": ("chain", "single")}
    found |= {name: found[a] - found[b] for name, (a, b) in pairs.items()}
    return {key: value for name, values in found.items() for key, value in summary(values, name).items()}


def seconds(weights: Path) -> dict[str, dict[str, float]]:
    """Time of `CurveRegressor.sample_functions`, with and without autoregression."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 10, KNOWN))
    curve = CurveRegressor(weights=weights, process=False).fit(x, np.sin(x) + 0.05 * rng.normal(size=KNOWN))
    grid = np.linspace(-1, 11, INPUTS)
    found: dict[str, dict[str, float]] = {}
    for name, block in (("copula", None), ("chain", 1), ("chain of blocks of 8", 8)):
        found[name] = {}
        for number in DRAWN if block != 1 else DRAWN[:2]:
            start = time.perf_counter()
            curve.sample_functions(grid, number, block=block)
            found[name][str(number)] = round(time.perf_counter() - start, 3)
    return found


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", type=int, default=128)
    chosen = parser.parse_args()
    model = load_pretrained("curves", chosen.weights)
    rows: dict[str, Any] = {"tasks": chosen.tasks}
    rows["likelihoods"] = {kernel: likelihoods(model, kernel, chosen.tasks) for kernel in FIELD}
    rows["seconds"] = seconds(chosen.weights)
    chosen.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
