"""Mutated inputs for every reader: `python -m tests.faults.readers --count 1000000 --jobs 6 --report FILE`.

A small good file of each format is changed in one to eight places: bits, bytes, cuts, pieces put in or left out, and
words that such a format has; in JSON, a value also by one of another kind. A reader may read it, or refuse it in a
ValueError or OSError. Anything else falls: another error, more than a second, memory beyond 1 GB. Input N follows from
the seed and N.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch

from dsvnp.training import CheckpointError
from tests.faults import shares
from tests.faults.formats import Format, formats

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


ODD: list[Any] = [
    None,
    [],
    {},
    True,
    -1,
    0,
    10**30,
    1.5,
    2**40,
    1e308,
    float("nan"),
    "",
    "x",
    "../x",
    "\x1b[31m",
]
ODD += [[[]], [None], {"a": 1}]


def misplaced(data: Any, chance: random.Random) -> Any:
    """JSON in which one value is one that does not belong there, or is not there."""
    places = [(data, key) for key in (data if isinstance(data, dict) else range(len(data)))]
    for node, key in places:
        inner = node[key]
        if isinstance(inner, dict | list):
            places += [(inner, each) for each in (inner if isinstance(inner, dict) else range(len(inner)))]
    node, key = chance.choice(places)
    node[key] = chance.choice(ODD)
    if isinstance(node, dict) and chance.random() < 0.1:
        del node[key]
    return data


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Data with one to eight small changes; every other JSON has one value that does not belong there."""
    if data[:1] == b"{" and chance.random() < 0.5:
        return json.dumps(misplaced(json.loads(data), chance)).encode()
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
