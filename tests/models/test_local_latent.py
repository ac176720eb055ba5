"""Options of DSVNP's local latent: its size, its start, what its gradient reaches, and the ladder posterior."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dsvnp import Architecture, NeuralProcess, Task, make_model
from dsvnp.gaussian import DiagonalGaussian
from dsvnp.models.parts import LadderPosterior

ARCH = Architecture(
    2, 2, embed_x="mlp", dim_latx=3, dim_laty=3, encoder=(8,), dim_lat=6, decoder=(8,), sigma_floor=0.01
)
DRAWS = {"num_global": 2, "num_local": 3}


def made(seed: int = 0, **changes: object) -> NeuralProcess:
    torch.manual_seed(seed)
    return make_model("dsvnp", replace(ARCH, **changes)).double()  # type: ignore[arg-type]


def some_task() -> Task:
    g = torch.Generator().manual_seed(1)
    x, y = (torch.randn(3, 7, 2, generator=g, dtype=torch.float64) for _ in range(2))
    return Task.from_points(x, y, (torch.arange(7) < 3).expand(3, -1))


def noise_for(model: NeuralProcess, shared: bool = False) -> dict[str, Tensor]:
    return model.draw_noise(some_task(), **DRAWS, shared=shared, generator=torch.Generator().manual_seed(2))


def raw_outputs(model: NeuralProcess, noise: dict[str, Tensor]) -> Tensor:
    return model.decode(model.summarise(some_task(), noise), some_task().x_target, noise)


# --- size ---


def test_the_local_latent_may_be_smaller_than_the_representation():
    model = made(dim_local=2)
    draws = model.draws(some_task(), noise_for(model))
    assert draws.z_local.shape == (2, 3, 3, 7, 2)
    assert draws.q_local.mean.shape == draws.p_local.scale.shape == (2, 3, 7, 2)
    assert draws.z_global.shape == (2, 3, 6)
    assert model.predict(some_task(), 2, 3).shape == (2, 3, 3, 7, 2)


def test_without_options_the_local_latent_has_the_papers_size_and_networks():
    model, named = made(), made(dim_local=6, local_hidden=(6,))
    assert model.arch.local_size == 6
    for (name, value), (same_name, same) in zip(
        model.named_parameters(), named.named_parameters(), strict=True
    ):
        assert name == same_name
        assert torch.equal(value, same)


@pytest.mark.parametrize("posterior", ["free", "ladder"])
def test_local_networks_have_hidden_layers_of_their_own(posterior):
    model = made(local_hidden=(5, 4), local_posterior=posterior)
    for network in (model.local_prior, model.local_posterior):
        assert [tuple(layer.weight.shape) for layer in network.net.rest] == [(4, 5)]
        assert network.net.first.bias.shape == (5,)
    assert model.objective(some_task(), noise=noise_for(model)).kl_local.isfinite().all()


# --- a silent start ---


def test_a_silent_start_makes_outputs_independent_of_the_local_latent():
    model = made(local_start="silent")
    noise = noise_for(model, shared=True)
    other = noise | {"local": torch.randn_like(noise["local"])}
    assert torch.equal(raw_outputs(model, noise), raw_outputs(model, other))
    loud = made()
    assert not torch.equal(raw_outputs(loud, noise), raw_outputs(loud, other))


def test_a_silent_start_changes_the_weights_on_the_local_latent_alone_and_they_learn():
    silent, loud = made(local_start="silent"), made()
    changed = [
        name
        for (name, a), b in zip(silent.named_parameters(), loud.parameters(), strict=True)
        if not torch.equal(a, b)
    ]
    assert changed == ["decoder.first.weights.2"]
    loss = silent.objective(some_task(), noise=noise_for(silent)).elbo().sum()
    gradient = torch.autograd.grad(loss, silent.decoder.first.weights[2])[0]
    assert gradient.abs().max() > 0


# --- gradients that stop ---


@pytest.mark.parametrize("posterior", ["free", "ladder"])
def test_detached_the_local_kl_reaches_the_local_networks_alone(posterior):
    def reached(detach: bool) -> set[str]:
        model = made(local_detach=detach, local_posterior=posterior)
        if posterior == "ladder":  # where q = p the KL has no gradient at all
            torch.nn.init.normal_(model.local_posterior.weight.bias)
        value = model.objective(some_task(), noise=noise_for(model)).kl_local.sum()
        names, parameters = zip(*model.named_parameters(), strict=True)
        gradients = torch.autograd.grad(value, parameters, allow_unused=True)
        return {n.split(".")[0] for n, g in zip(names, gradients, strict=True) if g is not None and g.any()}

    local = {"local_posterior", "local_prior"}
    assert reached(detach=True) == local
    assert reached(detach=False) == {*local, "z_global", "embed"}


def test_detaching_changes_no_number():
    attached, detached = made(), made(local_detach=True)
    task, noise = some_task(), noise_for(attached)
    for a, b in zip(
        attached.objective(task, noise=noise), detached.objective(task, noise=noise), strict=True
    ):
        assert torch.equal(a, b)
    prior = noise_for(attached, shared=True)
    assert torch.equal(raw_outputs(attached, prior), raw_outputs(detached, prior))


def test_detached_draws_from_the_prior_do_not_reach_z_global_through_the_local_latent():
    model = made(local_detach=True)
    with torch.no_grad():
        model.decoder.first.weights[1].zero_()  # the decoder reads z_G through z_* alone
    value = model.prior_draws(some_task(), noise_for(model)).log_likelihood.sum()
    gradients = torch.autograd.grad(value, list(model.z_global.parameters()), allow_unused=True)
    assert all(gradient is None or not gradient.any() for gradient in gradients)


# --- the ladder ---


def test_a_ladder_starts_as_the_prior():
    model = made(local_posterior="ladder")
    draws = model.draws(some_task(), noise_for(model))
    assert torch.equal(draws.q_local.mean, draws.p_local.mean)
    assert torch.equal(draws.q_local.scale, draws.p_local.scale)
    assert (model.objective(some_task()).kl_local == 0).all()


def test_a_ladder_learns_from_its_start():
    model = made(local_posterior="ladder")
    loss = model.objective(some_task(), noise=noise_for(model)).elbo().sum()
    assert torch.autograd.grad(loss, model.local_posterior.weight.weight)[0].abs().max() > 0


def test_a_ladder_is_the_posterior_of_a_pseudo_observation():
    torch.manual_seed(0)
    ladder = LadderPosterior(ARCH, [2]).double()
    torch.nn.init.normal_(ladder.weight.weight)
    inputs = torch.randn(5, 2, dtype=torch.float64)
    prior = DiagonalGaussian(torch.randn(5, 6).double(), 0.2 + torch.rand(5, 6).double())
    q = ladder(inputs, prior=prior)
    h = ladder.net(inputs)
    w, u = ladder.weight(h), ladder.value(h)
    grid = torch.linspace(-12, 12, 4_001, dtype=torch.float64)
    for i, j in ((0, 0), (2, 3), (4, 5)):  # Bayes' rule on a grid
        density = torch.exp(
            -0.5 * ((grid - prior.mean[i, j]) / prior.scale[i, j]) ** 2
            - 0.5 * (u[i, j] - w[i, j] * grid) ** 2
        )
        mean = (grid * density).sum() / density.sum()
        variance = ((grid - mean) ** 2 * density).sum() / density.sum()
        torch.testing.assert_close(q.mean[i, j], mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(q.scale[i, j], variance.sqrt(), rtol=1e-9, atol=1e-9)


def test_a_ladder_may_be_narrower_than_the_bounded_scale_of_a_free_posterior():
    ladder = LadderPosterior(ARCH, [2])
    torch.nn.init.constant_(ladder.weight.bias, 100.0)
    q = ladder(torch.ones(1, 2), prior=DiagonalGaussian(torch.zeros(1, 6), torch.ones(1, 6)))
    assert (q.scale < 0.011).all()


# --- what is refused ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim_local": 0}, "dim_local must be at least 1, got 0; None is the model's own"),
        ({"local_hidden": ()}, "local_hidden must hold at least one size, each at least 1, got ()"),
        ({"local_hidden": (4, 0)}, "local_hidden must hold at least one size, each at least 1, got (4, 0)"),
        ({"local_start": "loud"}, "local_start must be 'random' or 'silent', got 'loud'"),
        ({"local_posterior": "fixed"}, "local_posterior must be 'free' or 'ladder', got 'fixed'"),
    ],
)
def test_options_that_do_not_exist_are_refused(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        replace(ARCH, **changes)
