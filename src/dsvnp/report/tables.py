"""Tables of a run: ours beside the paper's, a row a model. What they look like is for the pages to say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dsvnp.report.numbers import distance, mean_and_spread, needs_median, number, printed, verdict
from dsvnp.report.runs import Run
from dsvnp.report.style import text_of
from dsvnp.report.texts import about, goal_of, metric_text, split_text, unit_text

Row = Mapping[str, Any]
MAX_COLUMNS = 6  # what a screen shows beside each other


@dataclass(frozen=True)
class Cell:
    """What a table says in one place.

    Attributes:
        text: the figure.
        notes: what stands below it: the paper's figure, the median, the number of seeds where it is special.
        verdict: ours against the paper's: "better", "level", "worse", or nothing.
        best: whether it is the best of its column.
    """

    text: str
    notes: tuple[str, ...] = ()
    verdict: str = ""
    best: bool = False


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: what it shows.
        caption: how to read it.
        columns: names of the columns, the first one's too.
        rows: for each row its label and its cells; None where nothing was measured.
        models: whether labels are names of models.
    """

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]
    models: bool = True


def tables_of(run: Run) -> list[Table]:
    """The tables of a run: one for each metric and unit, and for each data set or split as the paper lays it out."""
    fixed, across = ("dataset", "split") if about(run).table_per == "dataset" else ("split", "dataset")
    if len(_distinct(run.rows, across)) == 1 < len(_distinct(run.rows, fixed)):
        fixed, across = across, fixed  # one column a table would be a waste
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in run.rows:
        groups.setdefault((row["metric"], row["unit"], row[fixed]), []).append(row)
    several = len(_distinct(run.rows, fixed)) > 1
    return [
        _table(run, part, across, shown if several else "")
        for (_, _, shown), rows in groups.items()
        for part in _narrow(rows, across)
    ]


def _narrow(rows: Sequence[Row], across: str) -> list[list[Row]]:
    """All rows in one table, or one for each first word of their columns, "inter" and "extra", where it is too wide."""
    if len(_distinct(rows, across)) <= MAX_COLUMNS:
        return [list(rows)]
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(row[across].partition("-")[0], []).append(row)
    return list(parts.values())


def summary_of(runs: Sequence[Run]) -> Table:
    """How each run compares with the paper, in counts."""
    lines = []
    for run in runs:
        found = [verdict(row, goal_of(row, run)) for row in run.rows]
        counts = [Cell(str(found.count(word))) for word in ("better", "level", "worse")]
        models = len({row["model"] for row in run.rows})
        cells = [Cell(run.preset), Cell(str(models)), Cell(seeds_text(run)), *counts]
        lines.append((title_of(run), tuple(cells)))
    return Table(
        "Against the paper",
        "How many of our figures are better than the paper's, level with it (within one standard deviation of ours "
        "over seeds) or worse. The paper's settings are those of the preset paper; smoke only shows that it runs.",
        ("experiment", "preset", "models", "seeds", "better", "level", "worse"),
        tuple(lines),
        models=False,
    )


def title_of(run: Run) -> str:
    """The run's title, with the domain where an experiment has several."""
    domain = run.config.get("domain")
    return f"{about(run).title}: {split_text(str(domain))}" if domain else about(run).title


def seeds_text(run: Run) -> str:
    """The number of seeds, as a range where rows differ."""
    numbers = run.num_seeds
    return "–".join(str(n) for n in dict.fromkeys([numbers[0], numbers[-1]])) if numbers else "0"


def _table(run: Run, rows: Sequence[Row], across: str, shown: str) -> Table:
    """One table: a row a model, a column for each value of `across`."""
    columns, models = _distinct(rows, across), _distinct(rows, "model")
    seeds = max(len(row["seeds"]) for row in rows)
    cells = {(row["model"], row[across]): _cell(row, run, seeds) for row in rows}
    for column in columns:
        best = _best([row for row in rows if row[across] == column], run)
        if best is not None:
            cells[best, column] = replace(cells[best, column], best=True)
    metric, unit = rows[0]["metric"], unit_text(rows[0]["unit"])
    title = ", ".join(filter(None, [split_text(shown), metric_text(metric), unit]))
    return Table(
        title[:1].upper() + title[1:],
        f"{_goal_text({goal_of(row, run) for row in rows})}{_seeds(seeds)}.",
        ("model", *(split_text(column) for column in columns)),
        tuple((model, tuple(cells.get((model, column)) for column in columns)) for model in models),
    )


def _cell(row: Row, run: Run, seeds: int) -> Cell:
    """Ours, and below it the paper's."""
    notes = []
    if row["paper"] is not None:
        spread = row["paper_spread"]
        notes.append(
            f"paper {printed(row['paper'])}" + (f" ({printed(spread)})" if spread is not None else "")
        )
    if needs_median(row):
        notes.append(f"median {number(row['median'], row['std'] or 0.0)}")
    if len(row["seeds"]) != seeds:
        notes.append(_seeds(len(row["seeds"])))
    return Cell(mean_and_spread(row), tuple(notes), verdict(row, goal_of(row, run)))


def _best(rows: Sequence[Row], run: Run) -> str | None:
    """The model with the best mean, where there are several and it is known what is good."""
    goal = goal_of(rows[0], run)
    known = [row for row in rows if row["mean"] is not None]
    if goal is None or len(known) < 2:
        return None
    return str(min(known, key=lambda row: distance(row["mean"], goal))["model"])


def _goal_text(goals: set[str | float | None]) -> str:
    """What is good, in words."""
    if len(goals) > 1:
        return "Lower is better on the data trained on, higher elsewhere; "
    (goal,) = goals
    if goal is None:
        return ""
    return f"{goal.capitalize()} is better; " if isinstance(goal, str) else f"Closest to {goal:g} is best; "


def _seeds(count: int) -> str:
    """A number of seeds in words."""
    return f"{count} seed{'s' * (count != 1)}"


def _distinct(rows: Iterable[Row], key: str) -> list[str]:
    """The values of a key, each once, as they come."""
    return list(dict.fromkeys(str(row[key]) for row in rows))


def label_text(table: Table, label: str) -> str:
    """What a reader calls a row."""
    return text_of(label) if table.models else label
