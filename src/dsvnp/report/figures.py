"""Figures of functions: what a model saw, what it says, and how sure it is (the paper's Fig. 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from dsvnp.predictive import GaussianPredictive, Predictive
from dsvnp.report.style import COLOURS, INK, LABELS, house_style

matplotlib.use("Agg")


class Panel(NamedTuple):
    """One function seen by one model, all at inputs in ascending order.

    Attributes:
        x: inputs, [T].
        truth: the function, [T].
        x_context: inputs of the context, [C].
        y_context: outputs of the context, [C].
        mean: predictive mean, [T].
        stddev: predictive standard deviation, [T].
        draws: means under a few draws of the latents, [draws, T].
    """

    x: Tensor
    truth: Tensor
    x_context: Tensor
    y_context: Tensor
    mean: Tensor
    stddev: Tensor
    draws: Tensor

    @classmethod
    def of(
        cls,
        x: Tensor,
        truth: Tensor,
        x_context: Tensor,
        y_context: Tensor,
        predictive: Predictive,
        num_draws: int = 4,
    ) -> Panel:
        """Make a panel of a predictive of one task with one output."""
        assert isinstance(predictive, GaussianPredictive)
        draws = predictive.loc[:num_draws, 0, 0, :, 0]
        mean, stddev = predictive.mean[0, :, 0], predictive.stddev[0, :, 0]
        return cls(x, truth, x_context, y_context, mean, stddev, draws)


def draw_panel(axes: Axes, panel: Panel, model: str) -> None:
    """Draw the truth, the context, the mean with ±3σ, and a few draws."""
    panel = Panel(*(value.cpu() for value in panel))
    colour = COLOURS[model]
    low, high = panel.mean - 3 * panel.stddev, panel.mean + 3 * panel.stddev
    axes.fill_between(panel.x, low, high, color=colour, alpha=0.18, linewidth=0, label="±3σ")
    for draw in panel.draws if len(panel.draws) > 1 else []:
        axes.plot(panel.x, draw, color=colour, linewidth=0.6, alpha=0.6)
    axes.plot(panel.x, panel.truth, color=INK, linewidth=1, linestyle=(0, (4, 2)), label="truth")
    axes.plot(panel.x, panel.mean, color=colour, linewidth=1.8, label="mean")
    axes.plot(panel.x_context, panel.y_context, "o", color=INK, markersize=3, label="context")


def functions_figure(
    rows: Sequence[tuple[str, Mapping[str, Panel]]],
    path: Path,
    limits: tuple[float, float] = (-2.2, 2.2),
    trained: tuple[float, float] | None = None,
) -> Path:
    """Draw a grid of panels, a row a function and a column a model, and save it.

    Args:
        rows: for each row its title and its panels by model.
        path: where to save; the ending decides the format.
        limits: range of y.
        trained: interval that the models were trained on, marked where it ends inside a panel.
    """
    models = list(rows[0][1])
    with house_style():
        figure = Figure(figsize=(2.7 * len(models), 2.1 * len(rows)), layout="constrained")
        grid = figure.subplots(len(rows), len(models), sharex="row", sharey=True, squeeze=False)
        for (title, panels), line in zip(rows, grid, strict=True):
            for model, axes in zip(models, line, strict=True):
                draw_panel(axes, panels[model], model)
                for edge in trained or ():
                    axes.axvline(edge, color=INK, linewidth=0.5, linestyle=":")
            line[0].set_ylabel(title)
        for model, axes in zip(models, grid[0], strict=True):
            axes.set_title(LABELS[model], color=COLOURS[model], fontweight="bold")
        grid[0, 0].set_ylim(*limits)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    return path
