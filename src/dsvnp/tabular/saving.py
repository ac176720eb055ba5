"""Saving: a fitted estimator as a folder of two files, `estimator.json` and `tensors.safetensors`; no pickle.

The record has the checksums of both files and replaces the one before it in one piece: from then on the new estimator
counts. Its tensors were written before, as `.next-tensors.safetensors`, and get their name afterwards. A process may
die at any moment: the folder holds the old estimator or the new one, and the next save clears up. Files of others in
the folder stay. A file of a newer version than this program knows is refused; older versions stay readable.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as deserialize
from safetensors.torch import save as serialize
from torch import Tensor

from dsvnp import __version__, files, locks
from dsvnp.devices import pick_device
from dsvnp.pretrained import read_card
from dsvnp.schema import read_json, wrong
from dsvnp.tabular.asking import NETWORK
from dsvnp.tabular.checking import RECORD_FORM, check_recipe, check_record, check_tensors
from dsvnp.tabular.encoding import Encoding, Filling
from dsvnp.tabular.ensemble import Ensemble, Replica
from dsvnp.tabular.panel import Member, Panel, Problem
from dsvnp.tabular.recipe import Recipe
from dsvnp.tabular.scaling import ClassScaling, InputScaling, OutputScaling
from dsvnp.tabular.views import Layout

FORMAT, VERSION = "dsvnp-estimator", 5
RECORD, TENSORS, PLOT = "estimator.json", "tensors.safetensors", "calibration.png"
NEXT = f".next-{TENSORS}"  # tensors of a save that has not ended
LARGEST_RECORD = 64 * 2**20  # bytes: categories of thousands of columns
REMEDY = "save the estimator again"


class OtherWeightsError(ValueError):
    """An estimator that was fitted with other pretrained weights than the package has."""


class Content(NamedTuple):
    """What a folder holds: settings and facts as JSON takes them, and tensors by name."""

    record: dict[str, Any]
    tensors: dict[str, Tensor]


def may_hold(path: Path) -> bool:
    """Whether an estimator may be written there: nothing is there, an empty folder, or an estimator."""
    if not path.exists() or (path / RECORD).is_file():
        return True
    return path.is_dir() and all(_is_leftover(file.name) for file in path.iterdir())


def _is_leftover(name: str) -> bool:
    """Whether a file is what a save that was killed left behind."""
    return name in (locks.NAME, NEXT) or files.LEFTOVER.fullmatch(name) is not None


def content_of(estimator: Any) -> Content:
    """Everything of a fitted estimator."""
    return Content(_record(estimator), _tensors(estimator))


def write(path: Path, record: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    """Write an estimator into a new folder, or in place of an estimator that is there; files of others stay."""
    folder = path.resolve()  # where a link leads
    if not may_hold(folder):
        raise FileExistsError(f"{path} is there and holds no estimator; choose another name")
    is_new = not folder.exists()
    try:
        with locks.folder_lock(folder):
            _write(folder, record, tensors)
    except BaseException:
        if is_new:
            with suppress(OSError):
                folder.rmdir()  # if nothing is in it
        raise
    return path


def _write(folder: Path, record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write both files, on disk when this returns; the record decides which tensors count."""
    _settle(folder)
    data = serialize(tensors)
    made = {**record, "sha256": {TENSORS: files.digest(data)}}
    made["sha256"][RECORD] = files.digest_of_record(json.loads(json.dumps(made)))
    try:
        files.write_atomically(folder / NEXT, data)
        files.write_atomically(folder / RECORD, json.dumps(made, indent=1) + "\n")
    finally:
        _settle(folder)
    files.remove(folder / PLOT)  # of the model before
    files.flush(folder)


def _settle(folder: Path) -> None:
    """End what a save began: tensors that the record names get their name, all else of it is removed."""
    files.sweep(folder)
    if not (folder / NEXT).exists():
        return
    try:
        named = _read_record(folder).get("sha256", {}).get(TENSORS)
    except ValueError:
        named = None
    if named == files.digest(folder / NEXT):
        files.rename(folder / NEXT, folder / TENSORS)
    else:
        files.remove(folder / NEXT)


def read(path: Path) -> Content:
    """Read a folder; refuse what is no estimator's, damaged, or newer than this program."""
    record = _read_record(path)
    data = _read_tensors(path, record)
    try:
        return Content(record, deserialize(data))
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        raise ValueError(f"{path / TENSORS} cannot be read ({error}); {REMEDY}") from None


def made(kind: type, content: Content, path: Path) -> Any:
    """An estimator of a kind with the settings that were read."""
    try:
        return kind(**content.record["params"])
    except TypeError as error:
        raise ValueError(f"{path} is damaged: {error}; {REMEDY}") from None


