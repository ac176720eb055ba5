"""Checkpoints: whole or refused by name, never pickled."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError, safe_open
from small_fleet import bits, same

from dsvnp import files
from dsvnp.training import checkpoint as checkpoints
from dsvnp.training.checkpoint import Checkpoint, CheckpointError, list_checkpoints, load, load_latest, save

RUN = {"model": "np", "seeds": [1, 2], "settings": {"learning_rate": 0.1, "schedule": {"kind": "constant"}}}


def content(step: int = 3) -> Checkpoint:
    g = torch.Generator().manual_seed(step)
    tensors = {
        "params": torch.randn(2, 5, generator=g),
        "doubles": torch.randn(2, 3, generator=g, dtype=torch.float64) * 1e-300,
        "odd": torch.tensor([float("nan"), -0.0, float("inf")]),
        "step": torch.tensor(step),
        "active": torch.tensor([True, False]),
        "view": torch.arange(12).reshape(3, 4)[:, 1:3],
    }
    return Checkpoint(tensors, RUN, step, ["00ff", "abcd"], {"torch": "2.13", "threads": 1})


@pytest.fixture
def folder(tmp_path):
    """Two good checkpoints, of steps 3 and 6."""
    for step in (3, 6):
        save(tmp_path / "run", content(step), keep=5)
    return tmp_path / "run"


def newest(folder: Path) -> Path:
    return list_checkpoints(folder)[-1]


def edit_json(path: Path, **changes) -> None:
    """Change a record as someone would who knows the format, checksum and all."""
    record = json.loads((path / "run.json").read_text()) | changes
    checksums = record.pop("sha256")
    record["sha256"] = checksums | {"run.json": files.digest_of_record(record)}
    (path / "run.json").write_text(json.dumps(record))


# --- what is written ---


def test_what_is_saved_is_loaded(tmp_path):
    path = save(tmp_path / "a" / "b", content(), keep=1)
    found = load(path, RUN)
    assert same(found.tensors, {name: value.contiguous() for name, value in content().tensors.items()})
    assert replace(found, tensors={}) == replace(content(), tensors={})


def test_the_newest_is_found(folder):
    assert load_latest(folder, RUN).step == 6
    assert [path.name for path in list_checkpoints(folder)] == ["step-000000003", "step-000000006"]


def test_an_empty_or_missing_folder_has_none(tmp_path):
    assert load_latest(tmp_path, RUN) is None
    assert load_latest(tmp_path / "nowhere", RUN) is None


def test_a_checkpoint_is_safetensors_and_json_and_nothing_else(folder):
    assert {path.name for path in folder.rglob("*") if path.is_file()} == {"state.safetensors", "run.json"}
    for path in list_checkpoints(folder):
        assert json.loads((path / "run.json").read_text())["format"] == "dsvnp-checkpoint"
        with safe_open(path / "state.safetensors", "pt") as file:
            assert set(file.keys()) == set(content().tensors)


def test_only_the_last_ones_are_kept(tmp_path):
    for step in range(1, 6):
        save(tmp_path, content(step), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000004", "step-000000005"]


def test_the_same_step_again_takes_the_place_of_the_first(folder):
    other = replace(content(6), generators=["11", "22"])
    save(folder, other, keep=5)
    assert load_latest(folder, RUN).generators == ["11", "22"]
    assert [path.name for path in list_checkpoints(folder)] == ["step-000000003", "step-000000006"]
    assert len(list(folder.iterdir())) == 2


def test_files_reach_the_disk_before_the_name_and_the_name_before_old_ones_go(tmp_path, monkeypatch):
    save(tmp_path, content(1), keep=1)
    events = []
    real_fsync, real_rename = os.fsync, os.replace

    def fsync(descriptor):
        events.append(("flush", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        real_fsync(descriptor)

    def rename(path, target):
        events.append(("rename", path.name, target.name))
        return real_rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    save(tmp_path, content(2), keep=1)
    assert set(events[:3]) == {
        ("flush", "state.safetensors"),
        ("flush", "run.json"),
        ("flush", ".writing-step-000000002"),
    }
    assert events[2] == ("flush", ".writing-step-000000002")
    assert events[3:] == [
        ("rename", ".writing-step-000000002", "step-000000002"),
        ("flush", tmp_path.name),
        ("rename", "step-000000001", ".removing-step-000000001"),
    ]


def test_the_environment_is_what_bits_depend_on():
    found = checkpoints.environment(torch.device("cpu"))
    assert found == {"torch": torch.__version__, "device": "cpu", "threads": torch.get_num_threads()}


def test_an_error_of_the_disk_names_the_checkpoint_and_others_stay_as_they_are(tmp_path, monkeypatch):
    def fail(error, *args):
        raise error

    for error, kind in ((OSError(28, "full"), OSError), (KeyError("bug"), KeyError)):
        monkeypatch.setattr(files, "write_new", lambda *args, error=error: fail(error))
        with pytest.raises(kind) as caught:
            save(tmp_path, content(), keep=1)
        if kind is OSError:
            assert caught.value.errno == 28
            assert caught.value.filename == str(tmp_path / "step-000000003")
        assert list(tmp_path.iterdir()) == []


def test_what_was_put_aside_stays_aside_where_there_is_a_newer_one(folder):
    (folder / "step-000000003").rename(folder / ".removing-step-000000003")
    assert load_latest(folder, RUN).step == 6
    assert sorted(path.name for path in folder.iterdir()) == [".removing-step-000000003", "step-000000006"]


def test_no_file_stays_open(tmp_path):
    before = os.listdir("/proc/self/fd")
    save(tmp_path, content(), keep=1)
    load_latest(tmp_path, RUN)
    assert os.listdir("/proc/self/fd") == before


# --- a process that dies while it writes ---


@pytest.mark.parametrize("error", [KeyboardInterrupt, SafetensorError])
@pytest.mark.parametrize("where", ["serialize", "digest"])
def test_a_write_that_breaks_off_leaves_the_last_one_alone(folder, monkeypatch, where, error):
    def die(*args):
        raise error("no space")

    with monkeypatch.context() as patch:
        patch.setattr(files if where == "digest" else checkpoints, where, die)
        with pytest.raises((KeyboardInterrupt, OSError)):
            save(folder, content(9), keep=2)
    assert not list(folder.glob(".*"))
    (folder / ".writing-step-000000009").mkdir()  # as a kill leaves it
    assert load_latest(folder, RUN).step == 6  # ignored,
    save(folder, content(12), keep=2)
    assert sorted(path.name for path in folder.iterdir()) == [
        "step-000000006",
        "step-000000012",
    ]  # and cleaned up


def test_a_checkpoint_put_aside_for_another_of_its_step_is_found_again(folder):
    for name in ("step-000000003", "step-000000006"):  # killed between two renames, with keep=1
        (folder / name).rename(folder / f".removing-{name}")
    assert load_latest(folder, RUN).step == 6
    save(folder, content(9), keep=1)
    assert [path.name for path in folder.iterdir()] == ["step-000000009"]


def test_a_checkpoint_put_aside_stays_aside_where_the_new_one_of_its_step_is_there(folder):
    shutil.copytree(newest(folder), folder / ".removing-step-000000006")
    assert load_latest(folder, RUN).step == 6
    assert [path.name for path in list_checkpoints(folder)] == ["step-000000003", "step-000000006"]


def test_a_planted_link_is_not_followed(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    (folder / ".writing-step-000000009").symlink_to(elsewhere)
    save(folder, content(9), keep=2)
    assert [path.name for path in elsewhere.iterdir()] == ["precious"]
    assert (folder / "step-000000009").is_dir()
    assert not (folder / "step-000000009").is_symlink()


def test_a_removal_that_broke_off_is_finished(folder):
    half = folder / ".removing-step-000000003"
    shutil.copytree(folder / "step-000000003", half)
    (half / "run.json").unlink()
    assert load_latest(folder, RUN).step == 6
    save(folder, content(9), keep=2)  # removes step 3 under the very name that is taken
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000006", "step-000000009"]


# --- what is refused ---


def assert_refused(folder: Path, message: str, run=RUN) -> None:
    """The newest is refused by name, and the one before is offered."""
    with pytest.raises(CheckpointError) as caught:
        load_latest(folder, run)
    text = str(caught.value)
    assert text.startswith(f"{folder / 'step-000000006'}: ")
    assert message in text
    assert text.endswith(f"; the last good one is {folder / 'step-000000003'}")


@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_a_truncated_state_is_refused(folder, size):
    path = newest(folder) / "state.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    assert_refused(folder, "damaged: state.safetensors does not have the checksum")


@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_a_truncated_record_is_refused(folder, size):
    path = newest(folder) / "run.json"
    path.write_bytes(path.read_bytes()[:size])
    assert_refused(folder, "damaged: run.json is not valid JSON")


def test_a_flipped_bit_in_the_state_is_refused(folder):
    path = newest(folder) / "state.safetensors"
    whole = path.read_bytes()
    for place in range(0, len(whole), 41):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert_refused(folder, "damaged: state.safetensors does not have the checksum that run.json gives")
    path.write_bytes(whole)
    assert load_latest(folder, RUN).step == 6


def test_a_flipped_bit_anywhere_in_the_record_is_refused(folder):
    path = newest(folder) / "run.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match="step-000000006"):
            load(newest(folder), RUN)
    path.write_bytes(whole)
    assert load_latest(folder, RUN).step == 6


def test_a_record_without_checksums_is_refused(folder):
    record = json.loads((newest(folder) / "run.json").read_text())
    del record["sha256"]
    (newest(folder) / "run.json").write_text(json.dumps(record))
    assert_refused(folder, "damaged: run.json does not have the checksum that it gives")


def test_a_state_that_is_no_safetensors_is_refused(folder):
    path = newest(folder)
    (path / "state.safetensors").write_bytes(b"\x80\x04K\x01.")  # a pickle
    record = json.loads((path / "run.json").read_text())
    checksums = record["sha256"] | {"state.safetensors": files.digest(path / "state.safetensors")}
    (path / "run.json").write_text(json.dumps(record | {"sha256": checksums}))
    assert_refused(folder, "damaged: state.safetensors: ")


@pytest.mark.parametrize("record", ['{"format": "other"}', "{}", "[1]", "3", '"dsvnp-checkpoint"'])
def test_a_foreign_record_is_refused(folder, record):
    (newest(folder) / "run.json").write_text(record)
    assert_refused(folder, "foreign: run.json does not say format 'dsvnp-checkpoint'")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 5000, "9" * 5000])
def test_a_record_that_json_cannot_take_is_refused(folder, text):
    (newest(folder) / "run.json").write_text(text)
    assert_refused(folder, "damaged: run.json is not valid JSON")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("run", [], "has run = a list of 0, not settings by name"),
        ("step", None, "has step = None, not a whole number"),
        ("generators", [1], "has generators[0] = 1, not a text"),
        ("environment", "cpu", "has environment = 'cpu', not settings by name"),
    ],
)
def test_a_record_of_another_form_is_refused_whoever_signed_it(folder, name, value, reason):
    edit_json(newest(folder), **{name: value})
    assert_refused(folder, f"damaged: run.json {reason}")


@pytest.mark.parametrize("missing", ["run.json", "state.safetensors"])
def test_a_folder_that_is_no_checkpoint_is_refused(folder, missing):
    (newest(folder) / missing).unlink()
    assert_refused(folder, "not a checkpoint: it must hold run.json and state.safetensors")


def test_a_newer_format_is_refused(folder):
    edit_json(newest(folder), version=2)
    assert_refused(folder, "written in version 2 of the format, this reads 1")


def test_another_run_is_refused_with_what_differs(folder):
    edit_json(newest(folder), run=RUN | {"seeds": [1, 3]})
    assert_refused(folder, "of another run: seeds is [1, 3] there but [1, 2] here")


def test_a_difference_deep_inside_is_named(folder):
    run = RUN | {"settings": {"learning_rate": 0.1, "schedule": {"kind": "cosine"}}}
    with pytest.raises(
        CheckpointError, match=r"settings.schedule.kind is 'constant' there but 'cosine' here"
    ):
        load_latest(folder, run)


@pytest.mark.parametrize(
    "run", [RUN | {"new": 1}, {name: value for name, value in RUN.items() if name != "model"}]
)
def test_a_setting_that_only_one_has_is_a_difference(folder, run):
    with pytest.raises(
        CheckpointError, match=r"of another run: (new is None there but 1|model is 'np' there but None)"
    ):
        load_latest(folder, run)


def test_tuples_and_lists_are_the_same_to_json(folder):
    assert load_latest(folder, RUN | {"seeds": (1, 2)}).step == 6


def test_a_checkpoint_can_be_read_without_knowing_its_run(folder):
    assert load(newest(folder)).run == RUN


def test_a_damaged_one_is_not_offered(folder):
    for path in list_checkpoints(folder):
        (path / "state.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"there is no other good one in its folder$"):
        load_latest(folder, RUN)


def test_nan_keeps_its_bits(folder):
    assert torch.equal(bits(load_latest(folder, RUN).tensors["odd"]), bits(content(6).tensors["odd"]))
