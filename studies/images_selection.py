"""Selection of settings with which DSVNP classifies well and detects o.o.d. images, on training images alone.

    python -m studies.images_selection OUT.jsonl DATA_DIR mnist
    python -m studies.images_selection OUT.jsonl DATA_DIR '[{"domain": "mnist", "beta_local": 10.0}]'

Trains a model for each cell of a grid below, or of one that is given: a few settings in place of the preset's, on all
but 5000 training images. It judges those, the same images in shuffled blocks, and noise; never a test image, nor one of
the sets that models are tested on. Run again, it does the rest. Among the cells that classify as well as the best, it
chooses the one that detects o.o.d. images best: shuffled ones, and noise in the range of the images (a first choice by
shuffled images alone took networks that were certain about noise).
"""

import hashlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.console import Console

from dsvnp.paper.experiment import Workplace
from dsvnp.paper.images.experiment import ImageRecipe, ImagesExperiment
from dsvnp.paper.label import Label
from dsvnp.paper.rows import grouped
from dsvnp.paper.settings import make_experiment
from studies.resume import Entry, Settings, finish

RECIPE_FIELDS = tuple(asdict(ImageRecipe()))

SHORT = {"length": 0.2}  # of the paper's epochs
START = {"learning_rate": 1e-3, "weight_decay": 0.01, "pad": 2}  # what MNIST's strong recipe was at first
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
# Between the cells above: a large decay detected strange images best, a small one classified best; shifts made networks
# accurate but sure of noise. Two seeds each, which differ by as much as neighbours in the grid.
FINER: list[dict[str, Any]] = [
    {"pad": pad, "learning_rate": rate, "weight_decay": decay, "seed": seed}
    for pad, rate, decay, seed in product((1, 2), (1e-3, 3e-3), (0.05, 0.15, 0.3), (0, 1))
]
# For CIFAR-10, where a cell takes a minute of a GPU.
FEW: list[dict[str, Any]] = [
    *({"learning_rate": rate, "weight_decay": 0.05, "beta_local": 1.0} for rate in (1e-3, 3e-4, 3e-3)),
    {"learning_rate": 1e-3, "weight_decay": 0.5, "beta_local": 1.0},
    *({"learning_rate": 1e-3, "weight_decay": decay, "beta_local": 0.1} for decay in (0.05, 0.5)),
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
GRIDS: dict[str, list[Settings]] = {
    "mnist": [
        *({"domain": "mnist", **SHORT, **cell} for cell in WEIGHTS),
        *(
            {"domain": "mnist", "recipe": "strong", **SHORT, **START, **cell}
            for cell in [*REST, *PLAIN, *FINER]
        ),
    ],
    "cifar10": [
        {"domain": "cifar10", "recipe": "strong", "precision": "bf16", **SHORT, **cell} for cell in FEW
    ],
}


def select_images(
    cells: Sequence[Settings], out: Path, place: Workplace, preset: str = "paper", **settings: Any
) -> list[Entry]:
    """Train and judge the cells that `out` lacks; return all that it holds.

    A cell holds settings of the recipe and of the experiment, "recipe" for the strong one, "model" for another than
    DSVNP and "seed" for another than 0; `settings` are further changes of the preset, in all cells.
    """

    def made(cell: Settings) -> ImagesExperiment:
        own = {"recipes": cell.get("recipe", "paper"), "models": (cell.get("model", "dsvnp"),)}
        for name, value in cell.items():
            if name not in ("model", "seed", "recipe"):
                own[f"change.{name}" if name in RECIPE_FIELDS else name] = value
        changes = {"portions.judged_on": "held-out", **settings, **own}
        return make_experiment(ImagesExperiment, preset, **changes)

    def entry(cell: Settings) -> Settings:
        """What is known of a cell before it is judged; its recipe as well, as the recipes may change one day.

        Settings that have their default are left out: a new one makes no other cell of a finished one.
        """
        experiment = made(cell)
        (label,) = experiment.labels()
        recipe, usual = asdict(experiment.recipe_of(label)), asdict(ImageRecipe())
        rest = {name: value for name, value in recipe.items() if value != usual[name]}
        trained = {"learning_rate": recipe["learning_rate"], **rest}
        return {"cell": cell, "label": str(label), "trained": trained}

    def judge(cells: Sequence[Settings]) -> Iterator[Settings]:
        for what in cells:
            name = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:12]
            # A folder of the cell, in whatever list it stands.
            inner = replace(place, out=place.out / f"cell-{name}")
            seeds = [what["cell"].get("seed", 0)]
            unit = made(what["cell"]).run_unit(Label.parse(what["label"]), seeds, inner)
            tested = [m for m in unit.measurements if m.split == "test"]
            yield {"scores": {f"{m.dataset} {m.metric}": round(m.values[0], 5) for m in tested}}

    return finish(([entry(cell)] for cell in cells), out, judge)


def choose_recipe(done: Sequence[Mapping[str, Any]], num_images: int = 5000) -> dict[str, Any]:
    """The DSVNP that detects strange images best, of those as accurate as the best within a standard error.

    Of entries of one domain; seeds of a recipe are averaged. Returns how it was trained, and its mean scores.
    """

    def identity(entry: Settings) -> tuple[ImageRecipe, str]:
        # What is no part of a recipe (another network, fewer images) distinguishes cells too.
        other = {k: v for k, v in entry.get("cell", {}).items() if k not in (*RECIPE_FIELDS, "seed")}
        return ImageRecipe(**entry["trained"]), json.dumps(other, sort_keys=True)

    recipes = grouped(filter(is_dsvnp, done), identity)
    if not recipes:
        raise ValueError(
            "no cell is a DSVNP, and the recipe is chosen for it; add one, or read the lines themselves"
        )
    means = [
        {
            "trained": asdict(recipe),
            "scores": {name: fmean(e["scores"][name] for e in runs) for name in runs[0]["scores"]},
        }
        for (recipe, _), runs in recipes.items()
    ]
    best = max(_accuracy(entry["scores"]) for entry in means)
    margin = math.sqrt(best * (1 - best) / num_images)
    good = [entry for entry in means if _accuracy(entry["scores"]) >= best - margin]
    return max(good, key=lambda entry: _detection(entry["scores"]))


def is_dsvnp(entry: Settings) -> bool:
    """Whether an entry is of the model that the recipe is chosen for."""
    return Label.parse(entry["label"]).model == "dsvnp"


def _accuracy(scores: Mapping[str, float]) -> float:
    """On the domain's own images."""
    return next(value for name, value in scores.items() if name.endswith("-held-out accuracy"))


def _detection(scores: Mapping[str, float]) -> float:
    """Mean AUROC over the sets of strange images that a detector cannot tell by their range."""
    endings = ("shuffled auroc", "-in-range auroc")
    return fmean(value for name, value in scores.items() if name.endswith(endings))


if __name__ == "__main__":
    out, data_dir, asked = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    cells = GRIDS[asked] if asked in GRIDS else json.loads(asked)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    console = Console()
    done = select_images(cells, out, Workplace(out.with_suffix(""), device, console, data_dir))
    console.print(choose_recipe(done) if any(map(is_dsvnp, done)) else done)
