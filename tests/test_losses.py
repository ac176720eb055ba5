"""Training losses, each against its formula written as a loop or against an exact likelihood."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

from dsvnp import Architecture, NeuralProcess, Task, make_model
from dsvnp.gaussian import DiagonalGaussian
from dsvnp.losses import floored_kl, importance_weighted_bound, self_normalised, training_loss
from dsvnp.objectives import Bound, Draws, Objective, Weights, importance_weighted, weighted_loss

K, S, B, T, Z = 3, 2, 4, 5, 2
COUNTED = torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 0, 0, 1], [0, 1, 1, 1, 1]], dtype=torch.bool)
POINTS = int(COUNTED.sum())
SEVERAL = {"num_global": K, "num_local": S}
ARCH = Architecture(1, 2, encoder=(8,), dim_lat=4, decoder=(8,))


def gaussian(*shape: int) -> DiagonalGaussian:
    return DiagonalGaussian(torch.randn(*shape).double(), 0.3 + torch.rand(*shape).double())


def some_draws(num_global: int = K) -> Draws:
    torch.manual_seed(0)
    q_global, q_local = gaussian(B, Z), gaussian(num_global, B, T, Z)
    return Draws(
        log_likelihood=torch.randn(num_global, S, B, T).double(),
        counted=COUNTED,
        q_global=q_global,
        p_global=gaussian(B, Z),
        z_global=q_global.sample(torch.randn(num_global, B, Z).double()),
        q_local=q_local,
        p_local=gaussian(num_global, B, T, Z),
        z_local=q_local.unsqueeze(1).sample(torch.randn(num_global, S, B, T, Z).double()),
    )


def at(distribution: DiagonalGaussian, *index: int) -> Independent:
    return Independent(Normal(distribution.mean[index], distribution.scale[index]), 1)


def log_weights(draws: Draws, b: int, beta_local: float, beta_global: float) -> tuple[Tensor, Tensor]:
    """ln of the weights of a task's draws: of z_t [K, S, T], and of z_G alone [K]."""
    of_local, of_global = torch.zeros(K, S, T).double(), torch.zeros(K).double()
    for k in range(K):
        z = draws.z_global[k, b]
        of_global[k] = beta_global * (at(draws.p_global, b).log_prob(z) - at(draws.q_global, b).log_prob(z))
        for s in range(S):
            for t in range(T):
                z = draws.z_local[k, s, b, t]
                ratio = at(draws.p_local, k, b, t).log_prob(z) - at(draws.q_local, k, b, t).log_prob(z)
                of_local[k, s, t] = draws.log_likelihood[k, s, b, t] + beta_local * ratio
    return of_local, of_global


def some_task() -> Task:
    g = torch.Generator().manual_seed(1)
    x, y = (torch.randn(3, 7, dim, generator=g, dtype=torch.float64) for dim in (1, 2))
    return Task.from_points(x, y, (torch.arange(7) < 3).expand(3, -1))


def some_model(name: str = "dsvnp", **changes: object) -> NeuralProcess:
    torch.manual_seed(0)
    return make_model(name, replace(ARCH, **changes)).double()  # type: ignore[arg-type]


# --- the importance-weighted bound ---


@pytest.mark.parametrize(("beta_local", "beta_global"), [(1.0, 1.0), (0.3, 0.6), (0.0, 0.0)])
def test_the_importance_weighted_loss_is_a_log_of_means_with_weights_as_exponents(beta_local, beta_global):
    draws, weights = some_draws(), Weights(beta_local, beta_global)
    total = 0.0
    for b in range(B):
        of_local, of_global = log_weights(draws, b, beta_local, beta_global)
        mean = 0.0
        for k in range(K):
            product = math.exp(of_global[k])
            for t in range(T):
                if COUNTED[b, t]:
                    product *= sum(math.exp(of_local[k, s, t]) for s in range(S)) / S
            mean += product / K
        total += math.log(mean)
    loss, bound = training_loss(Objective(kind="iw", **SEVERAL), draws, None, weights)
    assert loss.item() == pytest.approx(-total / POINTS)
    for reported, term in zip(bound, Bound.of(draws), strict=True):  # the terms of the bound, as always
        assert torch.equal(reported, term)


@pytest.mark.parametrize("beta_local", [1.0, 0.3, 0.0])
def test_annealed_npml_weighs_the_proposed_local_latent_by_an_exponent(beta_local):
    draws = some_draws()._replace(q_global=None)  # z_G from its prior has no ratio
    total = 0.0
    for b in range(B):
        of_local, _ = log_weights(some_draws(), b, beta_local, 0.0)
        products = of_local.exp().mean(1)[:, COUNTED[b]].prod(-1)  # [K]
        total += math.log(products.mean())
    loss, _ = training_loss(Objective(kind="npml", **SEVERAL), None, draws, Weights(beta_local))
    assert loss.item() == pytest.approx(-total / POINTS)


