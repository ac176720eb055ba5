"""All experiments in one go: what can run runs, what lacks data is listed, and a run that stopped is resumed."""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dsvnp.paper.experiment import Experiment, Workplace
from dsvnp.paper.records import UNITS_FILE
from dsvnp.paper.runner import run
from dsvnp.paper.settings import make_experiment
from dsvnp.training import CheckpointError


class Job(NamedTuple):
    """One run of one experiment."""

    name: str  # of its folder: "toy", "images-mnist"
    experiment: Experiment  # its settings
    missing: str | None  # what it needs and does not find; None if it can run


def plan(
    kinds: Iterable[type[Experiment]], preset: str, data_dir: Path | None, **overrides: Any
) -> list[Job]:
    """One job for each part of each experiment; overrides are settings that all have, and None leaves one alone."""
    jobs, given = [], {name: value for name, value in overrides.items() if value is not None}
    for kind in kinds:
        for part in kind.parts:
            made = make_experiment(kind, preset, **part, **given)
            jobs.append(Job("-".join([kind.name, *map(str, part.values())]), made, made.missing(data_dir)))
    return jobs


def _run_one(place: Workplace, title: str, job: Job) -> bool:
    """Run an experiment in a folder of its own; return whether nothing went wrong."""
    place.console.rule(title, align="left")
    try:
        run(job.experiment, replace(place, out=place.out / job.name))
    except (ValueError, OSError, CheckpointError, torch.OutOfMemoryError) as error:
        place.console.print(f"{job.name} failed: {error}", markup=False)
        return False
    return True


def run_all(jobs: Sequence[Job], place: Workplace, resume: bool = False) -> list[str]:
    """Run what can run, each in a folder of its own below `place.out`; return the names of those that failed.

    One that fails does not stop the others. What is missing is listed at the end, where it is seen.
    """
    ready = [job for job in jobs if job.missing is None]
    if resume and not any((place.out / job.name / UNITS_FILE).is_file() for job in ready):
        raise ValueError(f"nothing to resume in {place.out}; leave out --resume to start")
    start, failed = time.perf_counter(), []
    titles = [f"{job.name}, {number} of {len(ready)}" for number, job in enumerate(ready, 1)]
    with ThreadPoolExecutor(max(1, len(ready))) as pool:
        # On a cluster all at once: units of one experiment run where another leaves workers idle.
        each = map if place.spread is None else pool.map
        for number, fine in enumerate(each(partial(_run_one, place), titles, ready), 1):
            failed += [] if fine else [ready[number - 1].name]
            minutes = (time.perf_counter() - start) / 60
            place.console.print(f"{number} of {len(ready)} experiments done, {minutes:.1f} min so far.")
    for job in jobs:
        if job.missing is not None:
            place.console.print(f"Left out: {job.name}. {job.missing}", markup=False)
    return failed
