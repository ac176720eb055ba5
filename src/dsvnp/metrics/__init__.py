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

from dsvnp.metrics.classes import (
    Classified,
    Reliability,
    accuracy,
    classified,
    expected_calibration_error,
    reliability,
)
from dsvnp.metrics.detection import aupr, auroc, empirical_cdf, entropies, fpr_at_95
from dsvnp.metrics.points import Points, point_mask
from dsvnp.metrics.scores import (
    CalibrationCurve,
    calibration_curve,
    coverage,
    crps,
    energy_score,
    joint_nll,
    nll,
    nll_each,
    pit,
    pit_coverage,
    point_crps,
    point_energy_score,
    point_nll,
    point_nll_each,
    point_squared_error,
    rmse,
    squared_error,
)

__all__ = [
    "CalibrationCurve",
    "Classified",
    "Points",
    "Reliability",
    "accuracy",
    "aupr",
    "auroc",
    "calibration_curve",
    "classified",
    "coverage",
    "crps",
    "empirical_cdf",
    "energy_score",
    "entropies",
    "expected_calibration_error",
    "fpr_at_95",
    "joint_nll",
    "nll",
    "nll_each",
    "pit",
    "pit_coverage",
    "point_crps",
    "point_energy_score",
    "point_mask",
    "point_nll",
    "point_nll_each",
    "point_squared_error",
    "reliability",
    "rmse",
    "squared_error",
]
