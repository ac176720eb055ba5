"""TNP and DSVTNP held against a naive loop over points; TNP's options, and what it learns."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

from dsvnp import Architecture, NeuralProcess, Task, Transformer, make_model
from dsvnp.sources.curves import Curves, curve_tasks
from dsvnp.training import Fleet, Settings

SIZES = Transformer(width=6, num_layers=2, num_heads=2, feedforward=7, embedder=(5,))
ARCH = Architecture(2, 2, decoder=(4,), transformer=SIZES)
B, T = 3, 6
CONTEXTS = (3, 0, 6)  # points of each task that are context


def made(arch: Architecture = ARCH, name: str = "tnp", seed: int = 0) -> NeuralProcess:
    """A model with numbers in every parameter."""
    torch.manual_seed(seed)
    model = make_model(name, arch).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def some_task(arch: Architecture = ARCH, missing: bool = True) -> Task:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(B, T, arch.dim_x, generator=g, dtype=torch.float64)
    y = torch.randn(B, T, arch.dim_y, generator=g, dtype=torch.float64)
    if missing:
        y[0, 1, 0] = y[2, 2, 1] = y[0, 5, 1] = math.nan
    return Task.from_points(x, y, torch.arange(T) < torch.tensor(CONTEXTS)[:, None])


# --- against a loop ---


def linear(layer: nn.Linear, value: np.ndarray) -> np.ndarray:
    return layer.weight.detach().numpy() @ value + layer.bias.detach().numpy()


def norm(layer: nn.LayerNorm, value: np.ndarray) -> np.ndarray:
    scaled = (value - value.mean()) / np.sqrt(value.var() + 1e-5)
    return layer.weight.detach().numpy() * scaled + layer.bias.detach().numpy()


def mlp(net, *inputs: np.ndarray) -> np.ndarray:
    h = sum(w.detach().numpy() @ v for w, v in zip(net.first.weights, inputs, strict=True))
    h = h + net.first.bias.detach().numpy()
    for layer in net.rest:
        h = linear(layer, np.maximum(h, 0))
    return h


def gelu(value: np.ndarray) -> np.ndarray:
    return np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in value])


def naive_scores(layer, query: np.ndarray, key: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """One score per head."""
    scores = np.array([q @ k for q, k in zip(np.split(query, 2), np.split(key, 2), strict=True)]) / math.sqrt(
        3
    )
    if layer.relative is not None:
        w_scores, w_gap = (w.detach().numpy() for w in layer.relative.first.weights)
        h = w_scores @ scores + w_gap @ (gap / (1 + abs(gap))) + layer.relative.first.bias.detach().numpy()
        scores = scores + layer.relative.last.weight.detach().numpy() @ np.maximum(h, 0)
    return scores


def naive_token(model, x, y=None) -> np.ndarray:
    known, seen = np.zeros(2), np.zeros(2)
    if y is not None:
        known, seen = np.nan_to_num(y, nan=0.0), 1.0 - np.isnan(y)
    inputs = (known, seen) if model.arch.transformer.equivariant else (x, known, seen)
    return mlp(model.backbone.embedder, *inputs)


def naive_tokens(model, x_context, y_context, x_target) -> list[np.ndarray]:
    """The tokens of the context and of one target after the trunk: a list of tokens, layer by layer."""
    places = [*x_context, x_target]
    tokens = [naive_token(model, x, y) for x, y in zip(x_context, y_context, strict=True)]
    tokens.append(naive_token(model, x_target))
    for layer in model.backbone.trunk.layers:
        projected = [np.split(linear(layer.project, norm(layer.norm_attention, h)), 3) for h in tokens]
        new = []
        for i, h in enumerate(tokens):
            pooled = np.zeros(6)
            scores = [
                naive_scores(layer, projected[i][0], projected[j][1], places[i] - places[j])
                for j in range(len(x_context))
            ]
            for head in range(2):
                weights = np.exp([row[head] for row in scores])
                for j, weight in enumerate(weights):
                    part = slice(3 * head, 3 * head + 3)
                    pooled[part] += weight / weights.sum() * projected[j][2][part]
            h = h + linear(layer.mix, pooled)
            new.append(h + linear(layer.contract, gelu(linear(layer.expand, norm(layer.norm_forward, h)))))
        tokens = new
    return [norm(model.backbone.trunk.norm, token) for token in tokens]


def naive_raw(model, x_context, y_context, x_target) -> np.ndarray:
    """Raw outputs of one target."""
    return mlp(model.decoder, naive_tokens(model, x_context, y_context, x_target)[-1])


@pytest.mark.parametrize("equivariant", [False, True])
@pytest.mark.parametrize("score_context", [None, True])
def test_predictions_and_training_equal_a_loop_over_points(equivariant, score_context):
    arch = replace(ARCH, transformer=replace(SIZES, equivariant=equivariant), score_context=score_context)
    model, task = made(arch), some_task(arch)
    prediction, draws = model.predict(task), model.draws(task, {})
    for b, count in enumerate(CONTEXTS):
        x, y = task.x_target[b].numpy(), task.y_target[b].numpy()
        for t in range(T):
            mean, raw_scale = np.split(naive_raw(model, x[:count], y[:count], x[t]), 2)
            scale = 0.1 + 0.9 * np.log1p(np.exp(raw_scale))
            np.testing.assert_allclose(prediction.loc[0, 0, b, t].numpy(), mean, rtol=1e-10)
            np.testing.assert_allclose(prediction.scale[0, 0, b, t].numpy(), scale, rtol=1e-10)
            if draws.counted[b, t]:
                terms = -0.5 * ((y[t] - mean) / scale) ** 2 - np.log(scale) - 0.5 * math.log(2 * math.pi)
                expected = np.nansum(terms)
                assert draws.log_likelihood[0, 0, b, t].item() == pytest.approx(expected, rel=1e-10)
    assert draws.counted.sum() == (B * T if score_context else B * T - sum(CONTEXTS))


def naive_latent(head, h: np.ndarray, noise: np.ndarray) -> np.ndarray:
    mean, raw = np.split(linear(head.linear, h), 2)
    return mean + (0.1 + 0.9 / (1 + np.exp(-raw))) * noise


def naive_doubly_stochastic(model, x_context, y_context, x_target, e_global, e_local) -> np.ndarray:
    """Raw outputs of one target for one draw of z_G and of z_*, from their noise."""
    *members, h = naive_tokens(model, x_context, y_context, x_target)
    r = np.zeros(model.arch.dim_lat)
    for x, y, member in zip(x_context, y_context, members, strict=True):
        pair = np.concatenate([x, member]), np.nan_to_num(y, nan=0.0)
        r += np.maximum(mlp(model.z_global.encoder, *pair), 0) / len(x_context)
    z_global = naive_latent(model.z_global.head, r, e_global)
    hidden = np.maximum(mlp(model.local_prior.net, z_global, h), 0)
    return mlp(model.decoder, h, z_global, naive_latent(model.local_prior.head, hidden, e_local))


def test_predictions_of_the_doubly_stochastic_model_equal_a_loop_over_points_and_draws():
    model, task = made(replace(ARCH, encoder=(5,), dim_lat=4, dim_local=3), "dsvtnp"), some_task()
    g = torch.Generator().manual_seed(1)
    shapes = model.noise_shapes(B, T, 2, 3, shared=True)
    noise = {name: torch.randn(shape, generator=g).double() for name, shape in shapes.items()}
    loc = model.predict(task, 2, 3, noise).loc
    e_global, e_local = noise["global"].numpy(), noise["local"].numpy()
    for b, count in enumerate(CONTEXTS):
        x, y = task.x_target[b].numpy(), task.y_target[b].numpy()
        for k, s, t in product(range(2), range(3), range(T)):
            own = e_global[k, b], e_local[k, s, b, t]
            mean, _ = np.split(naive_doubly_stochastic(model, x[:count], y[:count], x[t], *own), 2)
            np.testing.assert_allclose(loc[k, s, b, t].numpy(), mean, rtol=1e-10)


def test_the_defaults_have_the_fields_size():
    """Embedder, six layers and head as TNP-D of the field; in addition a flag for y and a last norm."""
    model = make_model("tnp", Architecture(1, 1, decoder=(128,)))
    layer = 3 * 64 * 64 + 3 * 64 + 64 * 64 + 64 + 2 * 64 * 128 + 128 + 64 + 4 * 64
    field = (2 * 64 + 64 + 3 * (64 * 64 + 64)) + 6 * layer + (64 * 128 + 128 + 128 * 2 + 2)
    assert field == 222_082
    assert sum(p.numel() for p in model.parameters()) == field + 64 + 128


def test_a_context_point_whose_outputs_are_all_missing_is_read_as_a_place_alone():
    model, task = made(), some_task(missing=False)
    y = task.y_target.clone()
    y[0, 0] = math.nan
    x = task.x_target
    left = model.backbone.tokens(x, y, torch.ones(B, T, dtype=torch.bool))
    torch.testing.assert_close(left[0, 0], model.backbone.tokens(x)[0, 0])
    assert not torch.allclose(left[0, 1], model.backbone.tokens(x)[0, 1])


def test_with_a_floor_of_zero_everything_stays_finite():
    model, task = made(replace(ARCH, sigma_floor=0.0)).float(), some_task().to(dtype=torch.float32)
    with torch.no_grad():
        model.decoder.rest[-1].bias[2:] = -1e4
    bound = model.objective(task)
    assert bound.log_likelihood.isfinite().all()
    gradients = torch.autograd.grad(bound.log_likelihood.sum(), list(model.parameters()))
    assert all(g.isfinite().all() for g in gradients)
    assert model.predict(task).log_prob(task.y_target).isfinite().all()


def test_large_contexts_are_read_in_pieces(monkeypatch):
    """1,000 queries at most of 1,500 see 1,500 slots at once, and the numbers are the same."""
    from dsvnp.models import transformer

    x = torch.linspace(-2, 2, 1500, dtype=torch.float64).reshape(1, -1, 1)
    model = made(Architecture(1, 1, transformer=SIZES))
    task = Task.from_sets(x, x.sin(), x[:, ::100])
    whole = model.predict(task).loc
    largest = []
    original = torch.nn.functional.scaled_dot_product_attention

    def spy(queries, *args, **kwargs):
        largest.append(queries.shape[-2])
        return original(queries, *args, **kwargs)

    monkeypatch.setattr(transformer, "PAIRS_FUSED", 2 * 1500 * 1000)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    torch.testing.assert_close(model.predict(task).loc, whole, rtol=1e-12, atol=1e-12)
    assert max(largest) == 1000


# --- translation equivariance ---


@pytest.mark.parametrize("name", ["tnp", "dsvtnp"])
@pytest.mark.parametrize("equivariant", [False, True])
def test_a_shift_of_all_inputs_changes_an_equivariant_prediction_not_at_all(name, equivariant):
    arch = replace(ARCH, transformer=replace(SIZES, equivariant=equivariant), encoder=(8,), dim_lat=4)
    model, task = made(arch, name), some_task(arch)
    noise = model.draw_noise(task, 3, 2, shared=True, generator=torch.Generator().manual_seed(0))
    shift = torch.tensor([3.0, -7.0], dtype=torch.float64)
    shifted = replace(task, x_context=task.x_context + shift, x_target=task.x_target + shift)
    left, right = model.predict(task, noise=noise), model.predict(shifted, noise=noise)
    assert torch.allclose(left.loc, right.loc, rtol=1e-10, atol=1e-12) == equivariant
    assert torch.allclose(left.scale, right.scale, rtol=1e-10, atol=1e-12) == equivariant
    moved = model.predict(replace(task, x_context=task.x_context + shift), noise=noise)
    assert not torch.allclose(left.loc[:, :, [0, 2]], moved.loc[:, :, [0, 2]])  # differences do matter


@pytest.mark.parametrize("name", ["tnp", "dsvtnp"])
def test_orders_of_context_and_targets_do_not_matter_to_an_equivariant_model(name):
    arch = replace(ARCH, transformer=replace(SIZES, equivariant=True), encoder=(8,), dim_lat=4)
    model, task, order = made(arch, name), some_task(arch), torch.tensor([4, 2, 0, 5, 1, 3])
    noise = model.draw_noise(task, 3, 2, shared=True, generator=torch.Generator().manual_seed(0))
    straight = model.predict(task, noise=noise)
    context = replace(
        task,
        x_context=task.x_context[:, order],
        y_context=task.y_context[:, order],
        mask_context=task.mask_context[:, order],
    )
    torch.testing.assert_close(model.predict(context, noise=noise).loc, straight.loc, rtol=1e-12, atol=1e-12)
    targets = replace(task, x_target=task.x_target[:, order], y_target=None, in_context=None)
    own = {n: v[..., order, :] if n == "local" else v for n, v in noise.items()}
    permuted = model.predict(targets, noise=own)
    torch.testing.assert_close(permuted.loc, straight.loc[..., order, :], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["tnp", "dsvtnp"])
def test_an_equivariant_model_of_embedded_inputs_is_refused(name):
    arch = replace(ARCH, transformer=replace(SIZES, equivariant=True))
    message = "an equivariant transformer reads differences of x itself, got an embedding of x"
    with pytest.raises(ValueError, match=re.escape(message)):
        make_model(name, replace(arch, embed_x="mlp"))
    with pytest.raises(ValueError, match=re.escape(message)):
        make_model(name, arch, nn.Linear(2, arch.dim_latx))


# --- training ---


def trained(name: str, **transformer) -> NeuralProcess:
    """A model after a short training on curves in [−2, 2]."""
    sizes = Transformer(16, 2, 2, 32, (16,), relative=8, **transformer)
    arch = Architecture(1, 1, encoder=(32, 32), dim_lat=32, decoder=(32,), transformer=sizes)
    settings = Settings(num_steps=400, learning_rate=3e-3)
    fleet = Fleet(partial(make_model, name, arch), Curves(16, 30, 3, 20, refresh_every=64), [0], settings)
    for _ in range(settings.num_steps):
        fleet.step()
    return fleet.replica(0)


def nll_on(model: NeuralProcess, interval: tuple[float, float] = (-2.0, 2.0)) -> float:
    """Mean negative log-likelihood outside contexts of 5 points per unit of x."""
    length = int(interval[1] - interval[0])
    generator = torch.Generator().manual_seed(1)
    (task,) = curve_tasks(100, 15 * length, (5 * length, 5 * length), generator, interval)
    log_prob = model.predict(task).log_prob(task.y_target)
    return -log_prob[~task.in_context].mean().item()


def test_after_a_short_training_tnp_beats_cnp():
    assert nll_on(trained("tnp")) < nll_on(trained("cnp")) - 0.1


def test_a_trained_equivariant_model_predicts_as_well_where_it_has_never_been():
    equivariant, plain = trained("tnp", equivariant=True), trained("tnp")
    elsewhere = (4.0, 8.0)
    assert nll_on(equivariant, elsewhere) < nll_on(equivariant) + 0.15
    assert nll_on(equivariant, elsewhere) < nll_on(plain, elsewhere) - 0.5
