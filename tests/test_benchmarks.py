"""The scripts in `benchmarks`: that they run, and that what they add up is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from benchmarks import drawing, raw_table, speed, tasks

FOLDER = Path(__file__).parents[1] / "benchmarks"


def run(script: str, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parent / "src")}
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_a_unit_is_timed_by_a_part_of_its_steps(tmp_path):
    out = tmp_path / "time.json"
    settings = {"preset": "smoke", "set": '{"num_steps": 1200}', "share": "0.05", "device": "cpu"}
    options = [text for name, value in settings.items() for text in (f"--{name}", value)]
    run("units.py", "toy", str(out), *options, "--units", "np", "gp")
    record = json.loads(out.read_text())
    assert (record["experiment"], record["preset"], record["share"]) == ("toy", "smoke", 0.05)
    trained, untrained = record["units"]
    assert [trained["unit"], untrained["unit"]] == ["np", "gp"]
    assert (trained["steps"], trained["steps_taken"]) == (1200, 60)
    added = 1140 * trained["ms_per_step"] / 1000
    assert trained["seconds"] == pytest.approx(trained["seconds_taken"] + added, abs=0.15)  # each is rounded
    assert "steps" not in untrained
    assert untrained["seconds"] == untrained["seconds_taken"]


def test_tasks_are_compared_with_a_process_for_each(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "KNOWN", (5, 20))
    row = tasks.measure("growth", 0, new=2, model="cnp", max_steps=6, n_replicas=1)
    assert (row["family"], row["model"]) == ("growth", "cnp")
    assert 0 < row["GP 20"]["rmse"] < 0.6
    tasks.write([row], tmp_path)
    assert json.loads((tmp_path / "rows.json").read_text()) == [row]
    assert f"| growth | GP per task | {row['GP 5']['rmse']:.2f} |" in (tmp_path / "README.md").read_text()


def test_the_raw_table_has_gaps_and_boosting_reads_the_same_cells():
    cells = raw_table.draw_table(0)
    X, y = raw_table.numbers_of(cells)
    assert X.shape == (raw_table.ROWS, 8)
    for name, column in (("price", 1), ("day", 3), ("kind", 7)):
        gone = np.array([cell is None for cell in cells[name]])
        np.testing.assert_array_equal(np.isnan(X[:, column]), gone)
        assert 0.02 < gone.mean() < 0.06
    assert y.tolist() == [float(cell) for cell in cells["sales"]]


def test_rows_of_other_models_stay_when_some_are_timed_again(tmp_path):
    rows = [
        {"what": what, "library": library, "model": model}
        for what, library, model in (
            ("train", "dsvnp", "tnp"),
            ("train", "dsvnp", "np"),
            ("train", "neuralprocesses", "np"),
            ("predict", "dsvnp", "tnp"),
        )
    ]
    (tmp_path / "rows.json").write_text(json.dumps({"rows": rows}))
    assert speed.others(tmp_path / "rows.json", ["tnp"]) == rows[1:]


def test_times_of_answers_stand_next_to_their_goals(tmp_path):
    small = {"trained": "40", "rows": "1200", "many": "30", "repeats": "1", "threads": "1", "steps": "2"}
    options = [text for name, value in small.items() for text in (f"--{name}", value)]
    out = tmp_path / "answers.json"
    run("answers.py", *options, "--out", str(out))
    record = json.loads(out.read_text())
    assert record["settings"]["rows"] == 1200
    goals = [4.0, 0.004, *[0.3, 0.03, 0.048] * 3, *[2.0, 0.03, 0.048] * 3]  # a table for each of three kinds
    assert [row["goal"] for row in record["times"]] == pytest.approx(goals)
    assert all(row["median_seconds"] >= row["seconds"] > 0 < row["cpu_seconds"] for row in record["times"])
    chosen = [row["chosen"] for row in record["times"] if "chosen" in row]
    assert ["gaussian process" in each for each in chosen] == [True, False, False, True, False, False]


def test_the_share_of_drawing_is_that_of_one_step(monkeypatch):
    """A pool of 60 ms serves 2 steps of one source, a pool of 40 ms 4 of the other; any step takes 50 ms."""

    class Slow:
        def __init__(self, name, refresh_every):
            self.name, self.refresh_every, self.drawn = name, refresh_every, 0

        def pool(self, generator, device):
            self.drawn += 1
            return self.name

    sources = (Slow("first", 2), Slow("second", 4))
    fleets = []

    class Fleet:
        def __init__(self, *settings):
            self.steps = 0
            fleets.append(self)

        def step(self):
            self.steps += 1

    def seconds(work, device):
        return {"first": 0.06, "second": 0.04}.get(work(), 8 * 0.05)

    monkeypatch.setattr(drawing, "Fleet", Fleet)
    monkeypatch.setattr(drawing, "seconds", seconds)
    recipe = SimpleNamespace(
        make=None, source=SimpleNamespace(sources=sources), settings=lambda steps, precision, device: None
    )
    found = drawing.share_of(recipe, torch.device("cpu"), "float32", rounds=3)
    assert (found["steps"], found["rounds"]) == (8, 3)  # the longest pool serves 4 turns of two
    assert found["step_ms"] == pytest.approx(50)
    assert found["draw_ms"] == pytest.approx((30 + 10) / 2)
    assert found["share"] == pytest.approx(0.4)
    counted = 3 + drawing.WARMUP
    assert fleets[0].steps == 8 * counted
    assert [source.drawn for source in sources] == [counted] * 2
