"""The study of the field's test batches: means and errors of the first of them."""

import json
import sys

import pytest

from studies import field_batches


def test_means_and_errors_are_those_of_the_first_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(field_batches, "SIZES", (4, 8))
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "batches.json")])
    field_batches.main()
    rows = json.loads((tmp_path / "batches.json").read_text())
    assert [(row["kernel"], row["floor"], row["batches"]) for row in rows[:4]] == [
        ("rbf", floor, size) for floor in (0.0, 0.1) for size in (4, 8)
    ]
    for row in rows:
        means = field_batches.marginal_means(row["kernel"], 8, row["floor"])[: row["batches"]]
        assert row["mean"] == pytest.approx(float(means.mean()), abs=1e-4)
        assert row["stderr"] == pytest.approx(float(means.std()) / row["batches"] ** 0.5, abs=1e-4)
    assert rows[2]["mean"] < rows[0]["mean"]  # a floor under σ costs
