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

from dsvnp.metrics.classes import Classified as Classified
from dsvnp.metrics.classes import Reliability as Reliability
from dsvnp.metrics.classes import accuracy as accuracy
from dsvnp.metrics.classes import classified as classified
from dsvnp.metrics.classes import expected_calibration_error as expected_calibration_error
from dsvnp.metrics.classes import reliability as reliability
from dsvnp.metrics.detection import aupr as aupr
from dsvnp.metrics.detection import auroc as auroc
from dsvnp.metrics.detection import empirical_cdf as empirical_cdf
from dsvnp.metrics.detection import entropies as entropies
from dsvnp.metrics.detection import fpr_at_95 as fpr_at_95
from dsvnp.metrics.points import Points as Points
from dsvnp.metrics.points import point_mask as point_mask
from dsvnp.metrics.scores import CalibrationCurve as CalibrationCurve
from dsvnp.metrics.scores import calibration_curve as calibration_curve
from dsvnp.metrics.scores import coverage as coverage
from dsvnp.metrics.scores import crps as crps
from dsvnp.metrics.scores import energy_score as energy_score
from dsvnp.metrics.scores import joint_nll as joint_nll
from dsvnp.metrics.scores import nll as nll
from dsvnp.metrics.scores import nll_each as nll_each
from dsvnp.metrics.scores import pit as pit
from dsvnp.metrics.scores import pit_coverage as pit_coverage
from dsvnp.metrics.scores import point_crps as point_crps
from dsvnp.metrics.scores import point_energy_score as point_energy_score
from dsvnp.metrics.scores import point_nll as point_nll
from dsvnp.metrics.scores import point_nll_each as point_nll_each
from dsvnp.metrics.scores import point_squared_error as point_squared_error
from dsvnp.metrics.scores import rmse as rmse
from dsvnp.metrics.scores import squared_error as squared_error
