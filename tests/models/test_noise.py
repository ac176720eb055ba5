"""Noise that a model does not know, or of another shape, is refused before anything is computed."""

import pytest
import torch

from dsvnp.models import Architecture, Transformer, make_model
from dsvnp.task import Task

ARCH = Architecture(
    1,
    2,
    encoder=(8,),
    dim_lat=4,
    decoder=(8,),
    dropout=0.5,
    transformer=Transformer(width=8, num_layers=1, num_heads=2),
)


@pytest.fixture
def task():
    g = torch.Generator().manual_seed(0)
    return Task.from_sets(
        torch.rand(3, 5, 1, generator=g), torch.rand(3, 5, 2, generator=g), torch.rand(3, 7, 1, generator=g)
    )


@pytest.mark.parametrize("name", ["np", "dsvnp", "mc-dropout", "dsvtnp"])
def test_noise_of_any_number_of_draws_is_taken(name, task):
    model = make_model(name, ARCH)
    for num_global, num_local in ((1, 1), (4, 1), (2, 3)):
        noise = model.draw_noise(task, num_global, num_local, shared=True)
        assert model.predict(task, noise=noise).mean.shape == (3, 7, 2)


@pytest.mark.parametrize("name", ["np", "dsvnp", "mc-dropout", "cnp", "tnp"])
def test_unknown_names_are_refused(name, task):
    model = make_model(name, ARCH)
    noise = {**model.draw_noise(task, 2, shared=True), "globall": torch.zeros(2, 3, 4)}
    with pytest.raises(ValueError, match="unknown noise 'globall'"):
        model.predict(task, noise=noise)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("global", (2, 1, 4)),  # one task's for all
        ("global", (2, 3, 1)),
        ("global", (2, 3)),
        ("global", ()),
        ("local", (2, 1, 1, 7, 4)),
        ("local", (2, 1, 3, 6, 4)),
        ("local", (2, 3, 7, 4)),
        ("local", (5, 1, 3, 7, 4)),  # another number of draws than z_G has
    ],
)
def test_other_shapes_are_refused(name, shape, task):
    model = make_model("dsvnp", ARCH)
    noise = {**model.draw_noise(task, 2, shared=True), name: torch.zeros(shape)}
    with pytest.raises(ValueError, match="noise"):
        model.predict(task, noise=noise)


def test_a_single_slot_serves_all_targets(task):
    model = make_model("dsvnp", ARCH)
    noise = model.draw_noise(task, 2, shared=True)
    one = {**noise, "local": noise["local"][..., :1, :]}
    alike = {**noise, "local": one["local"].expand(-1, -1, -1, 7, -1)}
    assert torch.equal(model.predict(task, noise=one).mean, model.predict(task, noise=alike).mean)
