"""Settings of the wider curves are chosen on functions of their own, a replica for each rate and weight."""

import json

import pytest
import torch

from dsvnp.paper.curves.data import UnseenCurves
from dsvnp.paper.curves.experiment import CurvesExperiment
from dsvnp.paper.settings import changed
from studies.curves_selection import CurveFleet, held_out, select_curves

CPU = torch.device("cpu")
TINY = {"num_tests": 8, "test_points": 20, "max_context": 10, "num_global": 2, "wide.num_points": 12}
SMALL = {"encoder": [8], "dim_lat": 8, "decoder": [8]}


def test_each_rate_and_weight_has_a_row_and_a_second_run_adds_what_is_missing(tmp_path):
    out = tmp_path / "selection.jsonl"
    cell = CurveFleet("dsvnp", (0.1, 0.001), (1.0, 50.0), num_steps=4, choices=SMALL)
    rows = select_curves([cell], out, CPU, **TINY)
    assert [(r["learning_rate"], r["beta_local"]) for r in rows] == [
        *((0.1, 1.0), (0.1, 50.0), (0.001, 1.0), (0.001, 50.0))
    ]
    assert all(r["kl_local"] > 0 and r["kl_global"] > 0 for r in rows)
    assert len({r["nll"] for r in rows}) == len({r["nll-max"] for r in rows}) == 4
    before = out.read_text()
    assert select_curves([cell], out, CPU, **TINY) == rows
    assert out.read_text() == before
    more = select_curves([cell, CurveFleet("np", num_steps=3, choices=SMALL)], out, CPU, **TINY)
    assert more[:4] == rows
    assert [r["model"] for r in more[4:]] == ["np"]
    assert [json.loads(line) for line in out.read_text().splitlines()] == more


def test_the_functions_are_none_of_the_tests():
    experiment = changed(CurvesExperiment(), TINY)
    tests = held_out(experiment, CPU)
    assert [len(task.x_target) for tasks in tests.values() for task in tasks] == [2, 2]
    assert tests["nll-max"][0].mask_context.sum(1).tolist() == [10, 10]
    judged = UnseenCurves.draw(8, 20, 10, 20, CPU)
    known = {float(x) for tasks in judged.splits.values() for t in tasks for x in t.x_target.flatten()}
    assert known.isdisjoint(float(x) for tasks in tests.values() for t in tasks for x in t.x_target.flatten())


def test_a_choice_that_is_none_is_refused(tmp_path):
    with pytest.raises(ValueError, match="width"):
        select_curves(
            [CurveFleet("np", num_steps=1, choices={"width": 8})], tmp_path / "selection.jsonl", CPU, **TINY
        )
