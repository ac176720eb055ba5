"""Autoregression against exact Gaussian processes, whose chain rule is known, and by naive loops for all models."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy.stats import multivariate_normal
from torch import Tensor, nn

from dsvnp import MODELS, Architecture, NeuralProcess, Task, Transformer
from dsvnp.autoregression import random_orders
from dsvnp.predictive import CategoricalPredictive
from dsvnp.sources.gp import GPPrior, Hyperparameters, gp_tasks
from dsvnp.sources.gp_exact import exact

PRIOR = GPPrior("rbf", noise=0.1)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- a model that is exactly a Gaussian process ---


class ExactGP(NeuralProcess):
    """The marginal posterior of each target under a Gaussian process, behind the contract."""

    name, summary, scores_context = "exact-gp", "a Gaussian process with known hyper-parameters", False

    def _build(self, embedding: nn.Module | None) -> None:
        self.register_parameter("unused", nn.Parameter(torch.zeros(1)))
        self.hyper = Hyperparameters(*(torch.tensor([value], dtype=torch.float64) for value in (0.5, 0.9, 1)))

    def noise_shapes(self, num_tasks, num_targets, num_global, num_local, shared):
        return {}

    def draws(self, task, noise):
        raise NotImplementedError

    def summarise(self, task, noise):
        return task

    def decode(self, summary: Task, x_target: Tensor, noise) -> Tensor:
        mean, covariance = posterior(self.hyper, summary, x_target)
        sigma = covariance.diagonal(dim1=-2, dim2=-1).sqrt()
        raw = sigma + torch.log(-torch.expm1(-sigma))  # softplus of it is σ, where there is no floor
        return torch.stack([mean, raw], -1)[None, None]


def posterior(hyper: Hyperparameters, task: Task, x_target: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [B, T] and covariance [B, T, T] of new observations at x_target given the filled context."""
    x, x_new, mask = task.x_context[..., 0], x_target[..., 0], task.mask_context
    gram = PRIOR.covariance(x, x, hyper) + PRIOR.noise**2 * torch.eye(x.shape[1])
    gram = torch.where(mask[:, :, None] & mask[:, None, :], gram, torch.eye(x.shape[1], dtype=gram.dtype))
    cross = PRIOR.covariance(x_new, x, hyper) * mask[:, None, :]
    weights = torch.linalg.solve(gram, cross.mT).mT  # [B, T, C]
    own = PRIOR.covariance(x_new, x_new, hyper) + PRIOR.noise**2 * torch.eye(x_new.shape[1])
    y = torch.where(mask, task.y_context[..., 0], 0.0)
    return (weights @ y[..., None])[..., 0], own - weights @ cross.mT


def gp_model() -> ExactGP:
    return ExactGP(Architecture(1, 1, sigma_floor=0.0)).double()


def gp_batch(num_tasks: int = 4, num_points: int = 10, seed: int = 0) -> tuple[Task, Hyperparameters]:
    """Tasks with contexts and target sets of different sizes, the context among the targets."""
    fixed = replace(PRIOR, length=(0.5, 0.5), scale=(0.9, 0.9))
    [known] = gp_tasks(
        fixed, num_tasks, seeded(seed), batch_size=num_tasks, num_points=num_points, dtype=torch.float64,
        share=1,
    )  # fmt: skip
    return known.task, known.hyper


def asked(task: Task) -> Tensor:
    return task.mask_target & ~task.in_context


def small_gp_task(num_targets: int = 5) -> Task:
    x = torch.tensor([-0.9, 0.2, *torch.linspace(-1, 1, num_targets)], dtype=torch.float64).reshape(1, -1, 1)
    y = torch.tensor([0.8, -0.5], dtype=torch.float64).reshape(1, 2, 1)
    return Task.from_sets(x[:, :2], y, x[:, 2:])


