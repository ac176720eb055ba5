"""Two processes of `torchrun` reproduce what one does, to the byte; one of them writes."""

import os
import socket
import subprocess
import sys

import pytest

from tests.faults.counting import contents

pytestmark = pytest.mark.xdist_group("processes")
WORDS = ["reproduce", "toy", "--preset", "smoke", "--models", "dsvnp", "--device", "cpu"]
WORDS += ["--set", "num_steps=4", "--set", "gp_steps=2", "--set", "num_global=2", "--set", "decoder=[8]"]


def start(out, **ranks: str) -> subprocess.Popen:
    path = os.pathsep.join(filter(None, sys.path))
    environment = (
        os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} | ranks
    )
    words = [sys.executable, "-m", "dsvnp", *WORDS, "--out", str(out)]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_leave_what_one_leaves(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [start(tmp_path / "two", **meeting, RANK=str(i), LOCAL_RANK=str(i)) for i in range(2)]
    said = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert "Results are in" in said[0][0]
    assert said[1][0] == ""
    one = start(tmp_path / "one")
    assert one.wait(240) == 0, one.communicate()
    one.communicate()
    left, right = contents(tmp_path / "two"), contents(tmp_path / "one")
    assert left.keys() == right.keys()
    for name in ("results.json", "functions.svg", "units.json"):
        assert left[name] == right[name], name
