"""A fit that memory is too small for is refused before it takes any."""

import numpy as np
import polars as pl
import pytest
import torch

from dsvnp import NPRegressor
from dsvnp.tabular.rows import memory


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_larger_than_memory_is_refused_by_its_size(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(memory, "LITTLE", 0)
    path = tmp_path / f"t.{ending}"
    table = pl.DataFrame({"a": np.arange(1000.0), "b": np.arange(1000.0)})
    table.write_csv(path) if ending == "csv" else table.write_parquet(path)
    needed = memory.OF_TEXT * path.stat().st_size if ending == "csv" else 8 * 4 * 2000
    monkeypatch.setattr(memory, "free_memory", lambda: needed)
    memory.check_file(path)
    monkeypatch.setattr(memory, "free_memory", lambda: needed - 1)
    with pytest.raises(ValueError, match=f"t.{ending}: to read it would take about 0.0 GB of memory"):
        memory.check_file(path)


def test_rows_that_replicas_would_copy_beyond_memory_are_refused_before_training(monkeypatch):
    monkeypatch.setattr(memory, "LITTLE", 0)
    monkeypatch.setattr(memory, "free_memory", lambda: 2**20)
    x = np.zeros((50_000, 3))
    with pytest.raises(ValueError, match=r"a fit of 5 replicas to 50000 rows would take about 0\.0 GB"):
        NPRegressor("cnp").fit(x, np.arange(50_000.0))
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    memory.check_rows(torch.zeros(10, 1), torch.zeros(10, 1), 1)


def test_free_memory_is_a_number_of_bytes_or_unknown(monkeypatch, tmp_path):
    free = memory.free_memory()
    assert free is None or free > 2**20
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert memory.free_memory() in (None, 3000)