@pytest.mark.parametrize("orders", [1, 3])
def test_the_chain_rule_gives_the_exact_joint_density_in_any_order(orders):
    task, hyper = gp_batch()
    assert asked(task).sum(-1).unique().numel() > 1  # tasks of different sizes
    expected = exact(task, hyper, PRIOR).per_task * asked(task).sum(-1)
    for seed in range(3):
        joint = gp_model().log_prob_joint(task, orders, generator=seeded(seed))
        torch.testing.assert_close(joint, expected, rtol=0, atol=1e-6)


def test_an_empty_context_gives_the_joint_density_of_the_prior():
    task = small_gp_task()
    y = torch.randn(1, 5, 1, generator=seeded(), dtype=torch.float64)
    bare = Task.from_sets(task.x_context[:, :0], task.y_context[:, :0], task.x_target, y)
    mean, covariance = posterior(gp_model().hyper, bare, bare.x_target)
    expected = multivariate_normal(mean[0].numpy(), covariance[0].numpy()).logpdf(y[0, :, 0].numpy())
    assert float(gp_model().log_prob_joint(bare)) == pytest.approx(expected, abs=1e-6)


def test_one_block_gives_the_product_of_the_marginals_and_smaller_blocks_something_between():
    task, hyper = gp_batch(num_tasks=40)
    marginal = exact(task, hyper, PRIOR).per_point.nansum(-1)
    model = gp_model()
    values = [
        model.log_prob_joint(task, 2, block=block, generator=seeded()).mean()
        for block in (1, 3, task.num_targets)
    ]
    torch.testing.assert_close(
        model.log_prob_joint(task, 2, block=task.num_targets), marginal, rtol=0, atol=1e-6
    )
    assert values[0] > values[1] > values[2]


def test_samples_have_the_mean_and_covariance_of_the_posterior():
    task, count = small_gp_task(), 4000
    mean, covariance = (part[0] for part in posterior(gp_model().hyper, task, task.x_target))
    variance = covariance.diagonal()
    error = ((covariance.square() + variance.outer(variance)) / count).sqrt()  # of a covariance
    samples = gp_model().sample_functions(task, count, generator=seeded())[:, 0, :, 0]
    assert ((samples.mean(0) - mean).abs() < 4 * (variance / count).sqrt()).all()
    assert ((samples.T.cov() - covariance).abs() < 4 * error).all()
    assert covariance[3, 4] > 12 * error[3, 4]  # there is a dependence to find
    together = gp_model().sample_functions(task, count, block=5, generator=seeded())[:, 0, :, 0]
    independent = together.T.cov() - variance.diag()
    assert (independent.abs() < 4 * error).all()  # targets of one block are


def test_a_function_is_predicted_from_the_context_and_its_own_chain():
    model, task = gp_model(), small_gp_task()
    chains = model.sample_functions(task, 3, generator=seeded(), chunk=10_000)  # [3, 1, T, 1]
    prediction = model.predict(task, 3, autoregressive=True, generator=seeded())
    means = model.sample_functions(task, 3, noise=False, generator=seeded(), chunk=10_000)
    assert prediction.shape == (3, 1, 1, 5, 1)
    torch.testing.assert_close(means, prediction.loc[:, 0])
    for k, chain in enumerate(chains):
        x, y = torch.cat([task.x_context, task.x_target], 1), torch.cat([task.y_context, chain], 1)
        mean, covariance = posterior(model.hyper, Task.from_sets(x, y, task.x_target), task.x_target)
        torch.testing.assert_close(prediction.loc[k, 0, 0, :, 0], mean[0])
        torch.testing.assert_close(prediction.scale[k, 0, 0, :, 0].square(), covariance[0].diagonal())


