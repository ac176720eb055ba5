"""The benchmark of the estimators as a run: the output of `benchmarks/estimators.py`, in rows like all others."""

from pathlib import Path
from typing import Any

from dsvnp.paper.records import FOLDS, read_record
from dsvnp.paper.report.runs import Run, found_below
from dsvnp.paper.rows import grouped, make_row
from dsvnp.schema import NUMBER, wrong

METRICS = ("rmse", "nll", "accuracy")


def read_folds(path: Path) -> Run:
    """Read a `rows.json` with one row for each data set, estimator and fold."""
    folds = read_record(path, FOLDS)
    for number, fold in enumerate(folds):
        if reason := wrong(fold, {metric: NUMBER for metric in METRICS if metric in fold}, f"[{number}]"):
            raise ValueError(f"{path} {reason}; run the benchmark again")
    found = [(metric, fold) for fold in folds for metric in METRICS if metric in fold]
    groups = grouped(found, lambda pair: (pair[1]["dataset"], pair[1]["estimator"], pair[0], _unit(*pair)))
    rows = [
        make_row(dataset, estimator, metric, "test", unit, [fold[metric] for _, fold in pairs])
        for (dataset, estimator, metric, unit), pairs in groups.items()
    ]
    seconds = sum(fold["seconds"] for fold in folds)
    return Run(path.parent, "estimators", "defaults", "CPU", "", {}, rows, seconds)


def find_folds(folder: Path) -> list[Run]:
    """The benchmark's results at or below a folder."""
    return [read_folds(path) for path in found_below(folder, "estimators/rows.json")]


def _unit(metric: str, fold: dict[str, Any]) -> str:
    """The unit of a metric; a classifier's NLL has another one."""
    if metric == "accuracy":
        return "share"
    return "nats/row" if "accuracy" in fold else "standard"
