"""Metrics, splits and units in words, and what is good. A name without an entry shows as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dsvnp.paper.report.runs import Run

# name → what a reader calls it, and what is good: "lower", "higher", a number to be close to, or nothing
METRICS: dict[str, tuple[str, str | float | None]] = {
    "nll": ("NLL", "lower"),
    "nll-median": ("median NLL over functions", "lower"),
    "mse": ("MSE", "lower"),
    "rmse": ("RMSE", "lower"),
    "accuracy": ("accuracy", "higher"),
    "ece": ("expected calibration error", "lower"),
    "entropy": ("mean predictive entropy", None),  # depends on the data, see `goal_of`
    "auroc": ("AUROC", "higher"),
    "aupr": ("AUPR", "higher"),
    "fpr95": ("FPR at 95 % recall", "lower"),
    "sigma": ("mean predictive σ", None),
    "order-holds": ("share of seeds with σ outside > gap > observed", "higher"),
    "rollout-mse": ("MSE of roll-outs", "lower"),
    "expected-entropy": ("mean expected entropy (aleatoric)", None),
    "mutual-information": ("mean mutual information (epistemic)", None),
}
SUFFIXES = {"mi": "of the mutual information"}
WORDS = {
    "inter": "interpolation",
    "extra": "extrapolation",
    "max": "full context",
    "curves": "curves",
    "cartpole": "Cart-Pole",
    "test-context": "test, context from the test part",
    "test-own": "test, the context's own rows among the targets",
    "test-posterior": "test, reconstructed from its own labels",
    "train-posterior": "train, reconstructed from its own labels",
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "kmnist": "KMNIST",
    "cifar10": "CIFAR-10",
    "svhn": "SVHN",
    "sarcos": "SARCOS",
    "water-quality": "Water Quality",
    "wq": "Water Quality",
    "scm20d": "SCM20d",
}
UNITS = {"standard": "unit variance", "raw": "raw units", "minmax": "unit range", "share": ""}


def metric_text(metric: str) -> str:
    """What a reader calls a metric."""
    if metric in METRICS:
        return METRICS[metric][0]
    base, _, suffix = metric.rpartition("-")
    if (found := _coverage(metric)) is not None:
        return f"{base.replace('-', ' ').replace('rollout', 'roll-out')} of {found:.0%} intervals"
    return f"{METRICS[base][0]} {SUFFIXES[suffix]}" if base in METRICS and suffix in SUFFIXES else metric


def goal_of(row: Mapping[str, Any], run: Run) -> str | float | None:
    """What is good: "lower", "higher", a number to be close to, or None where nothing is."""
    metric = str(row["metric"])
    if metric == "entropy" and run.experiment == "images":
        return "lower" if row["dataset"] == run.config.get("domain") else "higher"
    found = _coverage(metric)
    return (
        found
        if found is not None
        else METRICS.get(metric, METRICS.get(metric.rpartition("-")[0], ("", None)))[1]
    )


def split_text(name: str) -> str:
    """A split or a data set in words: "inter-J-max" is "interpolation, J, full context"."""
    name, space, note = name.partition(" ")  # "wq (120 of 1060 rows)"
    if name in WORDS:
        return f"{WORDS[name]}{space}{note}"
    parts = name.split("-")
    if {"J", "P", *WORDS} & set(parts):
        return ", ".join(WORDS.get(part, part) for part in parts) + space + note
    return " ".join([*parts, *filter(None, [note])])


def unit_text(unit: str) -> str:
    """A unit in words; nothing for a share, which has none."""
    return UNITS.get(unit, unit)


def _coverage(metric: str) -> float | None:
    """The level of a metric such as "coverage-90"."""
    found = re.fullmatch(r".*coverage-(\d+)", metric)
    return int(found[1]) / 100 if found else None
