"""The picture of a curve: its points, the mean, an interval, and functions that might be it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dsvnp.plotting.style import COLOURS, INK, house_style

if TYPE_CHECKING:
    from dsvnp.tabular.curves import CurveRegressor

GRID, MARGIN = 300, 0.1
SECONDS_PER_DAY = 86_400
BLOCK = 8  # inputs of a function that are drawn at once: neighbours in random order are rarely in one block


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
    x = np.sort(np.asarray(X).ravel())
    low, high = curve.predict_interval(x, coverage)
    with house_style():
        if ax is None:
            ax = Figure(figsize=(6.4, 3.2), layout="constrained").add_subplot()
        ax.fill_between(x, low, high, color=COLOURS["dsvnp"], alpha=0.2, linewidth=0, label=f"{coverage:.0%}")
        ax.plot(x, curve.predict(x), color=COLOURS["dsvnp"], label="mean")
        if n_functions:
            drawn = curve.sample_functions(x, n_functions, block=BLOCK)
            ax.plot(x, drawn, color=COLOURS["dsvnp"], alpha=0.5, linewidth=0.7)
        points = _as_given(known, curve)
        ax.plot(points, curve.y_, "o", color=INK, markersize=2.5, label="observed")
        ax.legend(loc="best")
    return ax


def _as_given(days: NDArray[np.float64], curve: CurveRegressor) -> NDArray[Any]:
    """Inputs as the user gave them: dates where they were dates."""
    if not curve.dates_[0]:
        return days
    return np.round(days * SECONDS_PER_DAY).astype("datetime64[s]")
