"""Tables in README and docs, rebuilt from committed results: nobody types a figure by hand.

A block begins with `<!-- dsvnp report FOLDER: NAME -->`, where FOLDER holds results, and ends with `<!-- end -->`. What
has no results is left out. Usage, from a clone: `python -m studies.readme_blocks`, after `dsvnp report results`.
"""

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dsvnp.files import write_atomically
from dsvnp.paper.label import Label
from dsvnp.paper.report.about import about, goal_of
from dsvnp.paper.report.contents import Report
from dsvnp.paper.report.markdown import markdown_table
from dsvnp.paper.report.numbers import clear_best, mean_and_spread, printed
from dsvnp.paper.report.runs import Run
from dsvnp.paper.report.speed import speed_table
from dsvnp.paper.report.tables import Cell, Table, fixed_draws, unsettled

BLOCK = re.compile(r"(<!-- dsvnp report (\S+): (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
ARROWS: dict[str | float | None, str] = {"lower": "↓", "higher": "↑"}
KEY = (
    "Mean ± standard deviation over seeds, on unseen data; in brackets the paper's figure. ↓ lower is better, "
    "↑ higher. Bold is better than all others of its line by more than two standard errors, paired over the seeds that "
    "both have (splits of a table share rows: their standard errors are too small), and by more than a nat if another "
    "is not still."
)
MODELS = ("nn", "mc-dropout", "cnp", "np", "attnnp", "dsvnp")


class ReadmeLine(NamedTuple):
    """One line of the table of results, as an experiment's `words.toml` names it."""

    title: str  # what it shows
    dataset: str  # whose rows; a note after it, in brackets, is left aside
    metric: str  # of them
    split: str  # of them
    unit: str | None = None  # of them; None for any
    variant: str = ""  # of the models: "", "wide", "strong"


def rebuilt(text: str, report: Report) -> tuple[str, int]:
    """A README's text with its blocks made again, and how many come from the report's folder."""
    count = 0

    def fill(found: re.Match[str]) -> str:
        nonlocal count
        begin, folder, name, _, end = found.groups()
        if folder != report.folder.resolve().name:
            return found[0]
        if name not in BLOCKS:
            raise ValueError(f"the README asks for a block {name!r}; there are {', '.join(BLOCKS)}")
        count += 1
        body = BLOCKS[name](report)
        return f"{begin}{body}\n{end}" if body else f"{begin}{end}"

    return BLOCK.sub(fill, text), count


def results_block(report: Report) -> str:
    """One table of the paper's experiments, one line per quantity and one column per model."""
    lines = [
        found for run in report.runs for line in about(run).lines if (found := _line(run, ReadmeLine(**line)))
    ]
    if not lines:
        return ""
    shown = [place for place in range(len(MODELS)) if any(cells[place] for _, cells in lines)]
    rows = tuple((title, (*(cells[place] for place in shown), cells[-1])) for title, cells in lines)
    columns = ("", *(Label(MODELS[place]).look.text for place in shown), "seeds")
    return f"{KEY}\n\n" + markdown_table(Table("", "", columns, rows, models=False), heading=False)


RIVALS = {
    "np": "**NPRegressor**",
    "extra-trees": "extra-trees",
    "forest": "random forest",
    "hgb": "boosted trees",
    "gp": "Gaussian process",
    "mlp": "MLP",
    "ridge": "ridge",
}


def tables_block(report: Report) -> str:
    """Mean ranks of the regressor and its rivals on real tables, from the summary of `benchmarks/tables`."""
    path = report.folder / "tables" / "test-regression.md"
    if not path.is_file():
        return ""
    title, _, says, _, *lines = path.read_text(encoding="utf-8").splitlines()
    names, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line[:1] == "|"
    )
    found = {row[0]: dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names)}
    tables, _, apart, *_ = re.findall(r"\d+\.?\d*", f"{title} {says}")
    ranks = {
        name: {model: float(row[f"rank, {name}"]) for model, row in found.items()}
        for name in ("nll", "crps", "rmse")
    }
    text = [
        f"Mean rank of {len(found)} models on {tables} real tables; bold is {apart} ahead of all others, more than "
        "chance.",
        "",
        "| model | NLL | CRPS | RMSE | 90 % intervals hold | CPU seconds |",
        "| --- |" + " ---: |" * 5,
    ]
    for model in sorted(found, key=ranks["crps"].__getitem__):
        cells = [_rank(ranks[name], model, float(apart)) for name in ranks]
        held, seconds = (float(found[model][f"mean {name}"]) for name in ("coverage", "cpu_seconds"))
        text.append(f"| {RIVALS[model]} | {' | '.join(cells)} | {100 * held:.1f} % | {seconds:.1f} |")
    return "\n".join(text)


