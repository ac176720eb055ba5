"""The contract every registered model meets; a model added to MODELS is covered by that alone.

Tests say what must hold for any model and any kind of y; noise is held fixed wherever two predictions are
compared. All in float64: "the same" means to 1e-12.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dsvnp import (
    MODELS,
    Architecture,
    NeuralProcess,
    Objective,
    Predictive,
    Task,
    Transformer,
    make_model,
)
from dsvnp.models.base import is_uniform
from dsvnp.models.feedforward import Feedforward
from dsvnp.models.parts import GlobalLatent
from dsvnp.networks import VGG
from dsvnp.objectives import Bound, Weights, weighted_loss
from dsvnp.predictive import GaussianPredictive

TRANSFORMER = Transformer(width=8, num_layers=2, num_heads=2, feedforward=16, embedder=(8,))
SMALL = {"encoder": (16,), "dim_lat": 8, "decoder": (16,), "dropout": 0.5, "transformer": TRANSFORMER}
KINDS = {
    "gaussian": Architecture(2, 2, "gaussian", **SMALL),
    "squared-error": Architecture(
        2, 2, "squared-error", embed_x="mlp", embed_x_hidden=(16,), dim_latx=8, dim_laty=8, **SMALL
    ),
    "categorical": Architecture(2, 3, "categorical", dim_laty=8, **SMALL),
}
# Equivariant attention reads x itself: these models have no embedding of x.
EQUIVARIANT = {"transformer": replace(TRANSFORMER, equivariant=True, relative=8), "embed_x": "none"}
VARIANTS = {
    "attnnp-block": {"attention": "block", "num_heads": 2, "self_attention": 1},
    "tnp-equivariant": EQUIVARIANT,
    "dsvtnp-equivariant": EQUIVARIANT,
    "tnp-rotary": {"transformer": replace(TRANSFORMER, rotary=9.0)},
}
K, S = 3, 2
TELLS_MISSING = ("tnp", "dsvtnp")  # models whose tokens say which outputs are missing


@pytest.fixture(params=list(KINDS))
def kind(request):
    return request.param


@pytest.fixture(params=[*MODELS, *VARIANTS])
def name(request):
    return request.param


@pytest.fixture
def model(name, kind):
    return seeded_model(name, KINDS[kind])


@pytest.fixture
def task(kind):
    return some_task(kind)


def seeded_model(name: str, arch: Architecture, seed: int = 0, embedding=None) -> NeuralProcess:
    torch.manual_seed(seed)
    if embedding is not None:
        embedding = embedding()
    arch = replace(arch, **VARIANTS.get(name, {}))
    name = name.split("-")[0] if name in VARIANTS else name
    return woken(make_model(name, arch, embedding).double())


@torch.no_grad()
def woken(model: NeuralProcess) -> NeuralProcess:
    """The model with numbers in every weight that starts at zero, as after some training: none is silent."""
    for parameter in model.parameters():
        if parameter.ndim > 1 and not parameter.any():
            parameter.uniform_(-0.3, 0.3)
    return model


def some_points(kind: str, num_tasks: int, num_points: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(num_tasks, num_points, 2, generator=g, dtype=torch.float64)
    if kind == "categorical":
        return x, torch.randint(3, (num_tasks, num_points, 1), generator=g)
    return x, torch.randn(num_tasks, num_points, 2, generator=g, dtype=torch.float64)


def some_task(
    kind: str, num_tasks: int = 3, num_context: int = 4, num_targets: int = 6, seed: int = 0
) -> Task:
    """Context and other points to predict, as use has it."""
    x, y = some_points(kind, num_tasks, num_context + num_targets, seed)
    c = num_context
    return Task.from_sets(x[:, :c], y[:, :c], x[:, c:], y[:, c:])


def flagged_task(
    kind: str, num_tasks: int = 3, num_context: int = 4, num_points: int = 7, seed: int = 0
) -> Task:
    """All points with the context among them, as training has it."""
    x, y = some_points(kind, num_tasks, num_points, seed)
    return Task.from_points(x, y, (torch.arange(num_points) < num_context).expand(num_tasks, -1))


def pick(task: Task, i: int) -> Task:
    """Task i of a batch, without its empty slots (which come last)."""
    c, t = int(task.mask_context[i].sum()), int(task.mask_target[i].sum())
    cut = {
        n: v[i : i + 1, : c if n.endswith("_context") and n != "in_context" else t]
        for n, v in task.tensors().items()
    }
    return Task(**cut)


def noise_of(noise: dict[str, Tensor], i: int, num_points: int) -> dict[str, Tensor]:
    """The noise of task i and of its first points."""
    tasks = {"global": lambda v: v[:, i : i + 1], "local": lambda v: v[:, :, i : i + 1, :num_points]}
    return {n: tasks.get(n, lambda v: v[:, i : i + 1, :num_points])(v) for n, v in noise.items()}


def fixed_noise(model: NeuralProcess, task: Task, shared: bool = True, seed: int = 1) -> dict[str, Tensor]:
    return model.draw_noise(task, K, S, shared=shared, generator=torch.Generator().manual_seed(seed))


def with_points(noise: dict[str, Tensor], index) -> dict[str, Tensor]:
    """Noise of some targets, or of all in another order."""
    return {n: v[..., index, :] if n == "local" else v for n, v in noise.items()}


def with_targets(task: Task, index) -> Task:
    return replace(
        task,
        x_target=task.x_target[:, index],
        mask_target=task.mask_target[:, index],
        y_target=task.y_target[:, index],
    )


def components(predictive: Predictive) -> list[Tensor]:
    """Every array a predictive is made of, each [K, S, B, T, D]."""
    return list(vars(predictive).values())


def assert_same(left: Predictive | Bound, right: Predictive | Bound) -> None:
    lists = [list(v) if isinstance(v, Bound) else components(v) for v in (left, right)]
    for a, b in zip(*lists, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def differs(left: Predictive, right: Predictive) -> bool:
    return any(not torch.allclose(a, b) for a, b in zip(components(left), components(right), strict=True))


def at(predictive: Predictive, i: int, num_points: int) -> list[Tensor]:
    return [v[:, :, i : i + 1, :num_points] for v in components(predictive)]


def reads_context(model: NeuralProcess) -> bool:
    return not isinstance(model, Feedforward)


def is_random(model: NeuralProcess) -> bool:
    return bool(model.noise_shapes(1, 1, 1, 1, shared=True))


def spy_on(owner, method: str, monkeypatch) -> list[tuple]:
    """Record the arguments of each call of a method, which works as before."""
    calls, original = [], getattr(owner, method)

    def record(*args, **kwargs):
        calls.append(args)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, method, record, raising=False)
    return calls


# --- sets: order, size and padding ---


def test_the_order_of_the_context_does_not_matter(model, task):
    noise, order = fixed_noise(model, task), torch.tensor([2, 0, 3, 1])
    shuffled = replace(task, x_context=task.x_context[:, order], y_context=task.y_context[:, order])
    assert_same(model.predict(shuffled, noise=noise), model.predict(task, noise=noise))


def test_what_the_context_says_matters_to_models_that_read_it(model, task):
    noise = fixed_noise(model, task)
    swapped = replace(task, y_context=task.y_context.flip(0))
    changed = differs(model.predict(swapped, noise=noise), model.predict(task, noise=noise))
    assert changed == reads_context(model)


def test_where_the_context_was_seen_matters_to_models_that_read_it(model, task):
    noise = fixed_noise(model, task)
    moved = replace(task, x_context=task.x_context + 1)
    changed = differs(model.predict(moved, noise=noise), model.predict(task, noise=noise))
    assert changed == reads_context(model)


def test_permuting_the_targets_permutes_the_prediction(model, task):
    noise, order = fixed_noise(model, task), torch.tensor([4, 2, 0, 5, 1, 3])
    shuffled = model.predict(with_targets(task, order), noise=with_points(noise, order))
    straight = model.predict(task, noise=noise)
    assert differs(shuffled, straight)
    for a, b in zip(components(shuffled), components(straight), strict=True):
        torch.testing.assert_close(a, b[..., order, :], rtol=1e-12, atol=1e-12)


def test_dropping_other_targets_changes_nothing(model, task):
    noise, some = fixed_noise(model, task), torch.tensor([1, 4])
    fewer = model.predict(with_targets(task, some), noise=with_points(noise, some))
    for a, b in zip(components(fewer), components(model.predict(task, noise=noise)), strict=True):
        torch.testing.assert_close(a, b[..., some, :], rtol=1e-12, atol=1e-12)


def test_a_batch_predicts_as_its_tasks_do_one_by_one(model, kind):
    sizes = [(4, 6), (1, 3), (7, 2)]  # contexts and targets of different sizes in one batch
    tasks = [some_task(kind, 1, c, t, seed=c) for c, t in sizes]
    batch = Task.collate(tasks)
    noise = fixed_noise(model, batch)
    together = model.predict(batch, noise=noise)
    for i, (_, t) in enumerate(sizes):
        alone = model.predict(tasks[i], noise=noise_of(noise, i, t))
        for a, b in zip(components(alone), at(together, i, t), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_batch_is_bounded_as_its_tasks_are_one_by_one(model, kind):
    sizes = [(4, 6), (1, 3), (2, 7)]
    tasks = [flagged_task(kind, 1, c, t, seed=c) for c, t in sizes]
    batch = Task.collate(tasks)
    noise = fixed_noise(model, batch, shared=False)
    together = model.objective(batch, noise=noise)
    for i, (_, t) in enumerate(sizes):
        alone = model.objective(tasks[i], noise=noise_of(noise, i, t))
        assert_same(alone, Bound(*(term[i : i + 1] for term in together)))


def garbled(task: Task) -> Task:
    """The task with its empty slots full of garbage."""

    def fill(value, mask):
        return torch.where(mask[..., None], value, -77 if value.dtype == torch.long else 123.4)

    return replace(
        task,
        x_context=fill(task.x_context, task.mask_context), y_context=fill(task.y_context, task.mask_context),
        x_target=fill(task.x_target, task.mask_target), y_target=fill(task.y_target, task.mask_target),
    )  # fmt: skip


def test_what_stands_in_empty_slots_does_not_matter_to_a_prediction(model, kind):
    batch = Task.collate([some_task(kind, 1, 4, 6), some_task(kind, 1, 2, 3)])
    noise = fixed_noise(model, batch)
    clean, dirty = model.predict(batch, noise=noise), model.predict(garbled(batch), noise=noise)
    for a, b in zip(components(clean), components(dirty), strict=True):
        torch.testing.assert_close(
            a[:, :, batch.mask_target], b[:, :, batch.mask_target], rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("make", [some_task, flagged_task])
def test_what_stands_in_empty_slots_does_not_matter_to_the_objective(model, kind, make):
    batch = Task.collate([make(kind, 1, 4, 6), make(kind, 1, 2, 3)])
    noise = fixed_noise(model, batch.joined(), shared=False)
    assert_same(model.objective(garbled(batch), noise=noise), model.objective(batch, noise=noise))


def test_gradients_do_not_come_from_empty_slots(model, kind):
    batch = Task.collate([flagged_task(kind, 1, 4, 6), flagged_task(kind, 1, 2, 3)])
    noise = fixed_noise(model, batch, shared=False)
    clean, dirty = gradients(model, batch, noise), gradients(model, garbled(batch), noise)
    for n in clean:
        torch.testing.assert_close(clean[n], dirty[n], rtol=1e-10, atol=1e-12)


def test_an_empty_context_gives_a_finite_prediction_the_same_with_and_without_slots(model, kind):
    task = some_task(kind, 2, 3, 4)
    masked = replace(task, mask_context=torch.zeros(2, 3, dtype=torch.bool))
    bare = Task.from_sets(task.x_context[:, :0], task.y_context[:, :0], task.x_target)
    noise = fixed_noise(model, task)
    prediction = model.predict(masked, noise=noise)
    assert all(v.isfinite().all() for v in components(prediction))
    assert_same(model.predict(bare, noise=noise), prediction)
    assert differs(model.predict(task, noise=noise), prediction) == reads_context(model)


@pytest.mark.parametrize("make", [some_task, flagged_task])
def test_an_empty_context_gives_a_finite_objective_and_finite_gradients(model, kind, make):
    task = make(kind, 2, 0, 4)
    noise = fixed_noise(model, task.joined(), shared=False)
    assert all(term.isfinite().all() for term in model.objective(task, noise=noise))
    assert all(g.isfinite().all() for g in gradients(model, task, noise).values())


def test_an_empty_batch_gives_an_empty_prediction(model, kind):
    assert model.predict(some_task(kind, num_tasks=0)).mean.shape[:2] == (0, 6)


def test_a_context_apart_is_the_same_as_a_context_flagged(model, kind):
    apart, flagged = some_task(kind, 3, 4, 3), flagged_task(kind, 3, 4, 7)
    noise = fixed_noise(model, flagged, shared=False)
    assert_same(model.objective(apart, noise=noise), model.objective(flagged, noise=noise))


# --- predict ---


@pytest.mark.parametrize("y_target", ["nan", "inf", "other", "absent"])
def test_a_prediction_never_reads_y_target(model, task, y_target):
    noise = fixed_noise(model, task)
    values = {
        "nan": torch.full((3, 6, 2), torch.nan), "inf": torch.full((3, 6, 1), torch.inf),
        "other": task.y_target.flip(0), "absent": None,
    }  # fmt: skip
    blind = model.predict(replace(task, y_target=values[y_target]), noise=noise)
    assert_same(blind, model.predict(task, noise=noise))


def test_the_axes_of_a_prediction_are_draws_tasks_targets_outputs(model, kind, task):
    shapes = model.noise_shapes(3, 6, K, S, shared=True)
    draws = (K if shapes else 1, S if "local" in shapes else 1)  # no draws, one component
    prediction = model.predict(task, K, S)
    assert prediction.shape == (*draws, 3, 6, KINDS[kind].dim_y)
    assert all(v.shape == prediction.shape for v in components(prediction))
    assert prediction.mean.shape == (3, 6, KINDS[kind].dim_y)


def test_a_prediction_takes_32_draws_of_z_global_and_one_of_each_z_local_unless_told(model, task):
    assert model.predict(task).shape[:2] == (32 if is_random(model) else 1, 1)


def test_each_draw_is_another_one(model, task):
    prediction = model.predict(task, K, S, generator=torch.Generator().manual_seed(0))
    draws = components(prediction)[0].flatten(0, 1)
    assert all(not torch.allclose(draws[0], other) for other in draws[1:])


def test_the_same_seed_gives_the_same_prediction_and_another_seed_another(model, task):
    def predict(seed):
        return model.predict(task, K, S, generator=torch.Generator().manual_seed(seed))

    assert_same(predict(3), predict(3))
    assert differs(predict(3), predict(4)) == is_random(model)


def test_the_same_global_seed_gives_the_same_numbers(model, kind, task):
    def both(seed):
        torch.manual_seed(seed)
        return model.predict(task, K, S), model.objective(flagged_task(kind), K, S)

    first, again, other = both(3), both(3), both(4)
    assert_same(first[0], again[0])
    assert_same(first[1], again[1])
    assert torch.equal(first[1].log_likelihood, other[1].log_likelihood) != is_random(model)


def test_a_summary_that_has_read_the_targets_gives_the_same_answers(model, task):
    noise = model.draw_noise(task, K, S, shared=True)
    summary = model.summarise(task, noise)
    read = model.read(summary, task.x_target)
    assert torch.equal(model.decode(read, task.x_target, noise), model.decode(summary, task.x_target, noise))


@pytest.mark.parametrize("chunk", [1, 7, 12, 18])
def test_decoding_in_chunks_changes_nothing(model, task, chunk):
    noise = fixed_noise(model, task)
    assert_same(model.predict(task, noise=noise, chunk=chunk), model.predict(task, noise=noise))


def test_a_chunk_counts_the_targets_of_all_tasks(model, task, monkeypatch):
    decoded = spy_on(model, "decode", monkeypatch)
    model.predict(task, K, chunk=13)  # 3 tasks: at most 4 targets of each
    assert [call[1].shape[1] for call in decoded] == [4, 2]


def test_the_context_is_read_once_whatever_the_chunk(model, task, monkeypatch):
    read = spy_on(model, "summarise", monkeypatch)
    model.predict(task, K, chunk=1)
    assert len(read) == 1


def test_draws_of_z_global_are_shared_by_all_chunks(model, kind):
    """Two targets at the same x agree but for what is drawn for each of them."""
    task = some_task(kind, 1, 4, 6)
    task = replace(task, x_target=task.x_target[:, :1].expand(-1, 6, -1))
    prediction = model.predict(task, K, S, chunk=2, generator=torch.Generator().manual_seed(0))
    local = "local" in model.noise_shapes(1, 1, 1, 1, shared=True)
    assert torch.allclose(prediction.mean[:, :1], prediction.mean) != local


def test_a_deterministic_prediction_puts_latents_at_their_means(model, task):
    noise = fixed_noise(model, task)
    zeros = {n: torch.zeros_like(v[:1]) for n, v in noise.items() if n == "global"}
    zeros |= {n: torch.zeros_like(v[:1, :1]) for n, v in noise.items() if n == "local"}
    certain = model.predict(task, K, S, deterministic=True)
    assert certain.shape[:2] == (1, 1)
    assert_same(certain, model.predict(task, noise=zeros))


def test_local_noise_of_one_slot_serves_all_targets(model, task):
    noise = fixed_noise(model, task)
    one = {n: v[..., :1, :] if n == "local" else v for n, v in noise.items()}
    all_alike = {n: v.expand(*v.shape[:-2], 6, -1) if n == "local" else v for n, v in one.items()}
    assert_same(model.predict(task, noise=one, chunk=4), model.predict(task, noise=all_alike, chunk=4))


def test_predicting_leaves_no_trace(model, task):
    model.train()
    before = {n: v.clone() for n, v in model.state_dict().items()}
    prediction = model.predict(task)
    assert not prediction.mean.requires_grad
    assert model.training
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())


def test_a_part_that_was_frozen_stays_frozen_after_a_prediction(model, task):
    frozen = list(model.train().children())[-1].eval()
    model.predict(task)
    assert model.training
    assert not frozen.training


def test_training_mode_does_not_change_a_prediction(model, task):
    noise = fixed_noise(model, task)
    assert_same(model.train().predict(task, noise=noise), model.eval().predict(task, noise=noise))


def test_the_uncertainty_of_a_prediction_adds_up(model, task):
    prediction = model.predict(task, K, S)
    total = prediction.variance if isinstance(prediction, GaussianPredictive) else prediction.entropy()
    torch.testing.assert_close(prediction.aleatoric + prediction.epistemic, total)
    assert (prediction.aleatoric > 0).all()


# --- objective ---


def gradients(model: NeuralProcess, task: Task, noise: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gradients of the training loss by parameter."""
    step, no_multipliers = torch.tensor(1.0), torch.zeros(2)
    weights = Objective().weights(Weights(), step, no_multipliers)
    loss = weighted_loss(model.objective(task, noise=noise), weights)
    names, parameters = zip(*model.named_parameters(), strict=True)
    grads = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return dict(zip(names, grads, strict=True))


