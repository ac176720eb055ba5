"""Trials of how DSVNP's local latent is inferred: one problem, one recipe, some seeds, one line of JSON for each.

    python -m studies.local_latent --problem shared-noise-2 --recipe np,local-ladder-4-iw --steps 60000 --seeds 0,1,2 \
        --device cuda --out trials.jsonl

The seeds train together as one fleet. Problems are those of the experiment `ambiguity`, and "sensors". All models
have the same networks and σ floor. Likelihoods are per point, of targets outside the context, by draws that suffice.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from dsvnp.estimation import log_likelihood
from dsvnp.models import Architecture, NeuralProcess, Transformer, make_model
from dsvnp.networks import Shape
from dsvnp.objectives import Objective
from dsvnp.paper.ambiguity.problem import ProblemTask
from dsvnp.paper.ambiguity.problems import PROBLEMS
from dsvnp.sources.base import TaskSource
from dsvnp.training import Fleet, Settings
from dsvnp.training.schedule import Schedule
from dsvnp.training.shared import matmul_precision
from studies.sensors import Y_STD, Sensors, new_sensors

FLOOR = 0.01
MAX_DRAWS = 16384


@dataclass(frozen=True)
class LatentRecipe:
    """A model, what it changes of the wide architecture, and what it changes of the objective."""

    model: str = "dsvnp"  # registered name
    arch: Mapping[str, Any] = field(default_factory=dict)  # changes of the architecture
    objective: Mapping[str, Any] = field(default_factory=dict)  # changes of the objective
    # share of the steps over which the weights of the KLs rise from 0; 0 for full weights at once
    ramp: float = 0.0
    late: float = 0.0  # share of the steps over which β_local falls from 100 to 1; 0 for 1 at once
    common: float = 0.0  # share of the steps in which all outputs have one σ; 2/3 at most
    mean: bool = False  # z_G stays at its mean, in training and in prediction

    def with_arch(self, **changes: Any) -> LatentRecipe:
        """The recipe with another architecture."""
        return replace(self, arch={**self.arch, **changes})

    def with_objective(self, **changes: Any) -> LatentRecipe:
        """The recipe with another objective."""
        return replace(self, objective={**self.objective, **changes})


INFERRED: dict[str, dict[str, Any]] = {  # changes of the local latent's inference
    "free": {},
    "silent": {"local_start": "silent"},
    "quiet": {"local_start": "silent", "local_detach": True},
    "ladder": {"local_posterior": "ladder"},
    "ladder-detach": {"local_posterior": "ladder", "local_detach": True},
}
IW = {"kind": "iw", "num_local": 8}
NPML = {"kind": "npml", "num_global": 2, "num_local": 4}
ONE = {"kind": "npml", "num_global": 1, "num_local": 4}
GSNN = {"kind": "gsnn", "num_global": 2, "num_local": 4}


def all_recipes() -> dict[str, LatentRecipe]:
    """Every recipe by name: "local-", the change of the local latent's inference, its size, the change of the loss."""
    recipes = plain_recipes()
    for name, dim in product(INFERRED, (2, 4, 8)):
        changed = local_recipes(LatentRecipe().with_arch(dim_local=dim, **INFERRED[name]))
        recipes |= {f"local-{name}-{dim}{suffix}": recipe for suffix, recipe in changed.items()}
    return {**recipes, "default": recipes["local-free-4-anneal-npml"]}


def plain_recipes() -> dict[str, LatentRecipe]:
    """Models without a local latent, and DSVNP with the paper's."""
    paper, np = LatentRecipe(), LatentRecipe("np")
    return {
        "cnp": LatentRecipe("cnp"),
        "np": np,
        "attnnp": LatentRecipe("attnnp"),
        "cnp-mixture-20": LatentRecipe("cnp").with_arch(likelihood="mixture", num_components=20),
        "cnp-low-rank": LatentRecipe("cnp").with_arch(likelihood="low-rank", rank=2),
        "tnp": LatentRecipe("tnp"),
        "tnp-mixture-20": LatentRecipe("tnp").with_arch(likelihood="mixture", num_components=20),
        "dsvtnp": replace(LatentRecipe("dsvtnp").with_arch(dim_local=4), ramp=0.25),
        "dsvtnp-npml": replace(
            LatentRecipe("dsvtnp").with_arch(dim_local=4).with_objective(**NPML), ramp=0.25
        ),
        "np-path": np.with_arch(deterministic_path=True),
        "np-iw": np.with_objective(kind="iw", num_global=8),
        "np-npml": np.with_objective(kind="npml", num_global=2),
        "np-npml-8": np.with_objective(kind="npml", num_global=8),
        "np-gsnn": np.with_objective(kind="gsnn", num_global=4),
        "cnp-low-rank-all": LatentRecipe("cnp").with_arch(likelihood="low-rank", score_context=True),
        "np-low-rank": np.with_arch(likelihood="low-rank"),
        "np-low-rank-npml-8": np.with_arch(likelihood="low-rank").with_objective(kind="npml", num_global=8),
        "np-low-rank-npml-8-targets": np.with_arch(likelihood="low-rank", score_context=False).with_objective(
            kind="npml", num_global=8
        ),
        "paper": paper,
        "paper-anneal": replace(paper, ramp=0.5),
        "paper-silent": paper.with_arch(local_start="silent"),
        "paper-detach": paper.with_arch(local_detach=True),
        "paper-silent-detach": paper.with_arch(local_start="silent", local_detach=True),
    }


