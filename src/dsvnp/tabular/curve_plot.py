"""The picture of a curve: its points, the mean, an interval, and functions that might be it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dsvnp.plotting.everyday import plot_functions, plot_predictive

if TYPE_CHECKING:
    from dsvnp.tabular.curves import CurveRegressor

GRID, MARGIN = 300, 0.1
SECONDS_PER_DAY = 86_400


def plot_curve(curve: CurveRegressor, ax: Any, X: Any, coverage: float, n_functions: int) -> Any:
    """Draw a fitted curve with one input; see `CurveRegressor.plot`."""
    if curve.n_features_in_ != 1:
        raise ValueError(
            f"a plot needs one input, got a curve of {curve.n_features_in_}; predict and draw slices"
        )
    known = curve.X_[:, 0]
    if X is None:
        span = np.ptp(known) or 1.0
        X = _as_given(np.linspace(known.min() - MARGIN * span, known.max() + MARGIN * span, GRID), curve)
    x = np.asarray(X).ravel()
    points = (_as_given(known, curve), curve.y_)
    ax = plot_predictive(curve.predict_dist(x), x, ax, known=points, coverage=coverage)
    if n_functions:
        plot_functions(curve.sample_functions(x, n_functions), x, ax)
    return ax


def _as_given(days: NDArray[np.float64], curve: CurveRegressor) -> NDArray[Any]:
    """Inputs as the user gave them: dates where they were dates."""
    if not curve.dates_[0]:
        return days
    return np.round(days * SECONDS_PER_DAY).astype("datetime64[s]")
