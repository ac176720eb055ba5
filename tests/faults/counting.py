"""An experiment that takes no time: what is left of a run is its files."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from rich.console import Console

from dsvnp.files import gunzipped, write_atomically
from dsvnp.paper.experiment import Experiment, Measurement, UnitResult, Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.records import UNITS_FILE
from dsvnp.schema import LARGEST


@dataclass(frozen=True)
class Counting(Experiment):
    """Measures numbers with more digits than are stored, and draws a figure of all of them."""

    name: ClassVar[str] = "counting"
    models: tuple[str, ...] = ("cnp", "np")
    num_seeds: int = 3
    seeds_at_once: int = 2

    @classmethod
    def presets(cls) -> dict[str, Counting]:
        return {"smoke": cls(preset="smoke")}

    def run_unit(self, label: Label, seeds: Sequence[int], place: Workplace) -> UnitResult:
        values = tuple(math.sqrt(seed + len(str(label))) for seed in seeds)
        measured = (Measurement("numbers", "nll", "test-J", "nats", values),)
        return UnitResult(
            label, tuple(seeds), measured, {"curve": [(value**3, math.nan) for value in values]}
        )

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        return [write_atomically(out / "figure.svg", repr([(unit.label, unit.extras) for unit in units]))]


def place(out: Path) -> Workplace:
    return Workplace(out, torch.device("cpu"), Console(file=io.StringIO(), width=200))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by name; the units unpacked, without the seconds that they took."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    if UNITS_FILE in found:
        record = json.loads(gunzipped(found[UNITS_FILE], LARGEST))
        untimed = [{**unit, "seconds": 0} for unit in record["units"]]
        found[UNITS_FILE] = json.dumps({**record, "units": untimed}).encode()
    return found
