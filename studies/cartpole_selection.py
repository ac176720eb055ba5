"""Which β_local, draws and size let DSVNP's local latent help on the Cart-Pole, chosen on training data alone.

    python -m studies.cartpole_selection OUT.json '{"betas": [1, 100], "num_steps": 2000}'

Trains DSVNP for a grid, all β_local and seeds of a cell as one fleet, and NP beside it; writes NLL and squared error on
held-out training trajectories, for each fleet as soon as it is finished. Run again, it goes on with the rest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from dsvnp.metrics import nll, squared_error
from dsvnp.models import NeuralProcess, make_model
from dsvnp.naming import lookup
from dsvnp.paper.cartpole.data import CartPoleTasks, Transitions, held_out_task
from dsvnp.paper.cartpole.experiment import CartPoleExperiment, Choices
from dsvnp.paper.cartpole.measures import predict
from dsvnp.paper.cartpole.physics import TRAIN_ENVIRONMENTS
from dsvnp.task import Task
from dsvnp.training import Fleet, Reporter, train


@dataclass(frozen=True)
class Selection:
    """The grid.

    Attributes:
        betas: values of β_local, of one fleet.
        anneal_steps: steps over which the divergences' weights rise from 0; NP is trained without.
        train_draws: pairs of draws in training, of z_G and of each z_*; NP uses the first number.
        dims_lat: sizes of representations and latents.
        test_draws: pairs of draws in prediction, tried on each trained model.
        seeds: of each; the same noise for all β_local.
        num_steps: of training.
        hold_out: "environments" learns from carts of 0.3 and 0.7 kg and is measured on those of 0.5 kg, as unseen as
            the test's; "trajectories" learns from all six and is measured on trajectories held out of them.
    """

    betas: tuple[float, ...] = (0.1, 1.0, 5.0, 20.0, 100.0, 1000.0)
    anneal_steps: tuple[int, ...] = (0,)
    train_draws: tuple[tuple[int, int], ...] = ((1, 1), (1, 4), (4, 1), (4, 4))
    dims_lat: tuple[int, ...] = (32, 64)
    test_draws: tuple[tuple[int, int], ...] = ((32, 1), (32, 8))
    seeds: tuple[int, ...] = (0, 1)
    num_steps: int = CartPoleExperiment.num_steps
    hold_out: str = "environments"

    def cells(self) -> Iterator[tuple[str, Choices]]:
        """NP for each size and number of draws of z_G, DSVNP for each size and pair of draws."""
        for dim_lat in self.dims_lat:
            for num_global in dict.fromkeys(pair[0] for pair in self.train_draws):
                yield "np", Choices(1.0, 0, dim_lat, num_global, 1, 1, 1)
            for steps, pair in product(self.anneal_steps, self.train_draws):
                yield "dsvnp", Choices(1.0, steps, dim_lat, *pair, 1, 1)


def select(selection: Selection, out: Path, device: torch.device, **settings: Any) -> list[dict[str, Any]]:
    """Train and measure what `out` lacks, return all that it holds; `settings` change those of the experiment."""
    experiment = CartPoleExperiment(num_steps=selection.num_steps, **settings)
    source, task = tasks(experiment, selection.hold_out, device)
    common = {"hold_out": selection.hold_out, "num_steps": selection.num_steps, "settings": settings}
    done: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else []
    for model, choices in selection.cells():
        cell = common | {"model": model, "dim_lat": choices.dim_lat, "seeds": list(selection.seeds)}
        cell |= {"anneal_steps": choices[1], "train_draws": [choices.train_global, choices.train_local]}
        betas = selection.betas if model == "dsvnp" else (1.0,)
        missing = [b for b in betas if not any((cell | {"beta_local": b}).items() <= e.items() for e in done)]
        if not missing:
            continue
        rows = list(product(missing, selection.seeds))
        chosen = replace(experiment.settings(model, choices), beta_local=tuple(beta for beta, _ in rows))
        make = partial(make_model, model, experiment.architecture(choices))
        fleet = Fleet(make, source, [seed for _, seed in rows], chosen, device)
        train(fleet, reporter=Reporter(f"{model} {tuple(choices)[1:5]}", selection.num_steps))
        for beta in missing:
            nets = [fleet.replica(row) for row, (of, _) in enumerate(rows) if of == beta]
            scores = [score(nets, task, draws) for draws in selection.test_draws]
            done.append(cell | {"beta_local": beta, "scores": scores})
        out.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    return done


def tasks(experiment: CartPoleExperiment, hold_out: str, device: torch.device) -> tuple[CartPoleTasks, Task]:
    """What to learn from, and the task to measure on: contexts from the training part, held-out trajectories."""
    seen, held_out = experiment.training_data(device)
    learn = seen
    if lookup(hold_out, {"environments": True, "trajectories": False}, "way to hold out"):
        middle = torch.tensor([mass == 0.5 for mass, _ in TRAIN_ENVIRONMENTS], device=device)
        learn = Transitions(*(part[~middle] for part in seen))
        seen, held_out = (Transitions(*(part[middle] for part in data)) for data in (seen, held_out))
    generator = torch.Generator(device).manual_seed(1_000_001)
    source = CartPoleTasks(learn, experiment.num_points, 1, experiment.max_context)
    return source, held_out_task(seen, held_out, experiment.max_context, generator)


@torch.no_grad()
def score(nets: list[NeuralProcess], task: Task, draws: tuple[int, int]) -> dict[str, Any]:
    """NLL, squared error, and KL_L, which says whether the local latent is used: a value a net."""
    made = [predict(net, task, draws) for net in nets]
    kl_local = [float(net.objective(task, noise={}).per_point()["kl_local"]) for net in nets]
    mse = [float(squared_error(p, task)) for p in made]
    return {"test_draws": draws, "nll": [float(nll(p, task)) for p in made], "mse": mse, "kl_local": kl_local}


if __name__ == "__main__":
    given: dict[str, Any] = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    settings = given.pop("settings", {})
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    select(Selection(**given), Path(sys.argv[1]), device, **settings)
