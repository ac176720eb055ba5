"""The study of the field's test batches: means and errors, ceilings on equal batches, and the correction by the GP."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dsvnp.paper.field.unseen import TRAINED, batch_means, draw_unseen
from dsvnp.paper.measuring import seeded_predict
from dsvnp.sources.gp_exact import exact, integrated
from studies import field_batches

RESULTS = Path(__file__).parents[2] / "results" / "field"
SMALL = {"FIRST": (4, 8), "TABLE": 8, "JOINT": 4, "OTHERS": 9, "NODES": 2}


@pytest.fixture
def small(monkeypatch):
    for name, value in (SMALL | {"FOLLOWED": 6, "DRAWS": 2, "PIECE": 48}).items():
        monkeypatch.setattr(field_batches, name, value)


def test_ceilings_are_means_and_errors_over_the_same_batches(small):
    rows = {(r["what"], r["split"], r["drawn"], r["batches"]): r for r in field_batches.ceilings("rbf")}
    (known,) = draw_unseen("rbf", 8, 50, torch.device("cpu"))
    gp, floor = (exact(known.task, known.hyper, TRAINED, each) for each in (0.0, 0.1))
    learner = integrated(known.task, TRAINED, 2)
    expected = {
        ("gp", "marginal"): (gp.task_means(), (4, 8)),
        ("gp", "joint"): (gp.per_task, (4, 8)),
        ("gp-floor", "marginal"): (floor.task_means(), (4, 8)),
        ("gp-integrated", "marginal"): (learner.task_means(), (4,)),
        ("gp minus integrated", "joint"): (gp.per_task - learner.per_task, (4,)),
    }
    for name, (values, sizes) in expected.items():
        for size in sizes:
            some = batch_means(values)[:size]
            row = rows[*name, "first", size]
            assert row["mean"] == pytest.approx(float(some.mean()), rel=1e-9)
            assert row["stderr"] == pytest.approx(float(some.std()) / size**0.5, rel=1e-9)
    assert rows["gp-floor", "marginal", "first", 8]["mean"] < rows["gp", "marginal", "first", 8]["mean"]


def test_other_batches_are_as_many_as_named_and_not_the_tables(small):
    tasks = [known.task for known in field_batches.others("matern52")]
    assert sum(task.num_tasks for task in tasks) == 9 * 16
    assert len({task.x_target[0, 0].item() for task in tasks}) == len(tasks)
    (table,) = draw_unseen("matern52", 3, 50, torch.device("cpu"))
    assert not torch.equal(tasks[0].x_target, table.task.x_target)


def test_a_mean_is_corrected_by_the_gp_that_has_the_same_floor():
    def ceiling(what, batches, mean):
        return {"kernel": "rbf", "what": what, "split": "marginal", "batches": batches, "mean": mean}

    def row(model, split, mean, draws):
        return {
            "dataset": "rbf",
            "model": model,
            "metric": "log-likelihood",
            "split": split,
            "mean": mean,
            "draws": [draws],
        }

    ceilings = [ceiling("gp", n, m) for n, m in ((512, 1.6), (3000, 1.5), (24_000, 1.4))]
    ceilings += [ceiling("gp-floor", n, m) for n, m in ((512, 1.0), (3000, 0.9), (24_000, 0.88))]
    results = [row("tnp", "marginal", 1.3, 1), row("tnp", "joint", 1.35, 1), row("tnp", "chain", 1.7, 1)]
    results += [row("tnp-floor", "marginal", 0.8, 1), row("tnp-floor", "joint", 0.9, 1)]
    results += [row("np-no-floor", "marginal", 0.3, 64), row("gp", "marginal", 1.5, 1)]
    found = field_batches.corrected(results, ceilings, [{"kernel": "rbf", "slope": 1.2}])
    shown = {r["model"]: (r["corrected"], r["slope"], r.get("own_slope")) for r in found}
    assert shown == {
        "tnp": (pytest.approx(1.3 - 1.2 * 0.1), 1.2, pytest.approx(0.5)),
        "tnp-floor": (pytest.approx(0.8 - 0.02), 1.0, pytest.approx(1.0)),
        "np-no-floor": (pytest.approx(0.3 - 1.2 * 0.1), 1.2, None),
    }


def test_the_study_follows_the_kept_network_and_writes_what_it_found(small, tmp_path, monkeypatch):
    shutil.copy(RESULTS / "results.json", tmp_path)
    shutil.copytree(RESULTS / "weights", tmp_path / "weights")
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path)])
    field_batches.main()
    found = json.loads((tmp_path / "batches.json").read_text())
    (known,) = draw_unseen("matern52", 6, 50, torch.device("cpu"))
    net, task = field_batches.kept_network(RESULTS), known.task
    log_prob = seeded_predict(net, task, (2, 1)).log_prob(task.all_points()[0])
    asked = task.mask_target & ~task.in_context
    values = [float(row[flags].mean()) for row, flags in zip(log_prob, asked, strict=True)]
    exactly = field_batches.under_gp("matern52", [known])["gp", "marginal"]
    slope, _ = np.polyfit(exactly.numpy(), np.reshape(values, (6, 16)).mean(1), 1)
    assert found["lines"][1]["slope"] == pytest.approx(slope, abs=1e-3)
    tnp = next(row for row in found["models"] if (row["kernel"], row["model"]) == ("rbf", "tnp"))
    assert 0.3 < tnp["corrected"] < 2.5
    assert tnp["mean"] == pytest.approx(1.3902, abs=1e-3)
    assert {row["kernel"] for row in found["ceilings"]} == {"rbf", "matern52"}