def test_every_parameter_learns_from_the_objective(model, kind):
    task = flagged_task(kind, 5, 6, 12)
    for n, gradient in gradients(model, task, fixed_noise(model, task, shared=False)).items():
        assert gradient.isfinite().all(), n
        assert gradient.abs().max() > 0, n


def test_the_bound_has_one_sum_per_task_and_term(model, kind):
    bound = model.objective(flagged_task(kind, 3), K, S)
    assert all(term.shape == (3,) for term in bound)
    assert (bound.kl_local >= 0).all()
    assert (bound.kl_global >= 0).all()


def test_the_bound_is_the_mean_over_draws_summed_over_the_points_that_count(model, kind):
    task = flagged_task(kind, 3, 4, 7)
    noise = fixed_noise(model, task, shared=False)
    draws, bound = model.draws(task, noise), model.objective(task, noise=noise)
    first = 0 if model.scores_context else 4  # the context are the first four
    by_hand = draws.log_likelihood[..., first:].mean((0, 1)).sum(-1)
    torch.testing.assert_close(bound.log_likelihood, by_hand, rtol=1e-12, atol=1e-12)
    assert bound.num_points.tolist() == [7 - first] * 3
    assert torch.equal(model.counted(task).sum(-1), bound.num_points)


def test_models_of_the_paper_score_the_context_except_cnp():
    paper = ("nn", "mc-dropout", "cnp", "np", "attnnp", "dsvnp")
    assert [name for name in paper if not MODELS[name].scores_context] == ["cnp"]


