"""Models as files: onnxruntime and `torch.export` answer as `predict` does, for any numbers of points."""

import json

import pytest
import torch
from runtime import NEAR, answer, same, session_of

from dsvnp import MODELS, Architecture, Task, Transformer, make_model
from dsvnp.export import graph_of, to_onnx, to_pt2

LAYER = Transformer(width=8, num_layers=1, num_heads=2, feedforward=8, embedder=(8,))
SMALL = {"encoder": (8,), "dim_lat": 8, "decoder": (8,), "dropout": 0.5, "transformer": LAYER, "cells": LAYER}
BLOCKS = {"attention": "block", "num_heads": 2, "self_attention": 1}
SHAPES = [
    (2, 5, 4, 6, 2),
    (1, 0, 3, 3, 2),
    (1, 1, 1, 2, 2),
    (3, 4, 30, 2, 3),
]  # tasks, context, targets, K, S


@torch.no_grad()
def made(name: str, **changes):
    torch.manual_seed(0)
    model = make_model(name, Architecture(2, **{"dim_y": 2, **SMALL, **changes})).eval()
    for parameter in (
        model.parameters()
    ):  # some weights start at zero; as files of trained models have none, none is silent here
        if parameter.ndim > 1 and not parameter.any():
            parameter.uniform_(-0.3, 0.3)
    return model


def question(
    model, tasks: int, context: int, targets: int, num_global: int, num_local: int, labels: bool = False
):
    """A task with some empty slots, its noise, and both as a file takes them; the first task has no context at all."""
    g = torch.Generator().manual_seed(tasks + context)
    x, x_target = (torch.randn(tasks, count, 2, generator=g) for count in (context, targets))
    y = (
        torch.randint(3, (tasks, context, 1), generator=g)
        if labels
        else torch.randn(tasks, context, model.arch.dim_y, generator=g)
    )
    mask = torch.rand(tasks, context, generator=g) > 0.3
    mask[0] = tasks == 1
    task = Task.from_sets(x, y, x_target, mask_context=mask)
    noise = model.draw_noise(task, num_global, num_local, shared=True, generator=g)
    named = {f"noise_{key.replace('.', '_')}": value for key, value in noise.items()}
    return task, noise, {"x_context": x, "y_context": y, "x_target": x_target, "mask_context": mask, **named}


@pytest.mark.parametrize(
    ("name", "changes"),
    # TabTNP: see test_export_pretrained
    [*((name, {}) for name in MODELS if name != "tabtnp"), ("attnnp", BLOCKS)],
    ids=[*(name for name in MODELS if name != "tabtnp"), "attnnp-block"],
)
def test_a_file_answers_like_the_model(name, changes, tmp_path):
    model = made(name, **changes)
    session = session_of(to_onnx(model, tmp_path / "model.onnx", num_global=3, num_local=2, seed=1))
    for shape in SHAPES:
        task, noise, inputs = question(model, *shape)
        same(answer(session, inputs), model.predict(task, noise=noise))
    # Left out, the mask is full and the noise is the one of the seed, the same for all tasks and points.
    task, _, inputs = question(model, 2, 5, 4, 3, 2)
    fixed = {
        name: value
        for name, value in graph_of(model, num_global=3, seed=1).defaults.items()
        if "mask" not in name
    }
    wanted = answer(session, {**inputs, "mask_context": torch.ones(2, 5, dtype=torch.bool), **fixed})
    got = answer(session, {key: inputs[key] for key in ("x_context", "y_context", "x_target")})
    assert torch.equal(got["mean"], wanted["mean"])


def test_a_file_of_classes_with_required_noise(tmp_path):
    model = made("np", dim_y=3, likelihood="categorical")
    session = session_of(to_onnx(model, tmp_path / "model.onnx", required=["noise_global"]))
    assert [each.name for each in session.get_inputs()] == [
        "x_context",
        "y_context",
        "x_target",
        "noise_global",
    ]
    task, noise, inputs = question(model, 2, 5, 4, 6, 1, labels=True)
    got, wanted = answer(session, inputs), model.predict(task, noise=noise)
    torch.testing.assert_close(got["probabilities"], wanted.mean)
    torch.testing.assert_close(got["epistemic"], wanted.epistemic, atol=1e-6, rtol=0)
    parts = (got["weights"].unsqueeze(-1) * got["component_probabilities"]).sum(2)
    torch.testing.assert_close(parts, wanted.mean)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("cnp", {"likelihood": "low-rank", "rank": 1}),
        ("np", {"likelihood": "mixture", "num_components": 3, "background": 0.01}),
        ("tnp", {"transformer": Transformer(8, 1, 2, 8, (8,), equivariant=True, relative=4)}),
        ("attnnp", BLOCKS),
        ("cnp", {"likelihood": "coherent", "dim_functions": 3}),
        (
            "tnp",
            {
                "dim_y": 1,
                "likelihood": "coherent-mixture",
                "dim_functions": 4,
                "transformer": Transformer(8, 1, 2, 8, (8,), equivariant=True, rotary=4.0),
            },
        ),
    ],
    ids=["low-rank", "mixture", "equivariant", "blocks", "coherent", "coherent-mixture"],
)
def test_graphs_of_other_heads_and_attention(name, changes):
    """The module that is traced, without a file: tracing has no branch on which these differ."""
    model = made(name, **changes)
    task, noise, inputs = question(model, 2, 5, 4, 6, 1)
    with torch.no_grad():
        got, wanted = graph_of(model).module(inputs), model.predict(task, noise=noise)
    assert (got["mean"] - wanted.mean).abs().div(wanted.stddev).max() < NEAR
    assert (got["std"] - wanted.stddev).abs().div(wanted.stddev).max() < NEAR
    weights = got["weights"].unsqueeze(-1)
    assert torch.allclose((weights * got["means"]).sum(2), wanted.mean, atol=1e-6)
    if "factors" in got:
        total = got["sigmas"].square() + got["factors"].square().sum(-1)
        assert torch.allclose(total, wanted.scale.flatten(0, 1).movedim(0, 2).square())


def test_a_program_of_torch_answers_like_the_model(tmp_path):
    model = made("dsvnp")
    path = to_pt2(model, tmp_path / "model.pt2", num_global=3)
    facts = {"dsvnp.json": ""}
    program = torch.export.load(path, extra_files=facts)
    assert json.loads(facts["dsvnp.json"])["model"] == "dsvnp"
    stored = {key: value for key, value in program.example_inputs[0][0].items() if key.startswith("noise")}
    fixed = graph_of(model, num_global=3).defaults
    assert all(torch.equal(value, fixed[key]) for key, value in stored.items())
    for shape in SHAPES:
        task, _, inputs = question(model, *shape)
        tasks = task.num_tasks
        noise = {"global": stored["noise_global"].expand(-1, tasks, -1)}
        noise["local"] = stored["noise_local"].expand(-1, -1, tasks, -1, -1)
        same(program.module()(inputs | stored), model.predict(task, noise=noise))


def test_what_cannot_be_exported_is_refused(tmp_path):
    with pytest.raises(TypeError, match="expected a model, a fitted estimator or a Graph, got str"):
        to_onnx("model", tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="Did you mean 'noise_global'"):
        to_onnx(made("np"), tmp_path / "model.onnx", required=["noise_globl"])
    with pytest.raises(ValueError, match="only the graph of a model has such settings, got Graph"):
        to_onnx(graph_of(made("np")), tmp_path / "model.onnx", num_global=4)