def test_a_chain_that_visits_some_targets_predicts_the_others_from_these():
    model, task = gp_model(), small_gp_task()
    full = model.sample_functions(task, 3, block=2, visits=5, generator=seeded())
    torch.testing.assert_close(full, model.sample_functions(task, 3, block=2, generator=seeded()))
    orders = random_orders(task, 3, seeded())  # the generator's first numbers
    drawn = model.sample_functions(task, 3, block=2, visits=3, generator=seeded())
    means = model.sample_functions(task, 3, block=2, visits=3, noise=False, generator=seeded())
    for k in range(3):
        slots = orders[k, 0, :3]
        chain = drawn[k][:, slots]  # observations where the chain was
        x, y = torch.cat([task.x_context, task.x_target[:, slots]], 1), torch.cat([task.y_context, chain], 1)
        mean, _ = posterior(model.hyper, Task.from_sets(x, y, task.x_target), task.x_target)
        torch.testing.assert_close(means[k, 0, :, 0], mean[0])
        others = orders[k, 0, 3:]
        assert ((drawn - means)[k, 0, others].abs() > 1e-6).all()  # these are observations too
    with pytest.raises(ValueError, match="visits"):
        model.sample_functions(task, visits=0)


def test_a_chain_goes_without_noise_that_the_data_lack():
    model, task = gp_model(), small_gp_task()
    mean, covariance = (part[0] for part in posterior(model.hyper, task, task.x_target))
    known = 0.9 * float(covariance.diagonal().min().sqrt())
    variance = covariance.diagonal() - known**2
    samples = model.sample_functions(task, 4000, block=5, known_noise=known, generator=seeded())[:, 0, :, 0]
    torch.testing.assert_close(samples.var(0), variance, rtol=0.1, atol=0)
    for how in ({"block": 5}, {"autoregressive": False}):
        points = model.sample_functions(task, 2, known_noise=10.0, generator=seeded(), **how)[:, 0, :, 0]
        torch.testing.assert_close(points, mean.expand(2, -1))  # noise that exceeds σ leaves the means
    some = [  # of a chain that visits three targets, the others go without it too
        model.sample_functions(task, 2, visits=3, known_noise=10.0, noise=noise, generator=seeded())
        for noise in (True, False)
    ]
    others = random_orders(task, 2, seeded())[..., 3:].unsqueeze(-1)
    torch.testing.assert_close(*(functions.take_along_dim(others, 2) for functions in some))
    labels = CategoricalPredictive(torch.zeros(1, 1, 1, 2, 3).log_softmax(-1))
    with pytest.raises(ValueError, match="has no noise of a size"):
        labels.without_noise(0.1)


def test_an_autoregressive_prediction_has_the_same_marginals_and_tells_function_from_noise():
    task = small_gp_task(15)
    prediction = gp_model().predict(task, 2000, autoregressive=True, generator=seeded())
    once = gp_model().predict(task)
    torch.testing.assert_close(prediction.mean, once.mean, rtol=0, atol=0.08)
    torch.testing.assert_close(prediction.variance, once.variance, rtol=0.1, atol=0.003)
    assert (once.epistemic == 0).all()
    # What is left given the function is the noise, and a little: the chain saw it at 15 places only.
    assert (prediction.aleatoric >= PRIOR.noise**2).all()
    assert (prediction.aleatoric < 2.1 * PRIOR.noise**2).all()


# --- every model ---

TRANSFORMER = Transformer(width=8, num_layers=2, num_heads=2, feedforward=16, embedder=(8,))
SMALL = {"encoder": (16,), "dim_lat": 8, "decoder": (16,), "dropout": 0.5, "transformer": TRANSFORMER}
SMALL |= {"cells": TRANSFORMER}
KINDS = {
    "gaussian": Architecture(2, 2, "gaussian", **SMALL),
    "mixture": Architecture(2, 2, "mixture", num_components=3, **SMALL),
    "low-rank": Architecture(2, 2, "low-rank", **SMALL),
    "squared-error": Architecture(2, 2, "squared-error", **SMALL),
    "categorical": Architecture(2, 3, "categorical", **SMALL),
}
CONDITIONAL = ("nn", "cnp", "tnp", "tabtnp")  # models without a draw that all targets share
every_model = pytest.mark.parametrize("name", list(MODELS))
every_kind = pytest.mark.parametrize("kind", list(KINDS))
conditional_models = pytest.mark.parametrize("name", CONDITIONAL)


