"""Models under a coherent likelihood: joint densities, functions at once, consistency, and what they learn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.distributions import MultivariateNormal

from dsvnp.estimation import log_likelihood
from dsvnp.models import Architecture, NeuralProcess, Transformer, make_model
from dsvnp.objectives import importance_weighted
from dsvnp.sources.gp import GPPrior, gp_tasks
from dsvnp.task import Task

SMALL = {
    "encoder": (16,),
    "dim_lat": 8,
    "decoder": (16,),
    "dim_functions": 4,
    "num_components": 3,
    "sigma_floor": 0.05,
}
STACK = Transformer(8, 2, 2, 16, (8,))


def made(name: str, likelihood: str, dim_y: int = 1, **changes) -> NeuralProcess:
    torch.manual_seed(0)
    arch = Architecture(1, dim_y, likelihood, transformer=STACK, cells=STACK, **SMALL)
    return make_model(name, replace(arch, **changes)).double()


def some_task(dim_y: int = 1, num_tasks: int = 3, context: int = 4, targets: int = 6) -> Task:
    g = torch.Generator().manual_seed(1)
    x = torch.randn(num_tasks, context + targets, 1, generator=g, dtype=torch.float64)
    y = torch.randn(num_tasks, context + targets, dim_y, generator=g, dtype=torch.float64)
    return Task.from_sets(x[:, :context], y[:, :context], x[:, context:], y[:, context:])


def holed(task: Task) -> Task:
    """With an empty slot, and a missing output."""
    y, mask = task.y_target.clone(), task.mask_target.clone()
    y[0, 1, 0], mask[1, 2] = torch.nan, False
    return replace(task, y_target=y, mask_target=mask)


every_head = pytest.mark.parametrize(("likelihood", "dim_y"), [("coherent", 2), ("coherent-mixture", 1)])


@every_head
@pytest.mark.parametrize("name", ["cnp", "tnp", "tabtnp"])
def test_training_maximises_the_density_of_all_targets_that_prediction_has(name, likelihood, dim_y):
    model, task = made(name, likelihood, dim_y), holed(some_task(dim_y))
    torch.manual_seed(0)
    predictive = model.predict(task, 1)
    known = task.mask_target & ~task.y_target.isnan().all(-1)
    expected = predictive.log_prob_joint(task.y_target, known)
    torch.testing.assert_close(model.objective(task).log_likelihood, expected)
    found = log_likelihood(model, task, "task")
    torch.testing.assert_close(found.values * known.sum(-1), expected)
    assert (found.method, found.still) == ("exact", True)
    torch.testing.assert_close(log_likelihood(model, task, "task", chunk=2).values, found.values)
    torch.testing.assert_close(model.log_prob_joint(task, 2, block=6), expected)


def test_the_density_of_a_task_is_that_of_a_dense_gaussian():
    model, task = made("tnp", "coherent", 2), some_task(2)
    p = model.predict(task)
    factor = p.factor[0, 0].flatten(1, 2)
    covariance = factor @ factor.mT + torch.diag_embed(p.noise[0, 0].flatten(1).square())
    exact = MultivariateNormal(p.loc[0, 0].flatten(1), covariance).log_prob(task.y_target.flatten(1))
    torch.testing.assert_close(model.objective(task).log_likelihood, exact)
    shares = model.draws(task.joined(), {}).log_likelihood[0, 0]
    torch.testing.assert_close(shares[:, 4:], (exact / 6)[:, None].expand(-1, 6))
    assert (shares[:, :4] == 0).all()


@every_head
def test_a_model_is_one_stochastic_process_given_its_context(likelihood, dim_y):
    """The density of some targets is that of all with the others integrated out, whatever their order."""
    model, task = made("tnp", likelihood, dim_y), some_task(dim_y)
    some = [4, 1, 3]
    alone = model.predict(
        replace(task, **{k: v[:, some] for k, v in task.tensors().items() if "target" in k})
    )
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[:, some] = True
    whole = model.predict(task).log_prob_joint(task.y_target, mask)
    torch.testing.assert_close(alone.log_prob_joint(task.y_target[:, some]), whole)


@every_head
def test_functions_come_from_one_pass_and_vary_together(likelihood, dim_y, monkeypatch):
    model, task = made("tnp", likelihood, dim_y), some_task(dim_y)
    passes, decode = [], model.decode
    monkeypatch.setattr(type(model), "decode", lambda self, *a: passes.append(1) or decode(*a))
    functions = model.sample_functions(task, 4000, noise=False, generator=torch.Generator().manual_seed(0))
    assert len(passes) == 1
    observed = model.sample_functions(task, 4000, generator=torch.Generator().manual_seed(0))
    p = model.predict(task)
    torch.testing.assert_close(functions.var(0), p.epistemic, rtol=0.15, atol=0.02)
    torch.testing.assert_close(observed.var(0), p.variance, rtol=0.15, atol=0)
    together = torch.corrcoef(functions[:, 0, :, 0].T)
    assert together.fill_diagonal_(0).abs().max() > 0.3
    model.sample_functions(task, 2, autoregressive=True)
    assert len(passes) > 6


@every_head
def test_an_empty_context_has_functions_too(likelihood, dim_y):
    model, task = made("tnp", likelihood, dim_y), some_task(dim_y, context=0)
    for noise in (True, False):
        assert model.sample_functions(task, 3, noise=noise).isfinite().all()
    assert model.log_prob_joint(task, 2, block=4).isfinite().all()


def test_a_target_is_predicted_as_without_the_copula():
    """The mixture of each target is that of the same raw numbers under a mixture head."""
    model, task = made("tnp", "coherent-mixture"), some_task()
    plain = made("tnp", "mixture")
    weights = model.state_dict()
    size = plain.likelihood.dim_raw
    for name in ("decoder.rest.0.weight", "decoder.rest.0.bias"):
        weights[name] = weights[name][:size]
    plain.load_state_dict(weights)
    one, other = model.predict(task), plain.predict(task)
    torch.testing.assert_close(one.log_prob(task.y_target), other.log_prob(task.y_target))
    torch.testing.assert_close(one.quantile(0.9), other.quantile(0.9))
    assert log_likelihood(model, task).mean == pytest.approx(log_likelihood(plain, task).mean)


@every_head
def test_a_shift_of_all_inputs_changes_nothing_for_an_equivariant_transformer(likelihood, dim_y):
    changes = {"transformer": replace(STACK, equivariant=True)}
    model, task = made("tnp", likelihood, dim_y, **changes), some_task(dim_y)
    moved = replace(task, x_context=task.x_context + 3, x_target=task.x_target + 3)
    torch.testing.assert_close(model.objective(moved).log_likelihood, model.objective(task).log_likelihood)
    p = model.predict(task)
    rows = (p.factor if likelihood == "coherent" else p.ties)[0, 0]
    assert not torch.allclose(rows[:, 0], rows[:, 1])  # tokens alike, other places
    empty = task.x_context[:, :0], task.y_context[:, :0], task.x_target
    q = model.predict(Task.from_sets(*empty))
    rows = (q.factor.flatten(-2) if likelihood == "coherent" else q.ties)[0, 0]
    kernel = rows @ rows.mT  # without a context the covariance is one of differences
    lag = (task.x_target - task.x_target.mT).abs()
    near, far = kernel[lag < 0.2], kernel[lag > 1.5]
    assert near.mean() > far.mean()


def test_turned_rows_come_in_pairs():
    with pytest.raises(ValueError, match="turns pairs of rows, got dim_functions=3"):
        made("tnp", "coherent", transformer=replace(STACK, equivariant=True), dim_functions=3)


@pytest.mark.parametrize("name", ["np", "attnnp"])
def test_a_latent_of_the_task_goes_together_with_a_coherent_head(name):
    model, task = made(name, "coherent"), some_task()
    noise = model.draw_noise(task, 5, generator=torch.Generator().manual_seed(0))
    draws = model.draws(task.joined(), noise)
    assert draws.log_likelihood.shape[:2] == (5, 1)
    assert importance_weighted(draws).isfinite().all()
    p = model.predict(task, 5)
    each = [p.map(lambda array, k=k: array[k : k + 1]).log_prob_joint(task.y_target) for k in range(5)]
    torch.testing.assert_close(
        p.log_prob_joint(task.y_target), torch.stack(each).logsumexp(0) - torch.tensor(5.0).log()
    )
    assert log_likelihood(model, task, "task", max_draws=64).values.isfinite().all()


@pytest.mark.parametrize("name", ["dsvnp", "dsvtnp"])
def test_a_latent_of_each_target_is_refused(name):
    with pytest.raises(ValueError, match=f"joins all targets and allows no latent of each, got '{name}'"):
        made(name, "coherent")


def test_several_outputs_need_the_gaussian_head():
    with pytest.raises(ValueError, match="needs one output, got dim_y=2"):
        made("tnp", "coherent-mixture", 2)
    with pytest.raises(ValueError, match="dim_functions must be at least 1, got 0"):
        made("tnp", "coherent", dim_functions=0)


@pytest.mark.parametrize("likelihood", ["coherent", "coherent-mixture"])
def test_training_finds_functions(likelihood):
    """A hundred steps on smooth functions: all targets together are more likely than one by one."""
    torch.manual_seed(0)
    sizes = {"encoder": (32,), "dim_lat": 32, "decoder": (32,), "dim_functions": 8, "num_components": 3}
    model = make_model("cnp", Architecture(1, 1, likelihood, sigma_floor=0.02, **sizes))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    prior, generator = GPPrior(length=(0.4, 0.6)), torch.Generator().manual_seed(0)
    for _ in range(100):
        (known,) = gp_tasks(prior, 16, generator)
        bound = model.objective(known.task)
        optimizer.zero_grad()
        (-bound.log_likelihood.sum() / bound.num_points.sum()).backward()
        optimizer.step()
    tests = [known.task for known in gp_tasks(prior, 64, torch.Generator().manual_seed(1))]
    p = model.predict(tests[0])
    assert log_likelihood(model, tests, "task").mean > log_likelihood(model, tests).mean + 0.1
    assert p.epistemic.sum() > 0.5 * p.variance.sum()
