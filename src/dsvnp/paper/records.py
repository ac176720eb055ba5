"""The files of results as a reader may trust them: their size, their form and their names are checked before use.

A file that someone sends, or that a disk has damaged, is refused in one line that names it. Reports read them without
torch.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsvnp.files import gzipped, write_atomically
from dsvnp.schema import NUMBER, TEXT, read_json, wrong

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+=,()-]{0,99}")
UNITS_FILE = "units.json.gz"  # of an experiment's folder


ROW = {
    **dict.fromkeys(("dataset", "model", "metric", "split", "unit"), TEXT),
    **dict.fromkeys(("mean", "std", "median", "paper", "paper_spread"), NUMBER),
    "seeds": [NUMBER],
}
RESULTS = {
    **dict.fromkeys(("experiment", "preset", "device", "version"), TEXT),
    "config": dict,
    "rows": [ROW],
}
MEASUREMENT = {**dict.fromkeys(("dataset", "metric", "split", "unit"), TEXT), "values": [NUMBER]}
UNIT = {
    "model": TEXT,
    "seeds": [int],
    "measurements": [MEASUREMENT],
    "extras": dict,
    "seconds": NUMBER,
    "machine": TEXT,
}
UNITS = {"experiment": TEXT, "config": {"num_seeds": int}, "units": [UNIT]}
TIMES = {"units": [{"seconds": NUMBER}]}
SPEED = {
    "machine": {"device": TEXT},
    "rows": [
        {
            **dict.fromkeys(("what", "library", "model", "how", "device"), TEXT),
            "replicas": int,
            "ms_per_model_step": NUMBER,
        }
    ],
}
FOLDS = [{"dataset": TEXT, "estimator": TEXT, "seconds": NUMBER}]


def read_record(path: Path, form: Any) -> Any:
    """Read JSON of a given form; whatever else is refused in a line that names the file."""
    data = read_json(path, "run the experiment again")
    if reason := wrong(data, form):
        raise ValueError(f"{path} {reason}; is it written by `dsvnp reproduce`?")
    return data


def read_units(folder: Path, form: Any = UNITS) -> Any:
    """Read the finished units of an experiment's folder, and the settings with them."""
    return read_record(folder / UNITS_FILE, form)


def write_units(folder: Path, record: Mapping[str, Any]) -> Path:
    """Write the finished units of an experiment, in one piece; equal units give equal bytes."""
    return write_atomically(folder / UNITS_FILE, gzipped(json.dumps(record) + "\n"))


def check_name(name: str, what: str) -> str:
    """Return a name that may become part of a file's name and of a figure; refuse others."""
    if not NAME.fullmatch(name) or ".." in name:
        raise ValueError(
            f"{what} {ascii(name)[:80]} cannot be used: it becomes part of a file's name, and takes letters, digits "
            "and . _ + = , ( ) - alone"
        )
    return name
