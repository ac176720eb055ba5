"""Pretraining: one network, any number of sittings, each of which continues where the last one stopped."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.console import Console

from dsvnp.pretrained.recipes import PretrainingRecipe
from dsvnp.training import Cluster, Fleet, Interrupted, Reporter, train

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
    reporter = Reporter(f"pretrain {recipe.name}", num_steps, out / "log.jsonl", console=console or Console())
    with _sitting(minutes) as over:
        try:
            train(fleet, out / "checkpoints", reporter=reporter)
        except Interrupted:
            if not over.is_set():
                raise
    return fleet


@contextmanager
def _sitting(minutes: float | None) -> Iterator[threading.Event]:
    """Ask this process to stop after some minutes, by the signal that a user would send."""
    over = threading.Event()

    def stop() -> None:
        over.set()
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(60 * (minutes or 0.0), stop)
    if minutes is not None:
        timer.start()
    try:
        yield over
    finally:
        timer.cancel()