def make(name: str, kind: str = "gaussian") -> NeuralProcess:
    torch.manual_seed(0)
    model = MODELS[name](KINDS[kind]).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 and not parameter.any():
                parameter.uniform_(-0.3, 0.3)  # as after some training
    return model


def some_task(
    kind: str = "gaussian", num_tasks: int = 2, context: int = 3, targets: int = 5, seed: int = 0
) -> Task:
    g, shape = seeded(seed), (num_tasks, context + targets)
    x = torch.randn(*shape, 2, generator=g, dtype=torch.float64)
    y = torch.randn(*shape, 2, generator=g, dtype=torch.float64)
    if kind == "categorical":
        y = torch.randint(3, (*shape, 1), generator=g)
    return Task.from_sets(x[:, :context], y[:, :context], x[:, context:], y[:, context:])


@every_kind
@every_model
def test_every_model_draws_functions_and_scores_them_with_and_without_a_context(name, kind):
    model = make(name, kind)
    dim = 1 if kind == "categorical" else 2
    for task in (some_task(kind), some_task(kind, context=0)):
        for autoregressive in (None, True, False):
            y = model.sample_functions(task, 3, autoregressive=autoregressive, block=2)
            assert y.shape == (3, 2, 5, dim)
            assert y.dtype == task.y_target.dtype
            assert y.isfinite().all()
        smooth = model.sample_functions(task, 3, noise=False, block=2)
        assert smooth.shape == (3, 2, 5, KINDS[kind].dim_y)
        prediction = model.predict(task, 3, autoregressive=True, block=2)
        assert prediction.shape[0] == 3
        assert prediction.mean.shape == (2, 5, KINDS[kind].dim_y)
        joint = model.log_prob_joint(task, 2, num_global=3, block=2)
        assert joint.shape == (2,)
        assert joint.isfinite().all()


@every_model
def test_the_same_generator_gives_the_same_result(name):
    model, task = make(name), some_task()
    for call in (
        lambda g: model.sample_functions(task, 3, generator=g),
        lambda g: model.sample_functions(task, 3, autoregressive=True, noise=False, generator=g),
        lambda g: model.predict(task, 3, autoregressive=True, generator=g).mean,
        lambda g: model.log_prob_joint(task, 3, generator=g),
    ):
        assert torch.equal(call(seeded(1)), call(seeded(1)))
    assert not torch.equal(*(model.sample_functions(task, 3, generator=seeded(s)) for s in (1, 2)))


@every_model
def test_functions_never_read_y_target(name):
    model, task = make(name), some_task()
    for call in (
        lambda t: model.sample_functions(t, 3, generator=seeded()),
        lambda t: model.sample_functions(t, 3, autoregressive=True, generator=seeded()),
        lambda t: model.predict(t, 3, autoregressive=True, generator=seeded()).mean,
    ):
        for y in (None, torch.full_like(task.y_target, torch.nan), torch.full((2, 5, 7), torch.inf)):
            assert torch.equal(call(replace(task, y_target=y)), call(task))


def by_hand(model: NeuralProcess, task: Task, b: int, order: list[int]) -> float:
    """ln p of one task by a plain loop: predict a target, score it, append it to the context."""
    x, y = (
        task.x_context[b : b + 1][:, task.mask_context[b]],
        task.y_context[b : b + 1][:, task.mask_context[b]],
    )
    total = 0.0
    for slot in order:
        x_new, y_new = task.x_target[b : b + 1, slot : slot + 1], task.y_target[b : b + 1, slot : slot + 1]
        if not y_new.isnan().all():
            total += float(model.predict(Task.from_sets(x, y, x_new)).log_prob(y_new))
            x, y = torch.cat([x, x_new], 1), torch.cat([y, y_new], 1)
    return total


