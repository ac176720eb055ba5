"""The ambiguity experiment: its rows, its references, what is measured, and its figures."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console

from dsvnp import Architecture, make_model
from dsvnp.metrics import point_mask
from dsvnp.models import MODELS
from dsvnp.objectives import Objective
from dsvnp.paper.ambiguity.experiment import AmbiguityExperiment
from dsvnp.paper.ambiguity.measures import Measures, by_context, measure_nets, without_context
from dsvnp.paper.ambiguity.problems import PROBLEMS
from dsvnp.paper.ambiguity.recipes import COSINE, FLOOR, NetworkSizes, recipe_of
from dsvnp.paper.ambiguity.shown import NUM_TARGETS, ShownTask, samples_of
from dsvnp.paper.experiment import EXACT, UnitResult, Workplace
from dsvnp.paper.gather import gather
from dsvnp.paper.label import Label
from dsvnp.paper.records import read_units, write_units
from dsvnp.paper.report.runs import Run
from dsvnp.paper.report.tables import tables_of
from dsvnp.paper.runner import run
from dsvnp.paper.settings import as_json, make_experiment

CPU = torch.device("cpu")
TINY = Measures(num_tests=3, num_points=10, context=(2, 6), max_draws=64, num_energy=8)


def place(path: Path) -> Workplace:
    return Workplace(path, CPU, Console(file=io.StringIO()))


def test_the_smoke_preset_gives_all_rows_and_figures(tmp_path):
    changes = {"models": ("cnp", "dsvnp"), "problems": ("branches", "inverse-kinematics", "gaussian-noise")}
    made = make_experiment(AmbiguityExperiment, "smoke", num_seeds=1, num_steps=3, **changes)
    run(made, place(tmp_path))
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    trained = {"cnp", "dsvnp", "dsvnp-paper", "dsvnp-no-context", "cnp-mixture-3", "cnp-low-rank"}
    metrics = {"nll", "nll-output", "bound", "energy"}
    expected = {(problem, row, metric) for problem in made.problems for row in trained for metric in metrics}
    expected |= {(problem, row, "nll") for problem in made.problems for row in ("truth", "diagonal", "full")}
    expected.remove(("gaussian-noise", "full", "nll"))  # one output has no covariance
    expected -= {("gaussian-noise", "cnp-low-rank", metric) for metric in metrics}
    assert {(row["dataset"], row["model"], row["metric"]) for row in rows} == expected
    for row in rows:
        assert {"draws", "still", "method"} <= row.keys() or not row["metric"].startswith("nll")
        assert len(row["seeds"]) == len(row.get("draws", row["seeds"])) == 1
    names = {path.stem for path in tmp_path.iterdir() if path.suffix in (".svg", ".webp")}
    assert names == {"nll", "plane", "branches", "arms-inverse-kinematics", "by-context"}
    units = read_units(tmp_path)["units"]
    again = [UnitResult.from_dict(unit) for unit in units]
    assert [unit.to_dict()["measurements"][0]["metric"] for unit in again] == ["nll"] * len(units)
    assert again[0].measurements[0].drawn[0].method == "exact"
    assert tables_of(Run.read(tmp_path / "results.json"))


def test_a_run_from_before_weights_were_kept_is_gathered_and_added_to(tmp_path):
    changes = {"models": (), "variants": (), "problems": ("branches",)}
    run(make_experiment(AmbiguityExperiment, "smoke", **changes), place(tmp_path / "old"))
    record = read_units(tmp_path / "old")
    del record["config"]["keep_seeds"]
    write_units(tmp_path / "old", record)
    more = make_experiment(AmbiguityExperiment, "smoke", **changes | {"models": ("cnp",)}, keep_seeds=1)
    run(more, place(tmp_path / "new"))
    gather(tmp_path / "both", [tmp_path / "old", tmp_path / "new"])
    run(more, place(tmp_path / "old"), resume=True)
    for folder in ("both", "old"):
        found = read_units(tmp_path / folder)
        assert [unit["model"] for unit in found["units"]][3:] == ["cnp@branches"]
        assert found["config"]["keep_seeds"] == 1
    assert (tmp_path / "old" / "weights" / "cnp-on-branches-seed-0.safetensors").is_file()


def test_the_paper_preset_has_every_rival_and_mixtures_of_three_sizes_on_the_hidden_pose():
    labels = AmbiguityExperiment.presets()["paper"].labels()
    rows = {
        name: {label.row for label in labels if label.dataset == name}
        for name in ("hidden-pose", "branches", "contamination")
    }
    usual = {"truth", "diagonal", "cnp", "np", "attnnp", "dsvnp", "tnp", "dsvtnp"}
    usual |= {"dsvnp-paper", "dsvnp-no-context", "cnp-low-rank", "cnp-mixture-20", "tnp-mixture-20"}
    usual |= {"tnp-low-rank"}
    assert rows["contamination"] == usual - {"cnp-low-rank", "tnp-low-rank"}  # one output has no covariance
    assert rows["branches"] == usual | {"full"}
    more = {f"{model}-mixture-{count}" for model in ("cnp", "tnp") for count in (5, 60)}
    assert rows["hidden-pose"] == usual | {"full", "dsvnp-common", "dsvtnp-common"} | more
    assert {label.dataset for label in labels} == set(PROBLEMS)
    with pytest.raises(ValueError, match=r"unknown problem 'branchs'\. Did you mean 'branches'"):
        AmbiguityExperiment(problems=("branchs",)).labels()
    with pytest.raises(ValueError, match="unknown variant 'cnp-mixtur'"):
        AmbiguityExperiment(variants=("cnp-mixtur",)).labels()


def test_recipes_and_heads():
    default, paper = recipe_of(Label("dsvnp")), recipe_of(Label("dsvnp", "paper"))
    assert (default.kind, default.arch["dim_local"]) == ("npml", 4)
    assert paper == COSINE
    assert recipe_of(Label("dsvnp", "no-context")) == default
    objective = recipe_of(Label("np"), {"anneal": 0.5, "late": 0.1, "common": 0.3}).settings(100).objective
    assert objective == Objective(anneal="linear", anneal_steps=50, late_steps=10, common_steps=30)
    for row, likelihood in (("cnp-mixture-7", "mixture"), ("tnp-low-rank", "low-rank"), ("cnp", "gaussian")):
        arch = NetworkSizes().architecture(PROBLEMS["hidden-pose"], recipe_of(Label.parse(row)).arch)
        assert (arch.likelihood, arch.sigma_floor, arch.dim_y) == (likelihood, FLOOR, 8)
        assert arch.num_components == (7 if likelihood == "mixture" else 20)


def test_a_unit_from_before_a_setting_of_its_recipe_is_kept_and_one_of_another_recipe_refused():
    made, label = AmbiguityExperiment(), Label("dsvnp", "", "branches")
    recipe = as_json(made.recipe(label))
    del recipe["common"]
    assert made.refuses(UnitResult(label, (0,), (), {"recipe": recipe})) is None
    for other in (recipe | {"common": 0.5}, recipe | {"learning_rate": 3.0}):
        assert made.refuses(UnitResult(label, (0,), (), {"recipe": other})) == "with another recipe"


def test_references_are_the_means_of_the_problems_own_log_densities(tmp_path):
    made = make_experiment(AmbiguityExperiment, "smoke", measures=TINY)
    problem = PROBLEMS["shared-noise-2"]
    known = TINY.tasks(problem, CPU)
    outside = point_mask(known[0].task, "P")
    for name in ("truth", "diagonal", "full"):
        unit = made.run_unit(Label(name, "", "shared-noise-2"), (0, 1), place(tmp_path))
        (row,) = unit.measurements
        expected = -float(getattr(problem, name)(known[0])[outside].mean())
        assert row.values == (pytest.approx(expected),) * 2
    # with shared noise the truth is a Gaussian with a full covariance
    truth, full = (float(getattr(problem, name)(known[0]).mean()) for name in ("truth", "full"))
    assert truth == pytest.approx(full)


def test_a_row_without_a_context_is_measured_on_the_same_targets_and_reads_none():
    torch.manual_seed(0)
    net = make_model("dsvnp", Architecture(1, 2, encoder=(8,), dim_lat=4, decoder=(8,)))
    task = TINY.tasks(PROBLEMS["branches"], CPU)[0].task
    bare = without_context(task)
    assert torch.equal(point_mask(bare, "P"), point_mask(task, "P"))
    other = TINY.tasks(PROBLEMS["branches"], CPU)[0].task
    other.y_context.mul_(5.0)  # contexts share memory with targets: put those back
    other = without_context(other)
    other.y_target.div_(5.0)
    first, second = (measure_nets([net], "branches", [each], TINY).rows for each in (bare, other))
    for mine, its in zip(first, second, strict=True):
        assert mine.values == pytest.approx(its.values, rel=1e-5)
    read = measure_nets([net], "branches", [task], TINY).rows
    assert read[0].values != first[0].values


def test_likelihoods_of_a_model_without_latents_are_those_of_its_prediction():
    torch.manual_seed(0)
    net = make_model("cnp", Architecture(1, 2, encoder=(8,), dim_lat=4, decoder=(8,))).eval()
    task = TINY.tasks(PROBLEMS["branches"], CPU)[0].task
    rows = {row.metric: row for row in measure_nets([net], "branches", [task], TINY).rows}
    predictive, outside = net.predict(task), point_mask(task, "P")
    nll = float(-predictive.log_prob(task.y_target)[outside].mean())
    assert rows["nll"].values[0] == pytest.approx(nll, rel=1e-5)
    assert rows["bound"].values[0] == pytest.approx(nll, rel=1e-5)
    assert rows["nll-output"].values[0] == pytest.approx(nll / 2, rel=1e-5)  # independent outputs
    assert rows["nll"].drawn == (EXACT,)
    samples = predictive.sample(4000, torch.Generator().manual_seed(0))  # [N, B, T, 2]
    near = (samples - task.y_target).norm(dim=-1).mean(0)
    apart = (samples[:2000] - samples[2000:]).norm(dim=-1).mean(0) / 2
    many = Measures(3, 10, (2, 6), max_draws=64, num_energy=2000)
    rows = measure_nets([net], "branches", [task], many).rows
    (energy,) = (row for row in rows if row.metric == "energy")
    assert energy.values[0] == pytest.approx(float((near - apart)[outside].mean()), abs=0.02)


def test_values_by_context_are_means_over_the_targets_of_tasks_with_such_contexts():
    problem = PROBLEMS["gaussian-noise"]
    generator = torch.Generator().manual_seed(0)
    tasks = [problem.tasks(1, generator, context=(size, size))[0].task for size in (3, 9, 44)]
    values = torch.cat([torch.full((50 - size,), float(size)) for size in (3, 9, 44)])
    found = by_context([values], tasks)
    assert found["context"] == [6.5, 15.5, 25.5, 35.5, 43.5]
    small, *between, large = found["nll"][0]
    assert small == pytest.approx((47 * 3 + 41 * 9) / 88)
    assert large == 44
    assert all(math.isnan(value) for value in between)


def test_pictures_show_the_same_task_for_truth_and_models():
    problem = PROBLEMS["branches"]
    shown = ShownTask.draw(problem)
    truth = shown.truth(problem, "branches")
    u, v = torch.tensor(truth["curves"])
    over = torch.tensor(truth["over_x"])
    assert (torch.minimum((over - u).abs(), (over - v).abs()) < 0.3).all()
    assert truth["x"] == sorted(truth["x"])
    assert len(truth["x"]) == NUM_TARGETS
    torch.manual_seed(0)
    net = make_model("np", Architecture(1, 2, encoder=(8,), dim_lat=4, decoder=(8,)))
    first, again = (samples_of(net, problem, "branches") for _ in range(2))
    assert first == again
    assert first != samples_of(net, problem, "branches", context=False)
    assert torch.tensor(first["at"]).shape == torch.tensor(truth["at"]).shape


def test_every_model_can_be_a_row():
    made = make_experiment(AmbiguityExperiment, "smoke", models=tuple(MODELS), problems=("branches",))
    assert {label.model for label in made.labels()} == {*MODELS, "truth", "diagonal", "full"}
