"""Synthetic functions of the unit cube: functions that can be asked again, and points as an optimiser leaves them."""

import pytest
import torch

from dsvnp.sources.priors.landscapes import LandscapePrior, LandscapeSettings, draw_function, draw_landscapes
from dsvnp.sources.priors.randomness import Random

CPU = torch.device("cpu")


def test_a_function_has_one_value_per_input_and_reads_used_inputs_only():
    random = Random(torch.Generator().manual_seed(0), CPU)
    used = torch.arange(5) < torch.tensor([[1], [3], [5]])
    function = draw_function(random, used)
    x = random.uniform(3, 7, 5, low=-1.0, high=1.0)
    assert function(x).shape == (3, 7)
    torch.testing.assert_close(function(x[:, :2]), function(x)[:, :2])
    other = torch.where(used.unsqueeze(1), x, 1 - x)
    torch.testing.assert_close(function(other), function(x))
    assert (function(x)[2] - function(x.flip(-1))[2]).abs().max() > 1e-3


def test_half_of_the_points_lie_near_the_best_and_values_are_finite():
    random = Random(torch.Generator().manual_seed(1), CPU)
    drawn = draw_landscapes(random, LandscapeSettings(), 200)
    x, y, used = drawn["x"], drawn["y"], drawn["used"]
    assert y.isfinite().all()
    assert (x.abs() <= 1).all()
    assert (x[~used.unsqueeze(1).expand_as(x)] == 0).all()
    apart = torch.cdist(x, x) / used.sum(-1).sqrt()[:, None, None]
    best = apart.take_along_dim(y.argmax(1)[:, None, None], 1).squeeze(
        1
    )  # distances from each function's best
    worst = apart.take_along_dim(y.argmin(1)[:, None, None], 1).squeeze(1)
    assert (best.median(1).values < worst.median(1).values).float().mean() > 0.85


def test_a_batch_is_scaled_by_its_context_and_says_which_inputs_are_there():
    prior = LandscapePrior(LandscapeSettings(batch_size=8, refresh_every=2))
    pool = prior.pool(torch.Generator().manual_seed(2), CPU)
    task = prior.batch(pool, {"context": torch.linspace(0, 0.99, 8)}, torch.tensor(1))
    assert task.x_target.shape == (8, 128, 20)
    codes = task.x_target[:, 0, 10:]
    assert torch.equal(codes > -0.5, pool["used"][8:])
    for number in range(8):
        y = task.y_target[number, task.in_context[number], 0]
        assert abs(float(y.mean())) < 1e-4
        assert float(y.std(correction=0)) == pytest.approx(1, abs=1e-3)
    with pytest.raises(ValueError, match="leave at least one point"):
        LandscapeSettings(num_points=64)
