"""Trials of what makes z_G carry functions: one recipe, one seed, one line of JSON for each.

    python -m studies.coherent_functions --recipe tnp,npml,iw,elbo-ramp,copula --steps 400 \\
        --trunk results/field/weights/dsvtnp-seed-0.safetensors --out results/coherence/rows.jsonl

With `--trunk` all start from the trunk and the head of a DSVTNP that the field's table was measured with; the trunk
stays as it is. Without it they train from scratch. Tasks are the field's RBF tasks; the likelihoods are those of other
tasks of that distribution, on which the field's training is validated, in nats per target:

    marginal   ln p(y_t | C), the mean over the targets of a task: the product of its marginals, divided by their number
    joint      ln p(y_T | C) with one z_G for all targets, divided by their number; what it has more is coherence
    chain      the same by autoregression, of models without draws

"copula" trains "tnp" first and then, as long, a copula that joins its targets (`dsvnp.pretrained.copula`); its η is a
z_G that is integrated out. No other recipe changes the model, only its objective.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from dsvnp.estimation import log_likelihood
from dsvnp.losses import training_loss
from dsvnp.models import Architecture, NeuralProcess, Transformer, make_model
from dsvnp.models.tnp import TNP
from dsvnp.objectives import Draws, Objective, Weights, log_ratio_global, log_ratio_local
from dsvnp.paper.field.recipe import NO_FLOOR
from dsvnp.paper.field.unseen import SHARE, compact, draw_marks
from dsvnp.predictive import log_mean_exp
from dsvnp.pretrained.copula import CopulaSettings, train_copula
from dsvnp.sources.gp import GPTasks
from dsvnp.task import Task
from dsvnp.training import Fleet, Schedule, Settings

AT_ONCE = 16  # draws of z_G that are decoded together
NUM_LOCAL = 4  # draws of each z_* for one z_G
REFRESH = 256  # steps that one pool of functions serves
ORDERS = 4  # random orders of autoregression
CLIP = 5.0  # largest norm of a gradient


@dataclass(frozen=True)
class CoherenceRecipe:
    """A model and what it changes of the objective."""

    model: str = "dsvtnp"
    objective: Mapping[str, Any] = field(default_factory=dict)
    ramp: float = 0.0  # share of the steps over which the weight of KL_G rises from 0
    copula: bool = False  # whether a copula is trained afterwards


NPML = {"kind": "npml", "num_local": 4}
RECIPES = {
    "tnp": CoherenceRecipe("tnp"),
    "npml": CoherenceRecipe(objective={**NPML, "num_global": 2}),  # DSVTNP's in the field's table
    "npml-8": CoherenceRecipe(objective={**NPML, "num_global": 8}),
    "iw": CoherenceRecipe(objective={"kind": "iw", "num_global": 4, "num_local": 2}),
    "iw-ramp": CoherenceRecipe(objective={"kind": "iw", "num_global": 4, "num_local": 2}, ramp=0.5),
    "elbo": CoherenceRecipe(),
    "elbo-ramp": CoherenceRecipe(ramp=0.5),
    "gsnn": CoherenceRecipe(objective={"kind": "gsnn", "num_global": 2, "num_local": 4}, ramp=0.5),
    "copula": CoherenceRecipe("tnp", copula=True),
}


def make(recipe: CoherenceRecipe, width: int, layers: int) -> NeuralProcess:
    """The model of a recipe; TNP's trunk is the same in all."""
    stack = Transformer(width, layers, 4, 2 * width, (width,) * 3)
    sizes: dict[str, Any] = {
        "encoder": (2 * width,),
        "dim_lat": 2 * width,
        "latent_hidden": (2 * width,),
        "dim_local": 4,
    }
    arch = Architecture(1, 1, decoder=(2 * width,), transformer=stack, **sizes, **NO_FLOOR)
    return make_model(recipe.model, arch)


def take_trunk(net: NeuralProcess, path: Path) -> None:
    """Put in a trunk that stays as it is, and what the head makes of its tokens; no latent has a say at first."""
    known = {name: value.float() for name, value in load_file(path).items()}
    own = net.state_dict()
    latents = own.keys() & {"decoder.first.weights.1", "decoder.first.weights.2"}
    shared = {name for name in own if name.startswith(("backbone.", "decoder."))} - latents
    net.load_state_dict({**own, **{name: known[name] for name in shared}})
    net.get_submodule("backbone").requires_grad_(False)


