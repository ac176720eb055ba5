"""Real tables as a network that is being pretrained reads them."""

import json
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from dsvnp import Architecture, Transformer, make_model
from dsvnp.pretrained import validation
from dsvnp.pretrained.validation import MAX_CONTEXT, make_task, read_tables, score


def write(path: Path, **tables: tuple[np.ndarray, np.ndarray, str]) -> Path:
    arrays, listed = {}, []
    for key, (x, y, kind) in tables.items():
        listed.append({"key": key, "name": f"package/{key}", "kind": kind, "names": []})
        arrays |= {f"{key}.x": x, f"{key}.y": y, f"{key}.folds": np.arange(len(y)) % 5}
    np.savez(path, tables=json.dumps(listed), **arrays)
    return path


@pytest.fixture
def file(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3)).astype(np.float32)
    x[4, 1] = np.nan
    return write(
        tmp_path / "tables.npz",
        numbers=(x, 50 + 10 * x[:, 0], "regression"),
        labels=(x[:20], np.arange(20) % 3, "classification"),
        wide=(rng.normal(size=(10, 40)), np.zeros(10), "regression"),
        many=(x, np.arange(30) % 12, "classification"),
    )


def test_a_fold_is_predicted_from_the_others(file):
    numbers, labels = read_tables(file, max_columns=32, max_classes=10)
    assert (numbers.name, numbers.is_class) == ("package/numbers", False)
    assert (labels.name, labels.is_class) == ("package/labels", True)
    assert numbers.task.in_context.sum() == 24
    known = numbers.task.y_target[numbers.task.in_context]
    assert known[:, 0].mean().item() == pytest.approx(0, abs=1e-6)
    assert known[:, 0].std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert (known[:, 1] == 0).all()
    assert set(labels.task.y_target[..., 0].flatten().tolist()) == {0.0, 1.0, 2.0}
    assert (labels.task.y_target[..., 1] == 1).all()


def test_scaling_reads_the_context_alone():
    x = torch.tensor([[0.0], [1.0], [2.0], [1000.0]])
    y = torch.tensor([0.0, 1.0, 2.0, 1e6])
    known = torch.tensor([True, True, True, False])
    task = make_task(x, y, known, 0)
    again = make_task(torch.where(known[:, None], x, -7.0), torch.where(known, y, 3.0), known, 0)
    assert torch.equal(task.x_target[:, :3], again.x_target[:, :3])
    assert torch.equal(task.y_target[:, :3], again.y_target[:, :3])


def test_rows_of_a_class_that_the_context_lacks_do_not_count():
    task = make_task(
        torch.randn(4, 1), torch.tensor([0.0, 1.0, 1.0, 2.0]), torch.tensor([True, True, False, False]), 10
    )
    assert task.mask_target.tolist() == [[True, True, True, False]]


def test_a_context_has_no_more_rows_than_networks_are_trained_with():
    known = torch.arange(3000) < 2500
    task = make_task(torch.randn(3000, 2), torch.randn(3000), known, 0)
    assert task.in_context.sum() == MAX_CONTEXT
    assert task.num_targets == MAX_CONTEXT + 500


def test_no_table_that_fits_is_refused(file):
    with pytest.raises(ValueError, match="no table with at most 1 columns"):
        read_tables(file, max_columns=1, max_classes=10)


def damaged(path: Path, how: str) -> None:
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-30])
    elif how == "flipped":
        data = bytearray(path.read_bytes())
        data[200] ^= 0xFF
        path.write_bytes(data)
    elif how == "packed":
        with np.load(path) as file, zipfile.ZipFile(path.with_suffix(".new"), "w", zipfile.ZIP_LZMA) as new:
            for name in file.files:
                with new.open(f"{name}.npy", "w") as part:
                    np.save(part, file[name])
        path.with_suffix(".new").rename(path)
    else:
        with np.load(path) as file:
            arrays = dict(file)
        arrays |= {"numbers.x": np.ones(3)} if how == "shape" else {"tables": np.array('[{"key": 3}]')}
        np.savez(path, **arrays)


@pytest.mark.parametrize("how", ["cut", "flipped", "packed", "shape", "list"])
def test_a_damaged_file_is_refused_by_name(file, how):
    damaged(file, how)
    with pytest.raises(ValueError, match=r"tables\.npz cannot be read as tables \(") as refusal:
        read_tables(file, max_columns=32, max_classes=10)
    assert "\n" not in str(refusal.value)


def test_a_file_that_unpacks_to_too_much_is_refused_before_it_does(file, monkeypatch):
    with zipfile.ZipFile(file) as archive:
        size = sum(part.file_size for part in archive.infolist())
    monkeypatch.setattr(validation, "LARGEST", size)
    read_tables(file, max_columns=32, max_classes=10)
    monkeypatch.setattr(validation, "LARGEST", size - 1)
    with pytest.raises(ValueError, match=f"it unpacks to {size} bytes, more than any such file"):
        read_tables(file, max_columns=32, max_classes=10)


def test_the_score_is_a_mean_over_tables_of_what_the_heads_give(file):
    small = Transformer(8, 1, 2, 8)
    arch = Architecture(
        6, 10, "number-or-class", num_components=2, cells=small, transformer=small, coded_x=True
    )
    model = make_model("tabtnp", arch)
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.zero_()
    scores = score(model, read_tables(file, 32, 10))
    assert scores["classes"] == pytest.approx(math.log(10), abs=1e-5)  # equal logits
    assert scores["both"] == pytest.approx((scores["classes"] + scores["numbers"]) / 2)