@every_kind
@conditional_models
def test_a_joint_likelihood_is_a_plain_loop_over_filled_targets(name, kind):
    model = make(name, kind)
    batch = Task.collate([some_task(kind, 1, 3, 5), some_task(kind, 1, 1, 2, seed=1)])
    order = torch.tensor([[3, 1, 4, 0, 2], [4, 1, 2, 0, 3]])  # slots 2 to 4 of the second task are empty
    joint = model.log_prob_joint(batch, order[None])
    torch.testing.assert_close(joint[0].item(), by_hand(model, batch, 0, [3, 1, 4, 0, 2]))
    torch.testing.assert_close(joint[1].item(), by_hand(model, batch, 1, [1, 0]))


@conditional_models
def test_missing_outputs_add_nothing(name):
    model, task = make(name), some_task()
    y = task.y_target.clone()
    y[0, 2], y[1, 3, 1] = torch.nan, torch.nan  # a whole point, and one output of two
    task, order = replace(task, y_target=y), [4, 2, 3, 1, 0]
    joint = model.log_prob_joint(task, torch.tensor(order).expand(1, 1, 5))
    for b in range(2):
        torch.testing.assert_close(joint[b].item(), by_hand(model, task, b, order))


@conditional_models
def test_orders_are_averaged_by_their_logarithms_and_chunks_change_nothing(name):
    model, task = make(name), some_task()
    orders = torch.stack([torch.randperm(5, generator=seeded(s)) for s in range(6)]).reshape(3, 2, 5)
    each = torch.stack([model.log_prob_joint(task, order[None]) for order in orders])
    torch.testing.assert_close(model.log_prob_joint(task, orders), each.mean(0))
    for chunk in (1, 8, 20):  # rows of 8 points each
        torch.testing.assert_close(model.log_prob_joint(task, orders, chunk=chunk), each.mean(0))
    if name != "nn":
        assert (each[0] - each[1]).abs().min() > 1e-6  # a network is no consistent process


@conditional_models
@pytest.mark.parametrize("block", [1, 2])
def test_permuted_targets_in_permuted_orders_have_the_same_likelihood(name, block):
    model, task = make(name), some_task()
    moved = torch.tensor([4, 2, 0, 1, 3])
    order = torch.tensor([1, 3, 0, 4, 2])
    other = replace(
        task, x_target=task.x_target[:, moved], y_target=task.y_target[:, moved]
    )  # slot i holds target moved[i]: target t is in slot argsort(moved)[t]
    left = model.log_prob_joint(task, order.expand(1, 1, 5), block=block)
    right = model.log_prob_joint(other, moved.argsort()[order].expand(1, 1, 5), block=block)
    torch.testing.assert_close(left, right)


@every_model
def test_targets_of_the_context_are_left_out_of_a_likelihood(name):
    model, task = make(name), some_task()
    points = task.joined()
    order = torch.tensor([6, 0, 4, 3, 1, 7, 2, 5])
    outside = order[order >= 3] - 3
    values = [
        model.log_prob_joint(points, order.expand(1, 1, 8), generator=seeded()),
        model.log_prob_joint(task, outside.expand(1, 1, 5), generator=seeded()),
    ]
    torch.testing.assert_close(*values)


@every_kind
@every_model
def test_what_stands_in_empty_slots_does_not_matter(name, kind):
    model = make(name, kind)
    batch = Task.collate([some_task(kind, 1, 3, 5), some_task(kind, 1, 1, 2, seed=1)])
    garbage = -77 if kind == "categorical" else 123.4
    dirty = replace(
        batch,
        y_context=torch.where(batch.mask_context[..., None], batch.y_context, garbage),
        x_target=torch.where(batch.mask_target[..., None], batch.x_target, 5.0),
        y_target=torch.where(batch.mask_target[..., None], batch.y_target, garbage),
    )
    orders = torch.stack([torch.randperm(5, generator=seeded(s)) for s in range(4)]).reshape(2, 2, 5)
    clean_joint, dirty_joint = (
        model.log_prob_joint(t, orders, num_global=3, generator=seeded(), validate=False)
        for t in (batch, dirty)
    )
    torch.testing.assert_close(clean_joint, dirty_joint)
    for autoregressive in (True, False):
        clean, other = (
            model.sample_functions(t, 3, autoregressive=autoregressive, generator=seeded(), validate=False)
            for t in (batch, dirty)
        )
        torch.testing.assert_close(clean, other)
        assert (clean[:, 1, 2:] == 0).all()
        assert (clean[:, 1, :2].double().abs().sum() > 0) or kind == "categorical"