def objective_of(recipe: CoherenceRecipe, steps: int) -> Objective:
    """What a recipe maximises in a training of so many steps."""
    anneal: dict[str, Any] = {
        "anneal": "linear",
        "anneal_steps": int(recipe.ramp * steps),
        "anneal_local": False,
    }
    return Objective(**recipe.objective, **(anneal if recipe.ramp else {}))


def train_from_scratch(
    recipe: CoherenceRecipe, steps: int, seed: int, rate: float, width: int, layers: int, device: str
) -> NeuralProcess:
    """Train a whole network in the engine, the learning rate falling to zero as a cosine."""
    settings = Settings(steps, rate, schedule=Schedule("cosine"), objective=objective_of(recipe, steps))
    fleet = Fleet(partial(make, recipe, width, layers), GPTasks(), [seed], settings, device)
    for _ in range(steps):
        fleet.step()
    return fleet.replica(0)


def train_on_trunk(net: NeuralProcess, recipe: CoherenceRecipe, steps: int, seed: int, rate: float) -> None:
    """Train what has gradients, in the same way; tasks depend on the seed alone."""
    objective = objective_of(recipe, steps)
    draws = objective.num_global, objective.num_local
    optimizer = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    source, generator = GPTasks(refresh_every=REFRESH), torch.Generator().manual_seed(seed)
    own = torch.Generator().manual_seed(seed)
    for step in range(steps):
        if step % REFRESH == 0:
            pool = source.pool(generator, torch.device("cpu"))
        sizes = {
            name: torch.rand(size, generator=generator) for name, size in source.uniform_shapes().items()
        }
        task = source.batch(pool, sizes, torch.tensor(step))
        noise = net.draw_noise(task, *draws, generator=own)
        posterior = net.draws(task, noise) if objective.uses_posterior else None
        prior = net.prior_draws(task, noise, propose_local=True) if objective.uses_prior else None
        weights = objective.weights(Weights(), torch.tensor(step), torch.zeros(2))
        loss, _ = training_loss(objective, posterior, prior, weights)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        schedule.step()


# --- measuring ---


@torch.no_grad()
def measure_coherence(
    net: NeuralProcess, tasks: list[Task], num_global: int, seed: int = 0
) -> dict[str, Any]:
    """Means over tasks of the likelihoods per target, of KL_G per task, and z_G's share of the variance.

    Draws of z_G come from p(z_G | C) and, for the joint, from q(z_G | T) as well: each gives a lower bound on average,
    and the larger is reported. `moved` is how far the last doubling of the draws raised either estimate.
    """
    generator = torch.Generator(tasks[0].x_target.device).manual_seed(seed)
    parts = [_likelihoods(net, task.joined(), num_global, generator) for task in tasks]
    means = {name: torch.cat([part[name] for part in parts]).mean(0) for name in parts[0]}
    best = max(means["prior"], means["posterior"], key=lambda value: float(value[-1]))
    moved = max(float(value[-1] - value[0]) for value in (means["marginal"], best))
    found = {"marginal": float(means["marginal"][-1]), "joint": float(best[-1]), "moved": moved}
    found |= {"coherence": found["joint"] - found["marginal"], "kl_global": float(means["kl"])}
    found["share"] = _share(net, tasks, num_global, generator)
    if not net.noise_shapes(1, 1, 1, 1, shared=True):
        found["chain"] = float(torch.cat([_chain(net, task, generator) for task in tasks]).mean())
    return found


def _chain(net: NeuralProcess, task: Task, generator: torch.Generator) -> Tensor:
    """The joint log-likelihood by autoregression, per target, [B]."""
    return net.log_prob_joint(task, ORDERS, generator=generator) / net.counted(task.joined()).sum(-1)


