"""Readings of the paper's figures for multi-output regression: part of the data, unit, leak.

Each *reading* is a way in which our error could be the paper's: a part and a unit of `measures.py`, and
possibly a division too many (by the outputs or by the batch, as when a sum is averaged twice). A reading is right if
it gives the paper's figure for *every* model: its distance is the root mean square, over models, of the logarithm of
our error over the paper's.
"""

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dsvnp.files import write_atomically
from dsvnp.paper.experiment import Printed, UnitResult


def write_study(
    units: Sequence[UnitResult], printed: Printed, num_points: int, path: Path
) -> list[dict[str, Any]]:
    """Write all readings, for each data set the nearest to the paper first."""
    found = sorted(readings(units, printed, num_points), key=lambda r: (r["dataset"], r["distance"]))
    write_atomically(path, json.dumps(found, indent=1) + "\n")
    return found


def readings(units: Iterable[UnitResult], printed: Printed, num_points: int) -> Iterator[dict[str, Any]]:
    """Our errors in every reading and the paper's, of the models that both have."""
    errors: dict[tuple[str, str, str], dict[str, float]] = {}
    dims: dict[str, int] = {}
    for unit in units:
        model = unit.label.row
        for m in unit.measurements:
            name = m.dataset.split(" ")[0]
            if m.metric == "mse" and (name, model, "mse", "test") in printed:
                dims[m.dataset] = len(unit.extras["by_output"][0])
                errors.setdefault((m.dataset, m.split, m.unit), {})[model] = statistics.fmean(m.values)
    for (dataset, split, unit_name), ours in errors.items():
        theirs = {model: printed[dataset.split(" ")[0], model, "mse", "test"][0] for model in ours}
        for divided_by, number in (("nothing", 1), ("outputs", dims[dataset]), ("batch", num_points)):
            values = {model: value / number for model, value in ours.items()}
            logs = {model: math.log(max(value, 1e-12) / theirs[model]) for model, value in values.items()}
            yield {
                **{"dataset": dataset, "split": split, "unit": unit_name, "divided_by": divided_by},
                "distance": round(math.sqrt(statistics.fmean(log**2 for log in logs.values())), 3),
                "ours": {model: float(f"{value:.4g}") for model, value in values.items()},
                "paper": theirs,
            }
