"""Metrics of classes: accuracy, reliability and calibration error of probabilities."""

from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.metrics.points import Points, outputs, point_mask
from dsvnp.predictive import CategoricalPredictive, Predictive
from dsvnp.task import Task


class Classified(NamedTuple):
    """Class probabilities [N, classes] and labels [N] of counted points."""

    probs: Tensor
    labels: Tensor


class Reliability(NamedTuple):
    """A reliability diagram: mean confidence and accuracy of each bin, NaN in an empty one, and its size."""

    confidence: Tensor
    accuracy: Tensor
    num_points: Tensor


def classified(predictive: Predictive, task: Task, points: Points = "P") -> Classified:
    """Probabilities and labels of the counted points, the input of the functions of classes below."""
    if not isinstance(predictive, CategoricalPredictive):
        raise TypeError(
            f"expected the predictive of a classifier, got {type(predictive).__name__}; "
            "for a regression use nll, squared_error or coverage"
        )
    labels = outputs(predictive, task).squeeze(-1)
    mask = point_mask(task, points)
    return Classified(predictive.mean[mask], labels[mask])


def accuracy(probs: Tensor, labels: Tensor) -> Tensor:
    """Share of points whose most probable class is their label, []."""
    return _judge(probs, labels)[1].mean()


def reliability(probs: Tensor, labels: Tensor, num_bins: int = 15) -> Reliability:
    """Sort points by confidence, the largest probability [N, classes], into M bins of equal width, ((m − 1)/M, m/M]."""
    confidence, correct = _judge(probs, labels)
    index = _bins(confidence, num_bins)
    num_points = torch.bincount(index, minlength=num_bins)
    return Reliability(
        torch.bincount(index, confidence.double(), minlength=num_bins) / num_points,
        torch.bincount(index, correct.double(), minlength=num_bins) / num_points,
        num_points,
    )


def expected_calibration_error(probs: Tensor, labels: Tensor, num_bins: int = 15) -> Tensor:
    """Σ_m |B_m|/N · |accuracy(B_m) − confidence(B_m)| over the bins of `reliability`, [] (Guo et al., 2017).

    Bins are weighted by their counts: an empty bin adds nothing.
    """
    confidence, correct = _judge(probs, labels)
    gaps = torch.bincount(_bins(confidence, num_bins), (correct - confidence).double(), minlength=num_bins)
    return gaps.abs().sum() / len(confidence)


def _judge(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Confidence of each point and whether its most probable class is right, 0 or 1; both [N]."""
    if probs.ndim != 2 or labels.shape != probs.shape[:1]:
        raise ValueError(
            f"expected probs [points, classes] and one label per point, got {tuple(probs.shape)} and "
            f"{tuple(labels.shape)}; `classified` gives both from a prediction"
        )
    confidence, choice = probs.max(-1)
    return confidence, (choice == labels).to(probs.dtype)


def _bins(confidence: Tensor, num_bins: int) -> Tensor:
    """Index of the bin ((m − 1)/M, m/M] that each confidence falls into; 0 belongs to the first."""
    edges = torch.linspace(0, 1, num_bins + 1, dtype=confidence.dtype, device=confidence.device)
    return torch.bucketize(confidence, edges[1:-1])
