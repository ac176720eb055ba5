"""Rotary attention: held against complex numbers, what it is blind to, and in which precision it turns."""

import math
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from dsvnp import Architecture, Task, Transformer, make_model
from dsvnp.models.transformer import Layer, Rotary
from dsvnp.sources.curves import Curves
from dsvnp.training import Fleet, Settings

SIZES = Transformer(8, 2, 2, 6, (5,), equivariant=True, rotary=30.0)
ARCH = Architecture(2, 1, decoder=(4,), transformer=SIZES, encoder=(8,), dim_lat=4)
B, T, D, W, HEADS = 2, 5, 2, 8, 2


def some_task(dim_x: int = D) -> Task:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(B, T, dim_x, generator=g, dtype=torch.float64)
    y = torch.randn(B, T, 1, generator=g, dtype=torch.float64)
    return Task.from_points(x, y, torch.arange(T) < torch.tensor([3, 0])[:, None])


def made(arch: Architecture = ARCH, name: str = "tnp"):
    torch.manual_seed(0)
    model = make_model(name, arch).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


# --- one layer in complex numbers ---


def as_complex(heads: np.ndarray) -> np.ndarray:
    """Features [T, W] as complex numbers [T, heads, d/2]."""
    pairs = heads.reshape(len(heads), HEADS, 2, -1)
    return pairs[:, :, 0] + 1j * pairs[:, :, 1]


