"""Two processes of `torchrun` reproduce what one does, to the byte; one of them writes."""

import time

import pytest

from dsvnp.cli import app
from dsvnp.paper.records import UNITS_FILE
from tests.faults.counting import contents
from tests.faults.ranks import two

pytestmark = pytest.mark.xdist_group("processes")
WORDS = ["reproduce", "toy", "--preset", "smoke", "--models", "dsvnp", "--device", "cpu"]
WORDS += ["--set", "num_steps=4", "--set", "gp_steps=2", "--set", "num_global=2", "--set", "decoder=[8]"]


def one(*words) -> None:
    app(list(words), standalone_mode=False)


def test_two_processes_leave_what_one_leaves(tmp_path):
    processes = two(*WORDS, "--out", str(tmp_path / "two"))
    said = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert "Results are in" in said[0][0]
    assert said[1][0] == ""
    one(*WORDS, "--out", str(tmp_path / "one"))
    left, right = contents(tmp_path / "two"), contents(tmp_path / "one")
    assert left.keys() == right.keys()
    for name in ("results.json", "functions.svg", UNITS_FILE):
        assert left[name] == right[name], name


def test_where_one_of_two_is_killed_the_other_stops_in_a_line_and_one_alone_resumes(tmp_path):
    words = [
        *WORDS,
        "--seeds",
        "3",
        "--set",
        "num_steps=120",
        "--out",
    ]  # a share of one replica, another of two
    out = tmp_path / "out"
    processes = two(*words, str(out))
    end = time.monotonic() + 240
    while not any(out.glob("checkpoints/*/step-*")):
        assert all(process.poll() is None for process in processes), processes[0].communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    processes[1].kill()
    said = [process.communicate(timeout=240) for process in processes]
    assert processes[0].returncode == 2, said
    lines = said[0][1].strip().splitlines()
    assert [line for line in lines if line.startswith("dsvnp: another process of this run ended")] == lines[
        -1:
    ]
    assert "Traceback" not in said[0][1]
    one(*words, str(out))
    one(*words, str(tmp_path / "undisturbed"))
    left, right = contents(out), contents(tmp_path / "undisturbed")
    for name in ("results.json", "functions.svg", UNITS_FILE):
        assert left[name] == right[name], name