def test_every_target_of_a_task_without_flags_counts(model, task):
    assert model.counted(task).all()


def test_the_draws_of_a_pass_keep_their_axes(model, kind):
    task = flagged_task(kind, 3, 4, 7)
    draws = model.draws(task, fixed_noise(model, task, shared=False))
    shapes = model.noise_shapes(3, 7, K, S, shared=False)
    k, s = K if shapes else 1, S if "local" in shapes else 1
    local = 4 if model.name == "dsvtnp" else 8
    assert draws.log_likelihood.shape == (k, s, 3, 7)
    expected = {
        "q_global": (3, 8), "p_global": (3, 8), "z_global": (k, 3, 8),
        "q_local": (k, 3, 7, local), "p_local": (k, 3, 7, local), "z_local": (k, s, 3, 7, local),
    }  # fmt: skip
    for field, shape in expected.items():
        value = getattr(draws, field)
        assert (value is not None) == (field.split("_")[1] in shapes)
        if value is not None:
            assert (value if field.startswith("z") else value.mean).shape == shape


def test_the_objective_takes_one_draw_of_each_latent_unless_told(model, kind, monkeypatch):
    drawn = spy_on(model, "draws", monkeypatch)
    model.objective(flagged_task(kind))
    wanted = model.noise_shapes(3, 7, 1, 1, shared=False)
    assert {n: tuple(v.shape) for n, v in drawn[0][1].items()} == wanted


