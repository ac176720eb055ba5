"""Ablations: each variant differs from the model in what its name says, on both data sets."""

from __future__ import annotations

import json

import pytest
import torch
from rich.console import Console

from dsvnp.models import Architecture
from dsvnp.objectives import Objective
from dsvnp.paper.ablations.experiment import VARIANTS, AblationsExperiment
from dsvnp.paper.experiment import Workplace
from dsvnp.paper.gather import gather, joint_experiment
from dsvnp.paper.recipe import NO_CHANGE, Change
from dsvnp.paper.runner import run
from dsvnp.paper.settings import changed
from dsvnp.training import Settings


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """All of two variants and NP, a few steps each."""
    out = tmp_path_factory.mktemp("ablations")
    smoke = AblationsExperiment.presets()["smoke"]
    few = {"curves.paper.num_steps": 2, "curves.num_tests": 4, "cartpole.num_steps": 2}
    few |= {"cartpole.num_trajectories": 10, "num_seeds": 1}
    made = changed(smoke, {**few, "variants": ("np", "dsvnp", "dsvnp-separate-encoders")})
    run(made, Workplace(out, torch.device("cpu"), Console(quiet=True)))
    return made, out


def test_rows_name_variant_and_data_set(finished):
    _, out = finished
    rows = json.loads((out / "results.json").read_text())["rows"]
    models = {"np", "dsvnp", "dsvnp-separate-encoders"}
    assert {(r["model"], r["dataset"]) for r in rows} == {
        (m, d) for m in models for d in ("curves", "cartpole")
    }
    assert all(r["paper"] is None for r in rows)
    shown = {("nll", "inter-J-max"), ("nll", "test-J")}
    nll = {(r["model"], r["dataset"]): r["mean"] for r in rows if (r["metric"], r["split"]) in shown}
    assert len(nll) == len(set(nll.values())) == 6  # a change that is not made would repeat a figure
    assert (out / "ablations.svg").stat().st_size > 1000


def test_settings_within_settings_come_back_from_their_file(finished, tmp_path):
    made, out = finished
    assert joint_experiment([out]) == made
    assert gather(tmp_path, [out])


def test_the_variants_are_those_that_the_readings_allow():
    changes = {name: VARIANTS[name] for name in VARIANTS if VARIANTS[name] != NO_CHANGE}
    assert len(changes) == len(VARIANTS) - 2 == 12
    for change in changes.values():
        arch, settings = change.apply(Architecture(1, 1), Settings(10, objective=Objective(beta_local=7.0)))
        assert (arch, settings) != (Architecture(1, 1), Settings(10, objective=Objective(beta_local=7.0)))


def test_a_change_leaves_the_rest_alone():
    change = Change(arch={"latent_scale": "exp"}, objective={"beta_global": 5.0}, anneal=0.5)
    arch, settings = change.apply(Architecture(2, 3), Settings(10, 0.1, objective=Objective(beta_local=7.0)))
    assert arch == Architecture(2, 3, latent_scale="exp")
    assert settings == Settings(10, 0.1, objective=Objective(7.0, 5.0, anneal="linear", anneal_steps=5))


def test_a_weight_that_is_the_experiments_own_is_not_run_twice():
    labels = [str(label) for label in AblationsExperiment.presets()["paper"].labels()]
    assert "dsvnp-beta-local-1000@curves" not in labels
    assert "dsvnp-beta-local-1000@cartpole" in labels
    assert "dsvnp-beta-local-5@curves" in labels
    assert "dsvnp-beta-local-5@cartpole" not in labels
    assert len(labels) == 2 * (len(VARIANTS) - 1)


@pytest.mark.parametrize(("setting", "message"), [("datasets", "toy"), ("variants", "dsvnp-exp")])
def test_an_unknown_name_is_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        AblationsExperiment(**{setting: (message,)}).labels()


def test_models_without_an_ablation_are_refused():
    with pytest.raises(ValueError, match="The ablations are of np, dsvnp; none of cnp is among them"):
        AblationsExperiment(models=("cnp",)).labels()
