"""Pretraining: one network, any number of sittings, each of which continues where the last one stopped."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from rich.console import Console

from dsvnp.pretrained.loading import Card, save_pretrained
from dsvnp.pretrained.recipes import PretrainingRecipe
from dsvnp.sources.base import TaskSource
from dsvnp.training import Cluster, Fleet, Interrupted, Reporter, train

LOG = "log.jsonl"
MANY = 10**9  # steps: the end is set when the decay is to begin


def pretrain(
    recipe: PretrainingRecipe,
    out: Path,
    device: torch.device | str,
    minutes: float | None = None,
    num_steps: int = MANY,
    precision: str = "bf16",
    seed: int = 0,
    console: Console | None = None,
) -> Fleet:
    """Train a network up to a step or for some minutes, from the newest checkpoint in `out` if there is one.

    The weights so far, with their card, are in `out` when a sitting ends: `load_pretrained(recipe.name, out)`.

    Args:
        recipe: what to train.
        out: folder for checkpoints and the log.
        device: where.
        minutes: length of this sitting; None trains to the last step.
        num_steps: last step. The learning rate falls over the `recipe.decay` steps before it.
        precision: of the arithmetic, see `Settings`.
        seed: of the weights and of the prior.
        console: where progress is shown.
    """
    cluster = Cluster.from_environment("data")
    fleet = Fleet(recipe.make, recipe.source, [seed], recipe.settings(num_steps, precision), device, cluster)
    reporter = Reporter(f"pretrain {recipe.name}", num_steps, out / LOG, console=console or Console())
    with _sitting(minutes) as over:
        try:
            train(fleet, out / "checkpoints", reporter=reporter)
        except Interrupted:
            if not cluster.largest(over.is_set()):  # the clocks of several processes differ a little
                raise
    if cluster.writes:
        save_pretrained(fleet.replica(0), _card(recipe, fleet, out, seed), out)
    return fleet


def _card(recipe: PretrainingRecipe, fleet: Fleet, out: Path, seed: int) -> Card:
    """What is known of a network when a sitting ends."""
    on_gpu = fleet.device.type == "cuda"
    return Card(
        name=recipe.name,
        prior=[_settings(source) for source in recipe.source.sources],
        steps=fleet.num_steps_taken,
        gpu_minutes=round(_minutes(out / LOG), 1) if on_gpu else 0.0,
        gpu=torch.cuda.get_device_name(fleet.device) if on_gpu else "",
        seed=seed,
        limits=recipe.limits,
    )


def _settings(source: TaskSource) -> dict[str, Any]:
    """The settings of a prior, in what JSON can hold."""
    values = vars(source)["settings"]
    shown = {field.name: getattr(values, field.name) for field in fields(values)}
    return {
        "kind": type(source).__name__,
        **{k: str(v) if isinstance(v, torch.dtype) else v for k, v in shown.items()},
    }


def _minutes(log: Path) -> float:
    """Time that the steps of a log took, over all sittings; what precedes a sitting's first step does not count."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    steps = [0, *(line["step"] for line in lines)]
    spent = ((b - a) / line["steps_per_second"] for (a, b), line in zip(pairwise(steps), lines, strict=True))
    return sum(spent) / 60


@contextmanager
def _sitting(minutes: float | None) -> Iterator[threading.Event]:
    """Ask this process to stop after some minutes, by the signal that a user would send.

    Training takes the signal once it has begun; sent before, it is dropped here and sent again a second later.
    """
    over, done = threading.Event(), threading.Event()

    def watch() -> None:
        wait = 60 * (minutes or 0.0)
        while not done.wait(wait):
            over.set()
            os.kill(os.getpid(), signal.SIGTERM)
            wait = 1.0

    def drop(number: int, frame: FrameType | None) -> None:
        if not over.is_set():  # not ours: as if nobody had listened
            signal.signal(number, before)
            signal.raise_signal(number)

    if minutes is None:
        yield over
        return
    before = signal.signal(signal.SIGTERM, drop)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield over
    finally:
        done.set()
        watcher.join()
        signal.signal(signal.SIGTERM, before)