def local_recipes(small: LatentRecipe) -> dict[str, LatentRecipe]:
    """Changes of the loss and of the networks for a small local latent, by the end of their name."""
    deep, slow, late = (
        small.with_arch(local_hidden=(128, 128)),
        replace(small, ramp=0.25),
        replace(small, late=0.25),
    )
    return {
        "": small,
        "-late": late,
        "-anneal": slow,
        "-anneal-half": replace(small, ramp=0.5),
        "-anneal-deep": replace(deep, ramp=0.25),
        "-anneal-iw": slow.with_objective(**IW),
        "-anneal-iw-32": slow.with_objective(kind="iw", num_local=32),
        "-anneal-npml": slow.with_objective(**NPML),
        "-anneal-npml-path": slow.with_objective(**NPML).with_arch(deterministic_path=True),
        "-anneal-npml-one": slow.with_objective(**ONE),
        "-anneal-npml-mean": replace(slow.with_objective(**ONE), mean=True),
        "-late-npml-mean": replace(late.with_objective(**ONE), mean=True),
        "-late-npml-one": late.with_objective(**ONE),
        "-late-npml-one-path": late.with_objective(**ONE).with_arch(deterministic_path=True),
        "-anneal-npml-targets": slow.with_objective(**NPML).with_arch(score_context=False),
        "-anneal-npml-common": replace(slow.with_objective(**NPML), common=0.3),
        "-anneal-npml-16": slow.with_objective(kind="npml", num_global=2, num_local=16),
        "-anneal-npml-deep": replace(deep, ramp=0.25).with_objective(**NPML),
        "-iw": small.with_objective(**IW),
        "-late-iw": late.with_objective(**IW),
        "-deep": deep,
        "-deep-iw": deep.with_objective(**IW),
        "-deep-late-iw": replace(deep, late=0.25).with_objective(**IW),
        "-npml": small.with_objective(**NPML),
        "-npml-8": small.with_objective(kind="npml", num_global=8, num_local=4),
        "-npml-deep": deep.with_objective(**NPML),
        "-npml-priors": small.with_objective(**NPML, propose_local=False),
        "-gsnn": small.with_objective(**GSNN),
        "-gsnn-anneal": slow.with_objective(**GSNN),
        "-gsnn-late": late.with_objective(**GSNN),
        "-si": small.with_objective(kind="si", num_local=8),
        "-free-bits": small.with_objective(free_bits=0.05),
    }


def make_source(problem: str, seeds: list[int], device: str, batch: int) -> TaskSource | list[TaskSource]:
    """Where the tasks of a problem come from: one source for all seeds, or sensors of its own for each."""
    if problem == "sensors":
        return [Sensors(seed, batch, device=device) for seed in seeds]
    return PROBLEMS[problem].source(batch)


def at_mean(make: Callable[[], NeuralProcess]) -> NeuralProcess:
    """A model that draws no noise for z_G, which therefore stays at its mean."""
    model = make()
    shapes = model.noise_shapes

    def without(*args: Any, **kwargs: Any) -> dict[str, Shape]:
        return {name: shape for name, shape in shapes(*args, **kwargs).items() if name != "global"}

    model.noise_shapes = without  # type: ignore[method-assign]
    return model


def sizes_of(width: int) -> dict[str, Any]:
    """Sizes of all networks: layers of a width, transformers of half of it."""
    token = width // 2
    return {
        "encoder": (width, width),
        "dim_lat": width,
        "decoder": (width, width, width),
        "transformer": Transformer(token, 6, feedforward=width, embedder=(token, token, token)),
    }


