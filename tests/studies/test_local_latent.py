"""The study of the local latent: every recipe is one that can be trained, and a trial writes what it measured."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from dsvnp import Architecture, make_model
from dsvnp.objectives import Objective
from dsvnp.predictive import log_mean_exp
from studies import local_latent
from studies.sensors import Sensors, new_sensors


def test_every_recipe_names_settings_that_exist():
    for recipe in local_latent.all_recipes().values():
        Architecture(1, 2, **recipe.arch)
        objective = Objective(**recipe.objective)
        assert recipe.model == "dsvnp" or objective.num_local == 1


@pytest.mark.parametrize(("problem", "name"), [("shared-noise-2", "log_likelihood"), ("sensors", "rmse_5")])
def test_a_trial_writes_one_line_per_seed(problem, name, tmp_path, monkeypatch):
    monkeypatch.setattr(local_latent, "WIDE", {"encoder": (8,), "dim_lat": 4, "decoder": (8,)})
    out = tmp_path / "trials.jsonl"
    arguments = {
        "problem": problem,
        "recipe": "np,local-ladder-2-late-iw",
        "steps": 3,
        "seeds": "0,1",
        "tasks": 4,
    }
    options = [part for key, value in arguments.items() for part in (f"--{key}", str(value))]
    monkeypatch.setattr(sys, "argv", ["local_latent", *options, "--out", str(out)])
    local_latent.main()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["recipe"], line["seed"]) for line in lines] == [
        (recipe, seed) for recipe in ("np", "local-ladder-2-late-iw") for seed in (0, 1)
    ]
    assert all(abs(line[name]) < 10 for line in lines)


def test_draws_by_importance_and_from_the_prior_agree():
    torch.manual_seed(0)
    arch = Architecture(1, 1, encoder=(8,), dim_lat=4, decoder=(8,), dim_local=2, local_posterior="ladder")
    model = make_model("dsvnp", arch)
    torch.nn.init.normal_(model.local_posterior.weight.bias, std=0.5)
    task = new_sensors(5, torch.Generator().manual_seed(0), num_sensors=2)
    generator = torch.Generator().manual_seed(1)
    value, draws = local_latent.log_likelihood(model, task, generator, tolerance=1e-4, most=32)
    with torch.no_grad():
        noise = model.draw_noise(task, 4096, 1, shared=True, generator=generator)
        prior = log_mean_exp(model.prior_draws(task, noise).log_likelihood, (0, 1))
    torch.testing.assert_close(value, prior, rtol=0, atol=0.05)
    assert draws >= 128


def test_sensors_put_filled_readings_first_and_flag_them_alone():
    source = Sensors(0, batch_size=4)
    generator = torch.Generator().manual_seed(0)
    uniforms = {
        name: torch.rand(shape, generator=generator) for name, shape in source.uniform_shapes().items()
    }
    task = source.batch(source.static(), uniforms, torch.tensor(0))
    sizes = task.mask_target.sum(1)
    assert (sizes >= 20).all()
    assert torch.equal(task.mask_target, torch.arange(60) < sizes[:, None])
    assert not (task.in_context & ~task.mask_target).any()
    task.check()
