"""Synthetic functions of the unit cube: functions that can be asked again, and points as an optimiser leaves them."""

import pytest
import torch

from dsvnp.sources.priors import landscapes
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


def test_points_lie_near_the_best_known_and_values_are_finite():
    random = Random(torch.Generator().manual_seed(1), CPU)
    drawn = draw_landscapes(random, LandscapeSettings(min_context=20), 300)
    x, y, used, sizes = (drawn[name] for name in ("x", "y", "used", "sizes"))
    assert y.isfinite().all()
    assert (x.abs() <= 1).all()
    assert (x[~used.unsqueeze(1).expand_as(x)] == 0).all()
    apart = torch.cdist(x, x) / used.sum(-1).sqrt()[:, None, None]
    seen = torch.arange(96) < sizes.unsqueeze(1)
    for points in (seen, ~seen):  # of the context, and targets
        nearer = []
        for number in range(300):
            known = y[number].masked_fill(~seen[number], -torch.inf)
            best = apart[number, known.argmax(), points[number]]
            worst = apart[number, (-known).masked_fill(~seen[number], -torch.inf).argmax(), points[number]]
            nearer.append(float(best.median() < worst.median()))
        assert sum(nearer) > 0.75 * 300


def test_the_place_of_a_target_depends_on_the_function_through_its_context_only(monkeypatch):
    """Around a context of one bad point of f(x) = x₁ targets are bad: nothing tells them where f is large."""
    monkeypatch.setattr(landscapes, "draw_function", lambda random, used: lambda x: x[..., 0])
    settings = LandscapeSettings(min_context=1, max_context=1, max_inputs=2)
    x = draw_landscapes(Random(torch.Generator().manual_seed(3), CPU), settings, 2000)["x"][..., 0]
    bad = x[:, 0] < -0.5
    assert bad.sum() > 100
    assert x[bad, 1:].mean() < -0.25
    assert x[bad, 1:].median() < 0


def test_a_batch_is_scaled_by_its_context_and_says_which_inputs_are_there():
    prior = LandscapePrior(LandscapeSettings(batch_size=8, refresh_every=2))
    pool = prior.pool(torch.Generator().manual_seed(2), CPU)
    task = prior.batch(pool, {}, torch.tensor(1))
    assert task.x_target.shape == (8, 96, 20)
    assert task.x_target[..., :10].abs().max() > 1.9
    codes = task.x_target[:, 0, 10:]
    assert torch.equal(codes > -0.5, pool["used"][8:])
    assert torch.equal(task.in_context.sum(1), pool["sizes"][8:])
    for number in range(8):
        y = task.y_target[number, task.in_context[number], 0]
        assert abs(float(y.mean())) < 1e-4
        assert float(y.std(correction=0)) == pytest.approx(1, abs=1e-3)
    with pytest.raises(ValueError, match="leave at least one point"):
        LandscapeSettings(num_points=64)
