"""The field's table: sizes and σ of its rows, what is trained and printed, and a run with all rows and figures."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from dsvnp.models import Transformer, make_model
from dsvnp.objectives import Objective
from dsvnp.paper.experiment import Measurement, UnitResult, Workplace
from dsvnp.paper.field import experiment
from dsvnp.paper.field.experiment import FieldExperiment
from dsvnp.paper.field.measures import measure_field
from dsvnp.paper.field.recipe import FieldRecipe, LocalLatent
from dsvnp.paper.field.unseen import PRIORS, TestSizes
from dsvnp.paper.label import Label
from dsvnp.paper.records import read_units
from dsvnp.paper.runner import load_units, run
from dsvnp.paper.settings import as_json, make_experiment, rebuild
from dsvnp.pretrained.copula import CopulaSettings
from dsvnp.training import Schedule

CPU = torch.device("cpu")
TINY = {
    "recipe": FieldRecipe(
        4,
        width=8,
        num_heads=2,
        transformer=Transformer(8, 1, 2, 8, (8,)),
        num_components=8,
        copula=CopulaSettings(rank=3, hidden=4, num_steps=2),
    ),
    "tests": TestSizes(1, 1, 1, 1, 2, 32, num_nodes=2, num_points=8),
    "num_points": 8,
    "num_marks": 2,
}


def ran(out, **changes):
    made = make_experiment(FieldExperiment, "smoke", **TINY, **changes)
    run(made, Workplace(out, CPU, Console(file=io.StringIO(), width=200)))
    results = json.loads((out / "results.json").read_text())
    return results["rows"], {unit["model"]: unit for unit in read_units(out)["units"]}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("field")
    return out, *ran(out, models=("cnp", "dsvnp", "tnp"), attentions=("rotary",))


# --- settings ---


@pytest.mark.parametrize(
    ("model", "expected"),
    [("cnp", 215_682), ("np", 232_194), ("attnnp", 348_418), ("attnnp-block", 348_418), ("tnp", 222_274)],
)
def test_models_have_the_fields_numbers_of_parameters(model, expected):
    label = Label.parse(model)
    arch = FieldExperiment.presets()["paper"].architecture(label)
    assert sum(p.numel() for p in make_model(label.model, arch).parameters()) == expected


def test_every_model_has_the_fields_sigma_and_the_other_one():
    made = FieldExperiment.presets()["paper"]
    sigmas = {
        str(label): (arch.sigma_floor, arch.sigma_form, arch.likelihood)
        for label in made.labels()
        if label.model != "gp"
        for arch in [made.architecture(label)]
    }
    floor, none = (0.1, "softplus"), (0.0, "exp")
    expected = dict.fromkeys(("cnp", "np", "attnnp", "dsvnp"), (*floor, "gaussian"))
    expected |= {f"{name}-no-floor": (*none, "gaussian") for name in expected}
    expected["attnnp-block"] = expected["attnnp"]
    for name in ("tnp", "dsvtnp"):
        expected |= {name: (*none, "gaussian"), f"{name}-floor": (*floor, "gaussian")}
    expected |= {"tnp-mixture": (*none, "mixture"), "tnp-mixture-floor": (*floor, "mixture")}
    expected |= dict.fromkeys(("tnp-equivariant", "tnp-rotary", "tnp-copula"), (*none, "gaussian"))
    expected["tnp-coherent"] = (*none, "coherent")
    assert sigmas == expected
    assert [str(label) for label in made.labels()[-3:]] == ["gp", "gp-floor", "gp-integrated"]
    with pytest.raises(ValueError, match=r"unknown floor 'oter'\. Did you mean 'other'"):
        FieldExperiment(floors=("oter",))
    with pytest.raises(ValueError, match=r"unknown attention 'rotar'\. Did you mean 'rotary'"):
        FieldExperiment(attentions=("rotar",))
    with pytest.raises(ValueError, match=r"tests\.joint_batches must be at least 1, got 0"):
        TestSizes(joint_batches=0)
    with pytest.raises(ValueError, match="single precision"):
        FieldExperiment(precision="float64")


def test_rows_of_other_attention_differ_in_nothing_else():
    made = FieldExperiment.presets()["paper"]
    usual = made.architecture(Label("tnp"))
    for kind, rotary in (("equivariant", 0.0), ("rotary", 40.0)):
        stack = replace(usual.transformer, equivariant=True, rotary=rotary)
        assert made.architecture(Label("tnp", kind)) == replace(usual, transformer=stack)
    plain = made.architecture(Label("attnnp"))
    assert (plain.attention, plain.encoder) == ("dot", (128, 128))  # as the stored rows were trained
    blocks = replace(plain, attention="block", encoder=(128,))  # as many weights
    assert made.architecture(Label("attnnp", "block")) == blocks
    assert made.settings(Label("attnnp", "block")) == made.settings(Label("attnnp"))


def test_training_is_the_fields():
    made = FieldExperiment.presets()["paper"]
    settings = made.settings(Label("np"))
    assert (settings.num_steps, settings.learning_rate, settings.precision) == (100_000, 5e-4, "tf32")
    assert settings.schedule == Schedule("cosine")
    assert (
        settings.objective == made.settings(Label("attnnp")).objective == Objective(kind="iw", num_global=4)
    )
    assert made.settings(Label("tnp", "mixture")).objective == Objective()
    assert settings.validate_every == settings.log_every == 2000
    assert (made.batch_size, made.num_points, made.tests.num_batches) == (16, 50, 3000)


def test_the_local_latent_is_a_setting_of_both_models_that_have_one():
    made = make_experiment(
        FieldExperiment,
        "paper",
        **{
            "recipe.local.dim_local": 2,
            "recipe.local.objective.beta_local": 0.5,
            "recipe.local.anneal": 0.25,
        },
    )
    for model in ("dsvnp", "dsvtnp"):
        assert made.architecture(Label(model)).dim_local == 2
        assert made.settings(Label(model)).objective.beta_local == 0.5
        assert made.settings(Label(model)).objective.anneal_steps == 25_000
    assert made.architecture(Label("np")).dim_local is None
    assert rebuild(FieldExperiment, as_json(made)) == made
    assert made.recipe.local != LocalLatent()


def test_published_figures_belong_to_models_as_the_field_has_them():
    made = FieldExperiment()

    def figure(model, dataset, split, metric="log-likelihood", variant=""):
        return made.paper_figure(Label(model, variant), Measurement(dataset, metric, split, "nats/point", ()))

    assert figure("tnp", "rbf", "marginal") == (1.39, None)
    assert figure("tnp", "matern52", "chain") == (1.21, None)
    assert figure("attnnp", "matern52", "marginal") == (0.63, None)
    assert figure("attnnp", "matern52", "marginal", variant="block") == (0.63, None)
    assert figure("tnp", "rbf", "marginal", variant="floor") == (None, None)
    assert figure("tnp", "rbf", "joint", variant="copula") == (1.46, None)
    assert figure("tnp", "rbf", "marginal", variant="coherent") == (None, None)
    assert figure("tnp", "periodic", "marginal") == figure("dsvnp", "rbf", "marginal") == (None, None)
    assert figure("np", "rbf", "marginal", "log-likelihood-median") == (None, None)


# --- a run ---


def test_the_figure_of_training_leaves_joined_rows_out(done, monkeypatch):
    out, shown = done[0], []
    monkeypatch.setattr(experiment, "training_figure", lambda units, path: shown.extend(units) or path)
    made = make_experiment(
        FieldExperiment, "smoke", **TINY, models=("cnp", "dsvnp", "tnp"), attentions=("rotary",)
    )
    made.draw(load_units(made, out, resume=True), out)
    assert [str(unit.label) for unit in shown] == ["cnp", "dsvnp", "tnp", "tnp-mixture", "tnp-rotary"]


def test_a_copula_leaves_single_targets_as_they_are_and_joins_them(done):
    """The rows of TNP and of TNP with a copula are two trainings of the same seeds."""
    _, rows, units = done
    found = {
        (r["model"], r["dataset"], r["split"]): r["seeds"] for r in rows if r["metric"] == "log-likelihood"
    }
    assert found["tnp-copula", "rbf", "marginal"] == pytest.approx(found["tnp", "rbf", "marginal"], abs=1e-5)
    assert found["tnp", "rbf", "joint"] == pytest.approx(found["tnp", "rbf", "marginal"], abs=1e-4)
    assert found["tnp-copula", "rbf", "joint"] != pytest.approx(found["tnp", "rbf", "joint"], abs=1e-3)
    more = [units[name]["extras"]["num_parameters"] for name in ("tnp", "tnp-copula")]
    assert more[1] > more[0]


def test_every_model_has_its_rows_on_every_kernel(done):
    _, rows, units = done
    assert list(units) == [
        *("cnp", "dsvnp", "tnp", "tnp-mixture", "tnp-coherent", "tnp-copula", "tnp-rotary"),
        *("gp", "gp-floor", "gp-integrated"),
    ]
    found = {(r["model"], r["metric"], r["split"]) for r in rows if r["dataset"] == "matern52"}
    both = ("log-likelihood", "log-likelihood-median")
    expected = {(model, m, "marginal") for model in units for m in both}
    expected |= {(model, m, "joint") for model in units if model != "gp-floor" for m in both}
    chains = ("cnp", "tnp", "tnp-mixture", "tnp-coherent", "tnp-copula", "tnp-rotary")
    expected |= {(model, m, "chain") for model in chains for m in both}
    expected |= {("dsvnp", "above-elbo", split) for split in ("marginal", "joint")}
    assert found == expected
    assert {r["dataset"] for r in rows} == set(PRIORS)
    assert all(len(r["seeds"]) == 2 and r["mean"] is not None for r in rows)


def test_every_likelihood_keeps_the_draws_behind_it(done):
    _, rows, _ = done
    for row in rows:
        if row["metric"] == "above-elbo":
            assert "draws" not in row
        elif row["model"] == "dsvnp":
            assert set(row["draws"]) == {32}  # the limit of these tests, below the least that can be still
            assert row["still"] == [False, False]
            assert set(row["method"]) <= {"prior", "importance"}
        else:
            assert (row["method"], row["still"]) == (["exact"] * 2, [True, True])


def test_autoregression_with_latents_has_fixed_draws_and_claims_no_more():
    torch.manual_seed(0)
    arch = make_experiment(FieldExperiment, "smoke", **TINY).architecture(Label("dsvtnp"))
    rows = measure_field([make_model("dsvtnp", arch)], TINY["tests"], True, CPU)
    drawn = {row.drawn for row in rows if row.split == "chain"}
    assert drawn == {(("prior", 2, None, None),)}


def test_what_a_model_without_latents_has_per_task_is_the_product_of_its_marginals(done):
    _, rows, _ = done
    values = {
        (r["dataset"], r["split"]): r["seeds"]
        for r in rows
        if r["model"] == "tnp" and r["metric"] == "log-likelihood"
    }
    for dataset in PRIORS:
        assert values[dataset, "joint"] == pytest.approx(values[dataset, "marginal"], rel=1e-4)
        assert values[dataset, "chain"] != values[dataset, "joint"]


def test_marks_have_steps_seconds_and_likelihoods_of_each_seed(done):
    out, _, units = done
    marks = units["tnp"]["extras"]["marks"]
    assert marks["step"] == [2, 4]
    assert 0 < marks["seconds"][0] < marks["seconds"][1]
    lines = [json.loads(line) for line in (out / "logs" / "tnp-seeds-0-1.jsonl").read_text().splitlines()]
    for logged, mark in zip(lines, marks["log_likelihood"], strict=True):
        assert mark == pytest.approx([-value for value in logged["validation"]], rel=1e-4)


def test_figures_are_drawn(done):
    out, _, _ = done
    assert {path.name for path in out.glob("*.svg")} == {"course.svg", "functions.svg", "training.svg"}
    assert all(path.stat().st_size > 1000 for path in out.glob("*.svg"))


def test_the_other_floor_may_be_added_later_with_one_seed(tmp_path):
    small = {"models": ("cnp",), "ceilings": False}
    ran(tmp_path, floors=("own",), **small)
    rows, _ = ran(tmp_path, floors=("other",), num_seeds=1, **small)
    seeds = {row["model"]: len(row["seeds"]) for row in rows}
    assert seeds == {"cnp": 2, "cnp-no-floor": 1}
    assert not any(math.isnan(row["mean"]) for row in rows if row["metric"] == "log-likelihood")


def test_committed_rows_may_be_added_to():
    made = FieldExperiment.presets()["paper"]
    folder = Path(__file__).parents[3] / "results" / "field"
    units = {str(unit.label): unit for unit in load_units(made, folder, resume=True)}
    kept = {(m.dataset, m.split): m.batches for m in units["np"].measurements if m.batches}
    assert kept["periodic", "marginal"] == (1024,) * 3
    assert read_units(folder)["config"]["tests"].keys() == as_json(made)["tests"].keys()
    with pytest.raises(ValueError, match="tests"):  # on other tasks they do not compare
        load_units(
            make_experiment(FieldExperiment, "paper", **{"tests.drawn_on": "device"}), folder, resume=True
        )


def test_attnnp_with_blocks_is_a_row_next_to_the_one_that_is_there(tmp_path):
    small = {"models": ("attnnp",), "ceilings": False, "num_seeds": 1}
    _, before = ran(tmp_path, attentions=(), **small)
    rows, after = ran(tmp_path, attentions=("block",), **small)
    assert list(after) == ["attnnp", "attnnp-block"]
    assert after["attnnp"] == before["attnnp"]  # neither trained nor measured again
    marks = [unit["extras"]["marks"]["log_likelihood"] for unit in after.values()]
    assert marks[0] != marks[1]
    assert not any(math.isnan(row["mean"]) for row in rows if row["metric"] == "log-likelihood")


def test_rows_whose_local_latent_was_trained_in_another_way_are_refused():
    made = FieldExperiment()
    other = make_experiment(FieldExperiment, "quick", **{"recipe.local.objective.kind": "iw"})
    mine, theirs = (each._local(Label("dsvtnp")) for each in (made, other))
    for label, recipe, said in (
        ("dsvtnp", mine, None),
        ("dsvtnp", theirs, "recipe.local"),
        ("np", None, None),
    ):
        reason = made.refuses(UnitResult(Label(label), (0,), (), {"recipe": recipe}))
        assert (reason is None) if said is None else said in reason