def attended(layer: Layer, frequencies: np.ndarray, h: torch.Tensor, x: np.ndarray, count: int) -> np.ndarray:
    """Σ_j a_ij exp(iω·(x_j − x_i)) v_j with scores Re q̄_i exp(iω·(x_j − x_i)) k_j, [T, W]."""
    projected = layer.project(layer.norm_attention(h)).detach().numpy()
    q, k, v = (as_complex(part) for part in np.split(projected, 3, axis=-1))
    out = np.zeros((len(x), HEADS, W // HEADS // 2), complex)
    for i in range(len(x)):
        for head in range(HEADS):
            wave = [np.exp(1j * frequencies[head] @ (x[j] - x[i])) for j in range(count)]
            scores = [
                (q[i, head].conj() * wave[j] * k[j, head]).sum().real / math.sqrt(4) for j in range(count)
            ]
            weights = np.exp(scores) / np.exp(scores).sum()
            out[i, head] = sum(weights[j] * wave[j] * v[j, head] for j in range(count))
    return np.concatenate([out.real, out.imag], axis=-1).reshape(len(x), W)


def test_a_layer_equals_sums_of_waves_in_complex_numbers():
    model = made()
    trunk = model.backbone.trunk
    layer, count = trunk.layers[0], 3
    x = torch.randn(T, D, dtype=torch.float64)
    h = torch.randn(T, W, dtype=torch.float64)
    expected = attended(layer, trunk.place.frequencies.numpy(), h, x.numpy(), count)
    middle = h + layer.mix(torch.from_numpy(expected))
    expected = middle + layer.contract(torch.nn.functional.gelu(layer.expand(layer.norm_forward(middle))))
    found, _ = layer(h[None], trunk.place(x[None]), torch.arange(T)[None] < count)
    torch.testing.assert_close(found[0], expected, rtol=1e-10, atol=1e-10)


def test_frequencies_run_from_slow_to_fast_in_equal_ratios():
    sizes = Rotary(3, 4, 8, 64.0).frequencies.norm(dim=-1)  # [heads, d/2]
    expected = 0.25 * (64 / 0.25) ** (torch.arange(4) / 3)
    torch.testing.assert_close(sizes, expected.expand(4, 4))


def test_frequencies_are_the_same_for_every_seed():
    torch.manual_seed(1)
    one = Rotary(3, 2, 4, 9.0).frequencies
    torch.manual_seed(2)
    assert torch.equal(one, Rotary(3, 2, 4, 9.0).frequencies)


# --- whole models ---


@pytest.mark.parametrize("name", ["tnp", "dsvtnp"])
@pytest.mark.parametrize("equivariant", [False, True])
def test_a_shift_of_all_inputs_is_not_seen_by_an_equivariant_model(name, equivariant):
    model, task = made(replace(ARCH, transformer=replace(SIZES, equivariant=equivariant)), name), some_task()
    noise = model.draw_noise(task, 3, 2, shared=True, generator=torch.Generator().manual_seed(0))
    shift = torch.tensor([3.0, -7.0], dtype=torch.float64)
    shifted = replace(task, x_context=task.x_context + shift, x_target=task.x_target + shift)
    left, right = (model.predict(each, noise=noise).loc for each in (task, shifted))
    assert torch.allclose(left, right, rtol=1e-10, atol=1e-12) == equivariant
    moved = model.predict(replace(task, x_context=task.x_context + shift), noise=noise).loc
    assert not torch.allclose(left[:, :, 0], moved[:, :, 0])


@pytest.mark.parametrize("embed_x", ["none", "fourier"])
def test_prediction_equals_training(embed_x):
    arch = replace(ARCH, embed_x=embed_x, transformer=replace(SIZES, equivariant=False))
    model, task = made(arch), some_task()
    draws = model.draws(task, {})
    found = model.predict(task).log_prob(task.y_target)
    torch.testing.assert_close(found[draws.counted], draws.log_likelihood[0, 0][draws.counted])


def test_codes_do_not_turn_features():
    model = made(replace(ARCH, dim_x=4, coded_x=True))
    task = some_task(4)
    changed = task.x_target.clone()
    changed[..., 2:] += 1.0
    left = model.predict(task).loc
    right = model.predict(Task.from_points(changed, task.y_target, task.mask_context)).loc
    assert torch.equal(left, right)


@pytest.mark.parametrize("equivariant", [False, True])
def test_inputs_of_the_whole_task_do_not_turn_features(equivariant):
    arch = replace(ARCH, dim_x=4, constant_x=2, transformer=replace(SIZES, equivariant=equivariant))
    model, task = made(arch), some_task(4)
    assert model.backbone.trunk.place.frequencies.shape[-1] == 2
    changed = task.x_target.clone()
    changed[..., 2:] += 1.0
    left = model.predict(task).loc
    right = model.predict(Task.from_points(changed, task.y_target, task.mask_context)).loc
    assert torch.equal(left, right) is equivariant  # others read them in their tokens


def test_fused_attention_has_the_gradients_of_the_equation():
    task = some_task()
    gradients = []
    for fused in (False, True):
        model = made(replace(ARCH, transformer=replace(SIZES, fused=fused)))
        total = model.objective(task).log_likelihood.sum()
        gradients.append(torch.autograd.grad(total, list(model.parameters())))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_angles_are_computed_in_full_precision_under_autocast():
    rotary, x = Rotary(3, 2, 8, 160.0), torch.randn(4, 6, 3)
    with torch.autocast("cpu", torch.bfloat16):
        found = rotary(x)
    assert found.dtype == torch.float32
    assert torch.equal(found, rotary(x))


def test_a_fleet_equals_its_single_runs():
    make = partial(make_model, "tnp", replace(ARCH, dim_x=1))
    source = Curves(batch_size=2, num_points=8, max_context=6, dtype=torch.float64)
    settings = Settings(num_steps=3, precision="float64", compile=False)

    def trained(seeds):
        fleet = Fleet(make, source, seeds, settings)
        for _ in range(3):
            fleet.step()
        return fleet.state["params"]

    together = trained([0, 1])
    for row, seed in enumerate([0, 1]):
        torch.testing.assert_close(together[row], trained([seed])[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("width", "rotary"), [(6, 20.0), (8, 0.1)])
def test_odd_heads_and_frequencies_below_the_slowest_are_refused(width, rotary):
    with pytest.raises(ValueError, match=re.escape("transformer.rotary turns pairs of features")):
        Transformer(width, 1, 2, 8, rotary=rotary)
