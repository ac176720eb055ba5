"""The scripts in `benchmarks`: that they run, and that what they add up is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
