"""What the paper's figures can be: the reading that gives them for every model is found."""

from __future__ import annotations

import json
import math

import pytest

from dsvnp.paper.experiment import Measurement, UnitResult
from dsvnp.paper.label import Label
from dsvnp.paper.multioutput.readings import write_study

PAPER = {("wq", "cnp", "mse", "test"): (0.02, 0.0), ("wq", "dsvnp", "mse", "test"): (0.01, 0.0)}


def unit(model: str, **errors: tuple[float, ...]) -> UnitResult:
    rows = [
        Measurement("wq (9 of 1060 rows)", "mse", split.replace("_", "-"), "standard", values)
        for split, values in errors.items()
    ]
    rows.append(Measurement("wq (9 of 1060 rows)", "nll", "test", "nats/point", (0.02,)))
    return UnitResult(Label.parse(f"{model}@wq"), (0, 1), tuple(rows), {"by_output": [[1.0] * 4] * 2})


def test_readings_are_ordered_by_their_distance_over_all_models(tmp_path):
    units = [
        unit("cnp", test=(2.0, 4.0), train=(0.02, 0.04)),
        unit("dsvnp", test=(1.0, 1.0), train=(0.01, 0.01)),
        unit("cnp-gaussian", test=(0.02, 0.02)),  # not the paper's recipe
        unit("ridge", test=(0.02, 0.02)),  # nor its model
    ]
    found = write_study(units, PAPER, 100, tmp_path / "readings.json")
    assert json.loads((tmp_path / "readings.json").read_text(encoding="utf-8")) == found
    nearest = [(r["split"], r["divided_by"]) for r in found]
    assert set(nearest[:2]) == {("train", "nothing"), ("test", "batch")}
    assert set(nearest[2:]) == {
        ("train", "outputs"),
        ("train", "batch"),
        ("test", "outputs"),
        ("test", "nothing"),
    }
    best = found[0]
    assert best["ours"] == pytest.approx({"cnp": 0.03, "dsvnp": 0.01})
    assert best["paper"] == {"cnp": 0.02, "dsvnp": 0.01}
    assert best["distance"] == pytest.approx(math.log(1.5) / math.sqrt(2), abs=1e-3)
    (by_outputs,) = [r for r in found if (r["split"], r["divided_by"]) == ("test", "outputs")]
    assert by_outputs["ours"] == pytest.approx({"cnp": 0.75, "dsvnp": 0.25})


def test_an_error_of_zero_is_far_from_the_paper(tmp_path):
    (first, *_) = write_study([unit("cnp", test=(0.0, 0.0))], PAPER, 100, tmp_path / "readings.json")
    assert first["distance"] > 10
