"""Mutated inputs for every reader: `python -m tests.faults.readers --count 1000000 --jobs 6 --report FILE`.

A small good file of each format is changed in one to eight places: bits, bytes, cuts, pieces put in or left out, and
words that such a format has. A reader may read it, or refuse it in a ValueError or OSError. Anything else falls:
another error, more than a second, memory beyond 1 GB. Input N follows from the seed and N.
"""

from __future__ import annotations

import io
import json
import os
import random
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars
import scipy.io
import torch

from dsvnp import NPRegressor
from dsvnp.paper.datasets import readers as published
from dsvnp.paper.records import RESULTS, UNITS, read_record
from dsvnp.pretrained.loading import Card
from dsvnp.tabular import saving
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.table_files import check_texts, read_table
from dsvnp.training import CheckpointError
from dsvnp.training import checkpoint as checkpoints
from tests.faults import shares
from tests.faults.counting import Counting, place

SECONDS = 1.0  # of a processor
WORDS = [
    b"nan",
    b"1e999",
    b"-",
    b"\n",
    b",",
    b";",
    b'"',
    b"{",
    b"[" * 50,
    b"null",
    b"\x00",
    b"\xff\xfe",
    b"9" * 30,
]
WORDS += [
    b"@data",
    b"@attribute a numeric",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x80",
    b"1,000",
    b"2024-02-30",
]
Reader = Callable[[Path], Any]


