"""The attacks: each makes one fault happen, lets the work be done again, and returns what is wrong afterwards.

An attack is `attack(folder, chance) -> str`: an empty text if all is well, otherwise what is not.
"""

from __future__ import annotations

import io
import json
import random
import resource
import shutil
import signal
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from dsvnp import NPRegressor
from dsvnp.models import Architecture, make_model
from dsvnp.paper.report.page import write_report
from dsvnp.paper.runner import run
from dsvnp.sources.curves import Curves
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.content import content_of
from dsvnp.tabular.saving import RECORD, TENSORS
from dsvnp.tabular.table_writing import TableWriter
from dsvnp.training import CheckpointError, Fleet, Reporter, Settings, train
from dsvnp.training import checkpoint as checkpoints
from tests.faults.counting import Counting, contents, place
from tests.faults.injection import count, fault, in_child

Attack = Callable[[Path, random.Random], str]
NUM_STEPS = 6
NUM_ROWS = 50  # of each part of predictions
PREDICTIONS = "predictions.csv"


# --- what is attacked ---


def reproduce(folder: Path) -> None:
    """An experiment of four units: units.json, results.json, a figure."""
    run(Counting(), place(folder))


def training(folder: Path) -> None:
    """A training with a checkpoint at every other step, and a log."""
    arch = Architecture(1, 1, encoder=(4,), dim_lat=4, decoder=(4,))
    source = Curves(batch_size=2, num_points=6, min_context=1, max_context=3, refresh_every=4)
    settings = Settings(NUM_STEPS, checkpoint_every=2, log_every=2)
    fleet = Fleet(partial(make_model, "dsvnp", arch), source, (1, 2), settings)
    reporter = Reporter("run", NUM_STEPS, log=folder / "log.jsonl", console=Console(file=io.StringIO()))
    train(fleet, folder / "checkpoints", reporter=reporter)


@cache
def fitted(seed: int) -> NPRegressor:
    """A small estimator, which is soon made."""
    x = np.linspace(0, 1, 20)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is no good
        made = NPRegressor("cnp", n_replicas=1, max_steps=2, width=4, random_state=seed, device="cpu")
        return made.fit(x, np.sin(x[:, 0]))


def saving(folder: Path) -> None:
    """A model, another one in its place, and predictions in several parts."""
    for seed in (0, 1):
        fitted(seed).save(folder / "model")
    with TableWriter(folder / PREDICTIONS, ["a"]) as writer:
        for part in range(3):
            writer.add([np.arange(NUM_ROWS) + part])


WORK = {"reproduce": reproduce, "training": training, "saving": saving}


def left(folder: Path) -> dict[str, bytes]:
    """What some work left, without the times that differ from run to run."""
    found = contents(folder)
    if log := found.get("log.jsonl"):
        lines = [json.loads(line) for line in log.splitlines()]
        found["log.jsonl"] = repr([{**line, "steps_per_second": 0} for line in lines]).encode()
    # Which older checkpoints are kept depends on where a run was interrupted; the last one does not.
    older = [path.name for path in checkpoints.list_checkpoints(folder / "checkpoints")[:-1]]
    return {name: data for name, data in found.items() if not any(f"/{step}/" in name for step in older)}


@cache
def undisturbed(work: str, folder: Path) -> tuple[dict[str, bytes], int]:
    """What the work leaves when nothing happens, and how many operations it takes."""
    whole = folder / f"undisturbed-{work}"
    operations = count(partial(WORK[work], whole))
    return left(whole), operations


# --- faults of the file layer ---


def strike(work: str, kind: str, number: int, root: Path) -> str:
    """Let one operation fail, look at what is there, do the work again, and compare with an undisturbed run."""
    expected, _ = undisturbed(work, root)
    folder = root / f"{work}-{kind}-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "neighbour").mkdir(parents=True)
    (folder / "neighbour" / "precious").write_text("x")

    def struck() -> None:
        if kind == "small":  # a disk on which no file may have more bytes
            resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))
        with fault(kind, number):
            WORK[work](folder)

    end = in_child(struck)
    wanted = {"kill": (-signal.SIGKILL,), "signal": (0, 1, -signal.SIGTERM)}.get(kind, (0, 1))
    what = f"{work}, {kind} at operation {number}: "
    if end not in wanted:
        return f"{what}the process ended with {end}"
    if kind in ("full", "small") and (rest := [path.name for path in folder.rglob(".writing-*")]):
        return f"{what}{rest} stay after a full disk"
    if broken := _unreadable(folder):
        return f"{what}{broken}"
    if (again := in_child(partial(WORK[work], folder))) != 0:
        return f"{what}the next run ended with {again}"
    found = left(folder)
    if found.pop("neighbour/precious", None) != b"x":
        return f"{what}a neighbour's file is gone"
    shutil.rmtree(folder)
    different = sorted(name for name in {**found, **expected} if found.get(name) != expected.get(name))
    return f"{what}{different} differ from an undisturbed run's" if different else ""


