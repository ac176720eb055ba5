"""DSVTNP: it starts as TNP, its latents read what they may, and its local latent learns what a head cannot say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from dsvnp import Architecture, Objective, Task, Transformer, make_model
from dsvnp.objectives import importance_weighted
from dsvnp.sources.base import TaskSource, first_points, take_batch
from dsvnp.training import Fleet, Settings

SIZES = Transformer(width=8, num_layers=2, num_heads=2, feedforward=12, embedder=(8,))
ARCH = Architecture(2, 2, encoder=(8,), dim_lat=6, decoder=(7,), transformer=SIZES)


def some_task() -> Task:
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(3, 6, 2, generator=g, dtype=torch.float64) for _ in range(2))
    return Task.from_points(x, y, torch.arange(6) < torch.tensor([[3], [0], [2]]))


def both(arch: Architecture = ARCH):
    """A TNP, and a DSVTNP with its weights."""
    torch.manual_seed(0)
    tnp, dsvtnp = (make_model(name, arch).double() for name in ("tnp", "dsvtnp"))
    result = dsvtnp.load_state_dict(tnp.state_dict(), strict=False)
    assert not result.unexpected_keys
    assert all(key.startswith(("z_global", "local_", "decoder.first.weights")) for key in result.missing_keys)
    return tnp, dsvtnp


@pytest.mark.parametrize("score_context", [None, True])
@pytest.mark.parametrize("likelihood", ["gaussian", "squared-error"])
def test_it_starts_as_tnp_whatever_its_latents_are(likelihood, score_context):
    tnp, dsvtnp = both(replace(ARCH, likelihood=likelihood, score_context=score_context))
    task = some_task()
    expected, found = tnp.predict(task), dsvtnp.predict(task, 5, 3)
    assert found.shape == (5, 3, 3, 6, 2)
    torch.testing.assert_close(found.loc, expected.loc.expand_as(found.loc), rtol=1e-13, atol=1e-13)
    left, right = tnp.objective(task), dsvtnp.objective(task, 4, 2)
    torch.testing.assert_close(right.log_likelihood, left.log_likelihood)
    assert torch.equal(right.num_points, left.num_points)


def test_at_the_start_its_trunk_learns_what_that_of_tnp_learns():
    tnp, dsvtnp = both()
    gradients = []
    for model in (tnp, dsvtnp):
        bound = model.objective(some_task())
        loss = -(bound.elbo().sum())
        gradients.append(torch.autograd.grad(loss, list(model.backbone.parameters())))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_the_size_of_the_local_latent_is_4_or_what_the_architecture_says():
    for dim_local, size in ((None, 4), (3, 3)):
        model = make_model("dsvtnp", replace(ARCH, dim_local=dim_local))
        assert model.noise_shapes(2, 5, 3, 2, shared=True) == {
            "global": (3, 2, 6), "local": (3, 2, 2, 5, size),
        }  # fmt: skip
        task = some_task().to(dtype=torch.float32)
        assert model.draws(task, model.draw_noise(task)).z_local.shape == (1, 1, 3, 6, size)


def test_the_prior_of_a_training_pass_is_that_of_a_prediction():
    _, model = both()
    task = some_task()
    summary = model.summarise(task, {})
    torch.testing.assert_close(summary.z[0, :, 0], model.draws(task, {}).p_global.mean)


@pytest.mark.parametrize("score_context", [None, True])
def test_one_pass_over_all_points_draws_from_the_priors_as_a_prediction_does(score_context):
    _, model = both(replace(ARCH, score_context=score_context))
    with torch.no_grad():
        for weight in list(model.decoder.first.weights)[1:]:
            weight.normal_()  # the latents count
    task = some_task()
    noise = model.draw_noise(task, 4, 3, generator=torch.Generator().manual_seed(1))
    each = model.predict(task, 4, 3, noise=noise).component_log_prob(task.y_target)  # [K, S, B, T]
    draws = model.prior_draws(task, noise)
    counted = draws.counted.expand_as(each)
    torch.testing.assert_close(draws.log_likelihood[counted], each[counted], rtol=1e-12, atol=1e-12)


def test_the_posterior_of_a_context_alone_is_its_prior():
    _, model = both()
    task = some_task()
    all_context = Task.from_points(task.x_target, task.y_target, torch.ones(3, 6, dtype=torch.bool))
    draws = model.draws(all_context, {})
    torch.testing.assert_close(draws.q_global.mean, draws.p_global.mean, rtol=0, atol=0)


class SharedNoise(TaskSource):
    """Two outputs at any x: one number for both, ± 1 with ½, and little noise; nothing that a diagonal σ can say."""

    refresh_every = 50

    def static(self) -> dict[str, Tensor]:
        return {}

    def pool(self, generator: torch.Generator, device: torch.device) -> dict[str, Tensor]:
        shape = (16 * self.refresh_every, 12, 1)
        draw = partial(torch.rand, generator=generator, device=device)
        sign = 2.0 * (draw(shape) < 0.5) - 1
        return {"x": 4 * draw(shape) - 2, "y": sign + 0.1 * (draw(*shape[:2], 2) - 0.5)}

    def uniform_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"context": (16,)}

    def batch(self, tensors, uniforms, step) -> Task:
        x, y = (take_batch(tensors[name], step, 16) for name in ("x", "y"))
        return Task.from_points(x, y, first_points(uniforms["context"], 2, 8, x))


def test_after_a_short_training_the_local_latent_says_what_a_gaussian_head_cannot():
    arch = Architecture(
        1, 2, encoder=(16,), dim_lat=16, decoder=(32,), transformer=replace(SIZES, num_layers=1)
    )
    source = SharedNoise()
    scores = {}
    for name in ("tnp", "dsvtnp"):
        objective = Objective(anneal="linear", anneal_steps=300)
        settings = Settings(num_steps=400, learning_rate=5e-3, objective=objective)
        fleet = Fleet(partial(make_model, name, arch), source, [0], settings)
        for _ in range(400):
            fleet.step()
        model = fleet.replica(0)
        pool = source.pool(torch.Generator().manual_seed(5), torch.device("cpu"))
        task = source.batch(pool, {"context": torch.full((16,), 0.5)}, torch.tensor(0))
        with torch.no_grad():
            noise = model.draw_noise(task, 4, 64, generator=torch.Generator().manual_seed(0))
            draws = model.draws(task, noise)
        scores[name] = (importance_weighted(draws) / draws.counted.sum(-1)).mean().item()
    assert scores["dsvtnp"] > scores["tnp"] + 1  # a diagonal Gaussian of ± 1 has −2.84


def test_the_local_posterior_given_a_prior_draw_of_z_global_is_the_one_of_training():
    model, task = both()[1], some_task()
    with torch.no_grad():
        drawn = model.draws(task, {})  # z_G at its posterior's mean
        summary = model.summarise(task, {})._replace(z=drawn.z_global[:, :, None])
        q, p = model.local_latent(summary, task.x_target, task.y_target)
    outside = ~task.in_context
    for found, expected in ((q, drawn.q_local), (p, drawn.p_local)):
        torch.testing.assert_close(found.mean[:, outside], expected.mean[:, outside])
        torch.testing.assert_close(found.scale[:, outside], expected.scale[:, outside])
    assert not torch.allclose(q.mean, p.mean)