def _likelihoods(
    net: NeuralProcess, task: Task, num_global: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Of each task: marginal and joint of half the draws and of all, each [B, 2] and per target, and KL_G, [B]."""
    number, counted = net.counted(task).sum(-1), net.counted(task)
    kl = torch.zeros(len(number), device=number.device)
    if net.likelihood.coherent:
        per_point = torch.where(counted, net.predict(task, 1).log_prob(task.all_points()[0]), 0.0)
        joint = log_likelihood(net, task, "task").values
        exact = {"marginal": per_point.sum(-1) / number, "prior": joint, "posterior": joint}
        return {name: value[:, None].expand(-1, 2) for name, value in exact.items()} | {"kl": kl}
    prior, posterior = [], []
    for _ in range(num_global // AT_ONCE):
        noise = [net.draw_noise(task, AT_ONCE, NUM_LOCAL, generator=generator) for _ in range(2)]
        prior.append(_per_point(net.prior_draws(task, noise[0], propose_local=True)))
        proposed = net.draws(task, noise[1])
        posterior.append(_per_point(proposed).sum(-1) + log_ratio_global(proposed))
        if proposed.q_global is not None and proposed.p_global is not None:
            kl = proposed.q_global.kl(proposed.p_global)
    per_point, of_posterior = torch.cat(prior), torch.cat(posterior)  # [K, B, T], [K, B]

    def of_draws(value: Tensor) -> Tensor:
        return torch.stack([log_mean_exp(part, 0) for part in (value[: len(value) // 2], value)], -1)

    sums = {
        "marginal": of_draws(per_point).sum(1),
        "prior": of_draws(per_point.sum(-1)),
        "posterior": of_draws(of_posterior),
    }
    return {name: value / number[:, None] for name, value in sums.items()} | {"kl": kl}


def _per_point(draws: Draws) -> Tensor:
    """ln p(y_t | z_G) of each draw of z_G, [K, B, T], by draws of z_*; 0 where a point does not count."""
    return torch.where(draws.counted, log_mean_exp(draws.log_likelihood + log_ratio_local(draws), 1), 0.0)


def _share(net: NeuralProcess, tasks: list[Task], num_global: int, generator: torch.Generator) -> float:
    """The variance between draws of z_G over all variance, summed over the targets."""
    between = whole = 0.0
    for task in tasks:
        found = net.predict(task, num_global, NUM_LOCAL, generator=generator)
        filled = task.mask_target.unsqueeze(-1)
        between += float(torch.where(filled, found.epistemic, 0.0).sum())
        whole += float(torch.where(filled, found.variance, 0.0).sum())
    return between / whole


def validation_tasks(num_tasks: int, device: str) -> list[Task]:
    """Tasks that the field's training is validated on, in batches of 16 of one size, without empty slots."""
    (known,) = draw_marks(num_tasks // SHARE, 50, torch.device(device))
    parts = zip(*(value.split(SHARE) for value in known.task.tensors().values()), strict=True)
    batches = [Task(**dict(zip(known.task.tensors(), part, strict=True))) for part in parts]
    return [task for batch in batches for task in compact([known._replace(task=batch)])]


def parser_of() -> argparse.ArgumentParser:
    """The options of a trial."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recipe", required=True, help=f"one or more, with commas: {', '.join(RECIPES)}")
    for name, value in {"steps": 3000, "seed": 0, "width": 64, "layers": 6}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
    parser.add_argument("--trunk", type=Path, help="weights to start from; their trunk is not trained")
    parser.add_argument("--device", default="cpu", help="of a training from scratch")
    parser.add_argument("--tasks", type=int, default=256, help="tasks to measure on, a multiple of 16")
    parser.add_argument("--draws", type=int, default=64, help=f"of z_G, at least {2 * AT_ONCE}")
    parser.add_argument("--out", type=Path, required=True)
    return parser


def main() -> None:
    """Train and measure recipes."""
    parser = parser_of()
    chosen = parser.parse_args()
    for name in chosen.recipe.split(","):
        if name not in RECIPES:
            parser.error(f"unknown recipe {name!r}; known: {', '.join(RECIPES)}")
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    for name in chosen.recipe.split(","):
        recipe, sizes = RECIPES[name], (chosen.width, chosen.layers)
        start = time.process_time()
        if chosen.trunk is None:
            net = train_from_scratch(recipe, chosen.steps, chosen.seed, chosen.rate, *sizes, chosen.device)
        else:
            torch.manual_seed(chosen.seed)
            net = make(recipe, *sizes)
            take_trunk(net, chosen.trunk)
            train_on_trunk(net, recipe, chosen.steps, chosen.seed, chosen.rate)
        if recipe.copula:
            assert isinstance(net, TNP)
            settings = CopulaSettings(num_steps=chosen.steps, seed=chosen.seed)
            net = train_copula(net, GPTasks(refresh_every=REFRESH), settings)
        seconds = time.process_time() - start
        row = {**vars(chosen), "recipe": name, "trunk": chosen.trunk and chosen.trunk.name}
        row = {key: value for key, value in row.items() if key != "out"} | {"cpu_seconds": seconds}
        row |= measure_coherence(net.eval(), validation_tasks(chosen.tasks, chosen.device), chosen.draws)
        line = json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
        print(line, flush=True)
        with chosen.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
