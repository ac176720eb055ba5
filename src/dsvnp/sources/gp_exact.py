"""Exact predictions for tasks of Gaussian processes: the ceilings that a learner's likelihoods are held against.

A task's slots are put in the order context, targets, empty. With K + σ² I = L Lᵀ in that order and v = L⁻¹ y, the
chain rule is in the factors: for a context C and a target t,

    μ_t = Σ_{j∈C} L_tj v_j,    σ_t² = Σ_{j∉C} L_tj²,    ln p(y_T | y_C) = Σ_{j∈T} ln N(v_j; 0, 1) − ln L_jj,

and the same sum over C is ln p(y_C). So one factorisation gives all likelihoods. Empty slots are rows of the identity.

*Integrated* ceilings belong to a learner that knows the prior but not the hyper-parameters of a task: their posterior
on a grid g is ∝ p(y_C | g), and ln p(y | y_C) = ln Σ_g p(g | y_C) p(y | y_C, g). The true kernel may be another one.

Axes: B tasks, T slots, G nodes of the grid. All in float64; one output.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dsvnp.gaussian import HALF_LOG_2PI, gaussian_log_prob
from dsvnp.sources.gp import GPPrior, Hyperparameters, Range
from dsvnp.task import Task


class ExactLikelihoods(NamedTuple):
    """Exact log-likelihoods of the targets outside the context."""

    per_point: Tensor  # of each target by itself, [B, T]; NaN where a slot is empty or belongs to the context
    per_task: Tensor  # of all targets of a task together, divided by their number, [B]

    def task_means(self) -> Tensor:
        """The mean of `per_point` over the targets of each task, [B]."""
        return self.per_point.nanmean(-1)


def exact(task: Task, hyper: Hyperparameters, prior: GPPrior, floor: float = 0.0) -> ExactLikelihoods:
    """Likelihoods under the Gaussian process, with hyper-parameters [B, 1], that the tasks were drawn from.

    Contamination is not modelled. `floor` is the smallest σ that a point may get, as many networks have it; per point
    only.
    """
    sorted_task = _sort(task)
    parts = _factorise(sorted_task, Hyperparameters(*(field[:, 0] for field in hyper)), prior, floor)
    return _collect(sorted_task, parts.per_point, parts.targets)


def integrated(task: Task, prior: GPPrior, num_nodes: int = 24) -> ExactLikelihoods:
    """Likelihoods for a learner who knows the prior of an RBF or Matérn process, its hyper-parameters integrated out.

    ℓ and s have `num_nodes` Gauss-Legendre nodes each. They are dense at the ends of a range, where the posterior
    gathers if the true kernel is rougher than any that the prior knows.
    """
    if prior.kernel == "periodic":
        raise ValueError(
            "the grid covers length and scale only; pass a prior with kernel 'rbf' or 'matern52'"
        )
    sorted_task = _sort(task)
    lengths, log_w_length = _nodes(prior.length, num_nodes, task.x_target.device)
    scales, log_w_scale = _nodes(prior.scale, num_nodes, task.x_target.device)
    # All scales at once, as further tasks: many small matrices are factorised as fast as a few.
    every = _Sorted(*(part.repeat(num_nodes, 1) for part in sorted_task))
    scales = scales.repeat_interleave(len(sorted_task.x))
    found = [_factorise(every, Hyperparameters(length[None], scales, scales), prior) for length in lengths]
    parts = _Parts(*(torch.cat(each).unflatten(0, (num_nodes**2, -1)) for each in zip(*found, strict=True)))
    log_prior = (log_w_length[:, None] + log_w_scale).flatten()  # [G]
    log_weights = (parts.context + log_prior[:, None]).log_softmax(0)  # [G, B]
    per_point = parts.per_point + log_weights[..., None]
    together = parts.targets + log_weights
    return _collect(sorted_task, per_point.logsumexp(0), together.logsumexp(0))


def _nodes(limits: Range, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Gauss-Legendre nodes between two limits, and the logarithms of their weights up to a constant."""
    nodes, weights = (torch.as_tensor(each, device=device) for each in np.polynomial.legendre.leggauss(count))
    low, high = limits
    return low + (high - low) * (nodes + 1) / 2, weights.log()


class _Sorted(NamedTuple):
    """A task's slots in the order context, targets, empty: x and y [B, T], y zero and x any where empty."""

    x: Tensor
    y: Tensor
    in_context: Tensor
    is_target: Tensor
    order: Tensor  # [B, T], the slot that each place was filled from


class _Parts(NamedTuple):
    """Log-densities of sorted slots: each target's [B, T], all targets' together [B], the context's [B]."""

    per_point: Tensor
    targets: Tensor
    context: Tensor


def _sort(task: Task) -> _Sorted:
    """Sort the slots; refuse tasks with more than one input or output."""
    y, in_context = task.joined().all_points()
    x, filled = task.joined().x_target, task.joined().mask_target
    if x.shape[-1] != 1 or y.shape[-1] != 1:
        raise ValueError(
            f"expected tasks with one input and one output, got {x.shape[-1]} and {y.shape[-1]}; "
            "pass one output at a time"
        )
    in_context, is_target = in_context & filled, filled & ~in_context
    order = (2 - 2 * in_context.long() - is_target.long()).argsort(dim=-1, stable=True)
    x, y = x.squeeze(-1).double(), torch.where(filled, y.squeeze(-1).double(), 0.0)
    x, y, in_context, is_target = (part.take_along_dim(order, -1) for part in (x, y, in_context, is_target))
    return _Sorted(x, y, in_context, is_target, order)


def _factorise(slots: _Sorted, hyper: Hyperparameters, prior: GPPrior, floor: float = 0.0) -> _Parts:
    """Factorise the covariance of all slots and read off the log-densities; hyper-parameters are [B] or [1]."""
    filled = slots.in_context | slots.is_target
    eye = torch.eye(filled.shape[1], dtype=torch.float64, device=filled.device)
    gram = prior.covariance(slots.x, slots.x, hyper) + prior.noise**2 * eye
    gram = torch.where(filled[:, :, None] & filled[:, None, :], gram, eye)
    factor = torch.linalg.cholesky(gram)  # [B, T, T]
    white = torch.linalg.solve_triangular(factor, slots.y.unsqueeze(-1), upper=False)  # [B, T, 1]
    seen = slots.in_context[:, None, :]  # columns
    mean = (torch.where(seen, factor, 0.0) @ white).squeeze(-1)
    std = torch.where(seen, 0.0, factor).square().sum(-1).sqrt().clamp(min=floor)
    # A row of the context has no column outside it: its σ would be 0.
    per_point = gaussian_log_prob(slots.y, mean, torch.where(slots.is_target, std, 1.0))
    chain = -0.5 * white.squeeze(-1).square() - factor.diagonal(dim1=-2, dim2=-1).log() - HALF_LOG_2PI
    return _Parts(
        per_point,
        torch.where(slots.is_target, chain, 0.0).sum(-1),
        torch.where(slots.in_context, chain, 0.0).sum(-1),
    )


def _collect(slots: _Sorted, per_point: Tensor, targets: Tensor) -> ExactLikelihoods:
    """Put points back into their slots and divide the tasks' likelihoods by their numbers of targets."""
    per_point = torch.where(slots.is_target, per_point, torch.nan)
    back = slots.order.argsort(-1)
    return ExactLikelihoods(per_point.take_along_dim(back, -1), targets / slots.is_target.sum(-1))