def test_one_draw_of_the_global_latent_has_its_kl_exactly():
    draws, weights = some_draws(1), Weights(0.7, 0.4)
    without = importance_weighted(draws._replace(q_global=None, p_global=None), weights)
    kl = kl_divergence(
        Independent(Normal(*draws.q_global), 1),
        Independent(Normal(*draws.p_global), 1),
    )
    torch.testing.assert_close(importance_weighted_bound(draws, weights), without - 0.4 * kl)


def test_one_draw_of_each_latent_is_the_elbo():
    draws = some_draws(1)
    one = draws._replace(log_likelihood=draws.log_likelihood[:, :1], z_local=draws.z_local[:, :1])
    torch.testing.assert_close(importance_weighted_bound(one, Weights()), Bound.of(one).elbo())


def linear_gaussian(num_local: int, tasks: int = 4_000) -> tuple[Draws, float]:
    """y = 2 z + N(0, 0.3²) with z ~ N(0, 1) and a q that is a little off; and the exact ln p(y)."""
    g = torch.Generator().manual_seed(num_local)
    y, sigma = 1.3, 0.3
    variance = 1 / (1 + 4 / sigma**2)
    mean = variance * 2 * y / sigma**2
    shape = (1, tasks, 1, 1)
    q = DiagonalGaussian(
        torch.full(shape, mean + 0.1).double(), torch.full(shape, 1.5 * variance**0.5).double()
    )
    p = DiagonalGaussian(torch.zeros(shape).double(), torch.ones(shape).double())
    z = q.unsqueeze(1).sample(torch.randn(1, num_local, tasks, 1, 1, generator=g, dtype=torch.float64))
    likelihood = Normal(2 * z[..., 0], sigma).log_prob(torch.tensor(y).double())
    counted = torch.ones(tasks, 1, dtype=torch.bool)
    draws = Draws(likelihood, counted, q_local=q, p_local=p, z_local=z)
    return draws, Normal(0.0, math.sqrt(4 + sigma**2)).log_prob(torch.tensor(y)).item()


def test_the_importance_weighted_bound_rises_from_the_elbo_to_the_exact_likelihood():
    def mean(draws: Draws) -> float:
        return importance_weighted_bound(draws, Weights()).mean().item()

    one, exact = linear_gaussian(1)
    elbo = Bound.of(one).elbo().mean().item()
    values = [mean(linear_gaussian(num)[0]) for num in (1, 4, 16, 256)]
    assert elbo < exact - 0.3
    assert values[0] == pytest.approx(elbo, abs=0.05)
    assert values[0] < values[1] < values[2] < values[3] < exact + 0.01
    assert values[3] == pytest.approx(exact, abs=0.01)


# --- predictive likelihood, and its mix with the bound ---


@pytest.mark.parametrize("name", ["np", "attnnp", "dsvnp"])
def test_npml_is_a_log_mean_exp_over_draws_from_the_prior(name):
    model, task = some_model(name), some_task()
    noise = model.draw_noise(task, K, S, generator=torch.Generator().manual_seed(3))
    prediction = model.predict(task, K, S, noise=noise)
    draws = model.prior_draws(task, noise)
    each = prediction.component_log_prob(task.y_target)  # [K, S, B, T]
    total = 0.0
    for b in range(3):
        mean = 0.0
        for k in range(K):
            product = 1.0
            for t in range(7):
                product *= each[k, :, b, t].exp().mean().item()
            mean += product / K
        total += math.log(mean)
    loss, bound = training_loss(Objective(kind="npml", **SEVERAL), None, draws, Weights())
    assert loss.item() == pytest.approx(-total / 21)
    assert torch.equal(bound.log_likelihood, Bound.of(draws).log_likelihood)
    assert not bound.kl_local.any()
    assert not bound.kl_global.any()


def test_a_proposed_local_latent_is_drawn_from_its_posterior_given_z_global_from_the_prior():
    model, task = some_model(), some_task()
    noise = model.draw_noise(task, K, S, generator=torch.Generator().manual_seed(3))
    draws = model.prior_draws(task, noise, propose_local=True)
    (z_task,) = model.summarise(task, noise)  # draws from p(z_G | C), [K, B, 1, Z]
    q = model.local_posterior(z_task, task.x_target, task.y_target)
    z_local = q.mean.unsqueeze(1) + q.scale.unsqueeze(1) * noise["local"]
    raw = model.decoder(task.x_target, z_task.unsqueeze(1), z_local)
    torch.testing.assert_close(draws.log_likelihood, model.likelihood.log_prob(raw, task.y_target))
    torch.testing.assert_close(draws.z_local, z_local)
    assert draws.q_global is None
    plain = model.prior_draws(task, noise)
    assert plain.q_local is None


