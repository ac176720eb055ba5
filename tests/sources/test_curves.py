"""Curves of the paper's process: the covariance is the kernel's, y = sin(f + x), and a generator decides all."""

import math

import pytest
import torch
from torch import Tensor

from dsvnp.sources.curves import LENGTH_SCALE, Curves, curve_tasks, draw_curves, rbf

CPU = torch.device("cpu")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def kernel(x: Tensor) -> Tensor:
    """exp(−(x − x')² / 2·0.4²), in full."""
    difference = x[:, None] - x[None, :]
    return torch.exp(-(difference**2) / (2 * 0.4**2))


def linear_map(x: Tensor, monkeypatch) -> Tensor:
    """The matrix A of f(x) = A ε, read off from draws with unit vectors in place of noise."""
    taken = {}

    def unit_vectors(count, size, **options):
        taken["size"] = size
        return torch.eye(count, size, dtype=torch.float64)

    count = 200
    monkeypatch.setattr(torch, "randn", unit_vectors)
    monkeypatch.setattr(torch, "sin", lambda value: value)  # y = f + x
    y = draw_curves(x[None, :, None].expand(count, -1, -1).double())
    monkeypatch.undo()
    assert taken["size"] <= count
    return (y[..., 0] - x)[: taken["size"]].T


@pytest.mark.parametrize("interval", [(-2.0, 2.0), (-4.0, 4.0), (0.3, 0.5)])
def test_the_covariance_of_f_is_the_kernels(monkeypatch, interval):
    x = torch.linspace(*interval, 101, dtype=torch.float64)
    a = linear_map(x, monkeypatch)
    assert (a @ a.T - kernel(x)).abs().max() < 1e-8


def test_draws_have_that_covariance():
    x = torch.tensor([-2.0, -1.7, -0.1, 0.0, 0.4, 2.0], dtype=torch.float64)
    count = 50_000
    y = draw_curves(x[None, :, None].expand(count, -1, -1), generator())[..., 0]
    # E sin(f + x) sin(f' + x') of a Gaussian: ½ [e^{−(1−k)} cos(x − x') − e^{−(1+k)} cos(x + x')]
    k = kernel(x)
    minus, plus = x[:, None] - x, x[:, None] + x
    expected = 0.5 * (torch.exp(k - 1) * torch.cos(minus) - torch.exp(-k - 1) * torch.cos(plus))
    assert (y.T @ y / count - expected).abs().max() < 5 / math.sqrt(count)
    assert (y.mean(0) - math.exp(-0.5) * torch.sin(x)).abs().max() < 5 / math.sqrt(count)


def test_functions_are_independent():
    x = torch.zeros(20_000, 1, 1, dtype=torch.float64)
    y = draw_curves(x, generator())[:, 0, 0]
    first, second = y[::2] - y.mean(), y[1::2] - y.mean()
    assert (first * second).mean().abs() < 5 / math.sqrt(10_000)


def test_each_function_is_drawn_at_its_own_inputs():
    x = torch.tensor([0.1, 0.1, 1.9], dtype=torch.float64)[None, :, None].expand(500, -1, -1)
    y = draw_curves(x + 0.01 * torch.arange(500)[:, None, None] / 500, generator())[..., 0]
    assert torch.allclose(y[:, 0], y[:, 1], rtol=0, atol=1e-12)  # the same place, the same value
    assert (y[:, 0] - y[:, 2]).abs().mean() > 0.1


def test_values_lie_within_one_and_types_are_kept():
    x = 4 * torch.rand(300, 40, 1, generator=generator()) - 2
    y = draw_curves(x, generator())
    assert y.dtype == x.dtype == torch.float32
    assert y.shape == x.shape
    assert y.abs().max() <= 1
    assert y.abs().max() > 0.99


def test_a_generator_decides_all():
    x = torch.rand(5, 7, 1)
    assert torch.equal(draw_curves(x, generator(1)), draw_curves(x, generator(1)))
    assert not torch.equal(draw_curves(x, generator(1)), draw_curves(x, generator(2)))


def test_the_kernel_is_one_at_nothing_and_falls_by_the_length_scale():
    zero = torch.zeros((), dtype=torch.float64)
    assert LENGTH_SCALE == 0.4
    assert rbf(zero, zero) == 1
    assert float(rbf(zero, zero + 0.4)) == pytest.approx(math.exp(-0.5))


# --- as a source ---


def test_a_pool_holds_a_function_for_each_task():
    source = Curves(4, 6, 1, 5, refresh_every=3, interval=(1.0, 3.0), dtype=torch.float64)
    pool = source.pool(generator(), CPU)
    assert pool["x"].shape == pool["y"].shape == (12, 6, 1)
    assert pool["x"].dtype == pool["y"].dtype == torch.float64
    assert 1 <= pool["x"].min() < 1.3
    assert 2.7 < pool["x"].max() <= 3
    again = source.pool(generator(), CPU)
    assert torch.equal(pool["x"], again["x"])
    assert torch.equal(pool["y"], again["y"])
    assert source.static() == {}


def test_a_pool_uses_each_function_once():
    source = Curves(4, 6, 1, 5, refresh_every=3)
    pool = source.pool(generator(), CPU)
    tasks = [source.batch(pool, {"context": torch.rand(4)}, torch.tensor(step)) for step in range(3)]
    assert torch.equal(torch.cat([task.x_target for task in tasks]), pool["x"])
    assert torch.equal(torch.cat([task.y_target for task in tasks]), pool["y"])


def test_a_large_pool_is_drawn_in_parts_that_differ():
    pool = Curves(1, 3, 1, 2, refresh_every=2050, interval=(0.0, 0.0)).pool(generator(), CPU)
    assert pool["y"].shape == (2050, 3, 1)
    assert pool["y"][:, 0, 0].unique().numel() > 2000


def test_contexts_follow_the_range():
    source = Curves(500, 10, 3, 7, refresh_every=1)
    task = source.batch(
        source.pool(generator(), CPU), {"context": torch.rand(500, generator=generator())}, torch.tensor(0)
    )
    assert set(task.mask_context.sum(1).tolist()) == {3, 4, 5, 6, 7}
    assert source.uniform_shapes() == {"context": (500,)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_context": 11}, "context sizes must satisfy 0 ≤ min_context ≤ max_context ≤ 10"),
        ({"refresh_every": 0}, "refresh_every must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ],
)
def test_bad_sizes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Curves(**{"batch_size": 4, "num_points": 10, "max_context": 5} | change)


# --- tasks to test on ---


def test_tasks_to_test_on_come_in_batches():
    tasks = curve_tasks(25, 8, (2, 5), generator(), interval=(3.0, 4.0), batch_size=10)
    assert [task.num_tasks for task in tasks] == [10, 10, 5]
    sizes = torch.cat([task.mask_context.sum(1) for task in tasks])
    assert set(sizes.tolist()) == {2, 3, 4, 5}
    for task in tasks:
        assert task.num_targets == 8
        assert 3 <= task.x_target.min() < task.x_target.max() <= 4
    again = curve_tasks(25, 8, (2, 5), generator(), interval=(3.0, 4.0), batch_size=10)
    assert torch.equal(tasks[2].y_target, again[2].y_target)


def test_tasks_to_test_on_fill_their_batches():
    assert [task.num_tasks for task in curve_tasks(20, 3, (1, 2), generator(), batch_size=10)] == [10, 10]


def test_tasks_to_test_on_have_contexts_that_fit():
    with pytest.raises(ValueError, match="context sizes must satisfy"):
        curve_tasks(5, 8, (2, 9), generator())