def test_calling_a_model_is_its_objective(model, kind):
    task = flagged_task(kind)
    noise = fixed_noise(model, task, shared=False)
    assert_same(model(task, K, S, noise), model.objective(task, noise=noise))


@pytest.mark.parametrize("scored", ["gaussian", "categorical"])
@pytest.mark.parametrize("score_context", [None, True])
def test_training_scores_a_target_as_prediction_does_where_the_posterior_is_the_prior(
    name, scored, score_context
):
    arch = replace(KINDS[scored], posterior="context", score_context=score_context)
    model = seeded_model(name, arch)
    if "local" in model.noise_shapes(1, 1, 1, 1, shared=True):
        pytest.skip("the local posterior reads y_target")
    task = flagged_task(scored)
    expected = model.predict(task, deterministic=True).component_log_prob(task.y_target)
    draws = model.draws(task, {})
    q, p = draws.q_global, draws.p_global
    shared = any(isinstance(part, GlobalLatent) for part in model.modules())
    if q is not None and p is not None and not shared and not torch.equal(q.mean, p.mean):
        pytest.skip("a latent of its own, which need not have the option")
    counts = draws.counted
    torch.testing.assert_close(draws.log_likelihood[..., counts], expected[..., counts])


# --- missing outputs ---


@pytest.mark.parametrize("regression", ["gaussian", "squared-error"])
def test_a_missing_output_adds_nothing_to_the_likelihood(name, regression, monkeypatch):
    model, task = seeded_model(name, KINDS[regression]), flagged_task(regression)
    y = task.y_target.clone()
    y[0, 5, 1] = torch.nan  # one output of two
    y[1, 6] = torch.nan  # the whole row
    task = replace(task, y_target=y)
    raws = spy_on(model.likelihood, "log_prob", monkeypatch)
    log_likelihood = model.draws(task, fixed_noise(model, task, shared=False)).log_likelihood
    raw = raws[0][0].expand(*log_likelihood.shape, -1)
    if regression == "gaussian":
        mean, scale = model.likelihood.components(raw)
        by_hand = torch.distributions.Normal(mean, scale).log_prob(y.nan_to_num(0.0))
        seen = by_hand[:, :, 0, 5, 0]
    else:
        by_hand = -(raw - y.nan_to_num(0.0)).square() / 2
        seen = 2 * by_hand[:, :, 0, 5, 0]  # the mean over one output, not over two
    torch.testing.assert_close(log_likelihood[:, :, 0, 5], seen)
    assert (log_likelihood[:, :, 1, 6] == 0).all()
    whole = torch.ones(3, 7, dtype=torch.bool)
    whole[0, 5] = whole[1, 6] = False
    torch.testing.assert_close(log_likelihood[..., whole], by_hand.sum(-1)[..., whole])


