"""Every format that is read from disk: a small good file of each, and what reads it."""

from __future__ import annotations

import io
import json
import struct
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.io
import torch

from dsvnp import NPRegressor, files
from dsvnp.models import Architecture, make_model
from dsvnp.paper.datasets import readers as published
from dsvnp.paper.datasets.matlab import read_mat
from dsvnp.paper.images.measures import pack, unpack
from dsvnp.paper.records import RESULTS, UNITS, UNITS_FILE, read_record, read_units
from dsvnp.paper.runner import draw_figures, run
from dsvnp.paper.weights import load_weights, save_weights
from dsvnp.playground.export import export
from dsvnp.playground.export import load as load_exported
from dsvnp.pretrained.loading import Card, load_pretrained, save_pretrained
from dsvnp.pretrained.validation import read_tables
from dsvnp.schema import LARGEST
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.files.table_files import check_texts, read_table
from dsvnp.tabular.saved import saving
from dsvnp.training import Fleet, Settings, train
from dsvnp.training import checkpoint as checkpoints
from dsvnp.training.loop import restore
from tests.faults.counting import Counting, place
from tests.faults.works import ARCH, curves

Reader = Callable[[Path], Any]


class Format(NamedTuple):
    """A good file, and what reads it."""

    name: str
    content: bytes
    read: Reader


def formats(folder: Path) -> list[Format]:
    """Each format with a small good file; Parquet where polars is installed."""
    return [
        *_tables(),
        *_published(),
        *_records(folder / "run"),
        *_model_files(folder),
        *_network_files(folder),
        *_checkpoint_files(folder),
        *_fleet_files(folder),
        *_kept_files(folder),
    ]


def _table(path: Path) -> None:
    check_texts(path, read_table(path))
    read_table(path, {"t"})


def _tables() -> list[Format]:
    """Tables of a user."""
    csv = "a;t;day;n\n" + "".join(f"{i},5;{'xy'[i % 2]};{i + 1}.2.2024;{i}\n" for i in range(12))
    out = [
        Format("t.csv", csv.encode(), _table),
        Format("comma.csv", csv.replace(",", ".").replace(";", ",").encode(), _table),
    ]
    try:
        import polars
    except ImportError:
        return out
    parquet = io.BytesIO()
    polars.DataFrame({"a": np.arange(20.0), "t": ["x", None] * 10}).write_parquet(parquet)
    return [*out, Format("t.parquet", parquet.getvalue(), _table)]


def _of_bytes(function: Callable[[bytes], Any]) -> Reader:
    return lambda path: function(path.read_bytes())


def _of_text(function: Callable[[str], Any]) -> Reader:
    return lambda path: function(path.read_bytes().decode("utf-8", "replace"))


def _published() -> list[Format]:
    """Files of published data sets."""
    arff = b"@relation r\n@attribute 'a b' numeric\n@attribute c {0,1}\n@data\n1.5,0\n?,1\n% x\n2,1\n"
    images = np.arange(2 * 32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3, 2)
    variables = {"X": images, "y": np.array([[1], [10]], dtype=np.uint8)}
    npy = io.BytesIO(), io.BytesIO()
    for file, array in zip(npy, (images.transpose(3, 0, 1, 2), np.array([1, 2])), strict=True):
        np.save(file, array)
    pictures, labels = (file.getvalue() for file in npy)
    idx = b"\0\0\x08\x02" + struct.pack(">2I", 4, 5) + bytes(range(20))
    return [
        Format("t.arff", arff, _of_text(published.read_arff)),
        Format("matrix.csv", b"a,b\n1,2\n3,4.5\n", _of_text(published.read_csv_matrix)),
        Format("t.mat", _mat(variables, do_compression=True), _of_bytes(published.read_svhn_mat)),
        Format("plain.mat", _mat(variables), _of_bytes(published.read_svhn_mat)),
        Format(
            "4.mat",
            _mat({"a": "x", "b": np.arange(6.0)}, format="4"),
            _of_bytes(partial(read_mat, variable="b")),
        ),
        Format("t.npy", pictures, _of_bytes(lambda data: published.read_svhn_npy(data, labels))),
        Format("t.idx", idx, _of_bytes(published.read_idx)),
        Format("t.bin", (b"\x03" + bytes(3072)) * 2, _of_bytes(published.read_cifar10_batch)),
    ]


