"""The words of a report: an experiment's from `words.toml` in its folder, and those that several share; needs no torch.

Metrics, splits and units without an entry are shown as they are.
"""

import re
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatch
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from dsvnp.paper import EXPERIMENTS
from dsvnp.paper.label import Label
from dsvnp.paper.report.runs import Run

OTHERS = {"estimators": "report/estimators.toml"}  # what a report shows besides the paper's experiments
# name → its name for a reader, and which values are good: "lower" or "higher"
METRICS = {"nll": ("NLL", "lower"), "mse": ("MSE", "lower"), "accuracy": ("accuracy", "higher")}
UNITS = {"standard": "unit variance", "raw": "raw units", "minmax": "unit range", "share": ""}


class About(NamedTuple):
    """An experiment in words."""

    title: str  # its name for a reader
    paper: str = ""  # where the paper has it
    question: str = ""  # what it asks
    trials: str = ""  # how many settings were tried for each model, and where; "" where none were
    differs: tuple[str, ...] = ()  # what differs from the paper or settles what it leaves open, and why
    figures: Mapping[str, str] = {}  # what each figure shows, by the name of its file or a pattern of names
    table_per: str = "dataset"  # one table for each "dataset", with splits as columns, or for each "split"
    repeat: str = "seed"  # what a value of a row's `seeds` is: a "seed", a "split", a "fold"
    # patterns of "metric/split/unit" whose tables stand first; the others can be unfolded
    headline: tuple[str, ...] = ("*",)
    # patterns of rows that no training made: these are never bold, and prevent no other from being so
    references: tuple[str, ...] = ()
    # lines of the table in the README, see `studies/readme_blocks.py`
    lines: tuple[Mapping[str, str], ...] = ()
    # the draws behind likelihoods whose rows do not count them, with names of settings: "{paper.num_global} draws"
    draws: str = ""
    names: Mapping[str, str] = {}  # data sets and parts of splits, in words
    # the experiment's own metrics: in words, and what is good; "own" is lower on the domain's own data and higher
    # elsewhere
    metrics: Mapping[str, tuple[str, ...]] = {}


@cache
def words_of(experiment: str) -> About:
    """The words of an experiment; for one that is not ours, its name alone."""
    places = {name: f"{name}/words.toml" for name in EXPERIMENTS} | OTHERS
    if experiment not in places:
        return About(experiment)
    text = files("dsvnp.paper").joinpath(places[experiment]).read_text(encoding="utf-8")
    return About(**tomllib.loads(text))


def about(run: Run) -> About:
    """The words of a run's experiment."""
    return words_of(run.experiment)


def order_of(run: Run) -> tuple[int, int, str]:
    """A key that sorts runs as the paper has its experiments, and their domains."""
    names, domains, domain = [*EXPERIMENTS, *OTHERS], list(about(run).names), run.config.get("domain")
    place = names.index(run.experiment) if run.experiment in names else len(names)
    return place, domains.index(domain) if domain in domains else 0, str(run.folder)


def figures_of(run: Run) -> list[tuple[Path, str]]:
    """A run's figures and their captions, in the order of the captions; one without a caption has its name in words."""
    texts = about(run).figures
    found = []
    for path in run.figures:
        matching = [pattern for pattern in texts if fnmatch(path.stem, pattern)]
        pattern = matching[0] if matching else path.stem
        place = [*texts, pattern].index(pattern)
        shown = texts.get(pattern, f"{about(run).title}: {path.stem.replace('-', ' ')}.")
        if pattern.endswith("*"):  # one figure per model
            model = Label.parse(path.stem[len(pattern) - 1 :])
            shown = f"{model.look.text}: {shown[0].lower()}{shown[1:]}"
        found.append((place, path, shown))
    return [(path, shown) for _, path, shown in sorted(found)]


def is_headline(run: Run, metric: str, split: str, unit: str) -> bool:
    """Whether a table is one that a reader wants to see first."""
    return any(fnmatch(f"{metric}/{split}/{unit}", pattern) for pattern in about(run).headline)


def is_reference(run: Run, row: Mapping[str, Any]) -> bool:
    """Whether a row tells what is known without training."""
    return any(fnmatch(row["model"], pattern) for pattern in about(run).references)


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
