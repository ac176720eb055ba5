"""Runs as a report finds them: `results.json`, the figures beside it, and how long it took. No weights are needed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

PICTURES = (".svg", ".png")
KEYS = ("experiment", "preset", "device", "version", "config", "rows")


@dataclass(frozen=True)
class Run:
    """One run of an experiment."""

    folder: Path  # where it is
    experiment: str  # its name
    preset: str  # "smoke", "quick" or "paper"
    device: str  # what it ran on
    version: str  # of this package
    config: Mapping[str, Any]  # its settings
    rows: Sequence[Mapping[str, Any]]  # what came out, as `results.json` holds it
    seconds: float | None = None  # of all units, compilation included; None where `units.json` is absent

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a `results.json` and what is beside it."""
        data = read_json(path)
        absent = [key for key in KEYS if key not in data] if isinstance(data, dict) else list(KEYS)
        if absent:
            raise ValueError(f"{path} lacks {', '.join(absent)}; is it written by `dsvnp reproduce`?")
        units = path.parent / "units.json"
        seconds = sum(unit["seconds"] for unit in read_json(units)["units"]) if units.is_file() else None
        return cls(path.parent, **{key: data[key] for key in KEYS}, seconds=seconds)

    @property
    def figures(self) -> list[Path]:
        """The pictures beside the results, by name."""
        return sorted(path for path in self.folder.iterdir() if path.suffix in PICTURES)

    @property
    def num_seeds(self) -> list[int]:
        """How many values its rows have, each number once."""
        return sorted({len(row["seeds"]) for row in self.rows})


def find_runs(folder: Path) -> list[Run]:
    """Every run at or below a folder, by path."""
    return [Run.read(path) for path in sorted(folder.rglob("results.json"))]


def find_speed(folder: Path) -> list[dict[str, Any]]:
    """What `benchmarks/speed.py` wrote into folders named speed at or below a folder, a GPU's first."""
    files = [read_json(path) for path in sorted(folder.rglob("speed/*.json"))]
    return sorted(files, key=lambda file: "CPU" in file["machine"]["device"])


def read_json(path: Path) -> Any:
    """Read JSON; a damaged file is named."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}); run the experiment again") from error