def _rank(ranks: Mapping[str, float], model: str, difference: float) -> str:
    """A mean rank, bold where it is better than all others by more than chance."""
    best = all(rank - ranks[model] > difference for other, rank in ranks.items() if other != model)
    return f"**{ranks[model]:.1f}**" if best else f"{ranks[model]:.1f}"


def speed_block(report: Report) -> str:
    """The table of speed."""
    return markdown_table(speed_table(report.speed), heading=False) if report.speed else ""


BLOCKS: Mapping[str, Callable[[Report], str]] = {
    "results": results_block,
    "tables": tables_block,
    "speed": speed_block,
}


def _line(run: Run, line: ReadmeLine) -> tuple[str, tuple[Cell | None, ...]] | None:
    """A quantity with what is good, one cell per model (ours with the paper's in brackets), and the number of seeds."""
    rows: dict[str, Mapping[str, Any]] = {
        row["model"]: row
        for row in run.rows
        if row["dataset"].split(" ")[0] == line.dataset
        and (row["metric"], row["split"]) == (line.metric, line.split)
        and line.unit in (None, row["unit"])
    }
    found = [rows.get(str(Label(model, line.variant))) for model in MODELS]
    known = [row for row in found if row is not None and row["mean"] is not None]
    if not known:
        return None
    goal = goal_of(known[0], run)
    best = clear_best(known, goal)
    cells = [_readme_cell(row, row is best) for row in found]
    seeds = sorted({len(row["seeds"]) for row in known})
    title = f"{_full_title(line, known, run)} {ARROWS.get(goal, '')}".strip()
    return title, (*cells, Cell("–".join(map(str, dict.fromkeys([seeds[0], seeds[-1]])))))


def _full_title(line: ReadmeLine, rows: Sequence[Mapping[str, Any]], run: Run) -> str:
    """A line's title with what its figures rest on: a part of a data set's rows, a fixed number of draws."""
    notes = [rows[0]["dataset"].partition(" ")[2].strip("()")]
    if line.metric.startswith("nll") and not any("draws" in row for row in rows):
        notes.append(fixed_draws(run))
    note = ", ".join(filter(None, notes))
    return f"{line.title} ({note})" if note else line.title


def _readme_cell(row: Mapping[str, Any] | None, best: bool) -> Cell | None:
    """One figure."""
    if row is None:
        return None
    paper = "" if row["paper"] is None else f" ({printed(row['paper'])})"
    return Cell(mean_and_spread(row) + paper, tuple(unsettled(row)), best=best)


PAGES = ("README.md", "docs/training.md", "results/README.md")  # those with blocks


def main() -> None:
    """Rebuild the blocks of the pages of a clone from its results."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--root", type=Path, default=Path("."), help="folder of the clone")
    root = parser.parse_args().root
    report = Report.find(root / "results")
    for page in (root / name for name in PAGES):
        if page.is_file():
            text, _ = rebuilt(page.read_text(encoding="utf-8"), report)
            write_atomically(page, text)


if __name__ == "__main__":
    main()