def test_one_block_of_a_model_with_latents_has_the_joint_density_of_its_draws():
    model, task = make("np"), some_task()
    joint = model.log_prob_joint(task, torch.arange(5).expand(1, 1, 5), block=5, generator=seeded())
    prediction = model.predict(task, generator=seeded())
    torch.testing.assert_close(joint, prediction.log_prob_joint(task.y_target))


@every_model
def test_functions_come_from_a_shared_draw_where_the_model_has_one(name, monkeypatch):
    model, task = make(name), some_task()
    passes = []
    original = model.summarise
    monkeypatch.setattr(model, "summarise", lambda *args: (passes.append(1), original(*args))[1])
    model.sample_functions(task, 3)
    assert len(passes) == (5 if name in CONDITIONAL else 1)
    passes.clear()
    model.sample_functions(task, 3, autoregressive=True, block=2)
    assert len(passes) == 3


def test_a_function_without_noise_is_the_mean_given_its_draw_of_z_global():
    model, task = make("np"), some_task()
    smooth = model.sample_functions(task, 4, noise=False, generator=seeded())
    torch.testing.assert_close(smooth, model.predict(task, 4, generator=seeded()).loc[:, 0])
    model = make("dsvnp")
    smooth = model.sample_functions(task, 4, noise=False, num_local=6, generator=seeded())
    torch.testing.assert_close(smooth, model.predict(task, 4, 6, generator=seeded()).loc.mean(1))


def test_a_chain_of_one_block_samples_as_a_prediction_does():
    """Labels have the probabilities that the model predicts; blocks of one target depend on those before."""
    model, task = make("cnp", "categorical"), some_task("categorical", 1)
    labels = model.sample_functions(task, 4000, block=5, generator=seeded())
    shares = torch.stack([(labels == c).double().mean(0) for c in range(3)], -1)[:, :, 0]
    torch.testing.assert_close(shares, model.predict(task).mean, rtol=0, atol=0.04)


def test_the_mode_of_a_model_is_left_as_it_was():
    model, task = make("tnp").train(), some_task()
    model.sample_functions(task)
    model.log_prob_joint(task)
    model.predict(task, 2, autoregressive=True)
    assert model.training


def test_a_deterministic_chain_has_its_latents_at_their_means():
    model, task = make("np"), some_task()
    functions = model.predict(task, 3, autoregressive=True, deterministic=True)
    assert functions.shape[0] == 3
    assert (functions.loc.var(0) > 0).all()  # the outputs fed back are random all the same


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, t: m.log_prob_joint(replace(t, y_target=None)), "no y_target"),
        (lambda m, t: m.log_prob_joint(t, 0), "orders must be at least 1, got 0"),
        (lambda m, t: m.log_prob_joint(t, block=0), "block must be at least 1, got 0"),
        (
            lambda m, t: m.log_prob_joint(t, torch.zeros(1, 1, 5, dtype=torch.long)),
            "every slot from 0 to 4 once",
        ),
        (
            lambda m, t: m.log_prob_joint(t, torch.arange(5).expand(3, 5)),
            r"\[orders, tasks, targets\].*\(3, 5\)",
        ),
        (lambda m, t: m.log_prob_joint(t, num_global=0), "num_global must be at least 1"),
        (lambda m, t: m.sample_functions(t, 0), "num_samples must be at least 1, got 0"),
        (lambda m, t: m.sample_functions(t, block=0), "block must be at least 1, got 0"),
        (lambda m, t: m.predict(t, block=0, autoregressive=True), "block must be at least 1, got 0"),
        (lambda m, t: m.predict(t, noise={}, autoregressive=True), "pass a generator instead"),
        (lambda m, t: m.sample_functions(t.to(dtype=torch.float32)), "x is torch.float32"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(make("cnp"), some_task())
