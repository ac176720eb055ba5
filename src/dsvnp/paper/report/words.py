"""Metrics, splits and units in words, and which values are good. A name without an entry is shown as it is.

Words of one experiment are in its `words.toml`; several experiments share those here.
"""

import re
from collections.abc import Mapping
from typing import Any

from dsvnp.paper.report.about import About, about
from dsvnp.paper.report.runs import Run

# name → its name for a reader, and which values are good: "lower" or "higher"
METRICS = {"nll": ("NLL", "lower"), "mse": ("MSE", "lower"), "accuracy": ("accuracy", "higher")}
UNITS = {"standard": "unit variance", "raw": "raw units", "minmax": "unit range", "share": ""}


def metric_text(words: About, metric: str) -> str:
    """A metric's name for a reader."""
    if (level := _coverage(metric)) is not None:
        name = metric.rpartition("-")[0].replace("-", " ").replace("rollout", "roll-out")
        return f"{name} of {level:.0%} intervals"
    return _entry(words, metric)[0]


def goal_of(row: Mapping[str, Any], run: Run) -> str | float | None:
    """Which values are good: "lower", "higher", a number to be close to, or None where none are better."""
    if (level := _coverage(row["metric"])) is not None:
        return level
    _, *goal = _entry(about(run), row["metric"])
    if goal == ["own"]:
        return "lower" if row["dataset"] == run.config.get("domain") else "higher"
    return goal[0] if goal else None


def split_text(words: About, name: str) -> str:
    """A split or a data set in words: "inter-J-max" is "interpolation, J, full context"."""
    name, space, note = name.partition(" ")  # "wq (120 of 1060 rows)"
    if name in words.names:
        return f"{words.names[name]}{space}{note}"
    parts = name.split("-")
    if {"J", "P", *words.names} & set(parts):
        return ", ".join(words.names.get(part, part) for part in parts) + space + note
    return " ".join([*parts, *filter(None, [note])])


def unit_text(unit: str) -> str:
    """A unit in words; nothing for a share, which has none."""
    return UNITS.get(unit, unit)


def _entry(words: About, metric: str) -> tuple[str, ...]:
    """A metric in words, and which values are good where that is known."""
    return (METRICS | dict(words.metrics)).get(metric, (metric,))


def _coverage(metric: str) -> float | None:
    """The level of a metric such as "coverage-90"."""
    found = re.fullmatch(r".*coverage-(\d+)", metric)
    return int(found[1]) / 100 if found else None
