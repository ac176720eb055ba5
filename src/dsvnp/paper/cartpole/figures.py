"""Figures of the Cart-Pole experiment: what context buys, and roll-outs with their uncertainty.

Each is made of finished units, and of the reference that learns nothing where there is one, which is drawn dotted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from dsvnp.paper.cartpole.rollouts import LEVEL
from dsvnp.paper.experiment import UnitResult
from dsvnp.plotting.figures import Line, draw_lines
from dsvnp.plotting.style import INK, colour_of, house_style, save, text_of

STATES = {"x (m)": 0, "θ (rad)": 1}
SECONDS = 0.1  # a step
REFERENCE = "no identification (exact map)"


class Plot(NamedTuple):
    """One plot of lines.

    Attributes:
        title: what is above it.
        names: names of the axes x and y.
        lines: by model.
        reference: a value for each x to compare the lines with, and what it is; None for nothing.
        log: which axes are logarithmic: "", "x", "y" or "xy".
    """

    title: str
    names: tuple[str, str]
    lines: Mapping[str, Line]
    reference: tuple[Sequence[float], str] | None = None
    log: str = ""


def by_context_figure(units: Sequence[UnitResult], oracle: Mapping[str, Any] | None, path: Path) -> Path:
    """Draw NLL and squared error against the number of context transitions."""
    title, sizes = "14 unseen configurations, outside the context", units[0].extras["context_sizes"]
    nll, mse = (lines_of(units, "context_sizes", name) for name in ("nll", "mse"))
    reference = ([oracle["mse"]] * len(sizes), REFERENCE) if oracle else None
    plots = [
        Plot(title, ("context transitions", "NLL (nats/transition)"), nll, None, "x"),
        Plot(title, ("context transitions", "MSE"), mse, reference, "xy"),
    ]
    return _plots_figure(plots, path)


def rollout_error_figure(units: Sequence[UnitResult], oracle: Mapping[str, Any] | None, path: Path) -> Path:
    """Draw squared error and coverage of roll-outs after each step."""
    steps = units[0].extras["rollout_steps"]
    mse, coverage = (lines_of(units, "rollout_steps", f"rollout_{name}") for name in ("mse", "coverage"))
    reference = (oracle["rollout_mse"], REFERENCE) if oracle else None
    nominal = ([LEVEL] * len(steps), f"nominal, {LEVEL:.0%}")
    plots = [
        Plot("error of roll-outs", ("steps", "MSE of the particles' mean"), mse, reference, "y"),
        Plot("their calibration", ("steps", f"coverage of {LEVEL:.0%} intervals"), coverage, nominal),
    ]
    return _plots_figure(plots, path)


def rollouts_figure(
    units: Sequence[UnitResult], oracle: Mapping[str, Any] | None, path: Path, title: str
) -> Path:
    """Draw one roll-out as each model sees it, a row a state and a column a model."""
    paths = {unit.model: unit.extras["rollout"] for unit in units if 0 in unit.seeds}
    with house_style():
        figure = Figure(figsize=(2.3 * len(paths), 4), layout="constrained")
        grid = figure.subplots(len(STATES), len(paths), sharex=True, sharey="row", squeeze=False)
        for column, (model, values) in zip(grid.T, paths.items(), strict=True):
            for axes, state in zip(column, STATES.values(), strict=True):
                _draw_path(axes, model, values, oracle, state)
            column[0].set_title(text_of(model), color=colour_of(model), fontweight="bold")
            column[-1].set_xlabel("time (s)")
        for axes, name in zip(grid[:, 0], STATES, strict=True):
            axes.set_ylabel(name)
        figure.suptitle(title, fontsize=10)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return save(figure, path)


def lines_of(units: Sequence[UnitResult], x: str, y: str) -> dict[str, Line]:
    """Lines of each model with all its seeds, from the units' extras; a value that JSON could not hold is NaN."""
    lines: dict[str, Line] = {}
    for unit in units:
        before = lines.get(unit.model, Line(unit.extras[x], []))
        lines[unit.model] = Line(before.x, [*before.y, *_filled(unit.extras[y])])
    return lines


def _plots_figure(plots: Sequence[Plot], path: Path) -> Path:
    """Draw plots beside each other and save them."""
    with house_style():
        figure = Figure(figsize=(3.8 * len(plots), 3), layout="constrained")
        handles: dict[str, Any] = {}
        for axes, plot in zip(figure.subplots(1, len(plots), squeeze=False)[0], plots, strict=True):
            _draw_plot(axes, plot)
            handles |= {str(handle.get_label()): handle for handle in axes.get_legend_handles_labels()[0]}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
        return save(figure, path)


def _draw_plot(axes: Axes, plot: Plot) -> None:
    """Draw lines and what to compare them with."""
    x = next(iter(plot.lines.values())).x
    draw_lines(axes, plot.lines)
    if plot.reference is not None:
        values, text = plot.reference
        axes.plot(x, values, ":", color=INK, linewidth=1.2, label=text)
    axes.set(title=plot.title, xlabel=plot.names[0], ylabel=plot.names[1])
    if "y" in plot.log:
        axes.set_yscale("log")
    if "x" in plot.log:
        axes.set_xscale("log")
        axes.set_xticks(list(x), [f"{value:g}" for value in x])
        axes.tick_params(axis="x", which="minor", length=0)


def _draw_path(
    axes: Axes, model: str, values: Mapping[str, Any], oracle: Mapping[str, Any] | None, state: int
) -> None:
    """Draw one state of one roll-out."""
    low, mean, high, truth = (_state(values[name], state) for name in ("low", "mean", "high", "truth"))
    time = SECONDS * torch.arange(len(truth))
    colour = colour_of(model)
    axes.fill_between(
        time, low, high, color=colour, alpha=0.2, linewidth=0, label=f"{LEVEL:.0%} of particles"
    )
    axes.plot(time, mean, color=colour, linewidth=1.8, label="their mean")
    axes.plot(time, truth, color=INK, linewidth=1, linestyle=(0, (4, 2)), label="truth")
    if oracle is not None:
        axes.plot(time, _state(oracle["rollout"], state), ":", color=INK, linewidth=1, label=REFERENCE)


def _state(path: Sequence[Sequence[float | None]], state: int) -> Tensor:
    """One state of a path [H + 1, 4], [H + 1]."""
    return torch.tensor(_filled(path))[:, state]


def _filled(rows: Sequence[Sequence[float | None]]) -> list[list[float]]:
    """Put NaN where JSON holds null."""
    return [[math.nan if value is None else value for value in row] for row in rows]
