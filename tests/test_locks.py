"""A folder has one writer; the second is refused with who holds it, or waits."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from dsvnp.locks import FolderInUseError, folder_lock

HOLD = """
import sys, time
from pathlib import Path
from dsvnp.locks import folder_lock
with folder_lock(Path(sys.argv[1])):
    print("in", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds a folder."""
    folder = tmp_path / "run"
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert child.stdout.readline() == b"in\n"
    yield folder, child
    child.kill()
    child.wait()
    child.stdout.close()


def test_the_second_process_is_told_who_holds_it(holder):
    folder, child = holder
    with (
        pytest.raises(
            FolderInUseError, match=rf"run is in use by process {child.pid} on .+ since \d{{4}}-.*--wait"
        ),
        folder_lock(folder),
    ):
        pass


def test_the_lock_of_a_process_that_was_killed_is_taken_over(holder):
    folder, child = holder
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert (folder / ".lock").is_file()
    with folder_lock(folder):
        pass
    assert list(folder.iterdir()) == []


def test_waiting_ends_when_the_other_does(holder):
    folder, child = holder
    said = []
    threading.Timer(0.4, child.kill).start()
    with folder_lock(folder, wait=True, say=said.append):
        assert child.wait(10) is not None
    assert len(said) == 1
    assert f"process {child.pid}" in said[0]


def test_threads_exclude_each_other_and_none_gets_in_twice(tmp_path):
    inside, most = [], []

    def work():
        with folder_lock(tmp_path, wait=True, say=lambda _: None):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.005)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most == [1] * 6
    assert list(tmp_path.iterdir()) == []


def test_an_error_inside_gives_it_back(tmp_path):
    with pytest.raises(KeyError), folder_lock(tmp_path):
        raise KeyError
    with folder_lock(tmp_path):
        pass


def test_a_planted_link_is_refused(tmp_path):
    other = tmp_path / "other"
    other.write_text("precious")
    (tmp_path / ".lock").symlink_to(other)
    with pytest.raises(OSError, match=r"\.lock"), folder_lock(tmp_path):
        pass
    assert other.read_text() == "precious"


def test_where_files_cannot_be_locked_a_warning_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("dsvnp.locks.fcntl", None)
    with pytest.warns(UserWarning, match="run one process at a time there"), folder_lock(tmp_path):
        pass