@pytest.mark.parametrize("regression", ["gaussian", "squared-error"])
def test_a_missing_output_enters_an_encoder_as_zero_and_a_transformer_with_a_flag(name, regression):
    model, task = seeded_model(name, KINDS[regression]), some_task(regression)
    y_nan, y_zero = task.y_context.clone(), task.y_context.clone()
    y_nan[0, 1, 1], y_zero[0, 1, 1] = torch.nan, 0.0
    noise = fixed_noise(model, task)
    left, right = (model.predict(replace(task, y_context=y), noise=noise) for y in (y_nan, y_zero))
    if model.name in TELLS_MISSING:
        assert differs(left, right)
        assert all(v.isfinite().all() for v in components(left))
    else:
        assert_same(left, right)


@pytest.mark.parametrize("regression", ["gaussian", "squared-error"])
def test_gradients_stay_finite_with_missing_outputs(name, regression):
    model, task = seeded_model(name, KINDS[regression]), flagged_task(regression)
    y = task.y_target.clone()
    y[0, 0], y[1, 6, 0] = torch.nan, torch.nan
    task = replace(task, y_target=y, y_context=y)
    noise = fixed_noise(model, task, shared=False)
    assert all(g.isfinite().all() for g in gradients(model, task, noise).values())


# --- state and types ---


