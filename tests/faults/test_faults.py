"""A short version of the standing attack; `python -m tests.faults --every 1 --minutes 30` is the long one."""

import json
import os
import random
import subprocess
import sys

import pytest

from dsvnp import files
from tests.faults import attacks, readers
from tests.faults.injection import count, fault


def test_faults_at_some_file_operations_leave_what_an_undisturbed_run_leaves(tmp_path):
    """In a process of its own: the attack forks."""
    report = tmp_path / "report.json"
    words = ["--every", "13", "--minutes", "0.05", "--seed", "1", "--report", str(report)]
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
    assert {f"{kind} in {work}" for kind in ("kill", "full", "signal") for work in attacks.WORK} <= made[
        "attacks"
    ].keys()


def test_some_of_a_million_mutated_inputs_are_read_or_refused(tmp_path):
    kinds = readers.formats(tmp_path)
    fallen = {n: readers.attack(kinds[n % len(kinds)], n, 1, tmp_path) for n in range(25 * len(kinds))}
    assert [wrong for wrong in fallen.items() if wrong[1] and not wrong[1].endswith(" s")] == []


@pytest.mark.parametrize("attack", [attacks.damaged_checkpoint, attacks.damaged_record])
def test_damage_is_refused_in_one_line(attack, tmp_path):
    chance = random.Random(0)
    times = 100 if attack is attacks.damaged_checkpoint else 20
    assert [wrong for _ in range(times) if (wrong := attack(tmp_path, chance))] == []


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


def test_a_flip_that_is_taken_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "digest", lambda path: "")
    monkeypatch.setattr(files, "digest_of_record", lambda record: "")
    chance = random.Random(0)
    assert any(attacks.damaged_checkpoint(tmp_path, chance) for _ in range(20))
