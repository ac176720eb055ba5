"""What more rows would buy: the likelihood of a row against the rows of its context, and what a long context costs.

    python -m studies.scaling_rows results/pretrained/scaling [--count 24]

The shipped network for tables predicts the same rows of synthetic tables (numbers) from 16 to 1,024 rows. To the means
we fit L(n) = E + a n^−b and state gains over the largest context; tables drawn with replacement give their uncertainty.
Cost is counted in operations of one forward pass: linear layers grow with n, attention among rows with n². `rows.json`
is written into the folder.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import least_squares

from dsvnp.models.architecture import Architecture
from dsvnp.pretrained import load_pretrained
from dsvnp.pretrained.validation import make_task
from dsvnp.sources.priors.randomness import Random
from dsvnp.sources.priors.tables import TableSettings, draw_tables

Floats = NDArray[np.float64]
SIZES = (16, 32, 64, 128, 256, 512, 1024)
ASKED, COLUMNS, SEED = 64, 8, 30_000  # no training run has this seed
AHEAD = (1_000, 10_000, 100_000, 1_000_000)
NUM_DRAWS = 300


@torch.no_grad()
def measured(count: int) -> Floats:
    """Negative log-likelihood of a row, in units of the whole table's deviation, [tables, sizes]."""
    model = load_pretrained("tables")
    settings = TableSettings(1, max(SIZES) + ASKED, min_columns=2, max_columns=COLUMNS, classes=0.0)
    random = Random(torch.Generator().manual_seed(SEED), torch.device("cpu"))
    rows = []
    for _ in range(count):
        drawn = draw_tables(random, settings, 1)
        x, y = drawn["x"][0][:, drawn["used"][0]], drawn["y"][0]
        rows.append([_score(model, x, y, size) for size in SIZES])
    return np.array(rows)


def _score(model: Any, x: torch.Tensor, y: torch.Tensor, size: int) -> float:
    """Score the last rows given the first; a context's own deviation is taken out."""
    kept = torch.cat([torch.arange(size), torch.arange(len(y) - ASKED, len(y))])
    known = torch.arange(len(kept)) < size
    bound = model.objective(make_task(x[kept], y[kept], known, 0))
    unit = y[:size].std() / y.std()
    return float(-bound.log_likelihood.sum() / bound.num_points.sum() + unit.clamp(min=1e-3).log())


def fit_power(loss: Floats) -> Floats:
    """E, ln a and b of L(n) = E + a n^−b, by least squares on the mean over tables."""
    mean, sizes = loss.mean(0), np.array(SIZES, float)
    low, high = [-5, -5, 0.05], [mean.min(), 5, 2]

    def errors(theta: Floats) -> Floats:
        return theta[0] + np.exp(theta[1]) * sizes ** -theta[2] - mean

    starts = [np.array([mean.min() - gap, 1.0, slope]) for gap in (0.05, 0.5) for slope in (0.3, 0.8)]
    return min((least_squares(errors, s, bounds=(low, high)) for s in starts), key=lambda found: found.cost).x


def cost(arch: Architecture, rows: float, columns: int) -> dict[str, float]:
    """Operations of one forward pass that predicts a tenth as many rows as it reads, and how many are attention's."""
    tokens = 1.1 * rows
    cells, stack = arch.cells, arch.transformer

    def layers(sizes: Any) -> float:
        return 2 * sizes.num_layers * (4 * sizes.width**2 + 2 * sizes.width * sizes.feedforward)

    linear = tokens * ((columns + 1) * layers(cells) + layers(stack))
    attention = 4 * stack.width * stack.num_layers * tokens * rows
    return {
        "tera_operations": round((linear + attention) / 1e12, 3),
        "attention": round(attention / (linear + attention), 3),
    }


def main() -> None:
    """Measure, fit, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=24)
    options = parser.parse_args()
    loss = measured(options.count)
    rng = np.random.default_rng(0)
    theta = fit_power(loss)
    draws = [fit_power(loss[rng.integers(0, len(loss), len(loss))]) for _ in range(NUM_DRAWS)]
    arch, ahead = load_pretrained("tables").arch, {}

    def gain(theta: Floats, rows: float) -> float:
        return float(np.exp(theta[1]) * (max(SIZES) ** -theta[2] - rows ** -theta[2]))

    for rows in AHEAD:
        spread = np.quantile([gain(draw, rows) for draw in draws], [0.1, 0.9])
        ahead[str(rows)] = {
            "gain": [round(float(value), 3) for value in (gain(theta, rows), *spread)],
            **cost(arch, rows, 20),
        }
    found = {
        "tables": options.count,
        "columns": [2, COLUMNS],
        "sizes": list(SIZES),
        "loss": [round(float(value), 4) for value in loss.mean(0)],
        "error": [round(float(value), 4) for value in (loss - loss[:, -1:]).std(0) / len(loss) ** 0.5],
        "fit": {
            "E": round(float(theta[0]), 4),
            "a": round(float(np.exp(theta[1])), 4),
            "b": round(float(theta[2]), 4),
        },
        "ahead": ahead,
    }
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "rows.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
