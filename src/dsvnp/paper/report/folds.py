"""The benchmark of the estimators as a run: what `benchmarks/estimators.py` wrote, in rows like all others."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from dsvnp.paper.report.runs import Run, read_json

METRICS = ("rmse", "nll", "accuracy")


def read_folds(path: Path) -> Run:
    """Read a `rows.json` with a row for each data set, estimator and fold."""
    values: dict[tuple[str, str, str, str], list[float]] = {}
    folds = read_json(path)
    for fold in folds:
        for metric in METRICS:
            if metric in fold:
                key = (fold["dataset"], fold["estimator"], metric, _unit(metric, fold))
                values.setdefault(key, []).append(fold[metric])
    rows = [
        {
            "dataset": dataset,
            "model": estimator,
            "metric": metric,
            "split": "test",
            "unit": unit,
            "mean": statistics.fmean(found),
            "std": statistics.stdev(found) if len(found) > 1 else 0.0,
            "median": statistics.median(found),
            "seeds": found,
            "paper": None,
            "paper_spread": None,
        }
        for (dataset, estimator, metric, unit), found in values.items()
    ]
    seconds = sum(fold["seconds"] for fold in folds)
    return Run(path.parent, "estimators", "defaults", "CPU", "", {}, rows, seconds)


def find_folds(folder: Path) -> list[Run]:
    """What the benchmark wrote at or below a folder."""
    return [read_folds(path) for path in sorted(folder.rglob("estimators/rows.json"))]


def _unit(metric: str, fold: dict[str, Any]) -> str:
    """The unit of a metric; that of a classifier's NLL is another one."""
    if metric == "accuracy":
        return "share"
    return "nats/row" if "accuracy" in fold else "standard"
