"""Selection of sizes, rates and weights for the wider recipe of the curves, on functions that no table uses.

    python -m studies.curves_selection OUT.jsonl FLEETS [SETTINGS]

where FLEETS is e.g. '[{"model": "np", "learning_rates": [0.001, 0.002]}]' and SETTINGS '{"precision": "tf32"}'.

Trains each fleet of a list, one replica for each learning rate and β_local, and writes what it gives on held-out
functions as soon as it is finished. Run again, it does the rest.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from dsvnp.metrics import point_nll
from dsvnp.models import NeuralProcess, make_model
from dsvnp.paper.curves.experiment import CurvesExperiment
from dsvnp.paper.measuring import seeded_predict
from dsvnp.paper.settings import changed
from dsvnp.sources.curves import curve_tasks
from dsvnp.task import Task
from dsvnp.training import Fleet, Reporter, train
from studies.resume import Entry, Settings, finish


@dataclass(frozen=True)
class CurveFleet:
    """One fleet."""

    model: str  # name of the model
    learning_rates: tuple[float, ...] = (1e-3,)  # one replica each, for each β_local
    betas: tuple[float, ...] = (100.0,)  # values of β_local
    num_steps: int = 60_000  # of training
    choices: dict[str, Any] = field(default_factory=dict)  # what differs from the wider recipe

    def cells(self, settings: Settings) -> list[Settings]:
        """One cell per replica."""
        return [
            {**asdict(self), "settings": settings, "learning_rate": rate, "beta_local": beta}
            for rate, beta in product(self.learning_rates, self.betas)
        ]


def select_curves(
    fleets: Sequence[CurveFleet], out: Path, device: torch.device, **settings: Any
) -> list[Entry]:
    """Train and measure what `out` lacks, return all that it holds; `settings` change the experiment's."""
    experiment = changed(CurvesExperiment(), settings)

    def run(cells: Sequence[Settings]) -> Iterator[Entry]:
        what = cells[0]
        recipe = changed(experiment.wide, {"num_steps": what["num_steps"], **what["choices"]})
        rates, betas = (tuple(cell[name] for cell in cells) for name in ("learning_rate", "beta_local"))
        chosen = replace(experiment.settings(recipe), learning_rate=rates, beta_local=betas)
        make = partial(make_model, what["model"], recipe.architecture())
        fleet = Fleet(make, experiment.source(recipe), range(len(cells)), chosen, device)
        train(fleet, reporter=Reporter(f"{what['model']} {what['choices']}", recipe.num_steps))
        tests = held_out(experiment, device)
        for row in range(len(cells)):
            yield score_curves(fleet.replica(row), tests, experiment.num_global)

    return finish((fleet.cells(settings) for fleet in fleets), out, run)


def held_out(experiment: CurvesExperiment, device: torch.device) -> dict[str, list[Task]]:
    """A quarter as many functions as the tables have, with contexts of the largest size and of uniform sizes."""
    number, most = max(1, experiment.num_tests // 4), experiment.max_context
    tests = {}
    for name, smallest in (("nll-max", most), ("nll", 3)):
        generator = torch.Generator(device).manual_seed(5_000_000)
        tests[name] = curve_tasks(number, experiment.test_points, (smallest, most), generator)
    return tests


def score_curves(net: NeuralProcess, tests: dict[str, list[Task]], num_global: int) -> dict[str, float]:
    """NLL over all points (J) of each set, and the divergences, which tell whether the latents are used."""
    nll = {
        name: float(
            torch.cat([point_nll(seeded_predict(net, t, (num_global, 1)), t, "J") for t in tasks]).mean()
        )
        for name, tasks in tests.items()
    }
    with torch.no_grad():
        terms = [net.objective(task, noise={}).per_point() for task in tests["nll"]]
    return nll | {kl: fmean(float(each[kl]) for each in terms) for kl in ("kl_local", "kl_global")}


if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    fleets = [CurveFleet(**given) for given in json.loads(sys.argv[2])]
    settings = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
    for row in select_curves(fleets, Path(sys.argv[1]), device, **settings):
        print(json.dumps(row))
