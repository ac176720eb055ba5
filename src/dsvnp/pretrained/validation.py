"""How well a network that is being pretrained predicts real tables: rows of a fold given the rows of the others.

Tables come from one file of arrays (`benchmarks/tables/export.py` writes it): `tables`, a JSON text that lists key and
kind of each, and `KEY.x` with NaN for a missing value, `KEY.y`, `KEY.folds`.
"""

import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dsvnp.models.base import NeuralProcess
from dsvnp.schema import LARGEST
from dsvnp.sources.priors.scaling import output_scale, seen_classes, standardise
from dsvnp.task import Task

DAMAGED = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)
MAX_CONTEXT = 1024  # rows, the largest that networks are trained with


class RealTable(NamedTuple):
    """A fold of a real table as a task: its other folds are the context."""

    name: str  # of the table
    is_class: bool  # whether labels are predicted
    task: Task  # one task, with numbers in units of the context's standard deviation


def read_tables(path: Path, max_columns: int, max_classes: int, fold: int = 0) -> list[RealTable]:
    """Read the tables of a file that have at most so many columns and classes."""
    try:
        found = list(_tables(path, max_columns, max_classes, fold))
    except DAMAGED as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ValueError(
            f"{path} cannot be read as tables ({reason:.200}); pass a file that benchmarks/tables/export.py wrote"
        ) from error
    if not found:
        raise ValueError(
            f"{path} holds no table with at most {max_columns} columns and {max_classes} classes; pass another file"
        )
    return found


def _tables(path: Path, max_columns: int, max_classes: int, fold: int) -> Iterator[RealTable]:
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
    if (size := sum(part.file_size for part in parts)) > LARGEST:
        raise ValueError(f"it unpacks to {size} bytes, more than any such file ({LARGEST})")
    if any(part.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for part in parts):
        raise ValueError("it is compressed in a way in which the sizes it gives do not bind")
    with np.load(path) as file:
        for entry in json.loads(str(file["tables"])):
            x, y, folds = (torch.as_tensor(file[f"{entry['key']}.{part}"]) for part in ("x", "y", "folds"))
            is_class = entry["kind"] == "classification"
            if x.shape[1] <= max_columns and not (is_class and int(y.max()) >= max_classes):
                task = make_task(x.float(), y.float(), folds != fold, max_classes if is_class else 0)
                yield RealTable(entry["name"], is_class, task)


def make_task(x: Tensor, y: Tensor, known: Tensor, num_classes: int) -> Task:
    """One table as a network for numbers and classes reads it: x [N, D], y [N], known [N]; 0 classes for numbers."""
    rows = torch.cat([known.nonzero()[:MAX_CONTEXT, 0], (~known).nonzero()[:, 0]])
    x, y, in_context = x[rows].unsqueeze(0), y[rows].unsqueeze(0), known[rows].unsqueeze(0)
    used, filled = torch.ones_like(x[:, 0], dtype=torch.bool), torch.ones_like(in_context)
    inputs = standardise(x, used, in_context, filled)
    if num_classes:
        labels, filled = seen_classes(y.long(), in_context, num_classes)
        outputs = torch.stack([labels.float(), torch.ones_like(y)], dim=-1)
    else:
        mean, std = output_scale(y, in_context)
        outputs = torch.stack([(y - mean) / std, torch.zeros_like(y)], dim=-1)
    return Task.from_points(inputs, outputs, in_context, filled)


@torch.no_grad()
def score(model: NeuralProcess, tables: Sequence[RealTable]) -> dict[str, float]:
    """Mean over tables of the negative log-likelihood of a row: of numbers, of classes, and of both kinds."""
    device = next(model.parameters()).device
    losses: dict[bool, list[float]] = {False: [], True: []}
    for table in tables:
        bound = model.objective(table.task.to(device))
        losses[table.is_class].append(-float(bound.log_likelihood.sum() / bound.num_points.sum()))
    means = {
        name: float(np.mean(losses[kind]))
        for kind, name in ((False, "numbers"), (True, "classes"))
        if losses[kind]
    }
    return {**means, "both": float(np.mean(list(means.values())))}
