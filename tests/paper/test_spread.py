"""Units on the workers of a Dask cluster: the same files as one process leaves, whatever happens to a worker."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dsvnp.cli import app
from dsvnp.paper.records import UNITS_FILE
from dsvnp.paper.runner import measured, run
from dsvnp.paper.spread import joined_cluster
from tests.faults.counting import Counting, contents, place

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def dsvnp(*words) -> subprocess.Popen:
    path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        [sys.executable, "-m", "dsvnp", *map(str, words)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


WORDS = ["reproduce", "toy", "--preset", "smoke", "--models", "cnp,dsvnp", "--seeds", "2", "--device", "cpu"]
WORDS += ["--set", "seeds_at_once=1", "--set", "num_steps=100", "--set", "gp_steps=2"]
WORDS += ["--set", "num_global=2", "--set", "decoder=[8]"]


def kill_a_worker(out: Path, process: subprocess.Popen) -> None:
    """Wait for a checkpoint, then kill the process that holds its folder's lock."""
    end = time.monotonic() + 240
    while time.monotonic() < end:
        for lock in out.glob("checkpoints/*/.lock"):
            if any(lock.parent.glob("step-*")) and (text := lock.read_text()):
                os.kill(json.loads(text)["pid"], signal.SIGKILL)
                return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    raise AssertionError("no unit began")


def test_workers_of_which_one_is_killed_leave_what_one_process_leaves(tmp_path):
    spread = dsvnp(*WORDS, "--workers", 2, "--out", tmp_path / "spread")
    try:
        kill_a_worker(tmp_path / "spread", spread)
        said, _ = spread.communicate(timeout=300)
    finally:
        spread.kill()
    assert spread.returncode == 0, said
    assert "6 of 6 units" in said
    app([*WORDS, "--out", str(tmp_path / "alone")], standalone_mode=False)
    left, right = contents(tmp_path / "spread"), contents(tmp_path / "alone")
    assert {name for name in left if "log" not in name} == {name for name in right if "log" not in name}
    for name in ("results.json", UNITS_FILE, "functions.svg"):
        assert left[name] == right[name], name


def test_units_are_in_the_order_of_one_run_whichever_ends_first(tmp_path):
    class Backwards:
        """A cluster whose last unit ends first."""

        def __call__(self, experiment, units, place):
            for number in reversed(range(len(units))):
                yield number, measured(experiment, units[number], place)

    run(Counting(), place(tmp_path / "alone"))
    run(Counting(), replace(place(tmp_path / "spread"), spread=Backwards()))
    assert contents(tmp_path / "spread") == contents(tmp_path / "alone")


def test_what_cannot_be_spread_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="pass one of them"), joined_cluster("tcp://127.0.0.1:1", 2, "cpu"):
        pass
    monkeypatch.setattr("dsvnp.paper.spread.WAIT", 0.5)
    with (
        pytest.raises(OSError, match=r"tcp://127\.0\.0\.1:1"),
        joined_cluster("tcp://127.0.0.1:1", None, "cpu"),
    ):
        pass
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="torchrun and Dask"), joined_cluster(None, 2, "cpu"):
        pass