def _mat(variables: dict[str, Any], **how: Any) -> bytes:
    """A MATLAB file; the text at its head has no date: inputs follow from the seed."""
    file = io.BytesIO()
    scipy.io.savemat(file, variables, **how)
    data = file.getvalue()
    return data if how.get("format") == "4" else b"MATLAB 5.0".ljust(116) + data[116:]


def _records(folder: Path) -> list[Format]:
    """What an experiment leaves; the units also as JSON that is compressed afterwards: its checks are reached."""
    run(Counting(), place(folder))
    results, units = ((folder / name).read_bytes() for name in ("results.json", UNITS_FILE))

    def read_inside(path: Path) -> None:
        (path.parent / UNITS_FILE).write_bytes(files.gzipped(path.read_bytes()))
        read_units(path.parent)

    return [
        Format("results.json", results, partial(read_record, form=RESULTS)),
        Format(UNITS_FILE, units, partial(read_record, form=UNITS)),
        Format(f"{UNITS_FILE}.inside", files.gunzipped(units, LARGEST), read_inside),
        Format("pictures.json", _pictures(), _draw_pictures),
    ]


def _pictures() -> bytes:
    """Pictures as units hold them."""
    images = torch.arange(120, dtype=torch.uint8).reshape(2, 3, 4, 5)
    return json.dumps({"images": pack(images), "shape": list(images.shape)}).encode()


def _draw_pictures(path: Path) -> None:
    """Unpack pictures as figures of units that were read do."""
    shown = read_record(path, {})
    drawing: Any = SimpleNamespace(draw=lambda units, out: [unpack(shown["images"], shown["shape"])])
    draw_figures(drawing, [], path.parent, [path.parent])


def _model_files(folder: Path) -> list[Format]:
    """The files of saved estimators, each also with a checksum that fits: the checks behind it are reached."""
    made = {
        "": NPRegressor("cnp", n_replicas=1, max_steps=1, width=4, random_state=0, device="cpu"),
        "panel.": NPRegressor(effort="fast", random_state=0, device="cpu"),
    }
    out = []
    for which, estimator in made.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = estimator.fit(_frame(20), np.linspace(0, 1, 20)).save(folder / f"{which}model")
        good = {name: (whole / name).read_bytes() for name in (saving.RECORD, saving.TENSORS)}
        for name in good:
            out.append(Format(f"{which}{name}", good[name], partial(_load, good, name)))
            out.append(Format(f"{which}{name}.signed", good[name], partial(_load_signed, good, name)))
    return out


