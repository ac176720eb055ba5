"""The deterministic path: the field's sizes, what it reads, an NP and a DSVNP by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from test_architecture import SMALL, moved, some_task

from dsvnp.models import Architecture, make_model
from dsvnp.task import Task

WITH_PATH = replace(SMALL, latent_hidden=(5,), deterministic_path=True)


def size(*layers: int) -> int:
    return sum(a * b + b for a, b in pairwise(layers))


def made(name: str, arch: Architecture = WITH_PATH):
    torch.manual_seed(0)
    return make_model(name, arch).double().eval()


def double() -> Task:
    return some_task().to(dtype=torch.float64)


@pytest.mark.parametrize(("name", "expected"), [("cnp", 215_682), ("np", 232_194)])
def test_with_the_path_models_have_the_size_of_the_public_code(name, expected):
    arch = Architecture(
        1, 1, encoder=(128,) * 3, latent_hidden=(128,), decoder=(128, 128), deterministic_path=True
    )
    path = size(2, 128, 128, 128, 128) + size(128, 128, 128)
    other = path if name == "cnp" else size(2, 128, 128, 128, 128) + size(128, 128, 256)
    assert path + other + size(257, 128, 128, 2) == expected
    assert sum(p.numel() for p in make_model(name, arch).parameters()) == expected


@pytest.mark.parametrize("name", ["cnp", "np", "dsvnp"])
def test_training_and_prediction_read_the_same_path(name):
    """With z_G at its mean given the context, the likelihood in training is the density that is predicted.

    A ladder posterior starts as the prior of z_*.
    """
    arch = replace(WITH_PATH, posterior="context", local_posterior="ladder")
    model, task = made(name, arch), double()
    trained = model.draws(task, {}).log_likelihood[0, 0]
    predicted = model.predict(task, deterministic=True).log_prob(task.y_target)
    torch.testing.assert_close(trained, predicted)


@pytest.mark.parametrize("name", ["cnp", "np", "dsvnp"])
def test_the_path_reads_the_context_alone_and_every_point_of_it(name):
    model = made(name, replace(WITH_PATH, posterior="context"))
    base, outside, inside = (
        model.draws(task, {}).log_likelihood[0, 0, :, 1:5]
        for task in (double(), moved(double(), 5), moved(double(), 0))
    )
    assert torch.equal(base, outside)
    assert not torch.allclose(base, inside)


def test_np_decodes_its_input_the_path_and_the_latent():
    model, task = made("np"), double()
    x, y = task.x_target[:, :3], task.y_target[:, :3]
    r = model.path.layers(model.path.encoder(x, y).mean(1))  # [B, H]
    z = model.z_global.head(model.z_global.encoder(x, y).mean(1)).mean
    raw = model.decoder(task.x_target, r[:, None], z[:, None])
    torch.testing.assert_close(model.predict(task, deterministic=True).mean, raw[..., :1])
    assert not torch.allclose(raw, model.decoder(task.x_target, 0 * r[:, None], z[:, None]))


def test_dsvnp_gives_the_path_to_its_local_prior_and_to_its_decoder():
    model, task = made("dsvnp"), double()
    x, y = task.x_target[:, :3], task.y_target[:, :3]
    r = model.path.layers(model.path.encoder(x, y).mean(1))[:, None]  # [B, 1, H]
    z = model.z_global.head(model.z_global.encoder(x, y).mean(1)).mean[:, None]
    local = model.local_prior(z, r, task.x_target).mean
    raw = model.decoder(task.x_target, z, local, r)
    torch.testing.assert_close(model.predict(task, deterministic=True).mean, raw[..., :1])
    assert not torch.allclose(raw, model.decoder(task.x_target, z, local, 0 * r))
    assert not torch.allclose(local, model.local_prior(z, 0 * r, task.x_target).mean)


@pytest.mark.parametrize("name", ["cnp", "np", "dsvnp"])
def test_an_empty_context_is_predicted_from(name):
    task = double()
    nothing = Task.from_sets(task.x_context[:, :0], task.y_context[:, :0], task.x_target)
    assert made(name).predict(nothing, 3).mean.isfinite().all()
