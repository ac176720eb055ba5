"""Scores of predictions: likelihood, error, and calibration of a regression."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.metrics.points import Points, check_outputs, known, outputs, point_mask
from dsvnp.predictive import GaussianPredictive, Predictive
from dsvnp.task import Task


def point_nll(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """−ln p(y_t) of each counted point by itself, summed over its outputs, [N].

    A point without any known output is left out.
    """
    y = outputs(predictive, task)
    any_known = ~torch.isnan(y).all(-1)
    return -predictive.log_prob(y)[point_mask(task, points) & any_known]


def nll(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """Negative log-likelihood averaged over points, []: the paper's NLL."""
    return point_nll(predictive, task, points).mean()


def joint_nll(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """−ln p(y_1, …, y_T) of the counted points of each task together, [B]; not divided by their number."""
    return -predictive.log_prob_joint(outputs(predictive, task), point_mask(task, points))


def point_nll_each(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """−ln p(y_td) of each known output of each counted point by itself, the other outputs integrated out, [N]."""
    y = outputs(predictive, task)
    return -predictive.log_prob_each(y)[known(y, point_mask(task, points))]


def nll_each(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """Negative log-likelihood per output, averaged over outputs and points, each known number once, [].

    If all D outputs are known and independent in the prediction, `nll` is D times this value; a lower `nll` is the gain
    from modelling their dependence.
    """
    return point_nll_each(predictive, task, points).mean()


def point_crps(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """Continuous ranked probability score of each known output of each counted point, in the units of y, [N]."""
    predictive = _continuous(predictive)
    y = outputs(predictive, task)
    return predictive.crps(y)[known(y, point_mask(task, points))]


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
    y = outputs(predictive, task)
    any_known = ~torch.isnan(y).all(-1)
    return predictive.energy_score(y, num_samples, generator)[point_mask(task, points) & any_known]


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
    y = outputs(_continuous(predictive), task)
    return (y - predictive.mean).square()[known(y, point_mask(task, points))]


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
    y = outputs(predictive, task)
    return predictive.cdf(y)[known(y, point_mask(task, points))]


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
    """Share of outputs y [B, T, D] inside their central predictive interval, []; calibrated is a share of `level`.

    Of unknown outputs (NaN) none counts, and with a mask [B, T] no point outside it.
    """
    predictive = _continuous(predictive)
    check_outputs(predictive, y, "y")
    mask = torch.ones_like(y[..., 0], dtype=torch.bool) if mask is None else mask
    return pit_coverage(predictive.cdf(y)[known(y, mask)], [level])[0]


def calibration_curve(
    predictive: Predictive, task: Task, levels: Tensor | Sequence[float], points: Points = "P"
) -> CalibrationCurve:
    """Nominal against empirical coverage; over batches, use `pit_coverage` on all `pit` values."""
    values = pit(predictive, task, points)
    nominal = torch.as_tensor(levels, dtype=values.dtype, device=values.device)
    return CalibrationCurve(nominal, pit_coverage(values, nominal))


def _continuous(predictive: Predictive) -> GaussianPredictive:
    """Refuse a classifier's prediction where a metric needs a regression."""
    if not isinstance(predictive, GaussianPredictive):
        raise TypeError(
            f"expected the predictive of a regression, got {type(predictive).__name__}; "
            "for classes use nll, accuracy or expected_calibration_error"
        )
    return predictive