def _unreadable(folder: Path) -> str:
    """Files that have their name but are not whole."""
    for path in folder.glob("*.json"):
        try:
            json.loads(path.read_text())
        except ValueError:
            return f"{path.name} is half written"
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


def file_operation(folder: Path, chance: random.Random) -> str:
    """A kill, a full disk or a signal at an operation chosen at random."""
    work = chance.choice(list(WORK))
    _, operations = undisturbed(work, folder)
    return strike(work, chance.choice(["kill", "full", "signal"]), chance.randrange(operations), folder)


def small_disk(folder: Path, chance: random.Random) -> str:
    """A disk that takes no more than some bytes of each file."""
    return strike(chance.choice(list(WORK)), "small", int(10 ** chance.uniform(0, 5)), folder)


# --- damage ---


def damage(data: bytes, chance: random.Random) -> bytes:
    """Flip a bit, or cut the end off."""
    if chance.random() < 0.3:
        return data[: chance.randrange(len(data))]
    place_ = chance.randrange(len(data))
    flipped = data[place_] ^ 1 << chance.randrange(8)
    return data[:place_] + bytes([flipped]) + data[place_ + 1 :]


def damaged_checkpoint(folder: Path, chance: random.Random) -> str:
    """A flip or a truncation of a checkpoint: refused by name, or of no effect at all."""
    whole = folder / "damaged"
    if not whole.is_dir():
        training(whole)
    path = checkpoints.list_checkpoints(whole / "checkpoints")[-1]
    before = checkpoints.load(path)
    file = path / chance.choice([checkpoints.STATE, checkpoints.RUN])
    data = file.read_bytes()
    file.write_bytes(damaged := damage(data, chance))
    try:
        after = checkpoints.load(path)
    except CheckpointError as error:
        return "" if path.name in str(error) and "\n" not in str(error) else f"not named: {error}"
    except BaseException as error:
        return f"{type(error).__name__} at a damaged {file.name}: {error}"
    finally:
        file.write_bytes(data)
    same = (after.run, after.step, after.generators) == (before.run, before.step, before.generators) and all(
        torch.equal(after.tensors[name], value) for name, value in before.tensors.items()
    )
    # White space in JSON carries nothing; all else must be noticed.
    return "" if same and json.loads(damaged) == json.loads(data) else f"a damaged {file.name} was taken"


def damaged_model(folder: Path, chance: random.Random) -> str:
    """A flip or a truncation of a saved model: refused by name, or of no effect at all."""
    path = folder / "damaged-model"
    if not path.is_dir():
        fitted(0).save(path)
    file = path / chance.choice([RECORD, TENSORS])
    data = file.read_bytes()
    file.write_bytes(damaged := damage(data, chance))
    try:
        BaseNP.load(path)
    except ValueError as error:
        return "" if file.name in str(error) and "\n" not in str(error) else f"not named: {error}"
    except BaseException as error:
        return f"{type(error).__name__} at a damaged {file.name}: {error}"
    finally:
        file.write_bytes(data)
    same = file.name == RECORD and json.loads(damaged) == json.loads(data)  # white space carries nothing
    return "" if same else f"a damaged {file.name} was taken"


def fits_in_threads(folder: Path, chance: random.Random) -> str:
    """Eight fits in eight threads: each as it is by itself, and torch as it was before."""
    seeds = [chance.randrange(4) for _ in range(8)]
    alone = [content_of(fitted(seed)) for seed in seeds]
    before = (
        torch.default_generator.get_state(),
        torch.get_float32_matmul_precision(),
        torch.get_num_threads(),
    )
    with ThreadPoolExecutor(8) as pool:
        found = [content_of(made) for made in pool.map(fitted.__wrapped__, seeds)]
    after = torch.default_generator.get_state(), torch.get_float32_matmul_precision(), torch.get_num_threads()
    if not torch.equal(before[0], after[0]) or before[1:] != after[1:]:
        return "the state of torch has changed"
    for left_, right in zip(alone, found, strict=True):
        if any(not torch.equal(value, right.tensors[name]) for name, value in left_.tensors.items()):
            return "a fit in a thread differs from the one by itself"
    return ""


def damaged_record(folder: Path, chance: random.Random) -> str:
    """A flip or a truncation of results.json or units.json: a report, or one line."""
    whole = folder / "records"
    if not whole.is_dir():
        reproduce(whole)
    file = whole / chance.choice(["results.json", "units.json"])
    data = file.read_bytes()
    file.write_bytes(damage(data, chance))
    try:
        for reader in (partial(write_report, whole), partial(reproduce, whole)):
            try:
                reader()
            except ValueError as error:
                if "\n" in str(error):
                    return f"more than a line: {error}"
    except BaseException as error:
        return f"{type(error).__name__} at a damaged {file.name}: {error}"
    finally:
        shutil.rmtree(whole)
    return ""


ATTACKS: dict[str, Attack] = {
    "file operations": file_operation,
    "small disks": small_disk,
    "damaged checkpoints": damaged_checkpoint,
    "damaged models": damaged_model,
    "fits in threads": fits_in_threads,
    "damaged records": damaged_record,
}
