"""Contents of a report: the runs at or below a folder in the paper's order, and the text that both its forms share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dsvnp.paper.report.about import About, about, figures_of, order_of
from dsvnp.paper.report.runs import Run, find_folds, find_runs, find_speed
from dsvnp.paper.report.tables import Table, seeds_text, tables_of, title_of

TITLE = "Doubly stochastic neural processes: results"
LEDE = (
    "What this library measured, and what Wang & van Hoof (ICML 2020) print. Ours are means ± standard deviations "
    "over seeds; in brackets stands the paper's own spread. J counts all points of a task, P those outside the context."
    " Bold is better than all others of its column by more than two standard errors, paired over the seeds that both "
    "have; rows of one seed need only have a worse mean, and references that no training made (truth, exact GPs, best "
    "Gaussians, an oracle) do not count. A row that is not still or not doubled must be behind even if more draws add "
    "ten times its last change, or a nat where that was not kept."
    " A band that no legend names runs from the lowest seed to the highest."
)


class Report(NamedTuple):
    """The runs and measurements that a report shows."""

    folder: Path
    runs: Sequence[Run]
    speed: Sequence[dict[str, Any]]

    @classmethod
    def find(cls, folder: Path) -> Report:
        """Everything at or below a folder, in the paper's order."""
        if not folder.is_dir():
            raise ValueError(f"expected a folder with results, got {folder}, which is not a folder")
        runs = [*find_runs(folder), *find_folds(folder)]
        report = cls(folder, sorted(runs, key=order_of), find_speed(folder))
        if not report.runs and not report.speed:
            raise ValueError(f"no results.json at or below {folder}; make one with `dsvnp reproduce toy`")
        return report


class Section(NamedTuple):
    """The part of a report on one run, the same in both its forms."""

    title: str
    anchor: str
    facts: list[str]
    words: About
    tables: list[Table]  # that stand first
    figures: list[tuple[Path, str]]  # and what they show
    more: list[Table]
    settings: dict[str, str]

    @classmethod
    def of(cls, run: Run, report: Report) -> Section:
        """Gather the words and tables of a run."""
        tables = tables_of(run)
        first, more = ([table for table in tables if table.headline is flag] for flag in (True, False))
        titles = title_of(run), anchor(run, report), facts_of(run), about(run)
        return cls(*titles, first, figures_of(run), more, settings_of(run.config))

    @property
    def more_text(self) -> str:
        """The number of tables that are folded, in words."""
        return f"{len(self.more)} more table{'s' * (len(self.more) > 1)}"


def facts_of(run: Run) -> list[str]:
    """Facts about a run, in a few words each."""
    facts = [f"preset {run.preset}", f"{about(run).repeat}s: {seeds_text(run)}", run.device]
    if run.version:
        facts.append(f"dsvnp {run.version}")
    if run.seconds is not None:
        time = f"{run.seconds / 60:.0f} min" if run.seconds >= 120 else f"{run.seconds:.0f} s"
        facts.append(f"{time}, units added up")  # some shared a device
    return facts


def anchor(run: Run, report: Report) -> str:
    """A name for links to a run."""
    inner = run.folder.relative_to(report.folder).as_posix()
    return re.sub(r"[^a-z0-9]+", "-", f"run-{run.experiment if inner == '.' else inner}".lower()).strip("-")


def settings_of(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Settings as a reader writes them; those of an experiment inside another are named with a dot."""
    out: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            out |= settings_of(value, f"{prefix}{name}.")
        else:
            out[f"{prefix}{name}"] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return out
