"""Likelihoods of outputs that take a few values only: probabilities of intervals, not densities.

A density at a value that occurs often has no upper limit: the smaller σ, the better. A grade such as 0, 1, 3 or 5
stands for what is nearer to it than to the next grade. Its likelihood is the probability between the midpoints,

    P(e_i < y < e_{i+1}),   e_0 = −∞,  e_i = (v_i + v_{i+1})/2,  e_V = ∞   for values v_1 < … < v_V,

which is at most 1: these NLLs are not below 0 and add up over all possible outputs to a probability of 1.
"""

import math

import torch
from torch import Tensor

from dsvnp.metrics import Points, point_mask
from dsvnp.predictive import GaussianPredictive
from dsvnp.task import Task


def midpoints(values: Tensor) -> Tensor:
    """Edges between ascending values, [V, ...] → [V − 1, ...]."""
    return 0.5 * (values[1:] + values[:-1])


def interval_of(y: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """The bounds between which each output y [..., D] lies; an unknown output (NaN) lies anywhere.

    `edges` are the inner edges of each output in ascending order, [E, D].
    """
    if edges.ndim != 2 or edges.shape[1:] != y.shape[-1:]:
        raise ValueError(
            f"edges must be [edges, outputs] for {y.shape[-1]} outputs, got {tuple(edges.shape)}; pass one column each"
        )
    ends = edges.new_full((1, edges.shape[1]), math.inf)
    padded = torch.cat([-ends, edges, ends]).to(y)  # [E + 2, D]
    index = (y.unsqueeze(-2) > edges.to(y)).sum(-2)  # [..., D]
    low, high = (
        padded.gather(0, each.reshape(-1, y.shape[-1])).reshape(y.shape) for each in (index, index + 1)
    )
    unknown = torch.isnan(y)
    return torch.where(unknown, -math.inf, low), torch.where(unknown, math.inf, high)


def point_interval_nll(
    predictive: GaussianPredictive, task: Task, edges: Tensor, points: Points = "P"
) -> Tensor:
    """−ln P(all outputs lie in their intervals) of each counted point, [N]."""
    assert task.y_target is not None
    return -predictive.log_mass(*interval_of(task.y_target, edges))[point_mask(task, points)]


def point_interval_nll_each(
    predictive: GaussianPredictive, task: Task, edges: Tensor, points: Points = "P"
) -> Tensor:
    """−ln P(y_td lies in its interval) of each known output of each counted point by itself, [N]."""
    assert task.y_target is not None
    known = point_mask(task, points).unsqueeze(-1) & ~torch.isnan(task.y_target)
    return -predictive.log_mass_each(*interval_of(task.y_target, edges))[known]
