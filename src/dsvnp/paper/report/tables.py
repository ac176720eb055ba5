"""Tables of a run: our figures and the paper's, one row per model. The pages decide how they look."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dsvnp.paper.label import Label
from dsvnp.paper.report.about import (
    about,
    goal_of,
    is_headline,
    is_reference,
    metric_text,
    split_text,
    unit_text,
)
from dsvnp.paper.report.numbers import (
    clear_best,
    mean_and_spread,
    moving,
    needs_median,
    number,
    printed,
    verdict,
)
from dsvnp.paper.report.runs import Run
from dsvnp.paper.rows import grouped

Row = Mapping[str, Any]
MAX_COLUMNS = 6  # what a screen shows next to each other


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str  # the figure
    # what stands below it: the paper's figure, the median, the numbers of seeds and of batches where they differ
    notes: tuple[str, ...] = ()
    verdict: str = ""  # ours against the paper's: "better", "level", "worse", or nothing
    best: bool = False  # whether it is clearly the best of its column, see `clear_best`


@dataclass(frozen=True)
class Table:
    """A table with a title, a caption, columns and rows."""

    title: str  # what it shows
    caption: str  # how to read it
    columns: tuple[str, ...]  # names of the columns, the first one's too
    # for each row its label and its cells; None where nothing was measured
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]
    models: bool = True  # whether labels are names of models
    headline: bool = True  # whether it stands first


def tables_of(run: Run) -> list[Table]:
    """The tables of a run: one for each metric and unit, and for each data set or split as the paper lays it out."""
    fixed, across = ("dataset", "split") if about(run).table_per == "dataset" else ("split", "dataset")
    if len(_distinct(run.rows, across)) == 1 < len(_distinct(run.rows, fixed)):
        fixed, across = across, fixed  # one column per table would be a waste
    rows = [{**row, "quantity": f"{row['metric']}/{row['unit']}"} for row in run.rows]
    groups = grouped(rows, lambda row: (row["quantity"], row[fixed]))
    tables: dict[tuple[str, ...], list[Row]] = {}
    for key, rows in groups.items():
        columns = _distinct(rows, across)
        # tables of a single column make one together, with one column per quantity
        tables.setdefault((*key[1:], *columns) if len(columns) == 1 else key, []).extend(rows)
    several = len(_distinct(run.rows, fixed)) > 1
    return [
        _table(run, part, by, rows[0][fixed] if several else "", word)
        for rows in tables.values()
        for by in ["quantity" if len(_distinct(rows, "quantity")) > 1 else across]
        for word, part in _narrow(rows, by)
    ]


def _narrow(rows: Sequence[Row], across: str) -> list[tuple[str, list[Row]]]:
    """All rows in one table or, where it is too wide, in several: by their columns' first word, or of equal widths."""
    columns = _distinct(rows, across)
    count = -(-len(columns) // MAX_COLUMNS)
    width = -(-len(columns) // count)
    if count == 1:
        return [("", list(rows))]
    if across == "split":
        return list(grouped(rows, lambda row: row[across].partition("-")[0]).items())
    parts = grouped(rows, lambda row: columns.index(row[across]) // width)
    return [("", part) for part in parts.values()]


def summary_of(runs: Sequence[Run]) -> Table:
    """A comparison of each run with the paper, in counts."""
    lines = []
    for run in runs:
        found = [_verdict(row, run) for row in run.rows]
        counts = [
            Cell(str(found.count(word))) if any(found) else None for word in ("better", "level", "worse")
        ]
        models = len({row["model"] for row in run.rows})
        cells = [Cell(run.preset), Cell(str(models)), Cell(seeds_text(run)), *counts]
        lines.append((title_of(run), tuple(cells)))
    return Table(
        "Against the paper",
        "How many of our figures are better than the paper's, level with it (within one standard deviation of ours "
        "over seeds; where seeds differ much, that says little) or worse. The paper's settings are those of the preset "
        "paper; smoke only shows that it runs: it is not compared.",
        ("experiment", "preset", "models", "seeds", "better", "level", "worse"),
        tuple(lines),
        models=False,
    )


def title_of(run: Run) -> str:
    """The run's title, with the domain where an experiment has several."""
    domain = run.config.get("domain")
    return f"{about(run).title}: {split_text(about(run), str(domain))}" if domain else about(run).title


def seeds_text(run: Run) -> str:
    """The number of seeds, as a range where rows differ."""
    return _span(run.num_seeds) if run.num_seeds else "0"


def _table(run: Run, rows: Sequence[Row], across: str, shown: str, word: str) -> Table:
    """One table: one row per model, one column for each value of `across`, "split", "dataset" or "quantity".

    `shown` is what the table is about, if a run has several; `word` a first word that all columns share, for the title.
    """
    words, columns, models = about(run), _distinct(rows, across), _distinct(rows, "model")
    seeds = max(len(row["seeds"]) for row in rows)
    tests = [number for row in rows for number in row.get("batches", ())]
    batches = statistics.mode(tests) if tests else 0
    cells = {(row["model"], row[across]): _cell(row, run, seeds, batches) for row in rows}
    for column in columns:
        mine = [row for row in rows if row[across] == column]
        trained = [row for row in mine if not is_reference(run, row)]
        if (best := clear_best(trained, goal_of(mine[0], run))) is not None:
            cells[best["model"], column] = replace(cells[best["model"], column], best=True)
    if across == "quantity":
        first = {row[across]: row for row in reversed(rows)}
        headers = [_quantity_text(first[column], run) for column in columns]
        what, goal = [split_text(words, rows[0]["dataset"])], ""
    else:
        headers = [split_text(words, column.removeprefix(f"{word}-")) for column in columns]
        what = [split_text(words, word), *_metric_names(rows[0], run)]
        goal = _goal_text({goal_of(row, run) for row in rows})
    title = ", ".join(filter(None, [split_text(words, shown), *what]))
    return Table(
        title[:1].upper() + title[1:],
        f"{goal}{_repeats(seeds, run)}{f', {batches} batches of tests' * bool(tests)}.{draws_text(rows, run)}",
        ("model", *headers),
        tuple((model, tuple(cells.get((model, column)) for column in columns)) for model in models),
        headline=any(is_headline(run, row["metric"], row["split"], row["unit"]) for row in rows),
    )


def _metric_names(row: Row, run: Run) -> list[str]:
    """A row's metric, and its unit where it has one, in words."""
    return list(filter(None, [metric_text(about(run), row["metric"]), unit_text(row["unit"])]))


def _quantity_text(row: Row, run: Run) -> str:
    """A metric and its unit as the name of a column, and which values are good."""
    goal = goal_of(row, run)
    good = f" ({goal} is better)" if isinstance(goal, str) else ""
    return ", ".join(_metric_names(row, run)) + good


def _cell(row: Row, run: Run, seeds: int, batches: int) -> Cell:
    """Ours, and below it the paper's; the numbers of seeds and of batches where they differ from the usual ones."""
    notes = []
    if row["paper"] is not None:
        spread = row["paper_spread"]
        notes.append(
            f"paper {printed(row['paper'])}" + (f" ({printed(spread)})" if spread is not None else "")
        )
    if needs_median(row):
        notes.append(f"median {number(row['median'], row['std'] or 0.0)}")
    if len(row["seeds"]) != seeds:
        notes.append(_repeats(len(row["seeds"]), run))
    if set(row.get("batches", ())) - {batches}:
        notes.append(f"{_span(row['batches'])} batches")
    notes += _draws_notes(row)
    return Cell(mean_and_spread(row), tuple(notes), _verdict(row, run))


def _verdict(row: Row, run: Run) -> str:
    """Ours against the paper's; a smoke run, which has learned nothing, is not compared."""
    return "" if run.preset == "smoke" else verdict(row, goal_of(row, run))


def draws_text(rows: Sequence[Row], run: Run) -> str:
    """A sentence on the draws of latents behind a table's likelihoods; empty where there are none."""
    likelihoods = [row for row in rows if row["metric"].startswith(("nll", "log-likelihood"))]
    counted, fixed = [row for row in likelihoods if "draws" in row], fixed_draws(run)
    if counted:
        rest = (
            "exact" if len(counted) == len(likelihoods) else f"exact, or from {fixed} where latents are drawn"
        )
        return (
            " Draws of latents were doubled until the estimate was still, unless a cell says otherwise; one without a "
            f"number of draws is {rest}."
        )
    if not likelihoods or not fixed:
        return ""
    return f" NLL is from {fixed}, which may be too few where latents are active."


def fixed_draws(run: Run) -> str:
    """The draws behind likelihoods whose rows do not count them, in words; nothing where that is not known."""
    known = about(run).draws
    for name in re.findall(r"\{([\w.]+)\}", known):
        number: Any = run.config
        for part in name.split("."):
            number = number.get(part) if isinstance(number, Mapping) else None
        if number is None:  # settings of another version
            return ""
        known = known.replace(f"{{{name}}}", str(number))
    return known


def _draws_notes(row: Row) -> list[str]:
    """The draws that a row counted, as a range over seeds, and whether more would have moved it."""
    drawn = [
        draws
        for draws, method in zip(row.get("draws", ()), row.get("method", ()), strict=True)
        if method != "exact"
    ]
    if not drawn:
        return []
    return [f"{_span(drawn)} draws", *unsettled(row)]


def _span(numbers: Sequence[int]) -> str:
    """The smallest and the largest of some numbers, or the only one."""
    return "–".join(map(str, dict.fromkeys([min(numbers), max(numbers)])))


def unsettled(row: Row) -> list[str]:
    """Marks of an estimate that more draws may move; none where they suffice or were not counted."""
    last = max(filter(None, moving(row)), default=None)
    size = "" if last is None else f", last change {number(last)}"
    marks = {False: f"not still{size}", None: "not doubled"}
    return [text for mark, text in marks.items() if mark in row.get("still", ())]


def _goal_text(goals: set[str | float | None]) -> str:
    """Which values are good, in words."""
    if len(goals) > 1:
        return "Lower is better on the data trained on, higher elsewhere; "
    (goal,) = goals
    if goal is None:
        return ""
    return f"{goal.capitalize()} is better; " if isinstance(goal, str) else f"Closest to {goal:g} is best; "


def _repeats(count: int, run: Run) -> str:
    """A number of seeds, splits or folds in words."""
    return f"{count} {about(run).repeat}{'s' * (count != 1)}"


def _distinct(rows: Iterable[Row], key: str) -> list[str]:
    """The distinct values of a key, in order of appearance."""
    return list(dict.fromkeys(str(row[key]) for row in rows))


def label_text(table: Table, label: str) -> str:
    """A row's name for a reader."""
    return Label.parse(label).look.text if table.models else label
