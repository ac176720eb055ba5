"""Pretraining: one network, any number of sittings, each of which continues where the last one stopped."""

import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

import torch
from rich.console import Console
from torch import Tensor

from dsvnp.files import sweep
from dsvnp.locks import folder_lock
from dsvnp.models import NeuralProcess
from dsvnp.models.tnp import TNP
from dsvnp.pretrained.cards import card_of
from dsvnp.pretrained.copula import single
from dsvnp.pretrained.loading import load_pretrained, read_card, save_pretrained
from dsvnp.pretrained.recipes import MAX_CLASSES, MAX_COLUMNS, PretrainingRecipe
from dsvnp.pretrained.validation import RealTable, read_tables, score
from dsvnp.training import Cluster, Fleet, Interrupted, Reporter, train

VALIDATE_EVERY = 2500  # steps
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
    tables: Path | None = None,
    start: Path | None = None,
    wait: bool = False,
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
        tables: real tables that the network is scored on as it trains (`validation`); None for none.
        start: folder with weights of the network to begin from; its optimiser starts again, with a warm-up. The seed
            must be another than theirs, which would draw the same functions again.
        wait: wait for another process that writes into `out`, instead of refusing.
    """
    if start is not None and read_card(recipe.name, start).seed == seed:
        raise ValueError(
            f"the weights in {start} were trained with seed {seed}, which would draw the same functions again; choose "
            "another seed"
        )
    console = console or Console()
    cluster = Cluster.from_environment("data")
    settings = recipe.settings(num_steps, precision, device)
    validation = None
    if tables is not None:
        settings = replace(settings, validate_every=VALIDATE_EVERY)
        validation = partial(
            _validate, read_tables(tables, MAX_COLUMNS, MAX_CLASSES), out / "validation.jsonl"
        )
    make = recipe.make if start is None else partial(_begun, recipe.name, start)
    fleet = Fleet(make, recipe.source, [seed], settings, device, cluster)
    reporter = Reporter(f"pretrain {recipe.name}", num_steps, out / "log.jsonl", console=console)
    alone = folder_lock(out, wait, partial(console.print, markup=False)) if cluster.writes else nullcontext()
    with alone:
        if cluster.writes:
            sweep(out)  # what a process that was killed left
        with _sitting(minutes) as over:
            try:
                train(fleet, out / "checkpoints", validation, reporter)
            except Interrupted:
                if not cluster.largest(over.is_set()):  # the clocks of several processes differ a little
                    raise
        if cluster.writes:
            _save(recipe, fleet, seed, out, start)
    return fleet


def _begun(name: str, start: Path) -> NeuralProcess:
    """The network to go on with; a copula, which was trained last, would have to be trained again."""
    model = load_pretrained(name, start)
    return single(model) if isinstance(model, TNP) else model


def _save(recipe: PretrainingRecipe, fleet: Fleet, seed: int, out: Path, start: Path | None) -> None:
    """Write the weights so far and their card, which counts what was trained before this run too."""
    card = card_of(recipe, fleet, out / "log.jsonl", seed)
    if start is not None:
        before = read_card(recipe.name, start)
        minutes = round(before.gpu_minutes + card.gpu_minutes, 1)
        card = replace(card, steps=before.steps + card.steps, gpu_minutes=minutes)
    save_pretrained(fleet.replica(0), card, out)


def _validate(tables: Sequence[RealTable], log: Path, fleet: Fleet) -> Tensor:
    """Score the network on real tables, write a line, and return the mean."""
    scores = score(fleet.replica(0), tables)
    if fleet.cluster.writes:
        with log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": fleet.num_steps_taken, **scores}) + "\n")
    return torch.tensor([scores["both"]])


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