class Format(NamedTuple):
    """A good file, and what reads it."""

    name: str
    content: bytes
    read: Reader


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Data with one to eight small changes."""
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 4, 8])):
        at, end = sorted(chance.randrange(len(out) + 1) for _ in range(2))
        end = min(end, at + 64)
        kind = chance.randrange(6)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = chance.randrange(256)
        elif kind == 2:
            out[at:at] = chance.choice(WORDS)
        elif kind == 3:
            del out[at:end]
        elif kind == 4:
            out[at:at] = out[at:end]
        elif chance.random() < 0.3:
            del out[at:]
    return bytes(out)


def _of_bytes(function: Callable[[bytes], Any]) -> Reader:
    return lambda path: function(path.read_bytes())


def _of_text(function: Callable[[str], Any]) -> Reader:
    return lambda path: function(path.read_bytes().decode("utf-8", "replace"))


def _table(path: Path) -> None:
    check_texts(path, read_table(path))
    read_table(path, {"t"})


def formats(folder: Path) -> list[Format]:
    """Each format with a small good file."""
    csv = "a;t;day;n\n" + "".join(f"{i},5;{'xy'[i % 2]};{i + 1}.2.2024;{i}\n" for i in range(12))
    arff = "@relation r\n@attribute 'a b' numeric\n@attribute c {0,1}\n@data\n1.5,0\n?,1\n% x\n2,1\n"
    images = np.arange(2 * 32 * 32 * 3, dtype=np.uint8).reshape(32, 32, 3, 2)
    mat, parquet = io.BytesIO(), io.BytesIO()
    scipy.io.savemat(mat, {"X": images, "y": np.array([[1], [10]], dtype=np.uint8)}, do_compression=True)
    polars.DataFrame({"a": np.arange(20.0), "t": ["x", None] * 10}).write_parquet(parquet)
    npy = [io.BytesIO(), io.BytesIO()]
    for file, array in zip(npy, (images.transpose(3, 0, 1, 2), np.array([1, 2])), strict=True):
        np.save(file, array)
    from dsvnp.paper.runner import run

    run(Counting(), place(folder / "run"))
    return [
        Format("t.csv", csv.encode(), _table),
        Format("comma.csv", csv.replace(",", ".").replace(";", ",").encode(), _table),
        Format("t.parquet", parquet.getvalue(), _table),
        Format("t.arff", arff.encode(), _of_text(published.read_arff)),
        Format("matrix.csv", b"a,b\n1,2\n3,4.5\n", _of_text(published.read_csv_matrix)),
        Format("t.mat", mat.getvalue(), _of_bytes(published.read_svhn_mat)),
        Format(
            "t.npy", npy[0].getvalue(), _of_bytes(lambda b: published.read_svhn_npy(b, npy[1].getvalue()))
        ),
        Format(
            "t.idx",
            b"\0\0\x08\x02" + struct.pack(">2I", 4, 5) + bytes(range(20)),
            _of_bytes(published.read_idx),
        ),
        Format("t.bin", (b"\x03" + bytes(3072)) * 2, _of_bytes(published.read_cifar10_batch)),
        Format(
            "results.json",
            (folder / "run" / "results.json").read_bytes(),
            lambda path: read_record(path, RESULTS),
        ),
        Format(
            "units.json", (folder / "run" / "units.json").read_bytes(), lambda path: read_record(path, UNITS)
        ),
        Format("card.json", b'{"name": "x", "steps": 3, "prior": [{}], "sha256": ""}', Card.read),
        *_model_files(folder),
        *_checkpoint_files(folder),
    ]


def _model_files(folder: Path) -> list[Format]:
    """The files of a saved estimator, each also with a checksum that fits: the checks behind it are reached."""
    x = np.linspace(0, 1, 20)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = NPRegressor("cnp", n_replicas=1, max_steps=1, width=4, random_state=0, device="cpu")
        whole = fitted.fit(x, x[:, 0]).save(folder / "model")
    good = {name: (whole / name).read_bytes() for name in (saving.RECORD, saving.TENSORS)}

    def read(name: str, path: Path) -> None:
        for other, data in good.items():
            (path.parent / other).write_bytes(path.read_bytes() if other == name else data)
        BaseNP.load(path.parent, device="cpu")

    def read_signed(name: str, path: Path) -> None:
        changed = {**good, name: path.read_bytes()}
        record = json.loads(changed[saving.RECORD])
        record["sha256"] = {saving.TENSORS: saving.files.digest(changed[saving.TENSORS])}
        record["sha256"][saving.RECORD] = saving.files.digest_of_record(record)
        (path.parent / saving.RECORD).write_text(json.dumps(record))
        (path.parent / saving.TENSORS).write_bytes(changed[saving.TENSORS])
        found = BaseNP.load(path.parent, device="cpu")
        found.predict(x[:2])

    out = []
    for name, data in good.items():
        out.append(Format(f"{name}.plain", data, lambda path, name=name: read(name, path)))
        out.append(Format(f"{name}.signed", data, lambda path, name=name: read_signed(name, path)))
    return out


def _checkpoint_files(folder: Path) -> list[Format]:
    """The files of a checkpoint."""
    content = checkpoints.Checkpoint({"a": torch.arange(6.0)}, {"name": "x"}, 3, ["00"], {"torch": "2"})
    path = checkpoints.save(folder / "checkpoints", content, keep=1)
    good = {name: (path / name).read_bytes() for name in (checkpoints.RUN, checkpoints.STATE)}

    def read(name: str, file: Path) -> None:
        step = file.parent / "step-000000003"
        step.mkdir(exist_ok=True)
        for other, data in good.items():
            (step / other).write_bytes(file.read_bytes() if other == name else data)
        checkpoints.load(step)

    return [
        Format(f"{name}.step", data, lambda file, name=name: read(name, file)) for name, data in good.items()
    ]


def attack(kind: Format, number: int, seed: int, folder: Path) -> str:
    """Read one mutated file; return what fell, or an empty text."""
    path = folder / kind.name
    path.write_bytes(mutated(kind.content, random.Random(f"{seed} {number}")))
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kind.read(path)
    except (ValueError, OSError, CheckpointError):
        pass
    except BaseException as error:
        return f"{type(error).__name__}: {error!s:.200}"
    seconds = time.process_time() - start
    return f"{seconds:.1f} s" if seconds > SECONDS else ""


def prepare(root: Path, seed: int) -> shares.Attack:
    """The attack of one process, in a folder of its own."""
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=root))
    kinds = formats(folder)
    for kind in kinds:
        attack(kind, 0, seed, folder)  # what a first call imports is no hang
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # polars prints what it stumbles over

    def numbered(number: int) -> tuple[str, str]:
        kind = kinds[number % len(kinds)]
        return kind.name, attack(kind, number, seed, folder)

    return numbered


def main() -> int:
    """Attack until the time is over, write the report, and return 1 if anything fell."""
    parser = shares.options(__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--only", type=int, help="read one input again, by its number")
    given = parser.parse_args()
    os.environ |= {"POLARS_MAX_THREADS": "1", "RUST_BACKTRACE": "0"}  # before polars is asked for anything
    numbers = range(given.count) if given.only is None else range(given.only, given.only + 1)
    end = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as folder:
        outcomes = shares.spread(partial(prepare, Path(folder), given.seed), numbers, given.jobs, end)
        report = shares.summary(outcomes, given)
    shares.write(report, given.report)
    return bool(report["fallen"])


if __name__ == "__main__":
    sys.exit(main())
