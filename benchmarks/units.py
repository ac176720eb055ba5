"""Time of each unit of an experiment on a machine without other work, from runs of a part of the training steps.

    python benchmarks/units.py curves results/curves/time.json
    python benchmarks/units.py images OUT.json --data-dir DIR --set '{"domain": "cifar10"}' --units nn dsvnp

The script runs each unit of the paper preset, compilation and measurement included, but ends its training early. It
adds the time of the remaining steps at the pace of the second half of those that were taken. It rewrites the file after
each unit; run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from rich.console import Console

from dsvnp.paper import EXPERIMENTS
from dsvnp.paper.experiment import Experiment, Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.runner import machine_name
from dsvnp.paper.settings import make_experiment
from dsvnp.training import Fleet, Settings

LINES = 20  # of the log, of which the second half gives the pace


class Cut(NamedTuple):
    """Steps of the whole training, and the steps that were taken."""

    steps: int
    taken: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", choices=sorted(EXPERIMENTS))
    parser.add_argument("out", type=Path)
    parser.add_argument("--share", type=float, default=1 / 40, help="share of the steps to take")
    parser.add_argument("--units", nargs="*", help="such as dsvnp-wide; all by default")
    parser.add_argument(
        "--set", type=json.loads, default={}, help="settings in place of the preset's, as JSON"
    )
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    console, device = Console(width=120), torch.device(args.device)
    cut: list[Cut] = []
    kind = shortened(EXPERIMENTS[args.experiment], args.share, cut)
    experiment = make_experiment(kind, args.preset, **args.set)
    rows: list[dict[str, Any]] = []
    for label in map(Label.parse, args.units) if args.units else experiment.labels():
        cut.clear()
        with TemporaryDirectory() as folder:
            place = Workplace(Path(folder), device, Console(quiet=True), args.data_dir)
            rows.append(timed(experiment, label, place, cut))
        console.print(rows[-1], highlight=False)
        about = {"experiment": args.experiment, "preset": args.preset, "set": args.set, "share": args.share}
        record = {**about, "machine": machine_name(device), "torch": torch.__version__, "units": rows}
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def shortened(kind: type[Experiment], share: float, cut: list[Cut]) -> type[Experiment]:
    """Make the same experiment, whose training ends after a share of its steps; `cut` gets one entry per training."""

    class Shortened(kind):  # type: ignore[misc, valid-type]
        def train_replicas(
            self, label: Label, make: Any, source: Any, seeds: Sequence[int], settings: Settings, *rest: Any
        ) -> Fleet:
            steps = min(settings.num_steps, max(2 * LINES, round(share * settings.num_steps)))
            fewer = replace(
                settings,
                num_steps=steps,
                log_every=max(1, steps // LINES),
                checkpoint_every=0,  # in so short a run they would take too large a share
                validate_every=math.ceil(share * settings.validate_every),
            )
            cut.append(Cut(settings.num_steps, steps))
            made: Fleet = super().train_replicas(label, make, source, seeds, fewer, *rest)
            return made

    return Shortened


def timed(experiment: Experiment, label: Label, place: Workplace, cut: Sequence[Cut]) -> dict[str, Any]:
    """Run a unit and estimate the time of the whole; a unit without training needs no estimate."""
    seeds = experiment.seed_groups()[0]
    start = time.perf_counter()
    experiment.run_unit(label, seeds, place)
    seconds = time.perf_counter() - start
    row: dict[str, Any] = {"unit": str(label), "seeds": len(seeds), "seconds_taken": round(seconds, 1)}
    for steps, taken in cut:
        (log,) = (place.out / "logs").glob("*.jsonl")
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        pace = statistics.fmean(1 / line["steps_per_second"] for line in lines[-(LINES // 2) :])
        row |= {"steps": steps, "steps_taken": taken, "ms_per_step": round(1000 * pace, 4)}
        seconds += pace * (steps - taken)
    return row | {"seconds": round(seconds, 1)}


if __name__ == "__main__":
    main()
