"""Which settings let a DSVNP classify well and know what it does not know, chosen on training images alone.

    python -m dsvnp.experiments.images_selection OUT.jsonl DATA_DIR mnist
    python -m dsvnp.experiments.images_selection OUT.jsonl DATA_DIR '[{"domain": "mnist", "beta_local": 10.0}]'

Trains a model for each cell of a grid below, or of one that is given: a few settings in place of the preset's, on all
but 5000 training images. It judges those, the same images in shuffled blocks, and noise; never a test image, nor one of
the sets that models are tested on. Writes a line for each cell as soon as it is finished; run again, it goes on with
the rest. Among the cells that classify as well as the best, it chooses the one that tells shuffled images apart best.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from dsvnp.experiments.base import Workplace, make_experiment
from dsvnp.experiments.cells import Cell, finish
from dsvnp.experiments.images import ImagesExperiment

SHORT = {"length": 0.2}  # of the paper's epochs
WEIGHTS: list[dict[str, Any]] = [
    *({"beta_local": b, "anneal": share} for b, share in product((0.01, 0.1, 1.0, 10.0), (0.0, 0.25))),
    {"beta_local": 1.0, "anneal": 1.0},
]
REST: list[dict[str, Any]] = [
    *({"learning_rate": rate} for rate in (3e-4, 3e-3)),
    *({"weight_decay": decay} for decay in (0.005, 0.05, 0.5)),
    {"train_local": 4},
    {"model": "nn"},
]
# Images as they are, and shorter. These cells were thought of after entropies of test images and of the sets that
# models are tested on had been seen in short runs; the choice among them looks at none of these.
PLAIN: list[dict[str, Any]] = [
    {"pad": 0},
    *(
        {"pad": 0, "anneal": 0.05, "weight_decay": decay, "length": share}
        for decay, share in product((0.01, 0.1, 0.3), (0.1, 0.2))
    ),
]
GRIDS: dict[str, list[Cell]] = {
    "mnist": [
        *({"domain": "mnist", **SHORT, **cell} for cell in WEIGHTS),
        *({"domain": "mnist", "recipe": "strong", **SHORT, **cell} for cell in [*REST, *PLAIN]),
    ],
    "cifar10": [
        {"domain": "cifar10", "recipe": "strong", "precision": "bf16", **SHORT, **cell}
        for cell in [*WEIGHTS, *REST]
    ],
}


def select(
    cells: Sequence[Cell], out: Path, place: Workplace, preset: str = "paper", **settings: Any
) -> list[dict[str, Any]]:
    """Train and judge the cells that `out` lacks; return all that it holds.

    Args:
        cells: settings of `ImagesExperiment`, and "model" for another than DSVNP, "seed" for another than 0.
        out: a file with a line for each cell.
        place: where to compute, and where data lies; checkpoints go below its folder.
        preset: what the cells change.
        settings: further changes, of all cells.
    """

    def judge(what: Cell) -> Cell:
        cell = what["cell"]
        own = {name: value for name, value in cell.items() if name not in ("model", "seed")}
        model, seed = cell.get("model", "dsvnp"), cell.get("seed", 0)
        made = make_experiment(
            ImagesExperiment, preset, judged_on="held-out", models=(model,), **{**settings, **own}
        )
        (label,) = made.labels()
        name = hashlib.sha256(json.dumps(cell, sort_keys=True).encode()).hexdigest()[:12]
        folder = place.out / f"cell-{name}"  # of the cell, in whatever list it stands
        unit = made.run_unit(label, [seed], Workplace(folder, place.device, place.console, place.data_dir))
        scores = {
            f"{m.dataset} {m.metric}": round(m.values[0], 5) for m in unit.measurements if m.split == "test"
        }
        return {"scores": scores}

    return finish([{"cell": cell} for cell in cells], out, judge)


def choose(done: Sequence[Mapping[str, Any]], num_images: int = 5000) -> Mapping[str, Any]:
    """The DSVNP with the highest AUROC on shuffled images, of those as accurate as the best within a standard error.

    Args:
        done: what `select` returns, all of one domain.
        num_images: on which it was judged.
    """
    mine = [entry for entry in done if entry["cell"].get("model", "dsvnp") == "dsvnp"]
    own = next(key for key in mine[0]["scores"] if key.endswith("-held-out accuracy"))
    best = max(entry["scores"][own] for entry in mine)
    margin = math.sqrt(best * (1 - best) / num_images)
    good = [entry for entry in mine if entry["scores"][own] >= best - margin]
    return max(good, key=lambda entry: entry["scores"]["shuffled auroc"])


if __name__ == "__main__":
    out, data_dir, asked = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    cells = GRIDS[asked] if asked in GRIDS else json.loads(asked)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    console = Console()
    console.print(choose(select(cells, out, Workplace(out.with_suffix(""), device, console, data_dir))))
