"""Selection of settings of the strong recipe for tables, on training halves alone.

    python -m studies.multioutput_choice OUT.jsonl DATA_DIR
    python -m studies.multioutput_choice OUT.jsonl DATA_DIR '[{}, {"flatten": false}]' \\
        '{"datasets": ["wq"], "splits": [0, 1, 2], "common": {"members": 2}}'

Trains an ensemble for each cell of the grid below, or of one that is given: a few changes of `Strong`, and "model" for
another than DSVNP. The first cell is what the others are held against. All inner splits of a data set are one fleet: a
fifth of each training half is judged, its test half is not looked at. They are the same for all cells: differences
are paired. Run again, it does the rest. Then it prints a table for each data set, and chooses one cell for all. The
grid changes one thing at a time; what helps alone is to be tried together: give such cells with the same OUT.jsonl.
"""

import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from dsvnp.paper.experiment import Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.multioutput.experiment import MultiOutputExperiment
from dsvnp.paper.rows import grouped
from dsvnp.paper.settings import as_json, make_experiment
from studies.resume import Entry, Settings, finish

GRID: list[Settings] = [
    {},
    *({"learning_rate": rate} for rate in (1e-3, 1e-2)),
    *({"epochs": epochs} for epochs in (60, 500)),
    {"weight_decay": 0.01},
    {"width": 256},
    {"depth": 2},
    {"latent_hidden": [128]},
    {"recentre": False},
    {"train_local": 1},
    {"train_global": 4},
    # Below, metrics are looked for again.
    {"flatten": False},
    *({"spreads": spreads} for spreads in ([0.7, 1.0, 1.3, 1.6], [1.4, 1.8, 2.2, 2.6])),
    *({"as_good": share} for share in (0.0, 0.01)),
]
SCORES = {"mse": "standard", "nll": "nats/point", "coverage-90": "share"}  # and their units


class Trial(NamedTuple):
    """What a choice is made on."""

    datasets: Sequence[str] = ("sarcos", "wq", "scm20d")  # which tables
    splits: Sequence[int] = tuple(range(20))  # of whose training halves a part is judged
    common: Mapping[str, Any] = {}  # changes of `Strong` in all cells, to make them cheaper
    preset: str = "paper"  # whose settings are changed
    verify: bool = True  # check the sums of the files

    def experiment(self, cell: Settings) -> MultiOutputExperiment:
        """The preset with the changes of a cell, judged on training rows."""
        strong = {name: value for name, value in {**self.common, **cell}.items() if name != "model"}
        judged = {"portions.judged_on": "held-out", "verify": self.verify}
        return make_experiment(MultiOutputExperiment, self.preset, strong=strong, **judged)

    def entry(self, dataset: str, cell: Settings) -> Entry:
        """What is known of an entry before it is judged; all settings, as the defaults may change one day."""
        what = {"dataset": dataset, "splits": self.splits, "preset": self.preset, "cell": cell}
        entry: Entry = json.loads(json.dumps(what | {"strong": as_json(self.experiment(cell).strong)}))
        return entry


def judge_cells(cells: Sequence[Settings], out: Path, place: Workplace, trial: Trial) -> list[Entry]:
    """Train and judge the cells that `out` lacks; return all that it holds of the trial, the first cell first."""
    asked = [trial.entry(dataset, cell) for dataset in trial.datasets for cell in cells]
    done = finish(
        ([what] for what in asked), out, lambda whats: (judge_cell(what, place, trial) for what in whats)
    )
    mine = [entry for entry in done if entry["dataset"] in trial.datasets]
    mine = [e for e in mine if trial.entry(e["dataset"], e["cell"]).items() <= e.items()]
    return sorted(mine, key=lambda entry: entry["cell"] != cells[0])


