"""The playground's tasks are what the page says of them, and every network trains, is written and is listed."""

import gzip
import json

import pytest
import torch

from dsvnp.paper.cartpole.physics import CartPole, derivative
from dsvnp.playground.export import load
from studies.playground_tasks import (
    CHANGES,
    FRICTION,
    MASSES,
    SENSOR,
    UNITS,
    DigitPixels,
    MixedCurves,
    Pushes,
    TwoBranches,
    changes,
    pixel_grid,
)
from studies.playground_training import MAX_WEIGHTS, domains, main, networks


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def batch_of(source):
    tensors = source.pool(seeded(), torch.device("cpu"))
    uniforms = {"context": torch.rand(source.batch_size, generator=seeded(1))}
    return source.batch(tensors, uniforms, torch.tensor(0))


@pytest.mark.parametrize(
    ("source", "sizes"),
    [
        (MixedCurves(refresh_every=2), (1, 1)),
        (TwoBranches(refresh_every=2), (1, 1)),
        (Pushes(refresh_every=2), (4, 2)),
        (DigitPixels(refresh_every=2, images=torch.randint(256, (5, 28, 28), dtype=torch.uint8)), (2, 1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_batches_have_contexts_of_all_sizes_within_limits(source, sizes):
    task = batch_of(source)
    assert task.x_target.shape == (16, source.num_points, sizes[0])
    assert task.y_target.shape == (16, source.num_points, sizes[1])
    counts = task.in_context.sum(1)
    assert counts.max() <= source.max_context
    assert counts.unique().numel() > 4
    assert counts.double().median() < source.max_context / 2


def test_curves_have_the_scales_of_their_prior():
    x, y = MixedCurves().points(4000, seeded())
    assert x.abs().max() <= 2
    scales = torch.linspace(0.5, 1.2, 1001, dtype=torch.float64)
    noise = sum(sigma**2 for sigma in domains()["curves"]["noise"]) / 4
    assert y.square().mean().item() == pytest.approx(scales.square().mean().item() + noise, rel=0.05)


def test_points_lie_on_one_of_two_branches():
    source = TwoBranches()
    x, y = source.points(2000, seeded())
    order = x[:, :, 0].argsort(1)
    near = (
        y[:, :, 0].gather(1, order).diff(dim=1).abs()
    )  # of neighbours in x: small, or the gap between branches
    assert 0.35 < (near > 0.5).double().mean() < 0.55
    assert ((near > 0.25) & (near < 0.5)).double().mean() < 0.15


def test_changes_are_those_of_the_equations_of_motion():
    inputs, y = Pushes().points(50, seeded())
    mass = torch.tensor(0.7, dtype=torch.float64)
    theta, speed, spin, force = (inputs * torch.tensor(UNITS, dtype=torch.float64)).unbind(-1)
    state = torch.stack([torch.zeros_like(theta), theta, speed, spin], dim=-1)
    for _ in range(2000):
        state = state + 5e-5 * derivative(CartPole(mass, FRICTION), state, force)
    expected = torch.stack([state[..., 2] - speed, state[..., 3] - spin], dim=-1) / torch.tensor(CHANGES)
    torch.testing.assert_close(changes(inputs, mass), expected, atol=0.03, rtol=0.02)
    light, heavy = (changes(inputs, torch.tensor(m, dtype=torch.float64)) for m in MASSES)
    between = (torch.minimum(light, heavy) - 6 * SENSOR < y) & (y < torch.maximum(light, heavy) + 6 * SENSOR)
    assert between.double().mean() > 0.97  # a change need not be monotone in the mass


def test_pixels_of_a_digit_come_once_each_and_with_their_ink():
    images = torch.arange(784).reshape(1, 28, 28).remainder(256).to(torch.uint8)
    x, y = DigitPixels(images=images).points(8, seeded())
    place = (x[:, :, None] - pixel_grid()).abs().sum(-1).argmin(-1)  # [8, 200]
    assert all(row.unique().numel() == 200 for row in place)
    expected = 2 * images.flatten()[place].double() / 255 - 1
    torch.testing.assert_close(y[..., 0], expected)


def test_networks_are_small_enough_in_name():
    known = networks(torch.zeros(1, 28, 28, dtype=torch.uint8))
    assert {name.split("-")[0] for name in known} == set(domains())
    assert MAX_WEIGHTS <= 300_000


def test_a_short_training_writes_what_the_page_reads(tmp_path, capsys):
    header = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (3, 28, 28))
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + bytes(3 * 784)))
    out = tmp_path / "weights"
    names = ["cartpole", "digits-np"]
    main(["--out", str(out), "--steps", "2", "--only", *names, "--mnist", str(tmp_path)])
    listed = json.loads((out / "manifest.json").read_text())
    assert sorted(listed["networks"]) == names
    assert listed["networks"]["cartpole"]["steps"] == 2
    assert load(out / "cartpole.safetensors").name == "np"
    with pytest.raises(SystemExit):
        main(["--out", str(out), "--only", "nothing"])
    assert "unknown network 'nothing'" in capsys.readouterr().err
