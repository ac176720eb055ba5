"""The study of coherent functions: the likelihood of its model, its measures, and what a trial writes."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from safetensors.torch import save_file

from dsvnp.estimation import log_likelihood
from dsvnp.networks import MLP
from dsvnp.objectives import Objective, importance_weighted
from dsvnp.paper.field.unseen import draw_marks
from dsvnp.pretrained.copula import joined
from dsvnp.sources.gp import GPPrior, gp_tasks
from studies import coherent_functions as study


@pytest.fixture
def task():
    generator = torch.Generator().manual_seed(0)
    return gp_tasks(GPPrior(), 16, generator, 16, 4, 20)[0].task


def make(name):
    torch.manual_seed(0)
    return study.make(study.RECIPES[name], 8, 1).eval()


def test_every_recipe_names_settings_that_exist():
    for recipe in study.RECIPES.values():
        Objective(**recipe.objective)
        assert recipe.model in ("tnp", "dsvtnp")


@pytest.mark.parametrize("name", ["tnp", "copula"])
def test_measures_without_draws_are_exact(name, task):
    net = make(name)
    if name == "copula":
        net = joined(net, MLP([8], [4], 1 + 3), 3)
    found = study.measure_coherence(net, [task], 32)
    assert found["moved"] == found["kl_global"] == 0
    assert (found["coherence"] == pytest.approx(0, abs=1e-6)) == (name == "tnp")
    assert (found["share"] > 0.01) == (name == "copula")
    with torch.no_grad():
        per_task = net.objective(task).log_likelihood / net.counted(task).sum(-1)
    assert found["joint"] == pytest.approx(float(per_task.mean()), abs=1e-5)
    alone = net.predict(task).log_prob(task.all_points()[0])
    counted = net.counted(task)
    each = torch.where(counted, alone, 0.0).sum(-1) / counted.sum(-1)
    assert found["marginal"] == pytest.approx(float(each.mean()), abs=1e-5)


def test_measures_of_draws_are_the_library_s_estimates(task):
    net = make("iw")
    with torch.no_grad():
        net.decoder.first.weights[1].normal_(0, 0.3)  # z_G matters …
        net.z_global.head[-1].linear.weight.mul_(6)  # … and its posterior is not its prior
    found = study.measure_coherence(net, [task], 2048)
    joint = log_likelihood(net, task, "task", max_draws=16384, tolerance=0.003)
    assert found["joint"] == pytest.approx(joint.mean, abs=0.03)
    assert found["joint"] - found["marginal"] == pytest.approx(found["coherence"])
    assert found["kl_global"] > 0.01


def test_draws_from_the_posterior_are_weighted(task):
    net = make("iw")
    with torch.no_grad():
        net.z_global.head[-1].linear.weight.mul_(30)
        found = study._likelihoods(net, task, study.AT_ONCE, torch.Generator().manual_seed(0))
        generator = torch.Generator().manual_seed(0)
        draws = study.AT_ONCE, study.NUM_LOCAL
        _, noise = (net.draw_noise(task, *draws, generator=generator) for _ in range(2))
        expected = importance_weighted(net.draws(task, noise)) / net.counted(task).sum(-1)
    assert float(found["kl"].mean()) > 0.5
    torch.testing.assert_close(found["posterior"][:, 1], expected)


@pytest.mark.parametrize("name", ["tnp", "npml", "elbo-ramp"])
def test_a_trunk_that_is_taken_over_stays_as_it_is(name, tmp_path):
    kept = make("iw")
    save_file({key: value.half() for key, value in kept.state_dict().items()}, tmp_path / "kept.safetensors")
    torch.manual_seed(1)
    net = study.make(study.RECIPES[name], 8, 1)
    study.take_trunk(net, tmp_path / "kept.safetensors")
    before = {key: value.clone() for key, value in net.state_dict().items()}
    study.train_on_trunk(net, study.RECIPES[name], 2, 0, 1e-2)
    after = net.state_dict()
    for key, value in kept.backbone.state_dict().items():
        torch.testing.assert_close(after[f"backbone.{key}"], value.half().float(), rtol=0, atol=0)
    head = kept.decoder.first.weights[0].detach().half().float()
    torch.testing.assert_close(before["decoder.first.weights.0"], head, rtol=0, atol=0)
    assert not torch.equal(after["decoder.first.weights.0"], head)
    for key in after.keys() & {"decoder.first.weights.1", "decoder.first.weights.2"}:
        assert not before[key].any()  # no latent has a say at first


def test_measured_tasks_are_those_of_the_field_s_validation_in_batches_without_empty_slots():
    batches = study.validation_tasks(48, "cpu")
    (known,) = draw_marks(3, 50, torch.device("cpu"))
    assert [batch.num_tasks for batch in batches] == [16] * 3
    for row, batch in enumerate(batches):
        assert batch.mask_target.all()
        assert batch.mask_context.all()
        first = known.task.x_target[16 * row, 0]  # the context's points come first
        torch.testing.assert_close(batch.x_context[0, 0], first)


def test_a_trial_writes_one_line_per_recipe(tmp_path, monkeypatch):
    out = tmp_path / "new" / "rows.jsonl"
    sizes = {"steps": 3, "width": 8, "layers": 1, "tasks": 16, "draws": 32}
    options = [part for key, value in sizes.items() for part in (f"--{key}", str(value))]
    monkeypatch.setattr(sys, "argv", ["", "--recipe", "tnp,elbo-ramp,copula", *options, "--out", str(out)])
    study.main()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["recipe"] for row in rows] == ["tnp", "elbo-ramp", "copula"]
    assert all(row["steps"] == 3 and row["tasks"] == 16 and abs(row["marginal"]) < 20 for row in rows)