def _frame(rows: int) -> pd.DataFrame:
    """A table with a column of each kind."""
    days = pd.date_range("2024-01-01", periods=rows, freq="5D")
    return pd.DataFrame({"a": np.linspace(0, 1, rows), "b": ["x", "y"] * (rows // 2), "day": days})


def _load(good: dict[str, bytes], name: str, path: Path) -> None:
    """Load an estimator of which one file is another one."""
    for other, data in good.items():
        (path.parent / other).write_bytes(path.read_bytes() if other == name else data)
    BaseNP.load(path.parent, device="cpu")


def _load_signed(good: dict[str, bytes], name: str, path: Path) -> None:
    """Load one whose checksums were made to fit, and let it predict."""
    changed = {**good, name: path.read_bytes()}
    record = json.loads(changed[saving.RECORD])
    if isinstance(record, dict):
        record["sha256"] = {saving.TENSORS: files.digest(changed[saving.TENSORS])}
        record["sha256"][saving.RECORD] = files.digest_of_record(record)
    (path.parent / saving.RECORD).write_text(json.dumps(record))
    (path.parent / saving.TENSORS).write_bytes(changed[saving.TENSORS])
    BaseNP.load(path.parent, device="cpu").predict(_frame(2))


def _network_files(folder: Path) -> list[Format]:
    """Weights of a network and their card, the weights also with a card that has their checksum."""
    arch = Architecture(1, 1, encoder=(4,), dim_lat=4, decoder=(4,))
    save_pretrained(make_model("np", arch), Card("x"), folder / "network")
    good = {name: (folder / "network" / name).read_bytes() for name in ("x.json", "x.safetensors")}

    def read(name: str, sign: bool, path: Path) -> None:
        for other, data in good.items():
            (path.parent / other).write_bytes(path.read_bytes() if other == name else data)
        if sign:
            card = json.loads(good["x.json"]) | {"sha256": files.digest(path)}
            (path.parent / "x.json").write_text(json.dumps(card))
        load_pretrained("x", path.parent)

    return [
        Format(f"network.{name}{'.signed' * sign}", good[name], partial(read, name, sign))
        for name, sign in (("x.json", False), ("x.safetensors", False), ("x.safetensors", True))
    ]


def _checkpoint_files(folder: Path) -> list[Format]:
    """The files of a checkpoint."""
    content = checkpoints.Checkpoint({"a": torch.arange(6.0)}, {"name": "x"}, 3, ["00"], {"torch": "2"})
    path = checkpoints.save(folder / "checkpoints", content, keep=1)
    good = {name: (path / name).read_bytes() for name in (checkpoints.RUN, checkpoints.STATE)}

    def read(name: str, sign: bool, file: Path) -> None:
        step = file.parent / "step-000000003"
        step.mkdir(exist_ok=True)
        for other, data in good.items():
            (step / other).write_bytes(file.read_bytes() if other == name else data)
        if sign and isinstance(run := json.loads(file.read_bytes()), dict):
            run.pop("sha256", None)
            sums = {checkpoints.STATE: files.digest(step / checkpoints.STATE)}
            run["sha256"] = {**sums, checkpoints.RUN: files.digest_of_record(run)}
            (step / checkpoints.RUN).write_text(json.dumps(run))
        checkpoints.load(step, content.run)

    named = ((checkpoints.RUN, False), (checkpoints.RUN, True), (checkpoints.STATE, False))
    return [
        Format(f"{name}.step{'.signed' * sign}", good[name], partial(read, name, sign))
        for name, sign in named
    ]


def _fleet_files(folder: Path) -> list[Format]:
    """The files of a checkpoint with checksums that fit, restored into a training: the checks behind it are reached."""
    settings = Settings(1, checkpoint_every=1)
    fleet = Fleet(partial(make_model, "np", ARCH), curves(), (1,), settings)
    train(fleet, folder / "fleet")
    (path,) = checkpoints.list_checkpoints(folder / "fleet")
    good = {name: (path / name).read_bytes() for name in (checkpoints.RUN, checkpoints.STATE)}

    def read(name: str, file: Path) -> None:
        changed = good | {name: file.read_bytes()}
        if isinstance(run := json.loads(changed[checkpoints.RUN]), dict):
            run.pop("sha256", None)
            sums = {checkpoints.STATE: files.digest(changed[checkpoints.STATE])}
            sums[checkpoints.RUN] = files.digest_of_record(run)
            changed[checkpoints.RUN] = json.dumps({**run, "sha256": sums}).encode()
        for other, data in changed.items():
            (path / other).write_bytes(data)
        restore(fleet, checkpoints.load(path, fleet.describe()))

    return [Format(f"fleet.{name}.signed", good[name], partial(read, name)) for name in good]


def _kept_files(folder: Path) -> list[Format]:
    """Weights that an experiment kept, those of the playground, and tables that a pretraining is scored on."""
    net, path = make_model("np", ARCH), folder / "kept.safetensors"
    save_weights(net, path)
    kept = path.read_bytes()
    export(net, path)
    page = path.read_bytes()
    tables = json.dumps([{"key": "a", "name": "a", "kind": "regression"}])
    arrays = {"a.x": np.ones((6, 2)), "a.y": np.arange(6.0), "a.folds": np.arange(6) % 2}
    npz = io.BytesIO()
    np.savez_compressed(npz, tables=tables, **arrays)
    return [
        Format("kept.safetensors", kept, lambda path: load_weights(net, path)),
        Format("page.safetensors", page, load_exported),
        Format("tables.npz", npz.getvalue(), lambda path: read_tables(path, 32, 10)),
    ]
