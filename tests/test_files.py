"""A file is written whole or not at all."""

import os
import stat

import pytest

from dsvnp.files import write_atomically


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
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_data_is_on_disk_before_the_file_has_its_name(tmp_path, monkeypatch):
    order, replace, fsync = [], os.replace, os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: order.append("fsync") or fsync(handle))
    monkeypatch.setattr(os, "replace", lambda *names: order.append("replace") or replace(*names))
    write_atomically(tmp_path / "a", "x")
    assert order == ["fsync", "replace"]