def test_proposing_the_local_latent_estimates_the_same_likelihood():
    model, task = some_model(local_posterior="ladder"), some_task()
    with torch.no_grad():
        model.local_posterior.weight.bias.normal_()  # a q that is not p, and near enough to it
        noise = model.draw_noise(task, 10, 2_000, generator=torch.Generator().manual_seed(3))
        by_prior, by_posterior = (
            importance_weighted(model.prior_draws(task, noise, propose_local=proposed))
            for proposed in (False, True)
        )
    torch.testing.assert_close(by_posterior, by_prior, rtol=0, atol=0.1)


@pytest.mark.parametrize("kind", ["iw", "npml", "gsnn"])
def test_without_latents_every_kind_is_the_likelihood(kind):
    model, task = some_model("cnp"), some_task()
    draws = model.draws(task, {})
    loss, _ = training_loss(Objective(kind=kind, **SEVERAL), draws, model.prior_draws(task, {}), Weights())
    torch.testing.assert_close(loss, weighted_loss(Bound.of(draws), Weights()))


def test_gsnn_mixes_the_bound_and_the_predictive_likelihood():
    model, task = some_model(), some_task()
    noise = model.draw_noise(task, K, S)
    both, weights = (model.draws(task, noise), model.prior_draws(task, noise)), Weights(0.2, 0.5)
    elbo, npml = (
        training_loss(Objective(kind=kind, **SEVERAL), *both, weights)[0] for kind in ("elbo", "npml")
    )
    mixed, bound = training_loss(Objective(kind="gsnn", mix=0.3, **SEVERAL), *both, weights)
    torch.testing.assert_close(mixed, 0.3 * elbo + 0.7 * npml)
    assert torch.equal(bound.kl_local, Bound.of(both[0]).kl_local)


@pytest.mark.parametrize(("kind", "has"), [("elbo", 1), ("iw", 1), ("si", 1), ("gsnn", 0), ("npml", 0)])
def test_lacking_draws_are_named(kind, has):
    draws = some_draws()
    given = (None, draws) if has else (draws, None)
    with pytest.raises(ValueError, match=f"'{kind}' lacks draws"):
        training_loss(Objective(kind=kind, **SEVERAL), *given, Weights())


# --- self-normalised importance sampling ---


def test_the_self_normalised_surrogate_is_a_weighted_mean_of_log_densities():
    draws = some_draws()
    value = self_normalised(draws)
    for b in range(B):
        of_local, of_global = log_weights(draws, b, 1.0, 1.0)
        points = [t for t in range(T) if COUNTED[b, t]]
        whole = [
            math.exp(of_global[k]) * math.prod(of_local[k, :, t].exp().mean().item() for t in points)
            for k in range(K)
        ]
        total = 0.0
        for k in range(K):
            z = draws.z_global[k, b]
            inner = (at(draws.p_global, b).log_prob(z) + at(draws.q_global, b).log_prob(z)).item()
            for t in points:
                normalised = of_local[k, :, t].softmax(0)
                for s in range(S):
                    z = draws.z_local[k, s, b, t]
                    densities = at(draws.p_local, k, b, t).log_prob(z) + at(draws.q_local, k, b, t).log_prob(
                        z
                    )
                    inner += (normalised[s] * (draws.log_likelihood[k, s, b, t] + densities)).item()
            total += whole[k] / sum(whole) * inner
        assert value[b].item() == pytest.approx(total)


def test_the_proposal_of_si_learns_the_posterior():
    """With fixed draws of a wide q, its own term alone fits q's mean and scale to the exact posterior's."""
    draws, _ = linear_gaussian(64, tasks=500)
    mean = draws.q_local.mean.clone().requires_grad_()
    scale = draws.q_local.scale.clone().requires_grad_()
    surrogate = self_normalised(draws._replace(q_local=DiagonalGaussian(mean, scale)))
    exact_scale = (1 / (1 + 4 / 0.09)) ** 0.5
    exact_mean = exact_scale**2 * 2 * 1.3 / 0.09
    to_mean, to_scale = torch.autograd.grad(surrogate.sum(), (mean, scale))
    assert (to_mean.sum() * (exact_mean - draws.q_local.mean[0, 0, 0, 0])) > 0  # towards the posterior
    assert (to_scale.sum() * (exact_scale - draws.q_local.scale[0, 0, 0, 0])) > 0


# --- free bits ---


