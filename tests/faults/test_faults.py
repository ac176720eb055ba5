"""A short version of the standing attack; `python -m tests.faults --every 1 --minutes 30` is the long one."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from dsvnp import files
from tests.faults import attacks, readers, shares
from tests.faults.attacks import ATTACKS
from tests.faults.formats import formats
from tests.faults.injection import KINDS, count, fault
from tests.faults.works import WORK


def test_faults_at_some_file_operations_leave_what_an_undisturbed_run_leaves(tmp_path):
    """In a process of its own: the attack forks."""
    report = tmp_path / "report.json"
    words = ["--every", "60", "--minutes", "4", "--seed", "1", "--jobs", "2", "--report", str(report)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = json.loads(report.read_text())
    assert made["fallen"] == []
    assert made["attacks"].keys() == {f"{kind} in {work}" for kind in KINDS for work in WORK} | ATTACKS.keys()


def test_some_of_a_million_mutated_inputs_are_read_or_refused(tmp_path):
    kinds = formats(tmp_path)
    fallen = {n: readers.attack(kinds[n % len(kinds)], n, 1, tmp_path) for n in range(100 * len(kinds))}
    assert [wrong for wrong in fallen.items() if wrong[1] and not wrong[1].endswith(" s")] == []


# --- the attack itself: it must notice what is wrong ---


def test_each_operation_is_counted_and_the_layer_is_put_back(tmp_path):
    before = [getattr(files, name) for name in files.OPERATIONS]
    assert count(lambda: files.write_atomically(tmp_path / "a", "x")) == 4  # create, write, flush, rename
    assert [getattr(files, name) for name in files.OPERATIONS] == before


@pytest.mark.parametrize("number", range(3))
def test_a_full_disk_is_full(tmp_path, number):
    path = files.write_atomically(tmp_path / "a", "old")
    with pytest.raises(OSError, match="No space left on device"), fault("full", number):
        files.write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def some(number: int) -> tuple[str, str]:
    """An attack that hangs, dies, or falls, by its number."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 4:
        time.sleep(60)
    return f"attack {number % 2}", "taken" if number == 5 else ""


def test_a_process_that_dies_or_hangs_is_noticed_and_the_others_continue(monkeypatch):
    monkeypatch.setattr(shares, "MOST_BYTES", 2**40)  # a fork has all that the tests before it have taken
    end = time.monotonic() + 60
    found = list(shares.spread(lambda: some, range(9), jobs=2, end=end, patience=2))
    assert sorted(outcome.number for outcome in found) == list(range(9))
    wrong = {outcome.number: outcome.wrong for outcome in found if outcome.wrong}
    assert wrong == {3: "the process ended with -9", 4: "no answer in 2 s", 5: "taken"}


def test_no_attack_begins_after_the_end():
    assert list(shares.spread(lambda: some, range(2), jobs=1, end=time.monotonic() - 1)) == []


def test_a_flip_that_is_taken_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "digest", lambda path: "")
    monkeypatch.setattr(files, "digest_of_record", lambda record: "")
    chance = random.Random(0)
    assert any(attacks.damaged_checkpoint(tmp_path, chance) for _ in range(20))
