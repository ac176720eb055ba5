"""Which sizes, rates and weights suit the wider variant of the curves, chosen on functions that no table is made of.

    python -m studies.curves_selection OUT.json CELLS [SETTINGS]

where CELLS is e.g. '[{"model": "np", "learning_rates": [0.001, 0.002]}]' and SETTINGS '{"precision": "tf32"}'.

Trains each cell of a list as one fleet, a replica for each learning rate and β_local, and writes what it gives on
held-out functions as soon as it is finished. Run again, it goes on with the rest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from dsvnp.metrics import point_nll
from dsvnp.models import NeuralProcess, make_model
from dsvnp.paper.curves.experiment import CurvesExperiment, architecture
from dsvnp.paper.curves.measures import predict
from dsvnp.sources.curves import Curves, curve_tasks
from dsvnp.task import Task
from dsvnp.training import Fleet, Reporter, train


@dataclass(frozen=True)
class Cell:
    """One fleet.

    Attributes:
        model: name of the model.
        learning_rates: one replica each, for each β_local.
        betas: values of β_local.
        num_steps: of training; annealing takes the first half of them, if the variant anneals.
        choices: what differs from the wider variant, see `curves.Choices`.
    """

    model: str
    learning_rates: tuple[float, ...] = (1e-3,)
    betas: tuple[float, ...] = (100.0,)
    num_steps: int = 60_000
    choices: dict[str, Any] = field(default_factory=dict)


def select(cells: Sequence[Cell], out: Path, device: torch.device, **settings: Any) -> list[dict[str, Any]]:
    """Train and measure the cells that `out` lacks, return all that it holds; `settings` change the experiment's."""
    done: list[dict[str, Any]] = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else []
    for cell in cells:
        what = json.loads(json.dumps(asdict(cell) | {"settings": settings}))
        if not any(what.items() <= row.items() for row in done):
            experiment = CurvesExperiment(**settings)
            done += [what | row for row in run_cell(cell, experiment, device)]
            out.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    return done


def run_cell(cell: Cell, experiment: CurvesExperiment, device: torch.device) -> list[dict[str, Any]]:
    """Train one fleet; a row for each of its replicas."""
    choices = experiment.choices("wide")
    half = cell.num_steps // 2 if choices.anneal_steps else 0
    choices = choices._replace(num_steps=cell.num_steps, anneal_steps=half)._replace(**cell.choices)
    pairs = [(rate, beta) for rate in cell.learning_rates for beta in cell.betas]
    rates, betas = (tuple(column) for column in zip(*pairs, strict=True))
    chosen = replace(experiment.settings(choices), learning_rate=rates, beta_local=betas)
    source = Curves(experiment.batch_size, choices.num_points, 3, experiment.max_context, refresh_every=1024)
    make = partial(make_model, cell.model, architecture(choices))
    fleet = Fleet(make, source, range(len(pairs)), chosen, device)
    train(fleet, reporter=Reporter(f"{cell.model} {cell.choices}", cell.num_steps))
    tests = held_out(experiment, device)
    return [
        {"learning_rate": rate, "beta_local": beta, **score(fleet.replica(row), tests, experiment.num_global)}
        for row, (rate, beta) in enumerate(pairs)
    ]


def held_out(experiment: CurvesExperiment, device: torch.device) -> dict[str, list[Task]]:
    """A quarter as many functions as the tables have, with contexts of the largest size and of uniform sizes."""
    number, most = max(1, experiment.num_tests // 4), experiment.max_context
    tests = {}
    for name, smallest in (("nll-max", most), ("nll", 3)):
        generator = torch.Generator(device).manual_seed(5_000_000)
        tests[name] = curve_tasks(number, experiment.test_points, (smallest, most), generator)
    return tests


def score(net: NeuralProcess, tests: dict[str, list[Task]], num_global: int) -> dict[str, float]:
    """NLL over all points (J) of each set, and whether the latents are used."""
    nll = {
        name: float(torch.cat([point_nll(predict(net, t, num_global), t, "J") for t in tasks]).mean())
        for name, tasks in tests.items()
    }
    with torch.no_grad():
        terms = [net.objective(task, noise={}).per_point() for task in tests["nll"]]
    return nll | {kl: fmean(float(each[kl]) for each in terms) for kl in ("kl_local", "kl_global")}


if __name__ == "__main__":
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cells = [Cell(**given) for given in json.loads(sys.argv[2])]
    settings = json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}
    for row in select(cells, Path(sys.argv[1]), device, **settings):
        print(json.dumps(row))
