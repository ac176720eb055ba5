"""A file is written whole or not at all."""

import os
import resource
import stat

import pytest

from dsvnp import files
from dsvnp.files import sweep, write_atomically


@pytest.mark.parametrize(("data", "stored"), [("σ\n", "σ\n".encode()), (b"\0\xff", b"\0\xff")])
def test_text_and_bytes_replace_what_was_there(tmp_path, data, stored):
    path = tmp_path / "a.json"
    path.write_text("old")
    assert write_atomically(path, data) == path
    assert path.read_bytes() == stored
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        path = write_atomically(tmp_path / "a", "")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"cannot write it \(disk full\): '.*/a'"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_data_is_on_disk_before_the_file_has_its_name(tmp_path, monkeypatch):
    order, replace, fsync = [], os.replace, os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: order.append("fsync") or fsync(handle))
    monkeypatch.setattr(os, "replace", lambda *names: order.append("replace") or replace(*names))
    write_atomically(tmp_path / "a", "x")
    assert order == ["fsync", "replace"]


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match=r"File too large\): '.*/a'"):
            write_atomically(path, "x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_planted_link_is_neither_followed_nor_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "0")
    other = tmp_path / "other"
    other.write_text("precious")
    planted = tmp_path / ".writing-a-0"
    planted.symlink_to(other)
    with pytest.raises(OSError, match="File exists"):
        write_atomically(tmp_path / "a", "new")
    assert (other.read_text(), planted.is_symlink()) == ("precious", True)


def test_a_link_with_the_files_own_name_is_replaced_not_followed(tmp_path):
    other, path = tmp_path / "other", tmp_path / "a"
    other.write_text("precious")
    path.symlink_to(other)
    write_atomically(path, "new")
    assert (other.read_text(), path.read_text(), path.is_symlink()) == ("precious", "new", False)


def test_the_umask_is_never_set(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", None)  # it belongs to all threads
    assert write_atomically(tmp_path / "a", "x").read_text() == "x"


def test_a_name_of_any_length_can_be_written(tmp_path):
    assert write_atomically(tmp_path / ("a" * 250), "x").read_text() == "x"


def test_leftovers_are_swept_and_nothing_else(tmp_path):
    (tmp_path / ".writing-step-1").mkdir()
    (tmp_path / ".writing-step-1" / "file").write_text("x")
    (tmp_path / ".writing-a-0011aabb").write_text("x")
    (tmp_path / "precious").write_text("x")
    (tmp_path / ".removing-link").symlink_to(tmp_path / "precious")
    (tmp_path / ".writings").write_text("x")
    sweep(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".writings", "precious"]
    sweep(tmp_path / "absent")
