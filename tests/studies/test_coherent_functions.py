"""The study of coherent functions: the likelihood of its model, its measures, and what a trial writes."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from safetensors.torch import save_file

from dsvnp.estimation import log_likelihood
from dsvnp.objectives import Objective, importance_weighted
from dsvnp.paper.field.unseen import draw_marks
from dsvnp.sources.gp import GPPrior, gp_tasks
from studies import coherent_functions as study
from studies import linear_tnp


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
        assert recipe.model in ("tnp", "dsvtnp", linear_tnp.LinearTNP.name)


def test_the_exact_joint_is_that_of_a_dense_gaussian_over_the_targets_outside_the_context(task):
    net = make("exact")
    with torch.no_grad():
        joint = net.joint(task)
        loc, noise, factor = (part.double() for part in net.gaussian(task))
        bound = net.objective(task)
    y, _ = task.all_points()
    for row, counted in enumerate(net.counted(task)):
        mean, low = loc[row, counted], factor[row, counted]
        covariance = low @ low.T + torch.diag(noise[row, counted].square())
        dense = torch.distributions.MultivariateNormal(mean, covariance)
        assert float(joint[row]) == pytest.approx(
            float(dense.log_prob(y[row, counted, 0].double())), abs=1e-3
        )
    torch.testing.assert_close(bound.log_likelihood, joint)  # what training maximises


def test_a_draw_of_the_exact_model_moves_its_mean_by_the_factor_alone(task):
    net = make("exact")
    z = torch.randn(3, task.num_tasks, linear_tnp.DIM_GLOBAL)
    with torch.no_grad():
        loc, noise, factor = net.gaussian(task)
        found = net.predict(task, 3, noise={"global": z})
    moved = loc + (factor @ z.unsqueeze(-1)).squeeze(-1)  # [K, B, T]
    outside = net.counted(task)
    torch.testing.assert_close(found.loc[:, 0, ..., 0][:, outside], moved[:, outside])
    torch.testing.assert_close(found.scale[0, 0, ..., 0][outside], noise[outside])


@pytest.mark.parametrize("name", ["tnp", "exact"])
def test_measures_without_draws_are_exact(name, task):
    net = make(name)
    found = study.measure_coherence(net, [task], 32)
    assert found["moved"] == found["kl_global"] == 0
    assert (found["coherence"] == pytest.approx(0, abs=1e-6)) == (name == "tnp")
    assert (found["share"] > 0.01) == (name == "exact")
    with torch.no_grad():
        per_task = net.objective(task).log_likelihood / net.counted(task).sum(-1)
    assert found["joint"] == pytest.approx(float(per_task.mean()), abs=1e-5)


def test_the_cost_of_a_diagonal_posterior_is_its_divergence_from_the_exact_one(task):
    net = make("exact")
    found = study.costs(net, [task])
    with torch.no_grad():
        _, noise, factor = net.gaussian(task)
    waves = torch.where(net.counted(task)[..., None], factor / noise[..., None], 0.0).double()
    precisions = torch.eye(linear_tnp.DIM_GLOBAL, dtype=torch.float64) + waves.mT @ waves
    basis = torch.linalg.eigh(precisions.mean(0)).eigenvectors
    for precision in basis.T @ precisions @ basis:
        exact = torch.distributions.MultivariateNormal(
            torch.zeros(len(precision)).double(), precision.inverse()
        )
        nearest = torch.diag(1 / precision.diagonal())
        mine = torch.distributions.MultivariateNormal(torch.zeros(len(precision)).double(), nearest)
        found["diagonal_cost"] -= float(torch.distributions.kl_divergence(mine, exact)) / len(precisions)
    assert found["diagonal_cost"] == pytest.approx(0, abs=1e-4)
    with torch.no_grad():
        loc, noise, factor = net.gaussian(task)
        alone = torch.distributions.Normal(loc, (noise.square() + factor.square().sum(-1)).sqrt())
        each = alone.log_prob(task.all_points()[0][..., 0])
        gain = net.joint(task) - torch.where(net.counted(task), each, 0.0).sum(-1)
    assert found["gain_per_task"] == pytest.approx(float(gain.mean()), abs=1e-4)


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


@pytest.mark.parametrize("name", ["exact", "npml", "elbo-ramp"])
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
    monkeypatch.setattr(sys, "argv", ["", "--recipe", "tnp,elbo-ramp,exact", *options, "--out", str(out)])
    study.main()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["recipe"] for row in rows] == ["tnp", "elbo-ramp", "exact"]
    assert all(row["steps"] == 3 and row["tasks"] == 16 and abs(row["marginal"]) < 20 for row in rows)
