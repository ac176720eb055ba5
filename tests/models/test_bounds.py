"""The bound against exact likelihoods, and who learns from which of its terms.

With one linear layer as decoder, a fixed σ and a local prior that is linear in z_G, p(y_T | C) is a
multivariate Gaussian that can be written down; encoders and posteriors may be anything.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

from dsvnp import MODELS, Architecture, NeuralProcess, Task, make_model
from dsvnp.objectives import Bound, importance_weighted

LINEAR = Architecture(dim_x=1, dim_y=1, encoder=(8,), dim_lat=2, decoder=())
SIGMA = 0.1 + 0.9 * torch.nn.functional.softplus(torch.tensor(-0.5)).item()
TO_Y = {"x": 0.7, "global": torch.tensor([0.8, -0.5]).double(), "local": torch.tensor([0.6, 0.9]).double()}
ACTIVE = 50.0  # a bias that keeps a ReLU from ever being at rest


def linear_model(name: str) -> NeuralProcess:
    """A model whose outputs are linear in its latents."""
    torch.manual_seed(0)
    model = make_model(name, LINEAR).double()
    with torch.no_grad():
        first = model.decoder.first
        for weight in first.weights:
            weight.zero_()
        first.weights[0][0] = TO_Y["x"]
        first.weights[1][0] = TO_Y["global"]
        first.bias.copy_(torch.tensor([0.1, -0.5]))  # the mean's, and the raw σ's
        if name == "dsvnp":
            first.weights[2][0] = TO_Y["local"]
            prior = model.local_prior
            prior.net.first.bias.fill_(ACTIVE)
            prior.head.linear.weight[2:] = 0  # a constant scale
            prior.head.linear.bias[:2] = -prior.head.linear.weight[:2].sum(1) * ACTIVE
    return model


def some_task(copies: int = 1) -> Task:
    x = torch.tensor([-1.0, -0.2, 0.5, 1.3]).double().reshape(1, 4, 1)
    y = torch.tensor([0.4, -0.3, 0.8, 1.5]).double().reshape(1, 4, 1)
    in_context = torch.tensor([[True, False, True, False]])
    return Task(
        **{n: v.expand(copies, *v.shape[1:]) for n, v in Task.from_points(x, y, in_context).tensors().items()}
    )


def exact(model: NeuralProcess) -> MultivariateNormal:
    """p(y_T | C), with z_G and each z_* integrated out."""
    task = some_task()
    x = task.x_target[0, :, 0]
    p_global = model.draws(task, {}).p_global
    of_x, of_z, noise = (
        TO_Y["x"] * torch.ones(4).double(),
        TO_Y["global"].clone(),
        torch.tensor(SIGMA).double() ** 2,
    )
    if model.name == "dsvnp":
        prior = model.local_prior
        to_z, to_x = prior.net.first.weights
        matrix = prior.head.linear.weight[:2]
        scale = 0.1 + 0.9 * prior.head.linear.bias[2:].sigmoid()
        of_z = of_z + TO_Y["local"] @ matrix @ to_z
        of_x = of_x + TO_Y["local"] @ matrix @ to_x[:, 0]
        noise = noise + (TO_Y["local"] * scale).square().sum()
    mean = of_x * x + 0.1 + of_z @ p_global.mean[0]
    covariance = (of_z * p_global.scale[0]).square().sum() + noise * torch.eye(4).double()
    return MultivariateNormal(mean.detach(), covariance.detach())


@torch.no_grad()
def estimates(model: NeuralProcess, num_global: int, num_local: int = 1, copies: int = 1000):
    """Independent bounds and importance-weighted estimates of the same task."""
    task = some_task(copies)
    generator = torch.Generator().manual_seed(num_global)
    draws = model.draws(task, model.draw_noise(task, num_global, num_local, generator=generator))
    return Bound.of(draws).elbo(), importance_weighted(draws)


def mean_and_error(values: torch.Tensor) -> tuple[float, float]:
    return values.mean().item(), values.std().item() / len(values) ** 0.5


@pytest.mark.parametrize("name", ["np", "dsvnp"])
class TestAgainstTheExactLikelihood:
    def test_the_bound_is_below(self, name):
        model = linear_model(name)
        bound, error = mean_and_error(estimates(model, 1)[0])
        assert bound < exact(model).log_prob(some_task().y_target[0, :, 0]).item() - 5 * error

    def test_one_importance_weighted_draw_is_the_bound_on_average(self, name):
        elbo, weighted = estimates(linear_model(name), 1, copies=20_000)
        difference, error = mean_and_error(elbo - weighted)
        assert abs(difference) < 4 * error

    def test_importance_weighting_rises_with_the_number_of_draws_and_stays_below(self, name):
        model = linear_model(name)
        truth = exact(model).log_prob(some_task().y_target[0, :, 0]).item()
        values = [mean_and_error(estimates(model, k)[1]) for k in (1, 4, 16, 64)]
        for (fewer, error), (more, other_error) in pairwise(values):
            assert more > fewer - 3 * (error + other_error)
        assert values[-1][0] > values[0][0] + 0.1
        assert all(value < truth + 3 * error for value, error in values)

    def test_many_draws_reach_it(self, name):
        model = linear_model(name)
        truth = exact(model).log_prob(some_task().y_target[0, :, 0]).item()
        value, error = mean_and_error(estimates(model, 2000, num_local=4, copies=20)[1])
        assert value == pytest.approx(truth, abs=0.02 + 3 * error)

    def test_predictions_integrate_the_latents_out(self, name):
        model, task = linear_model(name), some_task()
        y = task.y_target
        prediction = model.predict(task, 40_000, generator=torch.Generator().manual_seed(0))
        distribution = exact(model)
        truth = distribution.log_prob(y[0, :, 0])
        several = model.predict(task, 4_000, 20, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(several.log_prob_joint(y)[0], truth, atol=0.05, rtol=0)
        marginal = Normal(distribution.mean, distribution.variance.sqrt()).log_prob(y[0, :, 0])
        torch.testing.assert_close(prediction.log_prob(y)[0], marginal, atol=0.01, rtol=0)
        torch.testing.assert_close(prediction.mean[0, :, 0], distribution.mean, atol=0.02, rtol=0)
        torch.testing.assert_close(prediction.variance[0, :, 0], distribution.variance, atol=0, rtol=0.03)
        torch.testing.assert_close(prediction.aleatoric, torch.full((1, 4, 1), SIGMA**2).double())


def test_more_draws_of_local_latents_tighten_the_estimate():
    model = linear_model("dsvnp")
    one, several = (mean_and_error(estimates(model, 4, num_local=s)[1]) for s in (1, 8))
    assert several[0] > one[0] + 3 * (one[1] + several[1])


# --- D.4–D.6: who learns from what ---


def learners(name: str, term: str, wake: bool = False) -> set[str]:
    """The parts of a model that get a gradient from a term of the bound; `wake` fills weights that start at zero."""
    torch.manual_seed(0)
    model = make_model(name, replace(LINEAR, decoder=(8,), dim_lat=8)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if wake and parameter.ndim > 1 and not parameter.any():
                parameter.uniform_(-0.3, 0.3)
    task = some_task()
    noise = model.draw_noise(task, 2, 2, generator=torch.Generator().manual_seed(0))
    value = getattr(model.objective(task, noise=noise), term).sum()
    names, parameters = zip(*model.named_parameters(), strict=True)
    if not value.requires_grad:
        return set()
    gradients = torch.autograd.grad(value, parameters, allow_unused=True)
    moved = {n for n, g in zip(names, gradients, strict=True) if g is not None and g.abs().max() > 0}
    return {".".join(n.split(".")[:2]) if n.startswith("z_global") else n.split(".")[0] for n in moved}


GLOBAL = {"z_global.encoder", "z_global.head"}
LOCAL = {"local_posterior", "local_prior"}


def test_the_decoder_of_dsvnp_learns_from_the_likelihood_alone():
    assert learners("dsvnp", "log_likelihood") == {*GLOBAL, "local_posterior", "decoder"}
    assert learners("dsvnp", "kl_local") == {*GLOBAL, *LOCAL}
    assert learners("dsvnp", "kl_global") == GLOBAL


def test_the_global_encoder_of_dsvnp_learns_through_the_local_prior_and_the_local_posterior():
    model = linear_model("dsvnp")
    draws = model.draws(some_task(), {})
    for local in (draws.p_local, draws.q_local):
        gradient = torch.autograd.grad(
            local.mean.sum(), model.z_global.head.linear.weight, retain_graph=True
        )[0]
        assert gradient.abs().max() > 0


def test_the_decoder_and_the_attention_of_attnnp_learn_from_the_likelihood_alone():
    assert learners("attnnp", "log_likelihood") == {*GLOBAL, "decoder", "attention", "value_encoder"}
    assert learners("attnnp", "kl_global") == GLOBAL


def test_no_divergence_of_dsvtnp_reaches_its_trunk_and_the_local_one_stays_local():
    woken = {*GLOBAL, "local_posterior", "decoder", "backbone"}
    assert learners("dsvtnp", "log_likelihood") == {"decoder", "backbone"}  # latents are silent at first
    assert learners("dsvtnp", "log_likelihood", wake=True) == woken
    assert learners("dsvtnp", "kl_local", wake=True) == LOCAL
    assert learners("dsvtnp", "kl_global", wake=True) == GLOBAL


def test_the_decoder_of_np_learns_from_the_likelihood_alone():
    assert learners("np", "log_likelihood") == {*GLOBAL, "decoder"}
    assert learners("np", "kl_global") == GLOBAL


@pytest.mark.parametrize("name", ["cnp", "np", "attnnp", "dsvnp", "tnp", "dsvtnp"])
def test_draws_of_a_task_whose_context_is_apart_say_how_to_join_it(name):
    whole = some_task()
    apart = Task.from_sets(whole.x_context, whole.y_context, whole.x_target, whole.y_target)
    model = make_model(name, LINEAR).double()
    with pytest.raises(ValueError, match=r"call joined\(\) on the task before noise is drawn"):
        model.draws(apart, model.draw_noise(apart))
    joined = apart.joined()
    assert model.draws(joined, model.draw_noise(joined)).counted.shape == (1, 8)


@pytest.mark.parametrize("name", MODELS)
def test_no_decoder_learns_from_a_divergence(name):
    if not hasattr(make_model(name, LINEAR), "decoder"):
        pytest.skip("this model calls its networks otherwise")
    assert "decoder" in learners(name, "log_likelihood")
    assert not {"decoder"} & (learners(name, "kl_local") | learners(name, "kl_global"))
