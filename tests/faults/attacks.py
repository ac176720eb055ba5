"""The attacks: each makes one fault happen, lets the work be done again, and returns what is wrong afterwards.

An attack is `attack(folder, chance) -> str`: an empty text if all is well, otherwise what is not.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dsvnp import NPRegressor
from dsvnp.files import gunzipped, gzipped
from dsvnp.paper.records import UNITS_FILE
from dsvnp.paper.report.page import write_report
from dsvnp.schema import LARGEST
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.saved.content import content_of
from dsvnp.tabular.saved.saving import RECORD, TENSORS
from dsvnp.training import CheckpointError
from dsvnp.training import checkpoint as checkpoints
from dsvnp.training.hooks import reporting_to
from tests.faults.injection import fault, in_child
from tests.faults.works import WORK, fitted, fresh, left, reproduce, training, undisturbed, unreadable

Attack = Callable[[Path, random.Random], str]
THREADS = 8


# --- faults of the file layer, and signals ---


def strike(work: str, kind: str, number: int, root: Path) -> str:
    """Let one operation fail, look at what is there, do the work again, and compare with an undisturbed run."""

    def struck(folder: Path) -> None:
        if kind == "small":  # a disk on which no file may have more bytes
            resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))
        with fault(kind, number):
            WORK[work](folder)

    wanted = {"kill": (-signal.SIGKILL,), "signal": (0, 1, -signal.SIGTERM)}.get(kind, (0, 1))
    folder = _ground(root)
    end = in_child(partial(struck, folder))
    wrong = f"the process ended with {end}" if end not in wanted else ""
    if kind in ("full", "small") and (rest := [path.name for path in folder.rglob(".writing-*")]):
        wrong = wrong or f"{rest} stay after a full disk"
    wrong = wrong or _done_again(work, folder)
    return f"{work}, {kind} at operation {number}: {wrong}" if wrong else ""


def signal_at_a_moment(root: Path, chance: random.Random, work: str) -> str:
    """SIGKILL, SIGTERM or SIGINT at any moment of some work, which is then done again."""
    number = chance.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    after = chance.uniform(0, undisturbed(work).seconds)
    folder = _ground(root)
    end = in_child(partial(WORK[work], folder), number, after)
    wrong = f"the process ended with {end}" if end not in (0, 1, -number) else ""
    wrong = wrong or _done_again(work, folder)
    return f"{work}, {number.name} after {after:.3f} s: {wrong}" if wrong else ""


def _ground(root: Path) -> Path:
    """A new folder to work in, next to a file of somebody else's."""
    folder = root / "struck"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "neighbour").mkdir(parents=True)
    (folder / "neighbour" / "precious").write_text("x")
    return folder


def _done_again(work: str, folder: Path) -> str:
    """Look at what disturbed work left, do it again, and say what differs from undisturbed work."""
    if broken := unreadable(folder):
        return broken
    if (again := in_child(partial(WORK[work], folder))) != 0:
        return f"the next run ended with {again}"
    found, expected = left(folder), undisturbed(work).files
    if found.pop("neighbour/precious", None) != b"x":
        return "a neighbour's file is gone"
    different = sorted(name for name in {**found, **expected} if found.get(name) != expected.get(name))
    return f"{different} differ from an undisturbed run's" if different else ""


def small_disk(folder: Path, chance: random.Random) -> str:
    """A disk that takes no more than some bytes of each file."""
    return strike(chance.choice(list(WORK)), "small", int(10 ** chance.uniform(0, 5)), folder)


# --- damage ---


def damage(data: bytes, chance: random.Random, cuts: float = 0.3) -> bytes:
    """Flip a bit or, in this share of the cases, cut the end off."""
    if chance.random() < cuts:
        return data[: chance.randrange(len(data))]
    place_ = chance.randrange(len(data))
    flipped = data[place_] ^ 1 << chance.randrange(8)
    return data[:place_] + bytes([flipped]) + data[place_ + 1 :]


