"""Architectures: the sizes of the paper, what each option does, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import FrozenInstanceError, fields, replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from dsvnp import MODELS, Architecture, Task, make_model
from dsvnp.aggregators import AGGREGATORS
from dsvnp.likelihoods import Categorical, FixedGaussian, Gaussian
from dsvnp.models.architecture import make_embedding, make_likelihood
from dsvnp.networks import MLP, VGG, LeNet
from dsvnp.objectives import Bound

SMALL = Architecture(1, 1, encoder=(8,), dim_lat=4, decoder=(8,))


def some_task(dim_x: int = 1) -> Task:
    """Two tasks of six points, the first three of them context."""
    x = torch.sin(torch.arange(12.0 * dim_x)).reshape(2, 6, dim_x)
    y = torch.cos(1.3 * torch.arange(12.0)).reshape(2, 6, 1)
    return Task.from_points(x, y, (torch.arange(6) < 3).expand(2, -1))


def made(name: str, arch: Architecture, embedding: nn.Module | None = None):
    torch.manual_seed(0)
    model = make_model(name, arch, embedding)
    with torch.no_grad():
        for parameter in model.parameters():  # weights that start at zero would hide what latents do
            if parameter.ndim > 1 and not parameter.any():
                parameter.uniform_(-0.3, 0.3)
    return model


def size(*layers: int) -> int:
    """Number of parameters of linear layers of these sizes."""
    return sum(a * b + b for a, b in pairwise(layers))


# --- the paper's sizes ---

ENCODER, HEAD, LAT = size(2, 32, 32, 128), size(128, 256), 128  # [x, y] → 32 → 32 → 128 → [μ, ln σ]
CURVES = {
    "nn": size(1, 32, 32, LAT) + size(LAT, 128, 2),
    "mc-dropout": size(1, 32, 32, LAT) + size(LAT, 128, 2),
    "cnp": ENCODER + size(1 + LAT, 128, 2),
    "np": ENCODER + HEAD + size(1 + LAT, 128, 2),
    "attnnp": 2 * ENCODER + HEAD + size(1, LAT, LAT) + size(1 + 2 * LAT, 128, 2),
    "dsvnp": ENCODER
    + HEAD
    + size(LAT + 2, LAT, 2 * LAT)
    + size(LAT + 1, LAT, 2 * LAT)
    + size(1 + 2 * LAT, 128, 2),
}


@pytest.mark.parametrize("name", CURVES)
def test_the_defaults_are_the_papers_networks_for_curves(name):
    assert sum(p.numel() for p in make_model(name, Architecture.paper()).parameters()) == CURVES[name]
    assert Architecture.paper().dim_latx == 32
    assert Architecture.paper(2, 3, dim_lat=7) == Architecture(
        2, 3, encoder=(32, 32), dim_lat=7, decoder=(128,)
    )


MULTI = Architecture(
    21, 7, "squared-error", embed_x="mlp", embed_x_hidden=(100, 100, 100), dim_latx=32, dim_laty=8, encoder=(),
    dim_lat=64, decoder=(100,),
)  # fmt: skip
EMBED = size(21, 100, 100, 100, 32) + size(7, 8)
SARCOS = {
    "mc-dropout": size(21, 100, 100, 100, 64, 100, 7),
    "cnp": EMBED + size(40, 64) + size(96, 100, 7),
    "np": EMBED + size(40, 64, 128) + size(96, 100, 7),
    "attnnp": EMBED + 2 * size(40, 64) + size(64, 128) + size(32, 64, 64) + size(160, 100, 7),
    "dsvnp": EMBED + size(40, 64, 128) + size(104, 64, 128) + size(96, 64, 128) + size(160, 100, 7),
}


@pytest.mark.parametrize("name", SARCOS)
def test_embedded_inputs_and_outputs_have_the_papers_sizes_for_multi_output_regression(name):
    assert sum(p.numel() for p in make_model(name, MULTI).parameters()) == SARCOS[name]


# --- options ---


def test_the_likelihood_is_made_by_name():
    kinds = {"gaussian": Gaussian, "squared-error": FixedGaussian, "categorical": Categorical}
    for name, kind in kinds.items():
        likelihood = make_likelihood(replace(SMALL, dim_y=3, likelihood=name))
        assert type(likelihood) is kind
        assert likelihood.dim_encoded == 3


def test_the_floor_of_sigma_is_the_architectures():
    assert make_likelihood(replace(SMALL, sigma_floor=0.25)).floor == 0.25


def test_the_embedding_is_made_by_name():
    mlp = make_embedding(replace(SMALL, embed_x="mlp", embed_x_hidden=(7,)), 5, dropout=0.1)
    assert isinstance(mlp, MLP)
    assert mlp.dropout_shapes() == [(7,), (5,)]
    image = replace(SMALL, dim_x=32 * 32 * 3, image=(3, 32, 32))
    for name, kind, shapes in (("lenet", LeNet, 4), ("vgg", VGG, 17)):
        net = make_embedding(replace(image, embed_x=name), 5, dropout=0.1)
        assert type(net) is kind
        assert len(net.dropout_shapes()) == shapes
        assert net.image == (3, 32, 32)
        assert net.dense.relu_sizes[-1] == 5
    assert not make_embedding(replace(image, embed_x="lenet"), 5).dropout_shapes()


@pytest.mark.parametrize("name", MODELS)
def test_every_model_reads_inputs_through_the_embedding_it_is_given(name):
    class Halve(nn.Linear):
        """From 6 features to 3, counting its calls."""

        calls = 0

        def forward(self, x):
            type(self).calls += 1
            return super().forward(x)

    model = made(name, replace(SMALL, dim_x=6, dim_latx=3), Halve(6, 3))
    if not any(isinstance(part, Halve) for part in model.modules()):
        pytest.skip("this model reads inputs by networks of its own, as it may")
    model.predict(some_task(dim_x=6))
    assert Halve.calls >= 1  # and nothing reads six features as three


@pytest.mark.parametrize("name", ["cnp", "np", "attnnp", "dsvnp", "dsvtnp"])  # those that aggregate
@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_the_aggregator_is_the_one_named(name, aggregator):
    model, mean = made(name, replace(SMALL, aggregator=aggregator)), made(name, SMALL)
    part = model.aggregate if name == "cnp" else model.z_global.aggregate
    assert type(part) is type(AGGREGATORS[aggregator](4))
    weights = {n: v for n, v in mean.state_dict().items() if n in model.state_dict()}
    model.load_state_dict(weights, strict=False)
    same = torch.allclose(model.predict(some_task(), deterministic=True).mean,
                          mean.predict(some_task(), deterministic=True).mean)  # fmt: skip
    assert same == (aggregator == "mean")


def test_attnnp_has_the_heads_it_is_told():
    assert made("attnnp", SMALL).attention.num_heads == 1
    assert made("attnnp", replace(SMALL, num_heads=2)).attention.num_heads == 2


def test_self_attention_lets_context_points_of_attnnp_read_each_other():
    plain, deep = (made("attnnp", replace(SMALL, self_attention=count, dim_lat=16)) for count in (0, 2))
    assert plain.among_context is None
    assert len(deep.among_context.layers) == 2
    task = some_task()
    values = [
        model._values(*points(model, t)[:2], t.in_context)
        for model in (plain, deep)
        for t in (task, moved(task, 0))
    ]
    others = slice(1, None)  # the first point was moved
    assert torch.equal(values[0][:, others], values[1][:, others])
    assert not torch.isclose(values[2][:, others], values[3][:, others]).all(-1).any()
    outside = deep._values(*points(deep, moved(task, 5))[:2], task.in_context)
    torch.testing.assert_close(outside[:, :5], values[2][:, :5])  # no context point: nobody reads it


def test_attnnp_with_self_attention_predicts_as_it_is_trained_and_from_an_empty_context():
    arch = replace(SMALL, self_attention=2, num_heads=2, posterior="context")
    model, task = made("attnnp", arch).double(), some_task().to(dtype=torch.float64)
    expected = model.predict(task, deterministic=True).component_log_prob(task.y_target)
    torch.testing.assert_close(model.draws(task, {}).log_likelihood, expected)
    order = torch.tensor([2, 0, 1, 3, 4, 5])
    shuffled = replace(
        task, **{n: getattr(task, n)[:, order] for n in ("x_context", "y_context", "mask_context")}
    )
    torch.testing.assert_close(
        model.predict(shuffled, deterministic=True).mean, model.predict(task, deterministic=True).mean
    )
    empty = replace(task, mask_context=torch.zeros_like(task.mask_context), in_context=None)
    bare = Task.from_sets(task.x_context[:, :0], task.y_context[:, :0], task.x_target)
    left, right = (model.predict(t, deterministic=True).mean for t in (empty, bare))
    assert left.isfinite().all()
    torch.testing.assert_close(left, right)
    loss = model.objective(replace(empty, in_context=empty.mask_context)).log_likelihood.sum()
    gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True)
    assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("attend_self", [True, False])
def test_in_training_a_context_point_of_attnnp_reads_its_own_label_or_not(attend_self):
    arch = replace(SMALL, dim_lat=32, attend_self=attend_self)  # of so many units some are on
    model, task, read = made("attnnp", arch), some_task(), []
    model.decoder.register_forward_pre_hook(lambda _, inputs: read.append(inputs[1]))  # z_attn
    other = replace(task, y_target=task.y_target + torch.eye(6)[0, :, None])
    for each in (task, other):
        model.draws(each, {})
    moved = (read[0] - read[1]).abs().amax(-1) > 1e-6
    assert moved.tolist() == [[attend_self, *[True] * 5]] * 2


@pytest.mark.parametrize("name", ["np", "attnnp", "dsvnp", "dsvtnp"])
def test_the_latent_scale_is_bounded_or_exponential(name):
    bounded, exp = (made(name, replace(SMALL, latent_scale=scale)) for scale in ("bounded", "exp"))
    exp.load_state_dict(bounded.state_dict())
    left, right = bounded.draws(some_task(), {}), exp.draws(some_task(), {})
    for level in ("p_global", "q_global", "p_local", "q_local"):
        a, b = getattr(left, level), getattr(right, level)
        if a is not None:
            torch.testing.assert_close(a.mean, b.mean)
            torch.testing.assert_close(a.scale, 0.1 + 0.9 * b.scale.log().sigmoid())


def test_the_dropout_rate_is_that_of_mc_dropout_alone():
    arch = replace(SMALL, dropout=0.25)
    assert made("mc-dropout", arch).encoder.dropout == 0.25
    assert made("nn", arch).encoder.dropout == 0.0
    assert made("mc-dropout", arch).noise_shapes(2, 6, 3, 1, shared=False) == {
        "dropout.0": (3, 2, 6, 8), "dropout.1": (3, 2, 6, 4),
    }  # fmt: skip
    assert made("mc-dropout", arch).noise_shapes(2, 6, 3, 1, shared=True) == {
        "dropout.0": (3, 2, 1, 8), "dropout.1": (3, 2, 1, 4),
    }  # fmt: skip
    for name in MODELS:
        if name != "mc-dropout":
            assert not any("dropout" in n for n in made(name, arch).noise_shapes(2, 6, 3, 1, shared=False))


def test_dropout_follows_an_embedding_of_ones_own():
    model = made("mc-dropout", replace(SMALL, dim_latx=3), nn.Linear(1, 3))
    assert model.noise_shapes(2, 6, 3, 1, shared=True) == {"dropout.0": (3, 2, 1, 4)}


def moved(task: Task, index: int) -> Task:
    """The task with one of its points at another place."""
    x, y = task.x_target.clone(), task.y_target.clone()
    x[:, index] += 1
    y[:, index] -= 1
    return replace(task, x_context=x, y_context=y, x_target=x, y_target=y)


@pytest.mark.parametrize("name", ["np", "attnnp", "dsvnp", "dsvtnp"])
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("posterior", ["target", "context"])
def test_the_posterior_reads_all_points_or_the_context_and_the_prior_the_context(name, separate, posterior):
    model = made(name, replace(SMALL, separate_encoders=separate, posterior=posterior))
    base, outside, inside = (
        model.draws(t, {}) for t in (some_task(), moved(some_task(), 5), moved(some_task(), 0))
    )
    assert torch.equal(outside.p_global.mean, base.p_global.mean)
    assert torch.equal(outside.q_global.mean, base.q_global.mean) == (posterior == "context")
    assert not torch.allclose(inside.p_global.mean, base.p_global.mean)
    assert not torch.allclose(inside.q_global.mean, base.q_global.mean)


@pytest.mark.parametrize("name", ["np", "attnnp", "dsvnp", "dsvtnp"])
def test_one_encoder_for_both_makes_them_agree_on_the_same_points(name):
    draws = made(name, replace(SMALL, posterior="context")).draws(some_task(), {})
    assert (Bound.of(draws).kl_global == 0).all()
    draws = made(name, replace(SMALL, posterior="context", separate_encoders=True)).draws(some_task(), {})
    assert (Bound.of(draws).kl_global > 0).all()


@pytest.mark.parametrize("name", ["np", "attnnp", "dsvnp", "dsvtnp"])
def test_a_separate_prior_is_the_one_that_predicts(name):
    model = made(name, replace(SMALL, separate_encoders=True))
    before = model.predict(some_task(), deterministic=True).mean
    with torch.no_grad():
        model.z_global.head.linear.bias.add_(1)
        assert torch.equal(model.predict(some_task(), deterministic=True).mean, before)
        model.z_global.prior_head.linear.bias.add_(1)
        assert not torch.allclose(model.predict(some_task(), deterministic=True).mean, before)


@pytest.mark.parametrize("name", ["np", "attnnp", "dsvnp", "dsvtnp"])
def test_layers_between_the_mean_and_the_global_latent(name):
    plain, deep = (made(name, replace(SMALL, latent_hidden=hidden)) for hidden in ((), (5, 6)))
    counts = [sum(p.numel() for p in model.parameters()) for model in (plain, deep)]
    assert counts[1] - counts[0] == size(4, 5, 6, 8) - size(4, 8)
    draws = made(name, replace(SMALL, latent_hidden=(5,), posterior="context")).draws(some_task(), {})
    assert (Bound.of(draws).kl_global == 0).all()  # the same layers for q and p
    before = deep.z_global(*points(deep))
    r = deep.z_global.encoder(*points(deep)[:2])[:, :3].mean(1)
    layers, head = deep.z_global.head
    h = r
    for layer in (layers.first, *layers.rest):
        h = layer(h).relu()
    assert torch.allclose(before[1].mean, head.linear(h)[:, :4])


def points(model, task: Task | None = None):
    """What the global latent of a model reads of a task."""
    task = task or some_task()
    x = task.x_target
    if model.name == "dsvtnp":
        x = torch.cat([x, model.backbone.points(task, False)[2]], -1)
    return x, task.y_target, task.mask_target, task.in_context


@pytest.mark.parametrize("name", ["np", "attnnp", "dsvnp", "dsvtnp"])
def test_a_separate_prior_has_layers_of_its_own(name):
    model = made(name, replace(SMALL, latent_hidden=(5,), separate_encoders=True))
    own = {id(p) for p in model.z_global.prior_head.parameters()}
    assert len(own) == 4
    assert not own & {id(p) for p in model.z_global.head.parameters()}


# --- as a record ---


def test_an_architecture_goes_through_json_and_back():
    arch = Architecture(
        192, 10, "categorical", embed_x="vgg", image=(3, 8, 8), dim_laty=5, decoder=(), num_heads=4
    )
    again = Architecture.from_dict(json.loads(json.dumps(arch.to_dict())))
    assert again == arch
    assert all(type(getattr(again, f.name)) is type(getattr(arch, f.name)) for f in fields(arch))
    with pytest.raises(FrozenInstanceError):
        again.dim_x = 3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"dim_latt": 3},
            "unknown architecture setting 'dim_latt'. Did you mean 'dim_lat'? Known: dim_x, dim_y",
        ),
        ({"zzz": 3}, "unknown architecture setting 'zzz'. Known: dim_x, dim_y"),
        ({"dim_x": 0}, "dim_x must be at least 1, got 0"),
        ({"dim_y": -1}, "dim_y must be at least 1, got -1"),
        ({"dim_latx": 0}, "dim_latx must be at least 1, got 0"),
        ({"dim_lat": 0}, "dim_lat must be at least 1, got 0"),
        ({"dim_laty": 0}, "dim_laty must be at least 1, got 0; None reads y as it is"),
        ({"encoder": [8, 0]}, "encoder must hold sizes of at least 1, got (8, 0)"),
        ({"decoder": [-2]}, "decoder must hold sizes of at least 1, got (-2,)"),
        ({"embed_x_hidden": [0]}, "embed_x_hidden must hold sizes of at least 1, got (0,)"),
        ({"dim_local": 0}, "dim_local must be at least 1, got 0; None is the model's own"),
        ({"constant_x": 1}, "constant_x must be at least 0 and below dim_x=1, and 0 with coded_x, got 1"),
        ({"dim_x": 4, "coded_x": True, "constant_x": 1}, "and 0 with coded_x, got 1"),
        ({"self_attention": -1}, "self_attention must not be negative, got -1; 0 is none"),
        ({"attention": "blok"}, "unknown attention 'blok'. Did you mean 'block'? Known: dot, block."),
        (
            {"self_attention": 1, "attend_self": False},
            "self-attention would pass it on through others; got self_attention=1, use 0 or attend_self=True",
        ),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"dropout": -0.1}, "dropout must be at least 0 and below 1, got -0.1"),
        ({"posterior": "both"}, "posterior must be 'target' or 'context', got 'both'"),
        ({"embed_x": "vgg"}, "needs image=(channels, height, width) whose product is dim_x=1, got None"),
        ({"embed_x": "lenet", "image": [1, 2, 2]}, "whose product is dim_x=1, got (1, 2, 2)"),
    ],
)
def test_settings_that_cannot_be_are_refused(values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Architecture.from_dict({"dim_x": 1, "dim_y": 1} | values)


def test_settings_at_the_edge_are_allowed():
    ones = {
        "dim_latx": 1,
        "dim_laty": 1,
        "dim_lat": 1,
        "encoder": (1,),
        "decoder": (1,),
        "embed_x_hidden": (1,),
        "latent_hidden": (1,),
    }
    for name in MODELS:
        made_so = made(name, Architecture(1, 1, dropout=0.0, **ones))
        assert made_so.predict(some_task()).mean.isfinite().all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"likelihood": "gausian"}, "unknown likelihood 'gausian'. Did you mean 'gaussian'?"),
        ({"embed_x": "lennet"}, "unknown embedding of x 'lennet'. Did you mean 'lenet'?"),
        ({"aggregator": "maen"}, "unknown aggregator 'maen'. Did you mean 'mean'?"),
        ({"latent_scale": "softplus"}, "latent scale must be 'bounded' or 'exp', got 'softplus'"),
        ({"num_heads": 3}, "num_heads must divide the width 4, got 3"),
        ({"sigma_floor": 1.5}, "floor of sigma must be at least 0 and below 1, got 1.5"),
    ],
)
def test_a_model_of_unknown_parts_is_not_made(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make_model("attnnp", replace(SMALL, **settings))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("score_context", "counted"), [(None, None), (True, 6), (False, 3)])
def test_the_objective_may_be_about_the_context_or_not(name, score_context, counted):
    bound = made(name, replace(SMALL, score_context=score_context)).objective(some_task())
    assert bound.num_points.tolist() == [counted or (6 if MODELS[name].scores_context else 3)] * 2
