"""Probabilities of intervals: they add up to one over all values, and an unknown output lies anywhere."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from dsvnp.intervals import interval_of, midpoints, point_interval_nll, point_interval_nll_each
from dsvnp.predictive import GaussianPredictive
from dsvnp.predictive.low_rank import LowRankPredictive
from dsvnp.task import Task

VALUES = torch.tensor([0.0, 1.0, 3.0, 5.0])


def predictive(targets: int) -> GaussianPredictive:
    generator = torch.Generator().manual_seed(0)
    loc = 2 * torch.randn(6, 2, 1, 1, 2, generator=generator) + 1
    return GaussianPredictive(loc.expand(-1, -1, -1, targets, -1), torch.tensor([0.7, 1.4]))


def task_of(y: torch.Tensor) -> Task:
    x = torch.zeros(*y.shape[:2], 1)
    return Task.from_sets(x[:, :0], y[:, :0], x, y)


def test_probabilities_of_all_pairs_of_values_add_up_to_one():
    y = torch.tensor(list(product(VALUES, VALUES)))[None]  # [1, 16, 2]
    edges = midpoints(VALUES)[:, None].expand(-1, 2)
    joint = point_interval_nll(predictive(16), task_of(y), edges)
    assert torch.exp(-joint).sum() == pytest.approx(1.0, rel=1e-5)
    each = torch.exp(-point_interval_nll_each(predictive(16), task_of(y), edges)).reshape(4, 4, 2)
    # The probability of a value of one output is that of its pairs.
    torch.testing.assert_close(each[:, 0, 0], torch.exp(-joint).reshape(4, 4).sum(1))
    torch.testing.assert_close(each[0, :, 1], torch.exp(-joint).reshape(4, 4).sum(0))


def test_an_unknown_output_is_anywhere():
    y = torch.tensor([[[3.0, float("nan")]]])
    edges = midpoints(VALUES)[:, None].expand(-1, 2)
    low, high = interval_of(y, edges)
    assert low.tolist() == [[[2.0, -float("inf")]]]
    assert high.tolist() == [[[4.0, float("inf")]]]
    alone = point_interval_nll_each(predictive(1), task_of(y), edges)
    torch.testing.assert_close(point_interval_nll(predictive(1), task_of(y), edges), alone)


def test_refusals():
    with pytest.raises(ValueError, match=r"edges must be \[edges, outputs\] for 2 outputs, got \(3,\)"):
        interval_of(torch.zeros(1, 1, 2), midpoints(VALUES))
    shape = (1, 1, 1, 1, 2)
    dependent = LowRankPredictive(torch.zeros(shape), torch.ones(shape), torch.ones(*shape, 1))
    with pytest.raises(NotImplementedError, match="use log_mass_each"):
        dependent.log_mass(torch.zeros(1, 1, 2), torch.ones(1, 1, 2))