def damaged_checkpoint(folder: Path, chance: random.Random, cuts: float = 0.3) -> str:
    """A flip or a truncation of a checkpoint: refused by name, or of no effect at all."""
    whole = folder / "damaged"
    if not whole.is_dir():
        training(whole)
    path = checkpoints.list_checkpoints(whole / "checkpoints")[-1]
    before = checkpoints.load(path)
    file = path / chance.choice([checkpoints.STATE, checkpoints.RUN])
    data = file.read_bytes()
    file.write_bytes(damaged := damage(data, chance, cuts))
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


def damaged_model(folder: Path, chance: random.Random, cuts: float = 0.3) -> str:
    """A flip or a truncation of a saved model: refused by name, or of no effect at all."""
    path = folder / "damaged-model"
    if not path.is_dir():
        fitted(0).save(path)
    file = path / chance.choice([RECORD, TENSORS])
    data = file.read_bytes()
    file.write_bytes(damaged := damage(data, chance, cuts))
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


def global_state() -> list[Any]:
    """All that a fit could leave changed for others."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    switches = [
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.allow_tf32,
        torch.get_num_threads(),
    ]
    switches += [
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
    ]
    numbers = [torch.get_rng_state().tolist(), repr(np.random.get_state()), random.getstate()]
    return [*handlers, *switches, *numbers, list(warnings.filters)]


def failing(seed: int) -> None:
    """A fit that ends in an error: of its arguments, or in the middle of the training."""

    def fail(title: str, step: int, values: dict[str, float]) -> None:
        raise KeyError(title)

    try:
        if seed % 2:
            NPRegressor("cnp", width=-1).fit(np.zeros((9, 1)), np.arange(9))
        with reporting_to(fail):
            fresh(seed)
    except (KeyError, ValueError):
        return
    raise AssertionError("no error")


def fits_in_threads(folder: Path, chance: random.Random) -> str:
    """Eight fits in eight threads, among which others fail: each as by itself, and all global state as before."""
    seeds = [chance.randrange(12) for _ in range(THREADS)]
    alone = [content_of(fitted(seed)) for seed in seeds]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # once for all: filters belong to no thread
        before = global_state()
        with ThreadPoolExecutor(THREADS) as pool:
            errors = [pool.submit(failing, seed) for seed in seeds[:2]]
            found = [content_of(made) for made in pool.map(fresh, seeds)]
            for error in errors:
                error.result()
        if global_state() != before:
            return "global state has changed"
    for left_, right in zip(alone, found, strict=True):
        if left_.record != right.record or left_.tensors.keys() != right.tensors.keys():
            return "a fit in a thread has another record than the one by itself"
        if any(not torch.equal(value, right.tensors[name]) for name, value in left_.tensors.items()):
            return "a fit in a thread differs from the one by itself"
    return ""


def damaged_record(folder: Path, chance: random.Random) -> str:
    """A flip or a truncation of results.json, of units.json.gz or of the JSON in it: a report, or one line."""
    whole = folder / "records"
    if not whole.is_dir():
        reproduce(whole)
    name, inside = chance.choice([("results.json", False), (UNITS_FILE, False), (UNITS_FILE, True)])
    file = whole / name
    data = file.read_bytes()
    file.write_bytes(gzipped(damage(gunzipped(data, LARGEST), chance)) if inside else damage(data, chance))
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


# Each attack with its number in a long run.
ATTACKS: dict[str, tuple[Attack, int]] = {
    **{f"any moment of {work}": (partial(signal_at_a_moment, work=work), 60) for work in WORK},
    "truncated checkpoints": (partial(damaged_checkpoint, cuts=1), 1000),
    "flipped checkpoints": (partial(damaged_checkpoint, cuts=0), 2500),
    "truncated models": (partial(damaged_model, cuts=1), 1000),
    "flipped models": (partial(damaged_model, cuts=0), 2500),
    "eight fits in threads": (fits_in_threads, 125),
    "small disks": (small_disk, 100),
    "damaged records": (damaged_record, 300),
}