def test_free_bits_floor_the_mean_kl_of_each_dimension():
    draws, floor = some_draws(), 2.5
    wanted = torch.zeros(B).double()
    some_below, some_above = False, False
    for b in range(B):
        points = [t for t in range(T) if COUNTED[b, t]]
        for z in range(Z):
            mean = 0.0
            for t in points:
                for k in range(K):
                    q, p = (
                        Normal(d.mean[k, b, t, z], d.scale[k, b, t, z])
                        for d in (draws.q_local, draws.p_local)
                    )
                    mean += kl_divergence(q, p).item() / K / len(points)
            some_below, some_above = some_below or mean < floor, some_above or mean > floor
            wanted[b] += len(points) * max(floor, mean)
    assert some_below
    assert some_above
    torch.testing.assert_close(floored_kl(draws, floor), wanted)
    loss, bound = training_loss(Objective(free_bits=floor), draws, None, Weights(0.5, 1.0))
    charged = Bound.of(draws)._replace(kl_local=wanted)
    torch.testing.assert_close(loss, weighted_loss(charged, Weights(0.5, 1.0)))
    assert torch.equal(bound.kl_local, Bound.of(draws).kl_local)  # reported as it is


def test_free_bits_without_a_local_latent_add_nothing():
    draws = some_draws()._replace(q_local=None, p_local=None, z_local=None)
    assert not floored_kl(draws, 1.0).any()


# --- a local latent that joins late ---


def test_a_late_local_latent_has_its_kl_weighed_up_at_first():
    objective = Objective(late_local=100.0, late_steps=10)

    def at_step(step: int) -> tuple[float, float]:
        local, glob = objective.weights(Weights(2.0, 3.0), torch.tensor(step), torch.zeros(2))
        return float(local), float(glob)

    assert at_step(0) == pytest.approx((200.0, 3.0))
    assert at_step(5) == pytest.approx((20.0, 3.0))
    assert at_step(10) == pytest.approx((2.0, 3.0))
    assert at_step(1000) == pytest.approx((2.0, 3.0))


def test_a_late_local_latent_goes_with_annealing():
    objective = Objective(late_local=16.0, late_steps=8, anneal="linear", anneal_steps=4)
    local, glob = objective.weights(Weights(), torch.tensor(2), torch.zeros(2))
    assert (float(local), float(glob)) == pytest.approx((0.5 * 16**0.75, 0.5))


# --- one σ for all outputs at first ---


def test_outputs_share_one_sigma_at_first_and_get_their_own_over_half_as_many_steps():
    objective = Objective(common_steps=10)
    for step, expected in ((0, 1.0), (10, 1.0), (12, 0.6), (15, 0.0), (1000, 0.0)):
        assert float(objective.common_sigma(torch.tensor(step))) == pytest.approx(expected)
    assert Objective().common_sigma(torch.tensor(0)) is None


# --- what is refused ---


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "elb"}, "unknown kind of objective 'elb'. Did you mean 'elbo'?"),
        ({"kind": "iw"}, "'iw' needs at least two draws, got one; raise num_global or num_local"),
        ({"kind": "npml"}, "'npml' needs at least two draws, got one"),
        ({"kind": "gsnn", "mix": 1.5}, "mix must lie between 0 and 1, got 1.5"),
        ({"late_steps": -1}, "late_steps must not be negative and late_local positive, got -1 and 100.0"),
        ({"late_local": 0.0}, "late_steps must not be negative and late_local positive, got 0 and 0.0"),
        ({"late_steps": 5, "epsilon_local": 1.0}, "late_steps and epsilon_local both set the weight"),
        ({"common_steps": -1}, "common_steps must not be negative, got -1; 0 is none"),
        ({"free_bits": -0.1}, "free_bits must not be negative, got -0.1"),
        ({"kind": "iw", "num_local": 2, "free_bits": 0.1}, "'iw' has no term for free_bits"),
        ({"kind": "iw", "num_local": 2, "epsilon_local": 1.0}, "'iw' has no term for epsilon_local"),
        (
            {"kind": "si", "num_local": 2, "divide_global": False},
            "'si' has no term for divide_global=False",
        ),
        (
            {"kind": "npml", "num_local": 2, "beta_local": 2.0, "propose_local": False},
            "'npml' has no term for annealing and weights",
        ),
        (
            {"kind": "si", "num_local": 2, "anneal": "linear", "anneal_steps": 9},
            "'si' has no term for annealing and weights of a KL",
        ),
    ],
)
def test_settings_that_a_kind_has_no_use_for_are_refused(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Objective(**settings)


def test_settings_that_a_kind_can_use_are_allowed():
    ramp = {"anneal": "linear", "anneal_steps": 10, "beta_local": 0.5}
    assert Objective(kind="iw", num_local=4, **ramp).beta_local == 0.5
    assert Objective(kind="npml", num_local=4, **ramp).anneal == "linear"  # z_* is weighted by r^β_local
    assert Objective(kind="gsnn", free_bits=0.1, epsilon_local=1.0, divide_global=False).constrained
    with pytest.raises(ValueError, match="'npml' has no term for annealing and weights"):
        Objective(kind="npml", num_local=4, beta_global=2.0)
