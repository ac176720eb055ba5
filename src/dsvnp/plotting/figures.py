"""Figures: functions as the paper's Fig. 2 shows them, and lines with their range over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter
from torch import Tensor

from dsvnp.plotting.style import INK, Look, house_style, save
from dsvnp.predictive import GaussianPredictive, Predictive


class FunctionPanel(NamedTuple):
    """One function seen by one model, all at inputs in ascending order."""

    x: Tensor  # inputs, [T]
    truth: Tensor  # the function, [T]
    x_context: Tensor  # inputs of the context, [C]
    y_context: Tensor  # outputs of the context, [C]
    mean: Tensor  # predictive mean, [T]
    stddev: Tensor  # predictive standard deviation, [T]
    # a few sampled functions, [draws, T]: the means under draws of the latents or, for a model that has none, samples
    # of its independent outputs
    draws: Tensor

    @classmethod
    def from_lists(cls, lists: Mapping[str, Sequence[Any]]) -> FunctionPanel:
        """Read a panel from JSON."""
        return cls(**{name: torch.tensor(lists[name]) for name in cls._fields})

    def to_lists(self) -> dict[str, Any]:
        """The panel as JSON holds it."""
        return {name: value.tolist() for name, value in self._asdict().items()}

    @classmethod
    def of(
        cls,
        x: Tensor,
        truth: Tensor,
        x_context: Tensor,
        y_context: Tensor,
        predictive: Predictive,
        num_draws: int = 4,
    ) -> FunctionPanel:
        """Make a panel of a predictive of one task with one output."""
        assert isinstance(predictive, GaussianPredictive)
        draws = predictive.loc[:num_draws, 0, 0, :, 0]
        if len(draws) == 1:
            generator = torch.Generator(draws.device).manual_seed(0)
            draws = predictive.sample(2, generator)[:, 0, :, 0]
        mean, stddev = predictive.mean[0, :, 0], predictive.stddev[0, :, 0]
        return cls(x, truth, x_context, y_context, mean, stddev, draws)


def draw_panel(axes: Axes, panel: FunctionPanel, colour: str) -> None:
    """Draw the truth, the context, the mean with ±3σ, and a few draws."""
    panel = FunctionPanel(*(value.cpu() for value in panel))
    low, high = panel.mean - 3 * panel.stddev, panel.mean + 3 * panel.stddev
    axes.fill_between(panel.x, low, high, color=colour, alpha=0.18, linewidth=0, label="±3σ")
    for number, draw in enumerate(panel.draws):
        label = "draws" if number == 0 else None
        axes.plot(panel.x, draw, color=colour, linewidth=0.6, alpha=0.6, label=label)
    axes.plot(panel.x, panel.truth, color=INK, linewidth=1, linestyle=(0, (4, 2)), label="truth")
    axes.plot(panel.x, panel.mean, color=colour, linewidth=1.8, label="mean")
    axes.plot(panel.x_context, panel.y_context, "o", color=INK, markersize=3, label="context")


def functions_figure(
    # for each row its title and its panels by model
    rows: Sequence[tuple[str, Mapping[Look, FunctionPanel]]],
    path: Path,  # where to save; the ending decides the format
    limits: tuple[float, float] = (-2.2, 2.2),  # range of y
    # interval that the models were trained on, marked where it ends inside a panel
    trained: tuple[float, float] | None = None,
) -> Path:
    """Draw a grid of panels, one row per function and one column per model, and save it."""
    models = list(rows[0][1])
    with house_style():
        figure = Figure(figsize=(2.7 * len(models), 2.1 * len(rows)), layout="constrained")
        grid = figure.subplots(len(rows), len(models), sharex="row", sharey=True, squeeze=False)
        for (title, panels), line in zip(rows, grid, strict=True):
            for model, axes in zip(models, line, strict=True):
                draw_panel(axes, panels[model], model.colour)
                for edge in trained or ():
                    axes.axvline(edge, color=INK, linewidth=0.5, linestyle=":")
            line[0].set_ylabel(title)
        for model, axes in zip(models, grid[0], strict=True):
            axes.set_title(model.text, color=model.colour, fontweight="bold")
        grid[0, 0].set_ylim(*limits)
        add_legend(figure, 5)
        return save(figure, path)


class Line(NamedTuple):
    """A curve for each seed: x [N] and, one row per seed, y [seeds, N]."""

    x: Sequence[float]
    y: Sequence[Sequence[float]]


class Reference(NamedTuple):
    """A line to compare others with: a value for each x or one for all, its name, and its line style."""

    y: Sequence[float] | float
    text: str
    style: str = ":"


class Plot(NamedTuple):
    """One plot of lines."""

    title: str  # text above it
    x_name: str  # name of an axis, as the next
    y_name: str
    lines: Mapping[Look, Line]  # by model
    reference: Reference | None = None  # what to compare the lines with
    log: str = ""  # which axes are logarithmic: "", "x", "y" or "xy"


def draw_plot(axes: Axes, plot: Plot, bands: bool = True, dashes: bool = True) -> None:
    """Draw the mean over seeds, if asked in a band from the lowest to the highest, and variants dashed.

    Unlike a standard deviation, that band leaves neither [0, 1] nor a logarithmic axis.
    """
    for look, line in plot.lines.items():
        y = torch.tensor(line.y, dtype=torch.float64)
        style = "--" if look.dashed and dashes else "-"
        axes.plot(line.x, y.mean(0), style, color=look.colour, linewidth=1.5, label=look.text)
        if bands:
            axes.fill_between(line.x, y.amin(0), y.amax(0), color=look.colour, alpha=0.2, linewidth=0)
    if plot.reference is not None:
        values, text, style = plot.reference
        if isinstance(values, float):
            axes.axhline(values, color=INK, linewidth=1.2, linestyle=style, label=text)
        else:
            x = next(iter(plot.lines.values())).x
            axes.plot(x, values, style, color=INK, linewidth=1.2, label=text)
    axes.set(title=plot.title, xlabel=plot.x_name, ylabel=plot.y_name)
    axes.set_yscale("log" if "y" in plot.log else "linear")
    if "x" in plot.log:
        make_log_x(axes)


def make_log_x(axes: Axes) -> None:
    """Make x logarithmic, with plain numbers at 1, 2 and 5, or at powers of ten where those would be too many."""
    axes.set_xscale("log")
    left, right = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if right < 200 * left else (1,)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def add_legend(figure: Figure, columns: int = 4) -> None:
    """Name below a figure what any of its plots shows, each once: a model may be in some of them only."""
    named = {
        label: handle
        for axes in figure.axes
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=min(columns, len(named)))


def lines_figure(
    plots: Sequence[Plot], path: Path, diagonal: bool = False, columns: int | None = None, bands: bool = True
) -> Path:
    """Draw plots of lines next to each other, `columns` in a row (all by default), and save them.

    `diagonal` draws y = x, what perfect calibration would be. `bands` draws the range over seeds; where many lines lie
    close together, their bands hide each other. The ending of the path decides the format.
    """
    columns = columns or len(plots)
    rows = -(-len(plots) // columns)
    dashed = [look.dashed for plot in plots for look in plot.lines]  # variants alone need no dashes
    with house_style():
        figure = Figure(figsize=(3.8 * columns, 3 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in grid[len(plots) :]:
            axes.remove()
        for axes, plot in zip(grid, plots, strict=False):
            if diagonal:
                axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
            draw_plot(axes, plot, bands, dashes=not all(dashed))
        add_legend(figure)
        return save(figure, path)


def dots_figure(panels: Sequence[tuple[str, str, Mapping[Look, Sequence[float]]]], path: Path) -> Path:
    """Draw one line of dots per model, one dot per seed, with their mean; plots lie next to each other.

    A panel is its title, the name of its axis, and the values by model.
    """
    rows = max(len(values) for _, _, values in panels)
    with house_style():
        figure = Figure(figsize=(4.4 * len(panels), 0.8 + 0.24 * rows), layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (title, axis, values) in zip(grid, panels, strict=True):
            for height, (look, seeds) in enumerate(values.items()):
                mean = sum(seeds) / len(seeds)
                axes.plot(seeds, [height] * len(seeds), "o", color=look.colour, markersize=3, alpha=0.5)
                axes.plot(mean, height, "|", color=look.colour, markersize=12, markeredgewidth=2)
            axes.set_yticks(range(len(values)), [look.text for look in values])
            axes.invert_yaxis()
            axes.set(title=title, xlabel=axis)
        return save(figure, path)
