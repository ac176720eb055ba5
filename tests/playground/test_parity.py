"""The page computes what torch computes: every model, with noise and without, and the networks that are shipped."""

import json
from dataclasses import replace

import pytest
import torch
from node import HERE, needs_node, run_node

from dsvnp.models import Architecture, Transformer, make_model
from dsvnp.playground import PAGE
from dsvnp.playground.export import export, load
from dsvnp.task import Task

pytestmark = needs_node
KINDS = {"Infinity": 1e-9, "0": 1e-4}  # never the kernel, or always; tolerance as a share of the predictive σ
SMALL = Transformer(width=16, num_layers=2, num_heads=2, feedforward=24, embedder=(12,), relative=8)
ARCH = Architecture(
    2, 2, encoder=(12, 10), dim_lat=8, dim_local=3, decoder=(14, 9), sigma_floor=0.02, transformer=SMALL
)
ODD = replace(
    ARCH,
    embed_x="mlp",
    embed_x_hidden=(7,),
    dim_latx=6,
    dim_laty=5,
    num_heads=2,
    latent_hidden=(11, 9),
    latent_scale="exp",
    sigma_form="exp",
    sigma_floor=0.0,
    separate_encoders=True,
    local_hidden=(9, 5),
    local_posterior="ladder",
)
SHIFTED = replace(ARCH, transformer=replace(SMALL, equivariant=True))
WAVY = replace(ARCH, embed_x="fourier", num_waves=3, dim_latx=6)
ATTENTIVE = replace(ARCH, self_attention=1, num_heads=2)
CASES = {
    **{name: (name, ARCH) for name in ("cnp", "np", "attnnp", "dsvnp", "tnp", "dsvtnp")},
    **{f"{name}, all options": (name, ODD) for name in ("cnp", "np", "attnnp", "dsvnp", "tnp", "dsvtnp")},
    **{f"{name}, waves": (name, WAVY) for name in ("cnp", "np", "attnnp", "dsvnp", "tnp", "dsvtnp")},
    "attnnp, self-attention": ("attnnp", ATTENTIVE),
    "tnp, equivariant": ("tnp", SHIFTED),
    "dsvtnp, equivariant": ("dsvtnp", SHIFTED),
}
SHIPPED = sorted((PAGE / "weights").glob("*.safetensors"))


def compare(model, weights, tmp_path, dim_x, dim_y):
    """Ask both for a few contexts, draws and targets; the largest difference over σ by kind."""
    generator = torch.Generator().manual_seed(0)
    model = model.double()
    fixtures, expected = [], []
    for count, num_draws, num_local, shared in ((5, 3, 2, False), (0, 2, 1, False), (9, 1, 4, True)):
        x, y, target = (
            torch.randn(1, rows, dim, generator=generator, dtype=torch.float64)
            for rows, dim in ((count, dim_x), (count, dim_y), (7, dim_x))
        )
        shapes = model.noise_shapes(1, 1 if shared else 7, num_draws, num_local, shared=True)
        noise = {
            name: torch.randn(shape, generator=generator, dtype=torch.float64)
            for name, shape in shapes.items()
        }
        for used in (noise, {}):
            expected.append(model.predict(Task.from_sets(x, y, target), num_draws, num_local, used))
            fixtures.append(
                {"weights": str(weights), "count": count, "T": 7}
                | {"x": x.flatten().tolist(), "y": y.flatten().tolist(), "target": target.flatten().tolist()}
                | {"noise": {k: v.flatten().tolist() for k, v in used.items()} | {"shared": shared}}
            )
    path = tmp_path / "fixtures.json"
    path.write_text(json.dumps(fixtures))
    return {kind: difference(run_node(HERE / "parity.mjs", str(path), kind), expected) for kind in KINDS}


def difference(answers, expected):
    worst = 0.0
    for got, predictive in zip(answers, expected, strict=True):
        for name in ("mean", "scale"):
            want = (predictive.loc if name == "mean" else predictive.scale).flatten()
            off = (torch.tensor(got[name], dtype=torch.float64) - want) / predictive.scale.flatten()
            worst = max(worst, float(off.abs().max()))
    return worst


def check(differences):
    for kind, tolerance in KINDS.items():
        assert differences[kind] < tolerance, kind
    assert differences["0"] > differences["Infinity"]  # or the kernel was not used


@pytest.mark.parametrize("case", CASES)
def test_every_model_with_random_weights(case, tmp_path):
    name, arch = CASES[case]
    torch.manual_seed(1)
    model = make_model(name, arch)
    for weight in model.parameters():  # what starts at zero must count as well
        weight.data.add_(0.2 * torch.randn_like(weight)).copy_(weight.data.half().float())
    path = tmp_path / "network.safetensors"
    export(model, path)
    check(compare(model, path, tmp_path, arch.dim_x, arch.dim_y))


@pytest.mark.parametrize("path", SHIPPED, ids=[path.stem for path in SHIPPED])
def test_every_network_that_is_shipped(path, tmp_path):
    model = load(path)
    check(compare(model, path, tmp_path, model.arch.dim_x, model.arch.dim_y))
