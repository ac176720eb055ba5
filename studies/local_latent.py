"""Trials of how DSVNP's local latent is inferred: one problem, one recipe, some seeds, one line of JSON for each.

    python -m studies.local_latent --problem shared-noise-2 --recipe np,local-ladder-4-iw --steps 60000 --seeds 0,1,2 \
        --device cuda --out trials.jsonl

The seeds train together as one fleet. Problems are those of the experiment `ambiguity`, and "sensors". All models
have the same networks and σ floor. Likelihoods are per point, of targets outside the context, by importance sampling
with q(z_*) as proposal and z_G from its prior; draws double until the mean is still.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsvnp.metrics import point_mask
from dsvnp.models import Architecture, NeuralProcess, make_model
from dsvnp.models.dsvnp import DSVNP
from dsvnp.objectives import Objective
from dsvnp.paper.ambiguity.problems import PROBLEMS
from dsvnp.predictive import log_mean_exp
from dsvnp.sources.base import TaskSource
from dsvnp.task import Task
from dsvnp.training import Fleet, Settings
from dsvnp.training.fleet import matmul_precision
from dsvnp.training.schedule import Schedule
from studies.sensors import Y_STD, Sensors, new_sensors

WIDE = {"encoder": (128, 128), "dim_lat": 128, "decoder": (128, 128, 128)}
FLOOR = 0.01


@dataclass(frozen=True)
class Recipe:
    """A model, what it changes of the wide architecture, and what it changes of the objective.

    Attributes:
        model: registered name.
        arch: changes of the architecture.
        objective: changes of the objective.
        ramp: share of the steps over which the weights of the KLs rise from 0; 0 for full weights at once.
        late: share of the steps over which β_local falls from 100 to 1; 0 for 1 at once.
    """

    model: str = "dsvnp"
    arch: Mapping[str, Any] = field(default_factory=dict)
    objective: Mapping[str, Any] = field(default_factory=dict)
    ramp: float = 0.0
    late: float = 0.0

    def with_arch(self, **changes: Any) -> Recipe:
        """The recipe with another architecture."""
        return replace(self, arch={**self.arch, **changes})

    def with_objective(self, **changes: Any) -> Recipe:
        """The recipe with another objective."""
        return replace(self, objective={**self.objective, **changes})


def all_recipes() -> dict[str, Recipe]:
    """Every recipe by name: "local-" and what is done to the local latent, its size, and what is done to the loss."""
    paper, np = Recipe(), Recipe("np")
    recipes = {
        "cnp": Recipe("cnp"),
        "np": np,
        "attnnp": Recipe("attnnp"),
        "np-iw": np.with_objective(kind="iw", num_global=8),
        "np-npml": np.with_objective(kind="npml", num_global=8),
        "np-gsnn": np.with_objective(kind="gsnn", num_global=4),
        "paper": paper,
        "paper-anneal": replace(paper, ramp=0.5),
        "paper-silent": paper.with_arch(local_start="silent"),
        "paper-detach": paper.with_arch(local_detach=True),
        "paper-silent-detach": paper.with_arch(local_start="silent", local_detach=True),
    }
    inferred: dict[str, dict[str, Any]] = {
        "free": {},
        "silent": {"local_start": "silent"},
        "quiet": {"local_start": "silent", "local_detach": True},
        "ladder": {"local_posterior": "ladder"},
        "ladder-detach": {"local_posterior": "ladder", "local_detach": True},
    }
    for (name, arch), dim in product(inferred.items(), (2, 4, 8)):
        small, named = paper.with_arch(dim_local=dim, **arch), f"local-{name}-{dim}"
        deep, iw = small.with_arch(local_hidden=(128, 128)), {"kind": "iw", "num_local": 8}
        npml = {"kind": "npml", "num_global": 2, "num_local": 4}
        recipes |= {
            named: small,
            f"{named}-late": replace(small, late=0.25),
            f"{named}-anneal": replace(small, ramp=0.25),
            f"{named}-iw": small.with_objective(**iw),
            f"{named}-late-iw": replace(small, late=0.25).with_objective(**iw),
            f"{named}-deep": deep,
            f"{named}-deep-iw": deep.with_objective(**iw),
            f"{named}-deep-late-iw": replace(deep, late=0.25).with_objective(**iw),
            f"{named}-npml": small.with_objective(**npml),
            f"{named}-npml-8": small.with_objective(kind="npml", num_global=8, num_local=4),
            f"{named}-npml-deep": deep.with_objective(**npml),
            f"{named}-npml-priors": small.with_objective(**npml, propose_local=False),
            f"{named}-gsnn": small.with_objective(kind="gsnn", num_global=2, num_local=4),
            f"{named}-gsnn-anneal": replace(small, ramp=0.25).with_objective(
                kind="gsnn", num_global=2, num_local=4
            ),
            f"{named}-gsnn-late": replace(small, late=0.25).with_objective(
                kind="gsnn", num_global=2, num_local=4
            ),
            f"{named}-si": small.with_objective(kind="si", num_local=8),
            f"{named}-free-bits": small.with_objective(free_bits=0.05),
        }
    return recipes


def make_source(problem: str, seeds: list[int], device: str) -> TaskSource | list[TaskSource]:
    """Where the tasks of a problem come from: one source for all seeds, or sensors of its own for each."""
    if problem == "sensors":
        return [Sensors(seed, device=device) for seed in seeds]
    return PROBLEMS[problem].source()


def train(problem: str, recipe: Recipe, steps: int, seeds: list[int], device: str, rate: float) -> Fleet:
    """Train one replica per seed, the learning rate falling to zero as a cosine."""
    known = None if problem == "sensors" else PROBLEMS[problem]
    dim_x, dim_y = (1, 1) if known is None else (known.dim_x, known.dim_y)
    arch = Architecture(dim_x, dim_y, sigma_floor=FLOOR, **{**WIDE, **recipe.arch})
    ramp = {"anneal": "linear", "anneal_steps": int(recipe.ramp * steps)} if recipe.ramp else {}
    late = {"late_steps": int(recipe.late * steps)} if recipe.late else {}
    settings = Settings(
        steps,
        learning_rate=rate,
        schedule=Schedule(kind="cosine"),
        objective=Objective(**{**recipe.objective, **ramp, **late}),
        precision="tf32" if device == "cuda" else "float32",
    )
    fleet = Fleet(
        partial(make_model, recipe.model, arch), make_source(problem, seeds, device), seeds, settings, device
    )
    with matmul_precision(settings.precision):
        for _ in range(steps):
            fleet.step()
    return fleet


# --- measuring ---


@torch.no_grad()
def round_of_draws(
    model: NeuralProcess, task: Task, draws: tuple[int, int], generator: torch.Generator
) -> Tensor:
    """ln of the mean over K·S draws of p(y_t | z) p(z_t)/q(z_t), [B, T]: z_G from its prior, z_* from q."""
    y, _ = task.all_points()
    noise = model.draw_noise(task, *draws, shared=True, generator=generator)
    summary = model.summarise(task, noise)
    if not isinstance(model, DSVNP):
        return log_mean_exp(model.likelihood.log_prob(model.decode(summary, task.x_target, noise), y), (0, 1))
    x = model.embed.x(task.x_target)
    p_local = model.local_prior(summary, x)
    q_local = model.local_posterior(summary, x, model.embed.y(y), prior=p_local)
    z_local = q_local.unsqueeze(1).sample(noise["local"])
    ratio = p_local.unsqueeze(1).log_prob(z_local) - q_local.unsqueeze(1).log_prob(z_local)
    raw = model.decoder(x, summary[:, None], z_local)
    return log_mean_exp(model.likelihood.log_prob(raw, y) + ratio, (0, 1))


def log_likelihood(
    model: NeuralProcess, task: Task, generator: torch.Generator, tolerance: float = 0.005, most: int = 256
) -> tuple[Tensor, int]:
    """ln p(y_t | C) of each target [B, T], and the number of draws: doubled until two changes in a row are small."""
    draws = (32, 4 if "local" in model.noise_shapes(1, 1, 1, 1, True) else 1)
    total, rounds, still = round_of_draws(model, task, draws, generator), 1, 0
    counted = point_mask(task, "P")
    while rounds < most and still < 2:
        more = [round_of_draws(model, task, draws, generator) for _ in range(rounds)]
        new = log_mean_exp(torch.stack([total, log_mean_exp(torch.stack(more), 0)]), 0)
        change = abs(float((new - total)[counted].mean()))
        still = still + 1 if change < tolerance else 0
        total, rounds = new, 2 * rounds
    return total, rounds * draws[0] * draws[1]


def measure(model: NeuralProcess, problem: str, device: str, num_tasks: int) -> Iterator[tuple[str, float]]:
    """Names and numbers of one trained model, on the same tasks for all."""
    generator = torch.Generator(device).manual_seed(77)
    if problem == "sensors":
        for known in (5, 10, 20):
            task = new_sensors(known, generator, min(100, num_tasks))
            error = (model.predict(task, 256, generator=generator).mean - task.all_points()[0])[:, 20:]
            yield f"rmse_{known}", Y_STD * float(error.square().mean().sqrt())
            yield f"log_likelihood_{known}", float(log_likelihood(model, task, generator)[0][:, 20:].mean())
        return
    batches = [known.task for known in PROBLEMS[problem].tasks(num_tasks, generator, batch_size=32)]
    values, most = [], 0
    for task in batches:
        value, draws = log_likelihood(model, task, generator)
        values.append(value[point_mask(task, "P")])
        most = max(most, draws)
    yield "log_likelihood", float(torch.cat(values).mean())
    yield (
        "standard_error",
        float(torch.stack([v.mean() for v in values]).std(correction=0) / len(values) ** 0.5),
    )
    yield "draws", most
    with torch.no_grad():
        bound = model.objective(batches[0], 16)
    for name, value in {**bound.per_point(), "elbo": bound.elbo().sum() / bound.num_points.sum()}.items():
        yield name, float(value)


def main() -> None:
    """Train and measure one recipe on one problem."""
    recipes = all_recipes()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problem", required=True, choices=["sensors", *PROBLEMS])
    parser.add_argument("--recipe", required=True, help=f"one or more, with commas: {', '.join(recipes)}")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seeds", default="0", help="with commas")
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--tasks", type=int, default=512, help="tasks to measure on")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    seeds = [int(seed) for seed in chosen.seeds.split(",")]
    for name in chosen.recipe.split(","):
        if name not in recipes:
            parser.error(f"unknown recipe {name!r}; known: {', '.join(recipes)}")
    for name in chosen.recipe.split(","):
        start = time.perf_counter()
        fleet = train(chosen.problem, recipes[name], chosen.steps, seeds, chosen.device, chosen.rate)
        trained = time.perf_counter() - start
        for row, seed in enumerate(seeds):
            result: dict[str, Any] = {
                "problem": chosen.problem,
                "recipe": name,
                "steps": chosen.steps,
                "seed": seed,
            }
            result |= {"seconds": trained, "active": fleet.active[row]}
            result |= measure(fleet.replica(row), chosen.problem, chosen.device, chosen.tasks)
            line = json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in result.items()})
            print(line, flush=True)
            with chosen.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


if __name__ == "__main__":
    main()
