"""Settings of the ambiguity experiment's rows: the same number of trials for each, on tasks that no table is made of.

    python -m studies.ambiguity_choice OUT.jsonl --problems branches,hidden-pose --steps 10000 --device cuda
    python -m studies.ambiguity_choice OUT.jsonl --write src/dsvnp/paper/ambiguity/chosen.json

Each row has eight trials (`trials_of`; `tuned_as` names the rows that share theirs), judged by NLL per point with draws
that suffice, on tasks of the training distribution. Trials that differ in the learning rate alone are one fleet. A line
is written for each trial on each problem; run again, it does the rest. The trial with the lowest mean NLL over the
problems is chosen, and `--write` puts it where the preset `paper` reads it.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from dsvnp.cli.paper import changes_of
from dsvnp.estimation import log_likelihood
from dsvnp.files import write_atomically
from dsvnp.paper.ambiguity.experiment import AmbiguityExperiment
from dsvnp.paper.ambiguity.recipes import REFERENCES, recipe_of, trials_of, tuned_as
from dsvnp.paper.label import Label
from dsvnp.paper.rows import grouped
from dsvnp.paper.settings import make_experiment
from dsvnp.training import Fleet, Reporter, train
from studies.resume import Entry, Settings, finish

SEED = 100  # of all trials; no table has it
PROBLEMS = "branches,shared-noise-2,inverse-kinematics,hidden-pose,gaussian-noise"


def fleets_of(experiment: AmbiguityExperiment) -> Iterator[list[Settings]]:
    """The trials of each row on each problem, those that differ in the learning rate alone together."""
    for label in experiment.labels():
        if label.model in REFERENCES or tuned_as(label) != label.row:
            continue
        base: Settings = {
            "row": label.row,
            "problem": label.dataset,
            "steps": experiment.num_steps,
            "preset": experiment.preset,
            "batch_size": experiment.batch_size,
            "sizes": asdict(experiment.sizes),
        }
        ways = grouped(trials_of(label), _way)
        for trials in ways.values():
            yield [{**base, "trial": trial} for trial in trials]


def _way(trial: Settings) -> str:
    """What a trial changes apart from the learning rate."""
    return json.dumps({name: value for name, value in trial.items() if name != "learning_rate"})


def judge(
    cells: Sequence[Settings], experiment: AmbiguityExperiment, device: torch.device
) -> Iterator[Entry]:
    """Train the trials of a fleet, one replica each with the same seed, and measure each."""
    label = Label.parse(cells[0]["row"])._replace(dataset=cells[0]["problem"])
    recipe = recipe_of(label, dict(cells[0]["trial"]))
    make, source, settings = experiment.plan(label, recipe)
    settings = replace(settings, learning_rate=tuple(cell["trial"]["learning_rate"] for cell in cells))
    fleet = Fleet(make, source, [SEED] * len(cells), settings, device)
    start = time.perf_counter()
    train(fleet, reporter=Reporter(f"{label} {_way(cells[0]['trial'])}", settings.num_steps))
    seconds = round(time.perf_counter() - start, 1)
    tasks, sizes = experiment.tasks_of(label, device, unseen=False), experiment.measures
    for row in range(len(cells)):
        found = log_likelihood(
            fleet.replica(row), tasks, tolerance=sizes.tolerance, max_draws=sizes.max_draws
        )
        drawn = {"method": found.method, "draws": found.draws, "still": found.still, "bound": -found.bound}
        yield {"nll": -found.mean, **drawn, "seconds": seconds}


def choose(done: Sequence[Entry]) -> dict[str, Settings]:
    """For each row the trial with the lowest mean NLL over its problems; one that failed anywhere is passed over."""
    best: dict[str, Settings] = {}
    for row, entries in grouped(done, lambda entry: str(entry["row"])).items():
        trials = grouped(entries, lambda entry: json.dumps(entry["trial"], sort_keys=True))
        counts = {len(found) for found in trials.values()}
        if len(counts) > 1:
            raise ValueError(f"{row} has trials on {sorted(counts)} problems; run the rest of them first")
        means = {trial: fmean(_finite(entry["nll"]) for entry in found) for trial, found in trials.items()}
        best[row] = json.loads(min(means, key=means.__getitem__))
    return best


def _finite(value: Any) -> float:
    """An NLL, or infinity where a training diverged: JSON's NaN is neither less nor more than anything."""
    return value if value is not None and math.isfinite(value) else math.inf


def show(done: Sequence[Entry], console: Console) -> None:
    """Print all trials, and mark the chosen."""
    best = choose(done)
    table = Table("row", "problem", "trial", "NLL", "draws", "seconds")
    for entry in done:
        mark = " *" if best[entry["row"]] == entry["trial"] else ""
        cells = (entry["row"], entry["problem"], json.dumps(entry["trial"]) + mark, f"{entry['nll']:.3f}")
        table.add_row(*cells, str(entry["draws"]), str(entry["seconds"]))
    console.print(table)
    numbers = grouped(done, lambda entry: str(entry["row"])).items()
    counts = {row: len({json.dumps(e["trial"], sort_keys=True) for e in found}) for row, found in numbers}
    console.print(f"Trials of each row: {counts}", soft_wrap=True, highlight=False)


def main() -> None:
    """Run the trials that a file lacks and print what they gave, or write what they chose."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT.jsonl")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--problems", default=PROBLEMS)
    parser.add_argument("--models", help="some models only")
    parser.add_argument("--steps", type=int, help="fewer steps than the preset's")
    parser.add_argument("--tasks", type=int, default=128, help="tasks to judge by")
    parser.add_argument("--rows", help="some rows only, such as cnp-mixture-20; all of --models by default")
    parser.add_argument(
        "--set", nargs="*", default=[], help="settings of the preset, as `dsvnp reproduce --set`"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", type=Path, help="write what was chosen there, and run nothing")
    given = parser.parse_args()
    if given.write:
        done = finish([], given.out, lambda _: ())
        write_atomically(given.write, json.dumps(choose(done), indent=1) + "\n")
        return
    changes = {"problems": given.problems, "models": given.models, "num_steps": given.steps}
    made = make_experiment(
        AmbiguityExperiment,
        given.preset,
        **{name: value for name, value in changes.items() if value is not None} | changes_of(given.set),
        measures={"num_tests": given.tasks},
    )
    cells = fleets_of(made)
    if given.rows:
        cells = (fleet for fleet in cells if fleet[0]["row"] in given.rows.split(","))
    device = torch.device(given.device)
    show(finish(cells, given.out, lambda cells: judge(cells, made, device)), Console())


if __name__ == "__main__":
    main()
