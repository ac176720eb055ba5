"""Points that a metric counts, and their known outputs."""

from typing import Literal

import torch
from torch import Tensor

from dsvnp.predictive import CategoricalPredictive, Predictive
from dsvnp.task import Task

Points = Literal["J", "P"]


def point_mask(task: Task, points: Points = "P") -> Tensor:
    """Which targets count, [B, T]: all filled ones (J), or the filled ones outside the context (P)."""
    if points not in ("J", "P"):
        raise ValueError(
            f"points must be 'J' (all targets) or 'P' (those outside the context), got {points!r}; pass one"
        )
    if points == "J" or task.in_context is None:
        return task.mask_target
    return task.mask_target & ~task.in_context


def check_outputs(predictive: Predictive, y: Tensor, name: str) -> None:
    """Refuse a y that would be broadcast against the prediction instead of compared with it."""
    wanted = predictive.shape[2:]  # [B, T, D]
    if isinstance(predictive, CategoricalPredictive):
        wanted = torch.Size([*wanted[:2], 1])
    if y.shape != wanted:
        raise ValueError(
            f"{name} has shape {tuple(y.shape)} but the prediction is about {tuple(wanted)}; "
            "score a prediction against the task it was made for"
        )


def outputs(predictive: Predictive, task: Task) -> Tensor:
    """y_target of a task that a prediction is about, with zeros in slots that are not filled."""
    if task.y_target is None:
        raise ValueError("the task has no y_target and a prediction cannot be scored on it; pass y_target")
    check_outputs(predictive, task.y_target, "y_target")
    return torch.where(task.mask_target.unsqueeze(-1), task.y_target, 0)


def known(y: Tensor, mask: Tensor) -> Tensor:
    """Entries of y [B, T, D] that are there and belong to a point of the mask [B, T]."""
    return mask.unsqueeze(-1) & ~torch.isnan(y)