def restore(estimator: Any, content: Content, path: Path) -> None:
    """Put what was read from a folder into an estimator of its settings."""
    try:
        check_record(content.record)
        check_tensors(content.record, content.tensors)
        _restore(estimator, *content)
    except OtherWeightsError as error:
        raise OtherWeightsError(f"{path}: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        kind = "" if type(error) is ValueError else f"{type(error).__name__} "
        reason = str(error).partition("\n")[0][:300]
        raise ValueError(f"{path} is damaged: {kind}{reason}; {REMEDY}") from None


def _read_record(path: Path) -> dict[str, Any]:
    """Read and check `estimator.json`."""
    file = path / RECORD
    if not file.is_file():
        raise ValueError(
            f"{path} holds no estimator: {RECORD} is not there; pass the folder that save, or dsvnp fit, wrote"
        )
    record = read_json(file, f"it is damaged; {REMEDY}", LARGEST_RECORD)
    found = record.get("format") if isinstance(record, dict) else None
    if found != FORMAT:
        raise ValueError(f"{file} is no estimator's: format {found!r}, not {FORMAT!r}")
    if reason := wrong(record, RECORD_FORM):
        raise ValueError(f"{file} {reason}; {REMEDY}")
    if record["version"] > VERSION:
        raise ValueError(
            f"{path} was written by dsvnp {record['dsvnp']} in format {record['version']}; dsvnp {__version__} reads "
            f"formats up to {VERSION}: upgrade it"
        )
    _check_digest(record, file)
    return dict(record)


def _check_digest(record: dict[str, Any], file: Path) -> None:
    """Hold a record against its own checksum; before format 5 there was none."""
    given = record.get("sha256")
    if given is None and record["version"] < 5:
        return
    if not isinstance(given, dict):
        raise ValueError(f"{file} is damaged: it lacks its checksums; {REMEDY}")
    rest = {**record, "sha256": {name: value for name, value in given.items() if name != RECORD}}
    if files.digest_of_record(rest) != given.get(RECORD):
        raise ValueError(f"{file} is damaged: it does not have the checksum that it gives; {REMEDY}")


def _read_tensors(path: Path, record: dict[str, Any]) -> bytes:
    """The file of tensors that the record means; after a save that was killed it may have its first name still."""
    wanted = record.get("sha256", {}).get(TENSORS)
    reason = "is not there"
    for name in (TENSORS, NEXT, TENSORS):  # another process may rename it meanwhile
        file = path / name
        if file.is_file():
            data = file.read_bytes()
            if wanted in (None, files.digest(data)):
                return data
            reason = f"does not have the checksum that {RECORD} gives"
    raise ValueError(f"{path / TENSORS} cannot be read: it {reason}; {REMEDY}")


def _record(estimator: Any) -> dict[str, Any]:
    """Everything but tensors, as JSON holds it."""
    params = estimator.get_params()
    if not isinstance(params["random_state"], int | np.integer | None):
        params["random_state"] = None  # a generator: what it decided is in the tensors
    encoding, names = estimator.encoding_, getattr(estimator, "feature_names_in_", None)
    return {
        "format": FORMAT,
        "version": VERSION,
        "dsvnp": __version__,
        "kind": estimator.kind,
        "params": {
            name: value.item() if isinstance(value, np.generic) else value for name, value in params.items()
        },
        "recipe": None if estimator.recipe_ is None else asdict(estimator.recipe_),
        "n_features_in": int(estimator.n_features_in_),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "encoding": None if encoding is None else asdict(encoding),
        "filling": asdict(estimator.filling_),
        "target_names": list(estimator.target_names_),
        **_members(estimator.ensemble_),
        "num_context": estimator.ensemble_.num_context,
        "noise_seed": estimator.noise_seed_,
        "validation": estimator.validation_,
        "best_steps": estimator.best_steps_,
        **estimator._own_record(),
    }


def _members(ensemble: Ensemble | Panel) -> dict[str, Any]:
    """Who predicts: the number of replicas, or the members of a panel with the checksum of their network."""
    if isinstance(ensemble, Ensemble):
        return {"num_replicas": len(ensemble.replicas)}
    seats = [[asdict(member) for member in board] for board in ensemble.members]
    sizes = {"most_rows": ensemble.most_rows, "leaves": ensemble.leaves}
    return {"panel": seats, **sizes, "network": _network()}


def _network() -> dict[str, str]:
    """Name and checksum of the weights that ship with the package: a folder of a panel holds none itself."""
    return {"name": NETWORK, "sha256": read_card(NETWORK).sha256}


def _tensors(estimator: Any) -> dict[str, Tensor]:
    """All tensors by name."""
    x, y = estimator.context_
    ensemble = estimator.ensemble_
    out = {"context.x": x, "context.y": y, "prior": ensemble.prior, "calibration": ensemble.calibration}
    if isinstance(ensemble, Panel):
        out["stretch"] = ensemble.stretch
        out |= {f"inputs.{name}": value for name, value in vars(ensemble.inputs).items()}
        out |= {f"outputs.{name}": value for name, value in vars(ensemble.outputs).items()}
        return _separate(out)
    for row, replica in enumerate(ensemble.replicas):
        out |= {f"replica.{row}.model.{name}": value for name, value in replica.model.state_dict().items()}
        out |= {f"replica.{row}.inputs.{name}": value for name, value in vars(replica.inputs).items()}
        out |= {f"replica.{row}.outputs.{name}": value for name, value in vars(replica.outputs).items()}
    return _separate(out)


def _separate(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of which none shares memory with another."""
    return {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}


def _restore(estimator: Any, record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Put what was read into an estimator."""
    estimator.recipe_ = None if record["recipe"] is None else check_recipe(Recipe(**record["recipe"]))
    estimator.n_features_in_ = record["n_features_in"]
    if record["feature_names_in"] is not None:
        estimator.feature_names_in_ = np.array(record["feature_names_in"], dtype=object)
    estimator.encoding_ = _encoding(record["encoding"])
    width = tensors["context.x"].shape[1]
    filling = record.get("filling", {"medians": [0.0] * width, "gaps": [False] * width})  # before format 4
    estimator.filling_ = Filling(**{name: tuple(values) for name, values in filling.items()})
    estimator.target_names_ = tuple(record["target_names"])
    estimator._restore_own(record)
    estimator.noise_seed_ = record["noise_seed"]
    estimator.validation_ = record["validation"]
    estimator.best_steps_ = record.get("best_steps", [])
    estimator.context_ = tensors["context.x"], tensors["context.y"]
    device = pick_device(estimator.device)
    if "panel" in record:
        estimator.ensemble_ = _panel(estimator, record, tensors).to(device)
        return
    replicas = [_replica(estimator, tensors, row).to(device) for row in range(record["num_replicas"])]
    estimator.ensemble_ = Ensemble(
        replicas, record["num_context"], tensors["prior"].to(device), tensors["calibration"]
    )


def _panel(estimator: Any, record: dict[str, Any], tensors: dict[str, Tensor]) -> Panel:
    """A panel, if the package has the weights that it was chosen with."""
    if record["network"] != _network():
        raise OtherWeightsError(
            f"it predicts with the pretrained network {record['network']['name']!r} of dsvnp {record['dsvnp']}, whose "
            f"weights are not those of dsvnp {__version__}; install that version, or fit again"
        )

    def part(name: str) -> dict[str, Tensor]:
        return {
            key.removeprefix(f"{name}."): value
            for key, value in tensors.items()
            if key.startswith(f"{name}.")
        }

    numbers = estimator.kind == "regressor"
    problem = Problem(
        Layout.of(estimator.encoding_, estimator.filling_),
        0 if numbers else estimator._dim_y,
        torch.device("cpu"),
    )
    return Panel(
        tuple(tuple(Member(**member) for member in board) for board in record["panel"]),
        tensors["stretch"],
        record["most_rows"],
        record["leaves"],
        record["num_context"],
        problem,
        InputScaling(**part("inputs")),
        (OutputScaling if numbers else ClassScaling)(**part("outputs")),
        tensors["prior"],
        tensors["calibration"],
    )


def _encoding(record: dict[str, Any] | None) -> Encoding | None:
    """The encoding of a frame's columns from JSON, whose tuples are lists."""
    if record is None:
        return None

    def each(name: str) -> tuple[tuple[str, ...] | None, ...]:
        return tuple(None if found is None else tuple(found) for found in record.get(name, ()))

    return Encoding(tuple(record["names"]), each("categories"), each("cycles"))


def _replica(estimator: Any, tensors: dict[str, Tensor], row: int) -> Replica:
    """One replica, its model made anew from the recipe."""

    def part(name: str) -> dict[str, Tensor]:
        prefix = f"replica.{row}.{name}."
        return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}

    inputs = InputScaling(**part("inputs"))
    regression = estimator.kind == "regressor"
    outputs = (OutputScaling if regression else ClassScaling)(**part("outputs"))
    likelihood = "gaussian" if regression else "categorical"
    with torch.device(
        "meta"
    ):  # takes neither memory nor random numbers: the tensors that were read are the weights
        model = estimator.recipe_.make(len(inputs.centre), estimator._dim_y, likelihood).double()
    model.load_state_dict(part("model"), assign=True)
    return Replica(model.eval(), inputs, outputs)
