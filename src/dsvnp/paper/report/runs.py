"""Runs as a report finds them: `results.json`, the figures next to it, and how long it took. No weights are needed.

The output of `benchmarks/estimators.py` is a run too, in rows like all others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dsvnp.paper.records import FOLDS, RESULTS, SPEED, TIMES, UNITS_FILE, read_record, read_units
from dsvnp.paper.rows import grouped, make_row
from dsvnp.schema import NUMBER, wrong

PICTURES = (".svg", ".png", ".webp")
ESTIMATOR_METRICS = ("rmse", "nll", "accuracy")
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
    seconds: float | None = None  # of all units, compilation included; None where `units.json.gz` is absent

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a `results.json` and the files next to it."""
        data = read_record(path, RESULTS)
        timed = is_own(path.parent / UNITS_FILE)
        known = read_units(path.parent, TIMES)["units"] if timed else None
        seconds = None if known is None else sum(unit["seconds"] or 0 for unit in known)
        return cls(path.parent, **{key: data[key] for key in KEYS}, seconds=seconds)

    @property
    def figures(self) -> list[Path]:
        """The pictures next to the results, by name."""
        return sorted(path for path in self.folder.iterdir() if path.suffix in PICTURES and is_own(path))

    @property
    def num_seeds(self) -> list[int]:
        """Numbers of values of its rows, each once."""
        return sorted({len(row["seeds"]) for row in self.rows})


def find_runs(folder: Path) -> list[Run]:
    """Every run at or below a folder, by path."""
    return [Run.read(path) for path in found_below(folder, "results.json")]


def read_folds(path: Path) -> Run:
    """Read a `rows.json.gz` with one row for each data set, estimator and fold."""
    folds = read_record(path, FOLDS)
    for number, fold in enumerate(folds):
        if reason := wrong(
            fold, {metric: NUMBER for metric in ESTIMATOR_METRICS if metric in fold}, f"[{number}]"
        ):
            raise ValueError(f"{path} {reason}; run the benchmark again")
    found = [(metric, fold) for fold in folds for metric in ESTIMATOR_METRICS if metric in fold]
    groups = grouped(found, lambda pair: (pair[1]["dataset"], pair[1]["estimator"], pair[0], _unit(*pair)))
    rows = [
        make_row(dataset, estimator, metric, "test", unit, [fold[metric] for _, fold in pairs])
        for (dataset, estimator, metric, unit), pairs in groups.items()
    ]
    seconds = sum(fold["seconds"] for fold in folds)
    return Run(path.parent, "estimators", "defaults", "CPU", "", {}, rows, seconds)


def find_folds(folder: Path) -> list[Run]:
    """The benchmark's results at or below a folder."""
    return [read_folds(path) for path in found_below(folder, "estimators/rows.json.gz")]


def _unit(metric: str, fold: dict[str, Any]) -> str:
    """The unit of a metric; a classifier's NLL has another one."""
    if metric == "accuracy":
        return "share"
    return "nats/row" if "accuracy" in fold else "standard"


def find_speed(folder: Path) -> list[dict[str, Any]]:
    """Files that `benchmarks/speed.py` wrote into folders named speed, at or below a folder; a GPU's first."""
    files = [read_record(path, SPEED) for path in found_below(folder, "speed/*.json")]
    return sorted(files, key=lambda file: "CPU" in file["machine"]["device"])


def found_below(folder: Path, pattern: str) -> list[Path]:
    """Files at or below a folder, by path; links are left alone."""
    return [path for path in sorted(folder.rglob(pattern)) if is_own(path)]


def is_own(path: Path) -> bool:
    """Whether a path is a file by itself: a link may lead to what is not meant for a report."""
    return path.is_file() and not path.is_symlink()