def test_a_state_dict_carries_the_whole_model(name, kind, task):
    model, fresh = seeded_model(name, KINDS[kind]), seeded_model(name, KINDS[kind], seed=1)
    if kind == "squared-error":
        model.likelihood.sigma.copy_(torch.tensor([0.3, 0.7]))
    noise = fixed_noise(model, task)
    assert differs(fresh.predict(task, noise=noise), model.predict(task, noise=noise))
    fresh.load_state_dict(model.state_dict())
    left, right = fresh.predict(task, noise=noise), model.predict(task, noise=noise)
    assert all(torch.equal(a, b) for a, b in zip(components(left), components(right), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_computes_in_the_type_of_its_parameters(model, kind, task, dtype):
    model = model.to(dtype)
    prediction = model.predict(task.to(dtype=dtype), K, S)
    bound = model.objective(flagged_task(kind).to(dtype=dtype), K, S)
    assert all(v.dtype == dtype for v in (*components(prediction), *bound[:3]))


def test_under_autocast_networks_run_in_half_precision_and_distributions_in_single(model, kind, task):
    model, task, points = (
        model.float(),
        task.to(dtype=torch.float32),
        flagged_task(kind).to(dtype=torch.float32),
    )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        prediction, bound = model.predict(task, K, S), model.objective(points, K, S)
    assert all(v.dtype == torch.float32 and v.isfinite().all() for v in (*components(prediction), *bound[:3]))


def test_a_model_computes_on_the_device_of_its_inputs(model, kind, task):
    model, elsewhere = model.to("meta"), "meta"  # a device with shapes but no numbers
    prediction = model.predict(task.to(elsewhere), K, S, validate=False)
    bound = model.objective(flagged_task(kind).to(elsewhere), K, S, validate=False)
    assert all(v.device.type == elsewhere for v in (*components(prediction), *bound))
    assert prediction.sample(2).device.type == elsewhere


def test_noise_has_the_shapes_the_model_names_and_is_uniform_for_dropout_alone(model, task):
    shapes = model.noise_shapes(3, 6, 500, 2, shared=False)
    noise = model.draw_noise(task, 500, 2, generator=torch.Generator().manual_seed(0))
    assert {n: tuple(v.shape) for n, v in noise.items()} == shapes
    for n, value in noise.items():
        assert is_uniform(n) == n.startswith("dropout")
        mean, std = (0.5, 12**-0.5) if is_uniform(n) else (0.0, 1.0)
        assert value.mean().item() == pytest.approx(mean, abs=0.05)
        assert value.std().item() == pytest.approx(std, abs=0.05)


# --- images ---


def image_model(name: str, embed: str) -> NeuralProcess:
    if "embed_x" in VARIANTS.get(name, {}):
        pytest.skip("this variant refuses an embedding of x")
    image = (1, 14, 14) if embed == "lenet" else (3, 8, 8)
    dim_x = image[0] * image[1] * image[2]
    sizes = {"dim_latx": 8, "dim_laty": 4, "dim_lat": 8, "encoder": (), "decoder": ()}
    arch = Architecture(dim_x, 3, "categorical", **sizes, transformer=TRANSFORMER)
    if embed == "lenet":
        return seeded_model(name, replace(arch, embed_x="lenet", image=image))
    return seeded_model(name, arch, embedding=lambda: VGG(image, 8, layers=(4, "M", 8, "M")))


def image_task(
    model: NeuralProcess, num_tasks: int, num_context: int, num_points: int, seed: int = 0
) -> Task:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(num_tasks, num_points, model.arch.dim_x, generator=g, dtype=torch.float64)
    y = torch.randint(3, (num_tasks, num_points, 1), generator=g)
    return Task.from_points(x, y, (torch.arange(num_points) < num_context).expand(num_tasks, -1))


@pytest.mark.parametrize("embed", ["lenet", "vgg"])
def test_image_models_treat_a_batch_as_its_tasks_one_by_one(name, embed):
    model = image_model(name, embed)
    model.objective(image_task(model, 2, 2, 3, seed=9))  # batch norm takes note of these
    model.eval()
    batch = Task.collate([image_task(model, 1, 2, 3), image_task(model, 1, 1, 2, seed=1)])
    noise, own = fixed_noise(model, batch), fixed_noise(model, batch, shared=False)
    prediction, bound = model.predict(batch, noise=noise), model.objective(batch, noise=own)
    for i, t in enumerate((3, 2)):
        alone = pick(batch, i)
        parts = components(model.predict(alone, noise=noise_of(noise, i, t)))
        for a, b in zip(parts, at(prediction, i, t), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
        one = model.objective(alone, noise=noise_of(own, i, t))
        for a, b in zip(one, bound, strict=True):
            torch.testing.assert_close(a, b[i : i + 1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("embed", ["lenet", "vgg"])
def test_image_models_predict_from_an_empty_context(name, embed):
    model = image_model(name, embed)
    task = image_task(model, 2, 0, 3)
    bare = Task.from_sets(task.x_target[:, :0], task.y_target[:, :0], task.x_target)
    assert model.predict(bare, K).mean.isfinite().all()
    assert model.objective(task).log_likelihood.isfinite().all()


def test_batch_norm_learns_nothing_from_a_prediction(name):
    model = image_model(name, "vgg").train()
    task = image_task(model, 2, 2, 3)
    before = {n: v.clone() for n, v in model.named_buffers()}
    if not any("running_mean" in n for n in before):
        pytest.skip("this model ignores the embedding that it is given, as it may")
    noise = fixed_noise(model, task)
    training = model.predict(task, noise=noise)
    assert all(torch.equal(v, before[n]) for n, v in model.named_buffers())
    assert_same(training, model.eval().predict(task, noise=noise))


@pytest.mark.parametrize("embed", ["lenet", "vgg"])
def test_every_parameter_of_an_image_model_learns(name, embed):
    model = image_model(name, embed)
    task = image_task(model, 2, 4, 8)
    for n, gradient in gradients(model, task, fixed_noise(model, task, shared=False)).items():
        assert gradient.abs().max() > 0, n


# --- heads under which a draw has weights or outputs that depend on each other ---

HEADS = {
    "mixture": Architecture(2, 2, "mixture", num_components=3, **SMALL),
    "low-rank": Architecture(2, 2, "low-rank", rank=2, **SMALL),
}
heads = pytest.mark.parametrize("head", list(HEADS))
some_models = pytest.mark.parametrize("name", ["cnp", "attnnp", "dsvnp", "tnp", "dsvtnp"])


@heads
@some_models
def test_heads_give_every_array_its_draws_tasks_and_targets(name, head):
    prediction = seeded_model(name, HEADS[head]).predict(some_task(head), K, S)
    per_draw = 3 if head == "mixture" else 1
    draws = {"attnnp": (K, 1), "dsvnp": (K, S), "dsvtnp": (K, S)}.get(name, (1, 1))
    expected = (draws[0], draws[1] * per_draw, 3, 6)
    assert prediction.shape == (*expected, 2)
    assert all(array.shape[:4] == expected for array in prediction.arrays())
    assert prediction.components_per_draw == per_draw
    torch.testing.assert_close(prediction.aleatoric + prediction.epistemic, prediction.variance)
    assert (prediction.aleatoric > 0).all()


@heads
@some_models
def test_heads_predict_in_chunks_and_tasks_one_by_one_as_all_at_once(name, head):
    model = seeded_model(name, HEADS[head])
    batch = Task.collate([some_task(head, 1, c, t, seed=c) for c, t in [(4, 6), (1, 3), (7, 2)]])
    noise = fixed_noise(model, batch)
    whole = model.predict(batch, noise=noise).arrays()
    for a, b in zip(model.predict(batch, noise=noise, chunk=4).arrays(), whole, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    for i, t in enumerate((6, 3, 2)):
        alone = model.predict(pick(batch, i), noise=noise_of(noise, i, t)).arrays()
        for a, b in zip(alone, whole, strict=True):
            torch.testing.assert_close(a, b[:, :, i : i + 1, :t], rtol=1e-12, atol=1e-12)


@heads
@pytest.mark.parametrize("name", ["cnp", "np", "tnp"])
def test_heads_score_a_target_in_training_as_in_prediction(name, head):
    arch = replace(HEADS[head], posterior="context", score_context=True)
    model, task = seeded_model(name, arch), flagged_task(head)
    y = task.y_target.clone()
    y[0, 5, 1] = y[1, 6, 0] = y[1, 6, 1] = torch.nan  # one output of two, and both
    task = replace(task, y_target=y)
    prediction = model.predict(task, deterministic=True)
    torch.testing.assert_close(model.draws(task, {}).log_likelihood[0, 0], prediction.log_prob(y))
    one = prediction.outputs([0])
    torch.testing.assert_close(prediction.log_prob(y)[0, 5], one.log_prob(y[..., :1])[0, 5])


@heads
@some_models
def test_every_parameter_learns_under_each_head_with_missing_outputs(name, head):
    model, task = seeded_model(name, HEADS[head]), flagged_task(head, 5, 6, 12)
    y = task.y_target.clone()
    y[0, 0], y[1, 10, 0] = torch.nan, torch.nan
    task = replace(task, y_target=y)
    for n, gradient in gradients(model, task, fixed_noise(model, task, shared=False)).items():
        assert gradient.isfinite().all(), n
        assert gradient.abs().max() > 0, n


@heads
def test_heads_leave_the_half_precision_of_autocast(head):
    model, task = seeded_model("dsvnp", HEADS[head]).float(), some_task(head)
    task = Task(**{n: v.float() if v.is_floating_point() else v for n, v in task.tensors().items()})
    with torch.autocast("cpu", torch.bfloat16):
        assert all(array.dtype == torch.float32 for array in model.predict(task, K).arrays())


@heads
def test_heads_compile_without_a_break(head):
    model, task = seeded_model("dsvnp", HEADS[head]), flagged_task(head)
    noise = fixed_noise(model, task, shared=False)
    torch._dynamo.reset()

    @torch.compile(backend="eager", fullgraph=True)
    def score(raw: Tensor, y: Tensor) -> Tensor:
        return model.likelihood.log_prob(raw, y)

    raw = torch.randn(2, 1, 3, 7, model.likelihood.dim_raw, dtype=torch.float64)
    torch.testing.assert_close(score(raw, task.y_target), model.likelihood.log_prob(raw, task.y_target))
    assert model.objective(task, noise=noise).log_likelihood.isfinite().all()
