"""The study of the local latent: every recipe is one that can be trained, and a trial writes what it measured."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from dsvnp import Architecture, log_likelihood, make_model
from dsvnp.objectives import Objective
from studies import local_latent
from studies.sensors import Sensors


def test_every_recipe_names_settings_that_exist():
    for recipe in local_latent.all_recipes().values():
        Architecture(1, 2, **recipe.arch)
        objective = Objective(**recipe.objective)
        assert recipe.model in ("dsvnp", "dsvtnp") or objective.num_local == 1


@pytest.mark.parametrize(
    ("problem", "name"), [("inverse-kinematics", "log_likelihood"), ("sensors", "rmse_5")]
)
def test_a_trial_writes_one_line_per_seed(problem, name, tmp_path, monkeypatch):
    monkeypatch.setattr(local_latent, "MAX_DRAWS", 64)
    out = tmp_path / "trials.jsonl"
    arguments = {
        "problem": problem,
        "recipe": "np,local-ladder-2-late-iw",
        "steps": 3,
        "seeds": "0,1",
        "tasks": 4,
        "width": 8,
        "batch": 4,
    }
    options = [part for key, value in arguments.items() for part in (f"--{key}", str(value))]
    monkeypatch.setattr(sys, "argv", ["local_latent", *options, "--out", str(out)])
    local_latent.main()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["recipe"], line["seed"]) for line in lines] == [
        (recipe, seed) for recipe in ("np", "local-ladder-2-late-iw") for seed in (0, 1)
    ]
    assert all(abs(line[name]) < 20 for line in lines)


def test_a_global_latent_at_its_mean_draws_no_noise_and_leaves_the_local_one_its_own():
    recipe = local_latent.all_recipes()["local-free-4-late-npml-mean"]
    fleet = local_latent.train_recipe("shared-noise-2", recipe, 4, [0, 1], "cpu", 1e-3, batch=2, width=8)
    for row in (0, 1):
        shapes = fleet.replica(row).noise_shapes(2, 3, 4, 5, shared=True)
        assert shapes == {"local": (4, 5, 2, 3, 4)}


def test_the_written_likelihood_is_the_estimate_and_not_a_term_of_the_bound(monkeypatch):
    torch.manual_seed(0)
    problem = local_latent.PROBLEMS["shared-noise-2"]
    model = make_model("dsvnp", Architecture(1, 2, encoder=(8,), dim_lat=4, decoder=(8,)))
    monkeypatch.setattr(local_latent, "MAX_DRAWS", 64)
    found = dict(local_latent.measure_latents(model, "shared-noise-2", "cpu", 4))
    tasks = [known.task for known in problem.tasks(4, torch.Generator().manual_seed(77))]
    assert found["log_likelihood"] == log_likelihood(model, tasks, max_draws=64).mean
    assert found["reconstruction"] != found["log_likelihood"]


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