def train_recipe(
    problem: str,
    recipe: LatentRecipe,
    steps: int,
    seeds: list[int],
    device: str,
    rate: float,
    batch: int = 16,
    width: int = 128,
) -> Fleet:
    """Train one replica per seed, the learning rate falling to zero as a cosine."""
    known = None if problem == "sensors" else PROBLEMS[problem]
    dim_x, dim_y = (1, 1) if known is None else (known.dim_x, known.dim_y)
    arch = Architecture(dim_x, dim_y, sigma_floor=FLOOR, **{**sizes_of(width), **recipe.arch})
    ramp = {"anneal": "linear", "anneal_steps": int(recipe.ramp * steps)} if recipe.ramp else {}
    shares = {"late_steps": recipe.late, "common_steps": recipe.common}
    taken = {name: int(share * steps) for name, share in shares.items()}
    settings = Settings(
        steps,
        learning_rate=rate,
        schedule=Schedule(kind="cosine"),
        objective=Objective(**{**recipe.objective, **ramp, **taken}),
        precision="tf32" if device == "cuda" else "float32",
    )
    source = make_source(problem, seeds, device, batch)
    make = partial(make_model, recipe.model, arch)
    fleet = Fleet(partial(at_mean, make) if recipe.mean else make, source, seeds, settings, device)
    with matmul_precision(settings.precision):
        for _ in range(steps):
            fleet.step()
    return fleet


# --- measuring ---


def measure_latents(
    model: NeuralProcess, problem: str, device: str, num_tasks: int
) -> Iterator[tuple[str, Any]]:
    """Names and numbers of one trained model, on the same tasks for all."""
    generator = torch.Generator(device).manual_seed(77)
    if problem == "sensors":
        for known in (5, 10, 20):
            task = new_sensors(known, generator, min(100, num_tasks))
            error = (model.predict(task, 256, generator=generator).mean - task.all_points()[0])[:, 20:]
            yield f"rmse_{known}", Y_STD * float(error.square().mean().sqrt())
            found = log_likelihood(model, task, max_draws=MAX_DRAWS)
            yield f"log_likelihood_{known}", found.mean
            yield from ((f"{name}_{known}", getattr(found, name)) for name in ("method", "draws", "still"))
        return
    drawn = PROBLEMS[problem].tasks(num_tasks, generator)
    batches = [known.task for known in drawn]
    if problem == "shared-noise-2":
        yield "reading", reading_error(model, drawn)
    found = log_likelihood(model, batches, max_draws=MAX_DRAWS)
    yield from {
        name: getattr(found, name) for name in ("method", "draws", "still", "stderr", "bound")
    }.items()
    yield "log_likelihood", found.mean
    with torch.no_grad():
        terms = model.objective(batches[0], 16).per_point()
    yield "reconstruction", float(terms["log_likelihood"])  # of draws from q, without p/q: no likelihood
    yield from ((name, float(terms[name])) for name in ("kl_local", "kl_global"))


@torch.no_grad()
def reading_error(model: NeuralProcess, drawn: list[ProblemTask]) -> float:
    """Mean squared error of y₁ − y₂, in which shared noise cancels: how well a model reads the curves f."""
    errors = []
    for task, parameters in drawn:
        generator = torch.Generator(task.x_target.device).manual_seed(1)
        error = model.predict(task, 16, 16, generator=generator).mean - parameters["f"]
        errors.append((error[..., 0] - error[..., 1])[~task.all_points()[1]])
    return float(torch.cat(errors).square().mean())


def parser_of(recipes: Iterable[str]) -> argparse.ArgumentParser:
    """The options of a trial."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", required=True, choices=["sensors", *PROBLEMS])
    parser.add_argument("--recipe", required=True, help=f"one or more, with commas: {', '.join(recipes)}")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", default="0", help="with commas")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--batch", type=int, default=16, help="tasks of a step")
    parser.add_argument("--width", type=int, default=128, help="of all layers; transformers have half of it")
    parser.add_argument("--tasks", type=int, default=512, help="tasks to measure on")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    return parser


def main() -> None:
    """Train and measure recipes on one problem."""
    recipes = all_recipes()
    parser = parser_of(recipes)
    chosen = parser.parse_args()
    seeds = [int(seed) for seed in chosen.seeds.split(",")]
    for name in chosen.recipe.split(","):
        if name not in recipes:
            parser.error(f"unknown recipe {name!r}; known: {', '.join(recipes)}")
    settings = {name: getattr(chosen, name) for name in ("rate", "batch", "width")}
    for name in chosen.recipe.split(","):
        start = time.perf_counter()
        recipe = recipes[name]
        fleet = train_recipe(chosen.problem, recipe, chosen.steps, seeds, chosen.device, *settings.values())
        trained = time.perf_counter() - start
        for row, seed in enumerate(seeds):
            result: dict[str, Any] = {"problem": chosen.problem, "recipe": name, "steps": chosen.steps}
            result |= {"seed": seed, **settings, "seconds": trained, "active": fleet.active[row]}
            result |= measure_latents(fleet.replica(row), chosen.problem, chosen.device, chosen.tasks)
            line = json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in result.items()})
            print(line, flush=True)
            with chosen.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
