"""Plots: is a prediction as often right as it says?"""

from __future__ import annotations

from io import BytesIO

import torch
from matplotlib.figure import Figure
from torch import Tensor

from dsvnp.metrics import pit_coverage, reliability
from dsvnp.plotting.style import COLOURS, INK, house_style


def calibration_plot(calibration: Tensor, title: str) -> bytes:
    """A PNG of nominal against empirical coverage, or of confidence against accuracy for classes.

    Args:
        calibration: see `summary.calibration_of`.
        title: what was predicted.
    """
    with house_style():
        figure = Figure(figsize=(3.6, 3.6))
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
        if calibration.ndim == 1:
            levels = torch.linspace(0.02, 0.98, 49, dtype=calibration.dtype)
            axes.plot(levels, pit_coverage(calibration, levels), color=COLOURS["dsvnp"])
            axes.set(xlabel="level of the interval", ylabel="share of outputs inside")
        else:
            found = reliability(calibration[:, :-1], calibration[:, -1].long(), num_bins=10)
            filled = found.num_points > 0
            axes.plot(
                found.confidence[filled],
                found.accuracy[filled],
                color=COLOURS["dsvnp"],
                marker="o",
                markersize=3,
            )
            axes.set(xlabel="confidence", ylabel="accuracy")
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", title=title)
        buffer = BytesIO()
        figure.savefig(buffer, format="png")
    return buffer.getvalue()
