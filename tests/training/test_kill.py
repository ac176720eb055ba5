"""A training process killed at twenty random moments ends where an undisturbed one ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_fleet import bits, subprocess_environment

from dsvnp.training import checkpoint as checkpoints

pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder with an undisturbed run and one that was killed twenty times, and what happened."""
    folder = tmp_path_factory.mktemp("kill")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("kill_script.py")), str(folder)],
        env=subprocess_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    happened = json.loads(done.stdout)
    print(f"{happened['inside_a_write']} of 20 kills fell inside a write; steps reached: {happened['steps']}")
    return folder, happened


def log_of(path: Path) -> list[dict]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "steps_per_second"} for line in lines]


def test_twenty_kills_hit_and_some_fell_inside_a_write(killed):
    _, happened = killed
    assert happened["ends"] == ["killed"] * 20
    assert happened["inside_a_write"] >= 1
    assert happened["steps"] == sorted(happened["steps"])  # nothing that was saved was lost,
    assert len(set(happened["steps"])) > 3  # and training did go on in between
    assert happened["last"] == 0


def test_the_final_weights_are_those_of_the_undisturbed_run(killed):
    folder, _ = killed
    last = {
        name: checkpoints.load(checkpoints.list_checkpoints(folder / name)[-1])
        for name in ("undisturbed", "broken")
    }
    assert last["broken"].step == last["undisturbed"].step == 150
    assert last["broken"].generators == last["undisturbed"].generators
    for name, value in last["undisturbed"].tensors.items():
        assert torch.equal(bits(last["broken"].tensors[name]), bits(value)), name


def test_the_log_is_that_of_the_undisturbed_run(killed):
    folder, _ = killed
    assert log_of(folder / "broken" / "log.jsonl") == log_of(folder / "undisturbed" / "log.jsonl")


def test_no_leftovers_stay(killed):
    folder, _ = killed
    assert not [path.name for path in (folder / "broken").iterdir() if path.name.startswith(".")]
