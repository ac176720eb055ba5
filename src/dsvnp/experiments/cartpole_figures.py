"""Figures of the Cart-Pole experiment: what context buys, and roll-outs with their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dsvnp.report.figures import Line, draw_lines
from dsvnp.report.style import INK, colour_of, house_style, text_of

STATES = {"x (m)": 0, "θ (rad)": 1}
SECONDS = 0.1  # a step


class Plot(NamedTuple):
    """One plot of lines.

    Attributes:
        title: what is above it.
        axes: names of x and y.
        lines: by model.
        reference: what the lines are to be compared with, a value for each x, and what it is; None for nothing.
        log: which axes are logarithmic: "", "x", "y" or "xy".
    """

    title: str
    axes: tuple[str, str]
    lines: Mapping[str, Line]
    reference: tuple[Sequence[float], str] | None = None
    log: str = ""


def plots_figure(plots: Sequence[Plot], path: Path) -> Path:
    """Draw plots beside each other, each with its reference dotted, and save them."""
    with house_style():
        figure = Figure(figsize=(3.8 * len(plots), 3), layout="constrained")
        handles: dict[str, Any] = {}
        for axes, plot in zip(figure.subplots(1, len(plots), squeeze=False)[0], plots, strict=True):
            draw_lines(axes, plot.lines)
            if plot.reference is not None:
                values, text = plot.reference
                x = next(iter(plot.lines.values())).x
                axes.plot(x, values, ":", color=INK, linewidth=1.2, label=text)
            axes.set(title=plot.title, xlabel=plot.axes[0], ylabel=plot.axes[1])
            axes.set_xscale("log" if "x" in plot.log else "linear")
            axes.set_yscale("log" if "y" in plot.log else "linear")
            handles |= {str(handle.get_label()): handle for handle in axes.get_legend_handles_labels()[0]}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    return path


def rollouts_figure(
    paths: Mapping[str, Mapping[str, Any]], average: Sequence[Any] | None, path: Path, title: str
) -> Path:
    """Draw one roll-out as each model sees it, a row a state and a column a model, and save it.

    Args:
        paths: for each model "low", "mean", "high" and "truth", [H + 1, 4] each.
        average: the path of one who cannot tell environments apart, [H + 1, 4], if it is known.
        path: where to save; the ending decides the format.
        title: which environment it is.
    """
    with house_style():
        figure = Figure(figsize=(2.3 * len(paths), 4), layout="constrained")
        grid = figure.subplots(len(STATES), len(paths), sharex=True, sharey="row", squeeze=False)
        for column, (model, values) in zip(grid.T, paths.items(), strict=True):
            for axes, state in zip(column, STATES.values(), strict=True):
                _draw_path(axes, model, values, average, state)
            column[0].set_title(text_of(model), color=colour_of(model), fontweight="bold")
            column[-1].set_xlabel("time (s)")
        for axes, name in zip(grid[:, 0], STATES, strict=True):
            axes.set_ylabel(name)
        figure.suptitle(title, fontsize=10)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    return path


def _draw_path(
    axes: Axes, model: str, values: Mapping[str, Any], average: Sequence[Any] | None, state: int
) -> None:
    """Draw one state of one roll-out."""
    low, mean, high, truth = (
        torch.tensor(values[name])[:, state] for name in ("low", "mean", "high", "truth")
    )
    time = SECONDS * torch.arange(len(truth))
    colour = colour_of(model)
    axes.fill_between(time, low, high, color=colour, alpha=0.2, linewidth=0, label="90 % of particles")
    axes.plot(time, mean, color=colour, linewidth=1.8, label="their mean")
    axes.plot(time, truth, color=INK, linewidth=1, linestyle=(0, (4, 2)), label="truth")
    if average is not None:
        axes.plot(
            time, torch.tensor(average)[:, state], ":", color=INK, linewidth=1, label="no identification"
        )
