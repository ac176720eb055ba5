"""Selection of β_local, draws and size for DSVNP's local latent on the Cart-Pole, on training data alone.

    python -m studies.cartpole_selection OUT.jsonl '{"betas": [1, 100], "num_steps": 2000}'

Trains DSVNP for a grid, all β_local and seeds of a cell as one fleet, and NP for comparison; writes NLL and squared
error on held-out training trajectories, for each fleet as soon as it is finished. Run again, it does the rest.
"""

import json
import sys
from collections.abc import Iterator, Sequence
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
from dsvnp.paper.cartpole.experiment import CartPoleExperiment, CartRecipe
from dsvnp.paper.cartpole.measures import predict_carts
from dsvnp.paper.cartpole.physics import TRAIN_ENVIRONMENTS
from dsvnp.paper.measuring import DrawCounts
from dsvnp.paper.settings import changed
from dsvnp.task import Task
from dsvnp.training import Fleet, Reporter, train
from studies.resume import Entry, Settings, finish


@dataclass(frozen=True)
class CartGrid:
    """The grid."""

    betas: tuple[float, ...] = (0.1, 1.0, 5.0, 20.0, 100.0, 1000.0)  # values of β_local, of one fleet
    # steps over which the divergences' weights rise from 0; NP is trained without
    anneal_steps: tuple[int, ...] = (0,)
    # pairs of draws in training, of z_G and of each z_*; NP uses the first number
    train_draws: tuple[DrawCounts, ...] = ((1, 1), (1, 4), (4, 1), (4, 4))
    dims_lat: tuple[int, ...] = (32, 64)  # sizes of representations and latents
    # pairs of draws in prediction, tried on each trained model
    test_draws: tuple[DrawCounts, ...] = ((32, 1), (32, 8))
    seeds: tuple[int, ...] = (0, 1)  # of each; the same noise for all β_local
    num_steps: int = CartPoleExperiment.num_steps  # of training
    # "environments" learns from carts of 0.3 and 0.7 kg and is measured on those of 0.5 kg, as unseen as the test's;
    # "trajectories" learns from all six and is measured on trajectories held out of them
    hold_out: str = "environments"

    def fleets(self, settings: Settings) -> Iterator[list[Settings]]:
        """NP for each size and number of draws of z_G; DSVNP for each size, annealing and pair of draws."""
        common = {"hold_out": self.hold_out, "num_steps": self.num_steps, "settings": settings}
        firsts = dict.fromkeys((pair[0], 1) for pair in self.train_draws)
        for dim_lat in self.dims_lat:
            models = [
                *(("np", 0, pair, (1.0,)) for pair in firsts),
                *(("dsvnp", *how, self.betas) for how in product(self.anneal_steps, self.train_draws)),
            ]
            for model, steps, pair, betas in models:
                what = {"model": model, "dim_lat": dim_lat, "seeds": self.seeds, "anneal_steps": steps}
                yield [{**common, **what, "train_draws": pair, "beta_local": beta} for beta in betas]


def select_carts(grid: CartGrid, out: Path, device: torch.device, **settings: Any) -> list[Entry]:
    """Train and measure what `out` lacks, return all that it holds; `settings` change those of the experiment."""
    experiment = changed(CartPoleExperiment(num_steps=grid.num_steps), settings)
    source, task = tasks_of(experiment, grid.hold_out, device)

    def run(cells: Sequence[Settings]) -> Iterator[Entry]:
        model, (train_global, train_local) = cells[0]["model"], cells[0]["train_draws"]
        draws = {"train_global": train_global, "train_local": train_local}
        recipe = CartRecipe(
            anneal=cells[0]["anneal_steps"] / grid.num_steps, dim_lat=cells[0]["dim_lat"], **draws
        )
        rows = [(cell["beta_local"], seed) for cell in cells for seed in grid.seeds]
        chosen = replace(experiment.settings(model, recipe), beta_local=tuple(beta for beta, _ in rows))
        make = partial(make_model, model, experiment.architecture(recipe))
        fleet = Fleet(make, source, [seed for _, seed in rows], chosen, device)
        train(fleet, reporter=Reporter(f"{model} {recipe.dim_lat} {draws}", grid.num_steps))
        for cell in cells:
            nets = [fleet.replica(row) for row, (beta, _) in enumerate(rows) if beta == cell["beta_local"]]
            yield {"scores": [score_carts(nets, task, draws) for draws in grid.test_draws]}

    return finish(grid.fleets(settings), out, run)


def tasks_of(
    experiment: CartPoleExperiment, hold_out: str, device: torch.device
) -> tuple[CartPoleTasks, Task]:
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
def score_carts(nets: list[NeuralProcess], task: Task, draws: DrawCounts) -> Entry:
    """NLL, squared error, and KL_L, which shows whether the local latent is used: one value per net."""
    made = [predict_carts(net, task, draws) for net in nets]
    kl_local = [float(net.objective(task, noise={}).per_point()["kl_local"]) for net in nets]
    mse = [float(squared_error(p, task)) for p in made]
    return {"test_draws": draws, "nll": [float(nll(p, task)) for p in made], "mse": mse, "kl_local": kl_local}


if __name__ == "__main__":
    given: dict[str, Any] = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    settings = given.pop("settings", {})
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    select_carts(CartGrid(**given), Path(sys.argv[1]), device, **settings)
