"""Each model's numbers, as they were when its equations were last checked by hand and by other tests.

Parameters, inputs and noise come from sines rather than from a generator: the same numbers hold on any
machine and any torch. A change that is meant to change them: run this file as a script and paste what it prints.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from dsvnp import MODELS, Architecture, NeuralProcess, Task, Transformer, make_model

TRANSFORMER = Transformer(width=4, num_layers=2, num_heads=2, feedforward=6, embedder=(5,))
ARCHITECTURES = {
    "gaussian": Architecture(
        2, 2, encoder=(6,), dim_lat=4, decoder=(5,), dropout=0.3, transformer=TRANSFORMER
    ),
    "squared-error": Architecture(
        2,
        2,
        "squared-error",
        embed_x="mlp",
        dim_latx=3,
        dim_laty=3,
        encoder=(),
        dim_lat=4,
        decoder=(),
        dropout=0.3,
        transformer=TRANSFORMER,
    ),
    "categorical": Architecture(
        2,
        3,
        "categorical",
        dim_laty=3,
        encoder=(6,),
        dim_lat=4,
        decoder=(5,),
        dropout=0.3,
        transformer=TRANSFORMER,
    ),
}
EQUIVARIANT = {"transformer": replace(TRANSFORMER, equivariant=True, relative=3), "embed_x": "none"}
VARIANTS = {
    "attnnp-block": {"attention": "block", "num_heads": 2, "self_attention": 1},
    "tnp-equivariant": EQUIVARIANT,
    "dsvtnp-equivariant": EQUIVARIANT,
    "tnp-rotary": {"transformer": replace(TRANSFORMER, rotary=9.0)},
}

# log-likelihood, local KL, global KL (summed over tasks); sums of the predictive mean², variance and log-density
# fmt: off
GOLDEN = {
    ("nn", "gaussian"): (
        -63.65811947548, 0, 0,
        9.764330792056, 6.740840775501, -70.3922046216,
    ),
    ("nn", "squared-error"): (
        -15.05797872839, 0, 0,
        5.556719093474, 20, -33.99777279922,
    ),
    ("nn", "categorical"): (
        -12.20383827271, 0, 0,
        4.463201357448, 5.536798642552, -13.33300118242,
    ),
    ("mc-dropout", "gaussian"): (
        -58.36718340819, 0, 0,
        7.655870824499, 7.534830375343, -51.99410378752,
    ),
    ("mc-dropout", "squared-error"): (
        -15.78313182984, 0, 0,
        4.886327808428, 22.01898133172, -32.98520213172,
    ),
    ("mc-dropout", "categorical"): (
        -12.09444354406, 0, 0,
        4.212990902725, 5.787009097275, -12.60262297984,
    ),
    ("cnp", "gaussian"): (
        -36.43071630087, 0, 0,
        9.190545241854, 5.433935146192, -45.3936962713,
    ),
    ("cnp", "squared-error"): (
        -5.82068809053, 0, 0,
        9.311235024888, 20, -31.09543708294,
    ),
    ("cnp", "categorical"): (
        -7.03603619688, 0, 0,
        4.649987010044, 5.350012989956, -13.21140219575,
    ),
    ("np", "gaussian"): (
        -39.63908538082, 0, 4.041752374512,
        4.955228595295, 6.581818534072, -40.24138201257,
    ),
    ("np", "squared-error"): (
        -13.20340387104, 0, 0.210639636018,
        7.814482649607, 23.57289471103, -29.79719430059,
    ),
    ("np", "categorical"): (
        -11.03994153334, 0, 1.230175932762,
        4.031508002086, 5.968491997914, -12.15053258097,
    ),
    ("attnnp", "gaussian"): (
        -45.4498062215, 0, 4.041752374512,
        7.138561525845, 6.643965897085, -40.27255062194,
    ),
    ("attnnp", "squared-error"): (
        -13.56963825684, 0, 0.210639636018,
        9.943095139785, 21.52344459003, -31.15312259944,
    ),
    ("attnnp", "categorical"): (
        -11.28971022778, 0, 1.230175932762,
        4.146029697248, 5.853970302752, -12.47264780359,
    ),
    ("dsvnp", "gaussian"): (
        -52.13389652154, 47.37752330361, 4.041752374512,
        6.668680184627, 7.708612778465, -41.46764332245,
    ),
    ("dsvnp", "squared-error"): (
        -17.71834589237, 68.37038151326, 0.210639636018,
        12.35635107983, 32.300290367, -32.09249845903,
    ),
    ("dsvnp", "categorical"): (
        -11.66876770288, 47.67617870574, 1.230175932762,
        4.206715410571, 5.793284589429, -12.66151413699,
    ),
    ("tnp", "gaussian"): (
        -33.08020292781, 0, 0,
        3.599658134822, 6.311865703954, -45.1553579449,
    ),
    ("tnp", "squared-error"): (
        -9.754668535597, 0, 0,
        23.73874789037, 20, -41.55152980914,
    ),
    ("tnp", "categorical"): (
        -6.643897848267, 0, 0,
        3.756918137219, 6.243081862781, -11.62748731105,
    ),
    ("dsvtnp", "gaussian"): (
        -35.29011628908, 22.85026124071, 0.9959942872727,
        4.267769927101, 7.997386781633, -39.19343822922,
    ),
    ("dsvtnp", "squared-error"): (
        -11.11229433634, 23.21334327956, 0.1718792175325,
        7.886243783808, 33.26805214787, -34.24898553207,
    ),
    ("dsvtnp", "categorical"): (
        -6.908060279607, 22.72752320114, 0.1253637573308,
        3.774757619755, 6.225242380245, -11.56597621555,
    ),
    ("tabtnp", "gaussian"): (
        -48.2864505721, 0, 0,
        8.168928859576, 6.160004551941, -61.94423469703,
    ),
    ("tabtnp", "squared-error"): (
        -8.990282628773, 0, 0,
        4.009756672048, 20, -30.62175772641,
    ),
    ("tabtnp", "categorical"): (
        -7.349140012371, 0, 0,
        4.363994836387, 5.636005163613, -12.86851752956,
    ),
    ("attnnp-block", "gaussian"): (
        -38.09768432709, 0, 0.01189019931488,
        4.118572921783, 6.948009197728, -40.14883544167,
    ),
    ("attnnp-block", "squared-error"): (
        -17.73701883227, 0, 0.2542535975342,
        21.96277081327, 21.04632567433, -36.97783026911,
    ),
    ("attnnp-block", "categorical"): (
        -10.52873257987, 0, 0.02967440593057,
        3.814304654952, 6.185695345048, -11.70355872537,
    ),
    ("tnp-equivariant", "gaussian"): (
        -33.27616265929, 0, 0,
        3.609038547148, 6.309713640402, -45.35949807573,
    ),
    ("tnp-equivariant", "squared-error"): (
        -9.712012037645, 0, 0,
        23.41990233268, 20, -41.42347066717,
    ),
    ("tnp-equivariant", "categorical"): (
        -6.644993405164, 0, 0,
        3.758918395364, 6.241081604636, -11.62482523301,
    ),
    ("dsvtnp-equivariant", "gaussian"): (
        -35.13030161853, 22.79085898851, 0.5495683755114,
        4.140793099705, 7.972188445286, -39.26215698533,
    ),
    ("dsvtnp-equivariant", "squared-error"): (
        -11.67369063787, 24.10507032248, 1.300066319071,
        7.866406040737, 34.9038655444, -34.59222933282,
    ),
    ("dsvtnp-equivariant", "categorical"): (
        -6.901124358213, 22.94009158835, 0.2246675930141,
        3.770668614822, 6.229331385178, -11.57831643223,
    ),
    ("tnp-rotary", "gaussian"): (
        -32.90664016355, 0, 0,
        3.588013102582, 6.311405195735, -44.95176212139,
    ),
    ("tnp-rotary", "squared-error"): (
        -9.793600929484, 0, 0,
        23.98063913426, 20, -41.64530299613,
    ),
    ("tnp-rotary", "categorical"): (
        -6.634909218744, 0, 0,
        3.755419416248, 6.244580583752, -11.62749396316,
    ),
}
# fmt: on


def wave(*shape: int, phase: float) -> torch.Tensor:
    """Numbers in [−1, 1] without a generator."""
    size = math.prod(shape)
    return torch.sin(1.7 * torch.arange(size, dtype=torch.float64) + phase).reshape(shape)


def golden_model(name: str, kind: str) -> NeuralProcess:
    arch = replace(ARCHITECTURES[kind], **VARIANTS.get(name, {}))
    model = make_model(name.split("-")[0] if name in VARIANTS else name, arch).double()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            parameter.copy_(0.6 * wave(*parameter.shape, phase=sum(map(ord, parameter_name)) % 89))
    return model


def golden_task(kind: str) -> Task:
    x, y = wave(2, 5, 2, phase=0.1), 1.5 * wave(2, 5, 2, phase=0.2)
    if kind == "categorical":
        y = torch.arange(10).reshape(2, 5, 1) % 3
    in_context = torch.tensor([[True, False, True, False, False], [False, True, False, False, False]])
    return Task.from_points(
        x, y, in_context, mask=torch.tensor([[True] * 5, [True, True, True, True, False]])
    )


def golden_noise(model: NeuralProcess, shared: bool) -> dict[str, torch.Tensor]:
    shapes = model.noise_shapes(2, 5, 3, 2, shared=shared)
    waves = {n: wave(*shape, phase=len(n)) for n, shape in shapes.items()}
    return {n: (v + 1) / 2 if n.startswith("dropout") else 1.3 * v for n, v in waves.items()}


def numbers(name: str, kind: str) -> tuple[float, ...]:
    model, task = golden_model(name, kind), golden_task(kind)
    bound = model.objective(task, noise=golden_noise(model, shared=False))
    prediction = model.predict(task, noise=golden_noise(model, shared=True))
    terms = [bound.log_likelihood, bound.kl_local, bound.kl_global]
    terms += [prediction.mean.square(), prediction.variance, prediction.log_prob(task.y_target)]
    return tuple(term.sum().item() for term in terms)


@pytest.mark.parametrize(("name", "kind"), GOLDEN)
def test_the_numbers_are_as_they_were(name, kind):
    assert numbers(name, kind) == pytest.approx(GOLDEN[name, kind], rel=1e-10, abs=1e-10)


if __name__ == "__main__":
    for name in (*MODELS, *VARIANTS):
        for kind in ARCHITECTURES:
            first, second = numbers(name, kind)[:3], numbers(name, kind)[3:]
            rows = [", ".join(f"{value:.13g}" for value in row) for row in (first, second)]
            print(f'    ("{name}", "{kind}"): (\n        {rows[0]},\n        {rows[1]},\n    ),')
