"""Saved estimators that a disk, a kill or a person has damaged: the old one, the new one, or one line that says why."""

import functools
import json
import random
from contextlib import suppress

import pytest
import torch
from fitted import classifier, regressor, table
from safetensors.torch import load, save

from dsvnp import NPClassifier, NPRegressor, files
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.saved import saving
from tests.faults.attacks import damage
from tests.faults.injection import count, fault

NAMES = ("estimator.json", "tensors.safetensors")


def signed(folder, change_record=lambda record: None, change_tensors=lambda tensors: None):
    """Change an estimator as someone would who knows the format, checksums and all."""
    record, tensors = json.loads((folder / NAMES[0]).read_text()), load((folder / NAMES[1]).read_bytes())
    change_record(record)
    change_tensors(tensors)
    (folder / NAMES[1]).write_bytes(data := save(tensors))
    record["sha256"] = {NAMES[1]: files.digest(data)}
    record["sha256"][NAMES[0]] = files.digest_of_record(record)
    (folder / NAMES[0]).write_text(json.dumps(record))


@pytest.mark.parametrize("name", NAMES)
def test_every_flip_and_truncation_is_refused_by_name(tmp_path, name):
    file = classifier().save(tmp_path / "model") / name
    whole, chance = file.read_bytes(), random.Random(name)
    for _ in range(60):
        file.write_bytes(damaged := damage(whole, chance))
        if name == NAMES[0] and damaged.strip() == whole.strip():
            continue  # white space at the end
        with pytest.raises(ValueError, match=rf"{name}") as refusal:
            NPClassifier.load(tmp_path / "model")
        assert "\n" not in str(refusal.value)


HOSTILE = {
    "wide": lambda record: record["recipe"].update(width=200_000),
    "deep": lambda record: record["recipe"].update(encoder_layers=10**9),
    "draws": lambda record: record["params"].update(n_draws=10**12),
    "output": lambda record: record["params"].update(output="sale"),
    "setting": lambda record: record["params"].update(evil=1),
    "kind": lambda record: record.update(kind="oracle"),
    "names": lambda record: record.update(feature_names_in=["a"]),
    "filling": lambda record: record["filling"].update(medians=3),
    "replicas": lambda record: record.update(num_replicas=10**15),
    "version": lambda record: record.update(version=None),
    "targets": lambda record: record.update(target_names=[1]),
    "lacking": lambda record: record.pop("recipe"),
    "medians": lambda record: record["filling"].update(medians=[None] * 3),
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_record_is_one_line_and_takes_no_memory(tmp_path, how, monkeypatch):
    path = regressor(1).save(tmp_path / "model")
    signed(path, HOSTILE[how])
    with pytest.raises(ValueError, match=str(path)) as refusal:
        NPRegressor.load(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["[]", "null", "3", "[" * 100_000, '{"format": {}}', "\ud800", ""])
def test_what_is_no_record_is_one_line(tmp_path, text):
    path = regressor(1).save(tmp_path / "model")
    (path / NAMES[0]).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ValueError, match=r"estimator\.json") as refusal:
        NPRegressor.load(path)
    assert "\n" not in str(refusal.value)


def narrow(tensors):
    tensors["context.x"] = tensors["context.x"][:, :1].clone()


def spoilt(name, tensors):
    tensors[name] = torch.full_like(tensors[name], torch.nan)


def of_dtype(name, dtype, tensors):
    tensors[name] = tensors[name].to(dtype)


BIAS = "replica.0.model.decoder.first.bias"


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float16, torch.int64, torch.bool])
@pytest.mark.parametrize("name", [BIAS, "replica.0.inputs.centre", "context.x", "context.y", "calibration"])
def test_a_tensor_of_another_dtype_is_refused_by_name_on_load(tmp_path, name, dtype):
    """Inputs 501451 and 742211 of the standing attack: complex tensors, at which a prediction fell."""
    path = regressor(1).save(tmp_path / "model")
    signed(path, change_tensors=functools.partial(of_dtype, name, dtype))
    reason = rf"{NAMES[1]} is damaged: {name} is of {dtype}, not of torch.float64; save"
    with pytest.raises(ValueError, match=reason) as refusal:
        NPRegressor.load(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda tensors: tensors.pop(BIAS), f"{BIAS} is not there"),
        (lambda tensors: tensors.update({BIAS: torch.zeros(1).double()}), rf"{BIAS} has the shape \(1,\)"),
        (narrow, r"context.x has the shape \(\d+, 1\), not \(\d+, 3\)"),
        (functools.partial(spoilt, "context.x"), "context.x has values that are not finite"),
        (
            functools.partial(spoilt, "replica.0.outputs.scale"),
            "outputs.scale has values that are not finite",
        ),
        (lambda tensors: tensors.pop("replica.1.inputs.centre"), "replica.1.inputs.centre"),
        (lambda tensors: tensors.update(prior=tensors["prior"].float()), "prior is of torch.float32"),
    ],
)
def test_tensors_that_do_not_fit_or_are_not_finite_are_refused(tmp_path, change, reason):
    path = regressor(2).save(tmp_path / "model")
    signed(path, change_tensors=change)
    with pytest.raises(ValueError, match=f"is damaged: .*{reason}"):
        NPRegressor.load(path)


