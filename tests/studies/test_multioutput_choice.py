"""Settings of the strong recipe are chosen on training halves, all cells on the same rows."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy.stats import sem
from tiny_tables import write_tables

from dsvnp.paper.experiment import Measurement, UnitResult, Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.multioutput.experiment import MultiOutputExperiment
from dsvnp.paper.multioutput.folds import RowPortions
from dsvnp.paper.multioutput.strong import Strong
from studies.multioutput_choice import GRID, Trial, choose_cell, compare, judge_cells, show

SMOKE = Trial(("wq", "scm20d"), (0, 3), {"num_global": 1}, "smoke", verify=False)


def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path, torch.device("cpu"), Console(file=io.StringIO(), width=200), tmp_path)


def entry(mse: list[float], cell: dict[str, Any], dataset: str = "wq") -> dict[str, Any]:
    scores = {"mse": mse, "nll": [1.0] * len(mse), "coverage-90": [0.9] * len(mse)}
    return {"dataset": dataset, "cell": cell, "scores": scores, "seconds": 1.0}


def test_every_cell_on_every_data_set_leaves_a_line_and_a_second_run_goes_on(tmp_path, monkeypatch):
    write_tables(tmp_path)
    out, cells = tmp_path / "choice.jsonl", [{}, {"model": "cnp", "flatten": False, "latent_hidden": [4]}]
    first = judge_cells(cells[1:], out, place(tmp_path), replace_datasets("scm20d"))
    done = judge_cells(cells, out, place(tmp_path), SMOKE)
    assert {(e["dataset"], json.dumps(e["cell"])) for e in done} == {
        (name, json.dumps(cell)) for name in SMOKE.datasets for cell in cells
    }
    assert [e["cell"] for e in done] == [{}, {}, cells[1], cells[1]]
    assert first[0] in done
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    assert len(lines) == 4
    for each in done:
        assert all(len(values) == 2 and np.isfinite(values).all() for values in each["scores"].values())
    assert not list(tmp_path.rglob("checkpoints"))
    assert done[-1]["strong"]["latent_hidden"] == [4]
    assert (done[-1]["strong"]["num_global"], done[-1]["strong"]["width"]) == (
        1,
        8,
    )  # of the trial, of the preset
    monkeypatch.setattr(MultiOutputExperiment, "run_unit", None)  # nothing is left to run
    assert judge_cells(cells, out, place(tmp_path), SMOKE) == done
    assert judge_cells(cells, out, place(tmp_path), replace_datasets("wq")) == [
        e for e in done if e["dataset"] == "wq"
    ]
    with pytest.raises(TypeError, match="not callable"):  # with other settings, the same cells are others
        judge_cells(cells, out, place(tmp_path), SMOKE._replace(common={"num_global": 2}))


def replace_datasets(name: str) -> Trial:
    return SMOKE._replace(datasets=(name,))


def test_cells_change_what_they_say_and_are_judged_on_training_rows(tmp_path, monkeypatch):
    runs = []

    def run_unit(self, label, seeds, where):
        runs.append((self, label, tuple(seeds)))
        scores = {"mse": "standard", "nll": "nats/point", "coverage-90": "share"}
        found = (Measurement("wq", name, "test", unit, (1.0, 2.0)) for name, unit in scores.items())
        others = Measurement("wq", "mse", "train", "standard", (7.0, 7.0))
        return UnitResult(label, tuple(seeds), (*found, others))

    monkeypatch.setattr(MultiOutputExperiment, "run_unit", run_unit)
    trial = Trial(("wq",), (4, 6), {"members": 3})
    done = judge_cells([*GRID, {"model": "np", "members": 2}], tmp_path / "out.jsonl", place(tmp_path), trial)
    paper = MultiOutputExperiment.presets()["paper"]
    for (made, label, seeds), cell in zip(runs[:-1], GRID, strict=True):
        assert made == replace(
            paper, portions=RowPortions(judged_on="held-out"), strong=Strong(**{"members": 3, **cell})
        )
        assert (label, seeds) == (Label("dsvnp", "strong", "wq"), (4, 6))
    assert len({made.strong for made, _, _ in runs[:-1]}) == len(
        GRID
    )  # no cell is another's, or the defaults
    assert runs[-1][0].strong == Strong(members=2)
    assert str(runs[-1][1]) == "np-strong@wq"
    assert done[0]["scores"] == {"mse": [1.0, 2.0], "nll": [1.0, 2.0], "coverage-90": [1.0, 2.0]}


def test_the_built_in_grid_starts_with_the_defaults():
    assert GRID[0] == {}
    assert all(Strong(**cell) != Strong() for cell in GRID[1:])


def test_a_cell_is_compared_with_the_first_split_by_split():
    first, other = [0.5, 1.0, 1.5, 0.8], [0.45, 0.97, 1.41, 0.82]
    rows = compare([entry(first, {}), entry(other, {"width": 8})])
    changes = (np.array(other) - np.array(first)) / np.mean(first)
    assert rows[0] == ({}, pytest.approx(0.95), 0.0, 0.0)
    assert rows[1] == (
        {"width": 8},
        pytest.approx(np.mean(other)),
        pytest.approx(changes.mean()),
        pytest.approx(sem(changes)),
    )
    (alone,) = compare([entry([0.5], {})])
    assert np.isnan(alone.error)


def test_the_choice_is_the_lowest_beyond_two_standard_errors():
    first = entry([1.0, 1.0, 1.0], {})
    unsure, better, best = (
        entry(mse, {"width": width})
        for width, mse in ((1, [0.5, 1.3, 0.9]), (2, [0.97, 0.98, 0.99]), (3, [0.95, 0.96, 0.97]))
    )
    assert choose_cell([first, unsure]).cell == {}
    almost = entry([0.97, 0.99, 1.0], {"width": 4})  # by 1.5
    assert choose_cell([first, almost]).cell == {}
    assert choose_cell([first, almost], margin=1.0).cell == {"width": 4}
    assert choose_cell([first, unsure, better]).cell == {"width": 2}
    assert choose_cell([first, best, unsure, better]).cell == {"width": 3}
    assert choose_cell([first, better, entry([0.1, 0.1, 0.1], {"model": "cnp"})]).cell == {"width": 2}
    assert choose_cell([entry([1.0], {}), entry([0.5], {"width": 1})]).cell == {}  # one split shows nothing


def test_data_sets_count_alike_whatever_the_size_of_their_errors():
    done = [
        *(entry([1.0, 1.0], {}), entry([0.99, 0.99], {"width": 1}), entry([1.02, 1.02], {"width": 2})),
        *(
            entry([0.1, 0.1], {}, "scm20d"),
            entry([0.102, 0.102], {"width": 1}, "scm20d"),
            entry([0.09, 0.09], {"width": 2}, "scm20d"),
            entry([0.01, 0.01], {"width": 3}, "scm20d"),  # not judged on both
        ),
    ]
    chosen = choose_cell(done)
    assert chosen.cell == {"width": 2}
    assert chosen.change == pytest.approx((0.02 - 0.1) / 2)
    assert choose_cell([*done[:2], *done[3:5]]).cell == {}


def test_the_table_says_what_was_found():
    console = Console(file=io.StringIO(), width=200)
    show([entry([1.0, 1.2], {}), entry([0.9, 1.0], {"spreads": [1.0]})], console)
    said = console.file.getvalue()
    (row,) = [line for line in said.splitlines() if line.startswith('│ {"spreads": [1.0]}')]
    assert [cell.strip() for cell in row.split("│")[2:-1]] == [
        "0.9500",
        "-13.64 ± 4.55",
        "1.00",
        "0.900",
        "1",
    ]
    assert 'Chosen: {"spreads": [1.0]}, -13.64 ± 4.55 %' in said
