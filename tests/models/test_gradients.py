"""`differentiable=True`: gradients of predictions and of functions, against finite differences in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dsvnp import MODELS, Architecture, NeuralProcess, Task, Transformer

TRANSFORMER = Transformer(width=8, num_layers=2, num_heads=2, feedforward=16, embedder=(8,))
SIZES = {"encoder": (16,), "dim_lat": 8, "decoder": (16,), "transformer": TRANSFORMER, "cells": TRANSFORMER}
ARCHITECTURES = {
    "gaussian": Architecture(2, 2, "gaussian", **SIZES),
    "categorical": Architecture(2, 3, "categorical", **SIZES),
}
VARIANTS = {  # which stop gradients in training, or take another path where there are any
    "tnp-equivariant": {"transformer": replace(TRANSFORMER, equivariant=True)},
    "dsvnp-detached": {"local_detach": True},
    "attnnp-block": {"attention": "block", "num_heads": 2, "self_attention": 1},
}
every_model = pytest.mark.parametrize("name", [*MODELS, *VARIANTS])


def make(name: str, kind: str = "gaussian") -> NeuralProcess:
    torch.manual_seed(1)
    arch = replace(ARCHITECTURES[kind], **VARIANTS.get(name, {}))
    model = MODELS[name.split("-")[0] if name not in MODELS else name](arch).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 and not parameter.any():
                parameter.uniform_(-0.3, 0.3)
    return model


def some_task(kind: str = "gaussian") -> Task:
    g = torch.Generator().manual_seed(2)
    x = torch.randn(2, 7, 2, generator=g, dtype=torch.float64)
    y = torch.randn(2, 7, 2, generator=g, dtype=torch.float64)
    if kind == "categorical":
        y = torch.randint(3, (2, 7, 1), generator=g)
    return Task.from_sets(x[:, :3], y[:, :3], x[:, 3:])


def reads_context(name: str) -> bool:
    return name not in ("nn", "mc-dropout")


@every_model
def test_gradients_of_a_prediction_are_those_of_finite_differences(name):
    model, task = make(name), some_task()
    noise = model.draw_noise(task, 2, 2, shared=True, generator=torch.Generator().manual_seed(0))

    def predict(x_target: Tensor, x_context: Tensor, y_context: Tensor) -> tuple[Tensor, ...]:
        moved = replace(task, x_target=x_target, x_context=x_context, y_context=y_context)
        prediction = model.predict(moved, 2, 2, noise, differentiable=True, chunk=4)  # two chunks
        return prediction.mean, prediction.variance

    inputs = [task.x_target, task.x_context, task.y_context]
    inputs = [tensor.clone().requires_grad_(reads_context(name) or i == 0) for i, tensor in enumerate(inputs)]
    assert torch.autograd.gradcheck(predict, inputs, eps=1e-6, atol=1e-6)
    wanted = inputs if reads_context(name) else inputs[:1]
    for gradient in torch.autograd.grad(predict(*inputs)[0].square().sum(), wanted):
        assert gradient.abs().max() > 0


@every_model
def test_class_probabilities_have_gradients(name):
    model, task = make(name, "categorical"), some_task("categorical")
    noise = model.draw_noise(task, 2, 1, shared=True, generator=torch.Generator().manual_seed(0))

    def predict(x_target: Tensor) -> Tensor:
        return model.predict(replace(task, x_target=x_target), 2, 1, noise, differentiable=True).mean

    assert torch.autograd.gradcheck(predict, task.x_target.clone().requires_grad_())


@every_model
def test_a_prediction_is_the_same_with_and_without_gradients(name):
    """Attention takes another path where gradients are wanted."""
    model, task = make(name), some_task()
    noise = model.draw_noise(task, 2, 2, shared=True)
    with_graph, without = (model.predict(task, noise=noise, differentiable=d) for d in (True, False))
    assert with_graph.mean.requires_grad
    assert not without.mean.requires_grad
    for a, b in zip(with_graph.arrays(), without.arrays(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    with torch.no_grad():  # who forbids gradients has the last word
        assert not model.predict(task, differentiable=True).mean.requires_grad


@every_model
def test_gradients_stay_finite_with_empty_slots_and_contexts(name):
    model, task = make(name), some_task()
    mask = torch.tensor([[True, False, True], [False] * 3])
    y = task.y_context.clone()
    y[0, 0, 1] = torch.nan
    leaves = [
        task.x_target.clone().requires_grad_(),
        task.x_context.clone().requires_grad_(),
        y.requires_grad_(),
    ]
    moved = replace(task, x_target=leaves[0], x_context=leaves[1], y_context=leaves[2], mask_context=mask)
    loss = model.predict(moved, 2, differentiable=True).variance.sum()
    for gradient in torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True):
        assert gradient.isfinite().all()


@every_model
def test_weights_get_gradients_and_the_mode_of_the_model_is_left_as_it_was(name):
    model, task = make(name).train(), some_task()
    model.predict(task, 2, differentiable=True).mean.square().sum().backward()
    assert model.training
    assert max(weight.grad.abs().max() for weight in model.parameters() if weight.grad is not None) > 0


@pytest.mark.parametrize("name", ["cnp", "np", "tnp", "dsvtnp"])
@pytest.mark.parametrize("autoregressive", [True, False])
def test_sampled_functions_are_differentiable_with_their_draws_held_fixed(name, autoregressive):
    model, task = make(name), some_task()

    def sample(x_target: Tensor, y_context: Tensor) -> Tensor:
        moved = replace(task, x_target=x_target, y_context=y_context)
        generator = torch.Generator().manual_seed(0)
        return model.sample_functions(
            moved, 2, autoregressive=autoregressive, block=2, differentiable=True, generator=generator
        )

    leaves = [task.x_target.clone().requires_grad_(), task.y_context.clone().requires_grad_()]
    assert torch.autograd.gradcheck(sample, leaves, eps=1e-6, atol=1e-6)


def test_an_autoregressive_prediction_has_gradients():
    model, task = make("tnp"), some_task()

    def predict(x_target: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        moved = replace(task, x_target=x_target)
        prediction = model.predict(
            moved, 2, autoregressive=True, block=2, differentiable=True, generator=generator
        )
        return prediction.mean

    assert torch.autograd.gradcheck(predict, task.x_target.clone().requires_grad_(), eps=1e-6, atol=1e-6)
