"""Checkpoints that survive anything, without pickle.

A checkpoint is a folder `step-000001000` with two files: `state.safetensors` (weights, moments, statistics, all
with the replica axis first) and `run.json` (what the run is, how far it got, the random generators, and the
checksums of the other file and of itself). It is written under a temporary name, flushed to disk and renamed, so
that a folder with that name is whole whenever the process dies; what is nevertheless damaged, or belongs to
another run, is refused by name.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialize
from torch import Tensor

from dsvnp import files
from dsvnp.schema import differences, read_json, wrong

FORMAT, VERSION = "dsvnp-checkpoint", 1
STATE, RUN = "state.safetensors", "run.json"
FORM = {"run": dict, "step": int, "generators": [str], "environment": dict}


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used; the message names it and says what to use instead."""


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds."""

    tensors: dict[str, Tensor]  # the state, by name
    run: dict[str, Any]  # the run it belongs to, as `Fleet.describe` says it
    step: int  # number of steps taken
    generators: list[str]  # state of each replica's generator, as hexadecimal text
    environment: dict[str, Any]  # what bit-exactness depends on (torch version, device, threads)


def environment(device: torch.device) -> dict[str, Any]:
    """What a resumed run must share with the first one to be equal to it bit by bit."""
    return {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
    }


def save(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write a checkpoint into `folder` and remove all but the last `keep`; an error leaves those that were there."""
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{checkpoint.step:09d}"
    temporary = folder / f".writing-{final.name}"
    files.sweep(folder)
    try:
        _write(temporary, checkpoint)
    except BaseException as error:
        files.remove(temporary)
        if isinstance(error, (OSError, SafetensorError)):
            raise OSError(getattr(error, "errno", None), f"cannot write it ({error})", str(final)) from error
        raise
    before = _aside(final) if final.exists() else None  # the same step again, after a resume
    files.rename(temporary, final)
    files.flush(folder)
    if before is not None:
        files.remove(before)
    for old in list_checkpoints(folder)[:-keep]:
        files.remove(_aside(old))
    return final


def _write(temporary: Path, checkpoint: Checkpoint) -> None:
    """Write both files into a new folder, on disk when this returns."""
    files.make_folder(temporary)
    tensors = {name: value.contiguous().cpu() for name, value in checkpoint.tensors.items()}
    run: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "run": checkpoint.run,
        "step": checkpoint.step,
        "generators": checkpoint.generators,
        "environment": checkpoint.environment,
    }
    files.write_new(temporary / STATE, serialize(tensors))
    run["sha256"] = {STATE: files.digest(temporary / STATE), RUN: files.digest_of_record(run)}
    files.write_new(temporary / RUN, json.dumps(run, indent=1).encode())
    files.flush(temporary)


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.is_dir())


def load(path: Path, run: Mapping[str, Any] | None = None) -> Checkpoint:
    """Read a checkpoint, and refuse one that is damaged, foreign, or of another run than `run`."""
    try:
        return _load(path, run)
    except CheckpointError as error:
        good = [other for other in list_checkpoints(path.parent) if other != path and _is_good(other, run)]
        hint = f"the last good one is {good[-1]}" if good else "there is no other good one in its folder"
        raise CheckpointError(f"{path}: {error}; {hint}") from None


def load_latest(folder: Path, run: Mapping[str, Any]) -> Checkpoint | None:
    """Read the newest checkpoint of a folder; None if there is none."""
    _recover(folder)
    found = list_checkpoints(folder)
    return load(found[-1], run) if found else None


def _recover(folder: Path) -> None:
    """Give back its name to a checkpoint that a process had put aside for a new one of the same step, and then died."""
    aside = sorted(folder.glob(".removing-step-*"))
    names = [path.name for path in list_checkpoints(folder)]
    if aside and (name := aside[-1].name.removeprefix(".removing-")) > max(names, default=""):
        with suppress(FileNotFoundError):  # another process of the run did so
            files.rename(aside[-1], folder / name)


def _aside(path: Path) -> Path:
    """Rename a checkpoint: a folder that is being removed must not look like one."""
    aside = path.parent / f".removing-{path.name}"
    files.rename(path, aside)
    return aside


def _load(path: Path, expected: Mapping[str, Any] | None) -> Checkpoint:
    """Read a checkpoint; the errors do not name it yet."""
    if not (path / RUN).is_file() or not (path / STATE).is_file():
        raise CheckpointError(f"not a checkpoint: it must hold {RUN} and {STATE}")
    try:
        data = read_json(path / RUN, "")
    except ValueError:
        raise CheckpointError(f"damaged: {RUN} is not valid JSON") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CheckpointError(f"foreign: {RUN} does not say format {FORMAT!r}")
    if data.get("version") != VERSION:
        raise CheckpointError(f"written in version {data.get('version')} of the format, this reads {VERSION}")
    checksums = data.pop("sha256", None)
    if not isinstance(checksums, dict) or checksums.get(RUN) != files.digest_of_record(data):
        raise CheckpointError(f"damaged: {RUN} does not have the checksum that it gives")
    if files.digest(path / STATE) != checksums.get(STATE):
        raise CheckpointError(f"damaged: {STATE} does not have the checksum that {RUN} gives")
    if reason := wrong(data, FORM):
        raise CheckpointError(f"damaged: {RUN} {reason}")
    mine = data["run"] if expected is None else json.loads(json.dumps(dict(expected)))  # tuples become lists
    for name, here, there in differences(mine, data["run"]):
        raise CheckpointError(f"of another run: {name} is {there!r} there but {here!r} here")
    try:
        tensors = load_file(path / STATE)
    except SafetensorError as error:
        raise CheckpointError(f"damaged: {STATE}: {error}") from None
    return Checkpoint(tensors, data["run"], data["step"], data["generators"], data["environment"])


def _is_good(path: Path, run: Mapping[str, Any] | None) -> bool:
    """Whether a checkpoint can be read."""
    try:
        _load(path, run)
    except CheckpointError:
        return False
    return True