def judge_cell(what: Settings, place: Workplace, trial: Trial) -> Entry:
    """Train one cell on the inner splits of one data set; a value of each score for each of them."""
    made, model = trial.experiment(what["cell"]), what["cell"].get("model", "dsvnp")
    start = time.perf_counter()
    with TemporaryDirectory() as folder:  # a cell is short, and once it is judged its weights are of no use
        inner = replace(place, out=Path(folder))
        unit = made.run_unit(Label(model, "strong", what["dataset"]), trial.splits, inner)
    # Where outputs take a few values, the NLL by intervals takes the place of a density's.
    named = ((m.metric.replace("nll-interval", "nll"), m) for m in unit.measurements if m.split == "test")
    found = {(name, m.unit): m.values for name, m in named}
    scores = {name: [round(value, 6) for value in found[name, unit]] for name, unit in SCORES.items()}
    return {"scores": scores, "seconds": round(time.perf_counter() - start, 1)}


class Compared(NamedTuple):
    """A cell against the first one on the same inner splits."""

    cell: Settings  # what it changes
    mse: float  # mean squared error in unit variance
    change: float  # by how much that is above the first's, as a share of the first's
    error: float  # standard error of `change`, as if splits were independent; NaN for a single one


def compare(done: Sequence[Entry]) -> list[Compared]:
    """Hold each cell against the first, all on one data set."""
    first = done[0]["scores"]["mse"]
    whole = statistics.fmean(first)
    rows = []
    for entry in done:
        mse = entry["scores"]["mse"]
        changes = [(mine - its) / whole for mine, its in zip(mse, first, strict=True)]
        error = statistics.stdev(changes) / math.sqrt(len(changes)) if len(changes) > 1 else math.nan
        rows.append(Compared(entry["cell"], statistics.fmean(mse), statistics.fmean(changes), error))
    return rows


def choose_cell(done: Sequence[Entry], margin: float = 2.0) -> Compared:
    """One cell for all data sets: the one with the lowest relative error, on average over data sets.

    It is the first one unless another is lower by more than a margin in standard errors: of a dozen cells that change
    nothing, one or another is lower by more than one. Passed over are cells of another model than the first's, and
    those that were not judged on every data set. Averages over data sets take the place of a cell's values.
    """
    tables = [compare(entries) for entries in grouped(done, itemgetter("dataset")).values()]
    averaged = []
    for cell in (row.cell for row in tables[0]):
        found = [row for table in tables for row in table if row.cell == cell]
        if len(found) == len(tables) and cell.get("model") == tables[0][0].cell.get("model"):
            mse, change = (statistics.fmean(column) for column in list(zip(*found, strict=True))[1:3])
            error = math.sqrt(sum(row.error**2 for row in found)) / len(found)
            averaged.append(Compared(cell, mse, change, error))
    first, *others = averaged
    better = [row for row in others if row.change < -margin * row.error]
    return min(better, key=lambda row: row.change, default=first)


def show(done: Sequence[Entry], console: Console) -> None:
    """Print a table for each data set, then the choice."""
    for dataset, entries in grouped(done, itemgetter("dataset")).items():
        columns = ("cell", "MSE", "change, %", "NLL", "coverage", "seconds")
        table = Table(*columns, title=f"{dataset}, inner splits")
        for entry, row in zip(entries, compare(entries), strict=True):
            nll, coverage = (statistics.fmean(entry["scores"][name]) for name in ("nll", "coverage-90"))
            change = f"{100 * row.change:+.2f} ± {100 * row.error:.2f}"
            numbers = f"{row.mse:.4f}", change, f"{nll:.2f}", f"{coverage:.3f}", f"{entry['seconds']:.0f}"
            table.add_row(json.dumps(row.cell), *numbers)
        console.print(table)
    chosen = choose_cell(done)
    change = f"{100 * chosen.change:+.2f} ± {100 * chosen.error:.2f} %"
    console.print(f"Chosen: {json.dumps(chosen.cell)}, {change}", markup=False)


if __name__ == "__main__":
    out, data_dir = Path(sys.argv[1]), Path(sys.argv[2])
    cells = json.loads(sys.argv[3]) if len(sys.argv) > 3 else GRID
    trial = Trial(**json.loads(sys.argv[4])) if len(sys.argv) > 4 else Trial()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    console = Console()
    show(judge_cells(cells, out, Workplace(out.parent, device, console, data_dir), trial), console)
