"""How far the mean over the first batches of the field's tests may be off: the exact GP's, with its standard error.

    python -m studies.field_batches results/field/batches.json

Tasks are drawn on the CPU, as `tests.drawn_on` has it. Every model's mean varies with the batches as the GP's does.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsvnp.paper.field.unseen import PRIORS, batch_means, draw_unseen
from dsvnp.sources.gp_exact import exact

KERNELS, SIZES, FLOORS = ("rbf", "matern52"), (500, 1000, 3000), (0.0, 0.1)
NUM_POINTS = 50


def marginal_means(kernel: str, num_batches: int, floor: float) -> Tensor:
    """Log-likelihood per point of each batch under the exact GP with σ of at least `floor`, [batches]."""
    drawn = draw_unseen(kernel, num_batches, NUM_POINTS, torch.device("cpu"))
    found = [exact(known.task, known.hyper, PRIORS[kernel], floor).task_means() for known in drawn]
    return batch_means(torch.cat(found))


def measure(sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    """One row per kernel, floor and number of first batches."""
    rows = []
    for kernel in KERNELS:
        for floor in FLOORS:
            means = marginal_means(kernel, max(sizes), floor)
            for size in sizes:
                error = means[:size].std() / size**0.5
                row = {"kernel": kernel, "floor": floor, "batches": size, "mean": float(means[:size].mean())}
                rows.append({**row, "stderr": float(error)})
    return rows


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    rows = [{k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()} for row in measure(SIZES)]
    out.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
