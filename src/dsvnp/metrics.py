"""Metrics: the quality of a prediction, from a `Predictive` and the `Task` it was made for.

Which points count: "J" all filled targets, "P", the default, those outside the context. A task made by
`Task.from_sets` has no context point among its targets, and J and P agree; `task.joined()` adds the context.

A mean over many batches is a mean over their values. For each average another function returns the values
themselves, flat, [N]; concatenate those and reduce once:

    values = torch.cat([point_nll(model.predict(task), task, "P") for task in batches])
    values.mean()

A missing output (NaN in y) is not counted. A NaN in a prediction is counted and makes the result
NaN. The mean of no point at all is NaN.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, Predictive
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


# --- likelihood and error ---


def point_nll(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """−ln p(y_t) of each counted point by itself, summed over its outputs, [N].

    A point without any known output is left out.
    """
    y = _outputs(predictive, task)
    known = ~torch.isnan(y).all(-1)
    return -predictive.log_prob(y)[point_mask(task, points) & known]


def nll(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """Negative log-likelihood averaged over points, []: the paper's NLL."""
    return point_nll(predictive, task, points).mean()


def joint_nll(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """−ln p(y_1, …, y_T) of the counted points of each task together, [B]; not divided by their number."""
    return -predictive.log_prob_joint(_outputs(predictive, task), point_mask(task, points))


def point_nll_each(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """−ln p(y_td) of each known output of each counted point by itself, the other outputs integrated out, [N]."""
    y = _outputs(predictive, task)
    return -predictive.log_prob_each(y)[_known(y, point_mask(task, points))]


def nll_each(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """Negative log-likelihood per output, averaged over outputs and points, each known number once, [].

    If all D outputs are known and independent in the prediction, `nll` is D times this value; a lower `nll` is the gain
    from modelling their dependence.
    """
    return point_nll_each(predictive, task, points).mean()


def point_crps(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """Continuous ranked probability score of each known output of each counted point, in the units of y, [N]."""
    predictive = _continuous(predictive)
    y = _outputs(predictive, task)
    return predictive.crps(y)[_known(y, point_mask(task, points))]


def crps(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """Continuous ranked probability score, averaged over outputs and points, []; the absolute error if σ is 0."""
    return point_crps(predictive, task, points).mean()


def point_energy_score(
    predictive: Predictive,
    task: Task,
    points: Points = "P",
    num_samples: int = 256,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Energy score of all known outputs of each counted point together, [N]: the CRPS of several outputs.

    An unbiased estimate from samples. A point without any known output is left out.
    """
    predictive = _continuous(predictive)
    y = _outputs(predictive, task)
    known = ~torch.isnan(y).all(-1)
    return predictive.energy_score(y, num_samples, generator)[point_mask(task, points) & known]


def energy_score(
    predictive: Predictive,
    task: Task,
    points: Points = "P",
    num_samples: int = 256,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Energy score averaged over points, []."""
    return point_energy_score(predictive, task, points, num_samples, generator).mean()


def point_squared_error(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """(y − mean)² of each known output of each counted point, [N]."""
    y = _outputs(_continuous(predictive), task)
    return (y - predictive.mean).square()[_known(y, point_mask(task, points))]


def squared_error(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """Squared error of the mean, averaged over outputs and points, each known number once, []."""
    return point_squared_error(predictive, task, points).mean()


def rmse(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """Root of the squared error, []; over batches, the root of the mean of all, not the mean of roots."""
    return squared_error(predictive, task, points).sqrt()


# --- calibration of a regression ---


class CalibrationCurve(NamedTuple):
    """Nominal levels and the share of values inside central intervals of those levels, each [L]."""

    nominal: Tensor
    empirical: Tensor


def pit(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """P(Y ≤ y) of each known output of each counted point, [N]: uniform if the prediction is calibrated."""
    predictive = _continuous(predictive)
    y = _outputs(predictive, task)
    return predictive.cdf(y)[_known(y, point_mask(task, points))]


def pit_coverage(values: Tensor, levels: Tensor | Sequence[float]) -> Tensor:
    """Share of values inside the central interval of each level, [L], from their PITs [N].

    y lies between the quantiles (1 − level)/2 and (1 + level)/2 where its PIT lies between those numbers.
    """
    wanted = torch.as_tensor(levels, dtype=values.dtype, device=values.device)
    if not bool(((wanted >= 0) & (wanted <= 1)).all()):
        raise ValueError(f"levels must lie between 0 and 1, got {levels}; 0.9 is the 90 % interval")
    off_centre = (2 * values - 1).abs()
    inside = [(off_centre <= level).to(values.dtype).mean() for level in wanted]
    return torch.stack(inside)


def coverage(predictive: Predictive, y: Tensor, level: float, mask: Tensor | None = None) -> Tensor:
    """Share of outputs inside their central predictive interval, []; calibrated is a share of `level`.

    Args:
        predictive: predictive of a regression.
        y: outputs, [B, T, D]; NaN where unknown.
        level: probability of the interval, as 0.9.
        mask: True where a point counts, [B, T]; all of them by default.
    """
    predictive = _continuous(predictive)
    _check_outputs(predictive, y, "y")
    mask = torch.ones_like(y[..., 0], dtype=torch.bool) if mask is None else mask
    return pit_coverage(predictive.cdf(y)[_known(y, mask)], [level])[0]


def calibration_curve(
    predictive: Predictive, task: Task, levels: Tensor | Sequence[float], points: Points = "P"
) -> CalibrationCurve:
    """Nominal against empirical coverage; over batches, use `pit_coverage` on all `pit` values."""
    values = pit(predictive, task, points)
    nominal = torch.as_tensor(levels, dtype=values.dtype, device=values.device)
    return CalibrationCurve(nominal, pit_coverage(values, nominal))


# --- classes ---


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
    labels = _outputs(predictive, task).squeeze(-1)
    mask = point_mask(task, points)
    return Classified(predictive.mean[mask], labels[mask])


def accuracy(probs: Tensor, labels: Tensor) -> Tensor:
    """Share of points whose most probable class is their label, []."""
    return _judge(probs, labels)[1].mean()


def reliability(probs: Tensor, labels: Tensor, num_bins: int = 15) -> Reliability:
    """Sort points by confidence, the largest probability, into bins ((m − 1)/M, m/M] of equal width.

    Args:
        probs: class probabilities, [N, classes].
        labels: true classes, [N].
        num_bins: M.
    """
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


def entropies(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """Predictive entropy of each counted point, [N] ([N, D] for a regression); needs no y_target."""
    return predictive.entropy()[point_mask(task, points)]


def empirical_cdf(values: Tensor, at: Tensor) -> Tensor:
    """Share of values [N] that do not exceed each number of `at`, as in the paper's CDFs of entropies."""
    ordered = values.flatten().double().sort().values
    return torch.searchsorted(ordered, at.to(ordered), right=True) / len(ordered)


# --- out-of-distribution detection: scores of two sets, higher meaning more out of distribution ---


def auroc(domain: Tensor, ood: Tensor) -> Tensor:
    """Probability that an o.o.d. score exceeds a domain score, a tie counting one half, []."""
    domain, ood = _scores(domain, ood)
    below, not_above = torch.searchsorted(domain, ood), torch.searchsorted(domain, ood, right=True)
    return (0.5 * (below + not_above).double()).mean() / len(domain)


def aupr(domain: Tensor, ood: Tensor) -> Tensor:
    """Average precision with o.o.d. as the positive class, [] (AUPR-Out of the literature).

    Σ_n (R_n − R_{n−1}) P_n over the distinct scores, without interpolation, as scikit-learn has it: the mean
    over o.o.d. points of the precision at their own score. A random score reaches the share of o.o.d. points:
    compare only sets of the same sizes. For AUPR-In, domain as the positive class, call `aupr(-ood, -domain)`.
    """
    domain, ood = _scores(domain, ood)
    true = len(ood) - torch.searchsorted(ood, ood)  # o.o.d. points that score at least as much
    false = len(domain) - torch.searchsorted(domain, ood)
    return (true.double() / (true + false)).mean()


def fpr_at_95(domain: Tensor, ood: Tensor) -> Tensor:
    """Share of o.o.d. points taken for domain points where 95 % of the domain is accepted, [].

    FPR at 95 % TPR with the *domain* as the positive class (Liang et al., 2018). The threshold is the
    smallest domain score that at least 95 % of the domain does not exceed; points on it are accepted. Others
    call o.o.d. positive and ask for false alarms where 95 % of it is detected (Hendrycks et al., 2019): that
    is `fpr_at_95(-ood, -domain)`.
    """
    domain, ood = _scores(domain, ood)
    needed = -(-95 * len(domain) // 100)  # 95 % of the domain, rounded up in whole numbers
    threshold = domain[needed - 1]
    return (ood <= threshold).double().mean()


# --- checks and helpers ---


def _continuous(predictive: Predictive) -> GaussianPredictive:
    """Refuse a classifier's prediction where a metric needs a regression."""
    if not isinstance(predictive, GaussianPredictive):
        raise TypeError(
            f"expected the predictive of a regression, got {type(predictive).__name__}; "
            "for classes use nll, accuracy or expected_calibration_error"
        )
    return predictive


def _check_outputs(predictive: Predictive, y: Tensor, name: str) -> None:
    """Refuse a y that would be broadcast against the prediction instead of compared with it."""
    wanted = predictive.shape[2:]  # [B, T, D]
    if isinstance(predictive, CategoricalPredictive):
        wanted = torch.Size([*wanted[:2], 1])
    if y.shape != wanted:
        raise ValueError(
            f"{name} has shape {tuple(y.shape)} but the prediction is about {tuple(wanted)}; "
            "score a prediction against the task it was made for"
        )


def _outputs(predictive: Predictive, task: Task) -> Tensor:
    """y_target of a task that a prediction is about, with zeros in slots that are not filled."""
    if task.y_target is None:
        raise ValueError("the task has no y_target and a prediction cannot be scored on it; pass y_target")
    _check_outputs(predictive, task.y_target, "y_target")
    return torch.where(task.mask_target.unsqueeze(-1), task.y_target, 0)


def _known(y: Tensor, mask: Tensor) -> Tensor:
    """Entries of y [B, T, D] that are there and belong to a point of the mask [B, T]."""
    return mask.unsqueeze(-1) & ~torch.isnan(y)


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


def _scores(domain: Tensor, ood: Tensor) -> tuple[Tensor, Tensor]:
    """Both sets flat, sorted and in double precision, after refusing what has no order."""
    for name, scores in (("domain", domain), ("ood", ood)):
        if scores.numel() == 0:
            raise ValueError(f"{name} has no score to compare; pass at least one")
        if torch.isnan(scores).any():
            raise ValueError(f"{name} holds NaN, which has no rank among scores; drop it or fix the model")
    return domain.flatten().double().sort().values, ood.flatten().double().sort().values
