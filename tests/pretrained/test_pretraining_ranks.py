"""Two processes of `torchrun` pretrain what one does, but for rounding; where one dies the other stops in a line."""

import json
import time

import pytest
import torch

from dsvnp.cli import app
from dsvnp.pretrained import load_pretrained, recipes
from dsvnp.training import checkpoint as checkpoints
from tests.faults.ranks import two
from tests.faults.works import tiny

pytestmark = pytest.mark.xdist_group("processes")
PROGRAM = (
    "from dsvnp.cli import main; from dsvnp.pretrained import recipes; from tests.faults.works import tiny; "
    "recipes.RECIPES['curves'] = lambda: tiny({}); main()"
)


def both(out, steps, batch_size=2):
    words = ["pretrain", "curves", "--device", "cpu", "--steps", str(steps), "--out", str(out)]
    return two(*words, program=("-c", PROGRAM.format(batch_size)))


@pytest.fixture
def alone(monkeypatch):
    """Pretrain in this process."""
    monkeypatch.setitem(recipes.RECIPES, "curves", tiny)

    def run(out, steps):
        words = ["pretrain", "curves", "--device", "cpu", "--steps", str(steps), "--out", str(out)]
        app(words, standalone_mode=False)

    return run


def assert_alike(left, right):
    """The last checkpoint but for the rounding of sums, the card but for the weights' checksum, and the log's steps."""
    a, b = (checkpoints.load(checkpoints.list_checkpoints(out / "checkpoints")[-1]) for out in (left, right))
    assert (a.step, a.run, a.generators) == (b.step, b.run, b.generators)
    for name, value in a.tensors.items():
        torch.testing.assert_close(value, b.tensors[name], rtol=1e-3, atol=1e-5, equal_nan=True, msg=name)
    cards = [json.loads((out / "curves.json").read_text()) | {"sha256": ""} for out in (left, right)]
    assert cards[0] == cards[1]
    logs = [(out / "log.jsonl").read_text().splitlines() for out in (left, right)]
    steps = [[json.loads(line)["step"] for line in log] for log in logs]
    assert steps[0] == steps[1]
    assert load_pretrained("curves", left).name == "np"
    assert not list(left.glob(".*"))


def test_two_processes_pretrain_what_one_does(tmp_path, alone):
    processes = both(tmp_path / "two", 8)
    said = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert "curves: step 8" in said[0][0]
    assert said[1][0] == ""  # one of them writes
    alone(tmp_path / "one", 8)
    assert_alike(tmp_path / "two", tmp_path / "one")


def test_a_batch_that_cannot_be_shared_out_evenly_is_refused_in_a_line(tmp_path):
    processes = both(tmp_path, 8, batch_size=3)
    said = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [2, 2], said
    for _, errors in said:
        assert errors.strip().splitlines()[-1].startswith("dsvnp: a batch of 3 tasks cannot be split over 2")
        assert "Traceback" not in errors


def test_where_one_of_two_is_killed_the_other_stops_in_a_line_and_one_alone_resumes(tmp_path, alone):
    out, steps = tmp_path / "out", 120
    processes = both(out, steps)
    end = time.monotonic() + 240
    while not any(out.glob("checkpoints/step-*")):
        assert all(process.poll() is None for process in processes), processes[0].communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
    processes[1].kill()
    said = [process.communicate(timeout=240) for process in processes]
    assert processes[0].returncode == 2, said
    lines = said[0][1].strip().splitlines()
    assert [line for line in lines if line.startswith("dsvnp: another process of this run ended")] == lines[
        -1:
    ]
    assert "Traceback" not in said[0][1]
    alone(out, steps)
    alone(tmp_path / "undisturbed", steps)
    assert_alike(out, tmp_path / "undisturbed")
