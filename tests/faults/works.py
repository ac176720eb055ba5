"""What the attacks disturb: five kinds of work that leave files, and what each leaves when nothing happens.

reproduce   an experiment of four units: units.json.gz, results.json, a figure
training    checkpoints at every other step, and a log
saving      a model, another one in its place, and predictions in several parts
fit         `dsvnp fit` on a small CSV: a model and a picture
pretrain    `dsvnp pretrain` with a tiny network: checkpoints, a log, weights and their card
"""

from __future__ import annotations

import io
import json
import tempfile
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console

from dsvnp import NPClassifier, NPRegressor
from dsvnp.cli import app
from dsvnp.models import Architecture, make_model
from dsvnp.paper.records import UNITS_FILE
from dsvnp.paper.runner import run
from dsvnp.pretrained.recipes import PretrainingRecipe
from dsvnp.pretrained.training import pretrain as run_pretraining
from dsvnp.schema import read_json
from dsvnp.sources.base import Rotation
from dsvnp.sources.curves import Curves
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.files.table_writing import TableWriter
from dsvnp.tabular.saved.saving import RECORD
from dsvnp.training import CheckpointError, Fleet, Reporter, Settings, train
from dsvnp.training import checkpoint as checkpoints
from tests.faults.counting import Counting, contents, place
from tests.faults.injection import count, in_child

NUM_STEPS = 6
NUM_ROWS = 50  # of each part of predictions
PREDICTIONS = "predictions.csv"
ARCH = Architecture(1, 1, encoder=(4,), dim_lat=4, decoder=(4,))


def curves(batch_size: int = 2) -> Curves:
    return Curves(batch_size=batch_size, num_points=6, min_context=1, max_context=3, refresh_every=4)


def reproduce(folder: Path) -> None:
    run(Counting(), place(folder))


def training(folder: Path) -> None:
    settings = Settings(NUM_STEPS, checkpoint_every=2, log_every=2)
    fleet = Fleet(partial(make_model, "dsvnp", ARCH), curves(), (1, 2), settings)
    reporter = Reporter("run", NUM_STEPS, log=folder / "log.jsonl", console=Console(file=io.StringIO()))
    train(fleet, folder / "checkpoints", reporter=reporter)


def fresh(seed: int) -> NPRegressor | NPClassifier:
    """Fit a small estimator, which is soon done; every third is a classifier, every sixth asks the shipped network."""
    x = np.linspace(0, 1, 20)[:, None]
    made = NPClassifier if seed % 3 == 2 else NPRegressor
    model = ("cnp", "np", "dsvnp", "attnnp")[seed % 4]
    how = (
        {"effort": "fast"}
        if seed % 12 == 11
        else {"model": model, "n_replicas": 1, "max_steps": 2, "width": 4}
    )
    estimator = made(**how, random_state=seed, device="cpu")
    return estimator.fit(x, np.sin(x[:, 0]) if made is NPRegressor else (x[:, 0] > 0.4).astype(int))


@cache
def fitted(seed: int) -> NPRegressor | NPClassifier:
    """The estimator of a seed, fitted when nothing else is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is no good
        return fresh(seed)


def saving(folder: Path) -> None:
    for seed in (0, 1):
        fitted(seed).save(folder / "model")
    with TableWriter(folder / PREDICTIONS, ["a"]) as writer:
        for part in range(3):
            writer.add([np.arange(NUM_ROWS) + part])


def _command(*words: str) -> None:
    """Run a command of the command line, and say nothing."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        app(list(words), standalone_mode=False)


def fit(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    table = folder / "table.csv"
    table.write_text("a,b\n" + "".join(f"{i / 10},{i * i % 7}.5\n" for i in range(24)))
    settings = ["--model", "cnp", "--replicas", "1", "--steps", "2", "--device", "cpu"]
    _command("fit", str(table), "--target", "b", "--out", str(folder / "model"), *settings)


def tiny(batch_size: int = 2) -> PretrainingRecipe:
    """A network that is soon pretrained, with a checkpoint at every other step."""
    source = Rotation((curves(batch_size),))
    return _Tiny("curves", partial(make_model, "np", ARCH), source, decay=2, warmup=1)


class _Tiny(PretrainingRecipe):
    def settings(self, num_steps: int, precision: str, device: torch.device | str) -> Settings:
        return replace(super().settings(num_steps, precision, device), checkpoint_every=2, log_every=2)


def pretrain(folder: Path) -> None:
    silent = Console(file=io.StringIO())
    run_pretraining(tiny(), folder, "cpu", num_steps=NUM_STEPS, precision="float32", console=silent)


WORK = {"reproduce": reproduce, "training": training, "saving": saving, "fit": fit, "pretrain": pretrain}


def left(folder: Path) -> dict[str, bytes]:
    """What some work left, without the times that differ from run to run."""
    found = contents(folder)
    if log := found.get("log.jsonl"):
        lines = [json.loads(line) for line in log.splitlines()]
        found["log.jsonl"] = repr([{**line, "steps_per_second": 0} for line in lines]).encode()
    # Which older checkpoints are kept depends on where a run was interrupted; the last one does not.
    older = [path.name for path in checkpoints.list_checkpoints(folder / "checkpoints")[:-1]]
    return {name: data for name, data in found.items() if not any(f"/{step}/" in name for step in older)}


class Undisturbed(NamedTuple):
    """What some work leaves when nothing happens, the file operations it takes, and how long it lasts."""

    files: dict[str, bytes]
    operations: int
    seconds: float


@cache
def undisturbed(work: str) -> Undisturbed:
    """Do some work twice: here, and in a process like those that will be disturbed."""
    with tempfile.TemporaryDirectory() as folder:
        operations = count(partial(WORK[work], Path(folder, "here")))
        start = time.monotonic()
        assert in_child(partial(WORK[work], Path(folder, "there"))) == 0
        seconds = time.monotonic() - start
        assert left(Path(folder, "here")) == left(Path(folder, "there"))
        return Undisturbed(left(Path(folder, "here")), operations, seconds)


def unreadable(folder: Path) -> str:
    """Files that have their name but are not whole; an empty text if all are."""
    for path in (*folder.glob("*.json"), *folder.glob(UNITS_FILE)):
        try:
            read_json(path, "it is half written")
        except ValueError as error:
            return str(error)
    for path in checkpoints.list_checkpoints(folder / "checkpoints"):
        try:
            checkpoints.load(path)
        except CheckpointError as error:
            return str(error)
    if (folder / "model" / RECORD).is_file():
        try:
            BaseNP.load(folder / "model")
        except ValueError as error:
            return str(error)
    elif any((folder / "model").glob("[!.]*")):
        return "there is a part of a model"
    table = folder / PREDICTIONS
    if table.is_file() and len(table.read_bytes().split()) != 3 * NUM_ROWS + 1:
        return f"{PREDICTIONS} is half written"
    return ""
