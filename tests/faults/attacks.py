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
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch
from rich.console import Console

from dsvnp.models import Architecture, make_model
from dsvnp.paper.report.page import write_report
from dsvnp.paper.runner import run
from dsvnp.sources.curves import Curves
from dsvnp.training import CheckpointError, Fleet, Reporter, Settings, train
from dsvnp.training import checkpoint as checkpoints
from tests.faults.counting import Counting, contents, place
from tests.faults.injection import count, fault, in_child

Attack = Callable[[Path, random.Random], str]
NUM_STEPS = 6


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


WORK = {"reproduce": reproduce, "training": training}


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
    "damaged records": damaged_record,
}
