"""The toy function's observations, and tasks that are subsets of them."""

import math

import pytest
import torch
from scipy.stats import kstest

from dsvnp.models import Architecture, make_model
from dsvnp.paper.toy.data import Subsets, draw_observations, toy_function
from dsvnp.training import Fleet, Settings


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def many(count: int = 500) -> tuple[torch.Tensor, torch.Tensor]:
    """Observations of many draws, [count, 20] each."""
    generator = seeded()
    draws = [draw_observations(generator, torch.float64) for _ in range(count)]
    return tuple(torch.stack(part).squeeze(-1) for part in zip(*draws, strict=True))


def source(batch_size: int = 16) -> Subsets:
    return Subsets(*draw_observations(seeded()), batch_size)


def uniforms(source: Subsets, seed: int = 0, **fixed: torch.Tensor) -> dict[str, torch.Tensor]:
    drawn = {
        name: torch.rand(shape, generator=seeded(seed)) for name, shape in source.uniform_shapes().items()
    }
    return drawn | fixed


def batch(source: Subsets, **fixed: torch.Tensor):
    return source.batch(source.static(), uniforms(source, **fixed), torch.tensor(0))


def test_the_function():
    assert float(toy_function(torch.tensor(0.3))) == pytest.approx(0.3 + math.sin(1.2) + math.sin(3.9))


def test_twelve_lie_below_the_gap_and_eight_above_it():
    x, _ = many()
    assert x.shape == (500, 20)
    assert kstest(x[:, :12].flatten(), "uniform", args=(0, 0.6)).pvalue > 1e-3
    assert kstest(x[:, 12:].flatten(), "uniform", args=(0.8, 0.2)).pvalue > 1e-3


def test_the_noise_shifts_the_input():
    x, y = many()
    slope = 1 + 4 * torch.cos(4 * x) + 13 * torch.cos(13 * x)
    steep = slope.abs() > 8  # where y − f(x) is f'(x) ε but for the second order
    epsilon = ((y - toy_function(x)) / slope)[steep]
    assert float(epsilon.std()) == pytest.approx(0.003, rel=0.05)
    assert abs(float(epsilon.mean())) < 2e-4


def test_observations_come_from_the_generator_alone():
    before = torch.get_rng_state()
    first, again = draw_observations(seeded()), draw_observations(seeded())
    assert torch.equal(torch.cat(first), torch.cat(again))
    assert torch.equal(before, torch.get_rng_state())
    assert [tuple(part.shape) for part in first] == [(20, 1), (20, 1)]


def test_a_task_is_all_points_in_an_order_of_its_own():
    made = source()
    task = batch(made)
    assert task.x_target.shape == (16, 20, 1)
    pairs = torch.cat([task.x_target, task.y_target], dim=-1)
    expected = torch.cat([made.x, made.y], dim=-1)
    for each in pairs:  # each x with its own y
        assert torch.equal(each[each[:, 0].argsort()], expected[expected[:, 0].argsort()])
    assert len({tuple(each[:, 0].tolist()) for each in pairs}) == 16


@pytest.mark.parametrize(("uniform", "size"), [(0.0, 1), (0.5, 10), (0.9999, 19)])
def test_contexts_have_one_to_nineteen_points(uniform, size):
    task = batch(source(), context=torch.full((16,), uniform))
    assert task.in_context.sum(1).tolist() == [size] * 16
    assert torch.equal(task.in_context, task.mask_context)
    assert torch.equal(task.x_context, task.x_target)


def test_each_point_is_as_often_in_the_context_as_any_other():
    made = source(4000)
    task = batch(made)
    share = torch.stack([(task.x_target.squeeze(-1) == x)[task.in_context].sum() / 4000 for x in made.x])
    assert (share - share.mean()).abs().max() < 0.05
    assert float(share.mean()) == pytest.approx(0.5, abs=0.02)


def test_replicas_may_have_observations_of_their_own():
    sources = [Subsets(*draw_observations(seeded(seed)), 4) for seed in (0, 1)]
    arch = Architecture(1, 1, encoder=(4,), dim_lat=4, decoder=(4,))

    def params(source, seeds):
        fleet = Fleet(lambda: make_model("cnp", arch), source, seeds, Settings(3, chunk_size=1))
        for _ in range(3):
            fleet.step()
        return fleet.state["params"]

    together = params(sources, (5, 6))
    alone = torch.cat([params(each, (seed,)) for each, seed in zip(sources, (5, 6), strict=True)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("rows_x", "rows_y"), [(3, 4), (1, 1)])
def test_what_makes_no_task_is_refused(rows_x, rows_y):
    with pytest.raises(ValueError, match=f"at least 2 of each, got {rows_x} rows of x and {rows_y} of y"):
        Subsets(torch.zeros(rows_x, 1), torch.zeros(rows_y, 1))