def test_a_prediction_that_is_not_finite_is_refused(tmp_path):
    path = regressor(1).save(tmp_path / "model")
    signed(path, change_tensors=lambda tensors: tensors["replica.0.outputs.scale"].fill_(1e308))
    with pytest.raises(ValueError, match="prediction of row 0 is not finite"):
        NPRegressor.load(path).predict(table()[0][:3])


@pytest.mark.parametrize("version", [4, 6])
def test_a_file_of_another_format_is_refused(tmp_path, version):
    path = regressor(1).save(tmp_path / "model")
    signed(path, lambda record: record.update(version=version))
    with pytest.raises(ValueError, match=f"in format {version}; .* reads format 5"):
        NPRegressor.load(path)


def test_the_format_is_the_fifth_and_from_it_on_a_record_has_checksums(tmp_path):
    path = regressor(1).save(tmp_path / "model")
    record = json.loads((path / NAMES[0]).read_text())
    assert record["version"] == 5
    del record["sha256"]
    (path / NAMES[0]).write_text(json.dumps(record))
    with pytest.raises(ValueError, match="is damaged: it lacks its checksums"):
        NPRegressor.load(path)


def test_a_record_larger_than_any_is_refused_before_it_is_read(tmp_path, monkeypatch):
    assert saving.LARGEST_RECORD == 67_108_864
    path = regressor(1).save(tmp_path / "model")
    size = (path / NAMES[0]).stat().st_size
    monkeypatch.setattr(saving, "LARGEST_RECORD", size)
    NPRegressor.load(path)
    monkeypatch.setattr(saving, "LARGEST_RECORD", size - 1)
    with pytest.raises(ValueError, match=f"has {size} bytes, more than any such file"):
        NPRegressor.load(path)


@pytest.mark.parametrize(
    "there", [[], [".lock"], [".next-tensors.safetensors"], [".writing-x", ".removing-y"]]
)
def test_a_folder_with_nothing_but_leftovers_may_hold_an_estimator(tmp_path, there):
    for name in there:
        (tmp_path / name).write_text("")
    assert saving.may_hold(tmp_path)
    assert saving.may_hold(tmp_path / "nothing")
    (tmp_path / "mine").write_text("")
    assert not saving.may_hold(tmp_path)
    assert not saving.may_hold(tmp_path / "mine")


class Killed(BaseException):
    """Stands for the end of the process: nothing after it runs."""


def test_a_kill_at_any_operation_leaves_the_old_model_or_the_new_one(tmp_path, monkeypatch):
    old, new = regressor(1), classifier()
    whole = tmp_path / "whole"
    old.save(whole)
    operations = count(lambda: new.save(whole))
    assert operations >= 10
    for number in range(operations):
        path = tmp_path / str(number)
        old.save(path)
        (path / "notes.txt").write_text("precious")
        with monkeypatch.context() as patch:
            dead = []

            def die(*args, dead=dead):
                dead.append(1)
                raise Killed

            patch.setattr("tests.faults.injection._strike", die)
            for name in ("sweep", "remove"):  # a process that is gone clears nothing up
                real = getattr(files, name)
                patch.setattr(files, name, lambda *a, real=real, dead=dead: None if dead else real(*a))
            with pytest.raises(Killed), fault("kill", number):
                new.save(path)
        assert BaseNP.load(path).kind in ("regressor", "classifier")
        assert (path / "notes.txt").read_text() == "precious"
        new.save(path)
        assert sorted(file.name for file in path.iterdir()) == [*NAMES[:1], "notes.txt", *NAMES[1:]]
        for name in NAMES:
            assert (path / name).read_bytes() == (whole / name).read_bytes()


def test_a_full_disk_leaves_a_whole_model_and_nothing_half_written(tmp_path):
    operations = count(lambda: classifier().save(tmp_path / "count"))
    for number in range(operations):
        path, new = tmp_path / f"old{number}", tmp_path / f"new{number}"
        regressor(1).save(path)
        for out in (path, new):
            with suppress(OSError), fault("full", number):
                classifier().save(out)
        assert BaseNP.load(path).kind in ("regressor", "classifier")
        assert not new.exists() or BaseNP.load(new).kind == "classifier"
        for out in filter(type(new).exists, (path, new)):
            assert sorted(file.name for file in out.iterdir()) == list(NAMES)
    with pytest.raises(OSError, match=r"No space left on device.*new"), fault("full", 1):
        classifier().save(tmp_path / "new")


def test_a_link_is_resolved_and_stays(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "estimator.json").write_text("{}")
    (tmp_path / "disk" / "mine.txt").write_text("precious")
    (tmp_path / "model").symlink_to(tmp_path / "disk")
    regressor(1).save(tmp_path / "model")
    assert (tmp_path / "model").is_symlink()
    assert sorted(file.name for file in (tmp_path / "disk").iterdir()) == [NAMES[0], "mine.txt", NAMES[1]]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["disk", "model"]
    (tmp_path / "dangling").symlink_to(tmp_path / "later" / "model")
    regressor(1).save(tmp_path / "dangling")
    assert NPRegressor.load(tmp_path / "later" / "model").kind == "regressor"


def test_two_processes_do_not_save_into_one_folder(tmp_path):
    from dsvnp.locks import FolderInUseError, folder_lock

    path = regressor(1).save(tmp_path / "model")
    with folder_lock(path), pytest.raises(FolderInUseError):
        classifier().save(path)
    assert NPRegressor.load(path).kind == "regressor"
    assert saving.may_hold(path)
