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

from dsvnp.models import base_name
from dsvnp.plotting.style import INK, colour_of, house_style, save, text_of
from dsvnp.predictive import GaussianPredictive, Predictive


class Panel(NamedTuple):
    """One function seen by one model, all at inputs in ascending order.

    Attributes:
        x: inputs, [T].
        truth: the function, [T].
        x_context: inputs of the context, [C].
        y_context: outputs of the context, [C].
        mean: predictive mean, [T].
        stddev: predictive standard deviation, [T].
        draws: a few sampled functions, [draws, T]: the means under draws of the latents or, for a model that has
            none, samples of its independent outputs.
    """

    x: Tensor
    truth: Tensor
    x_context: Tensor
    y_context: Tensor
    mean: Tensor
    stddev: Tensor
    draws: Tensor

    @classmethod
    def from_lists(cls, lists: Mapping[str, Sequence[Any]]) -> Panel:
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
    ) -> Panel:
        """Make a panel of a predictive of one task with one output."""
        assert isinstance(predictive, GaussianPredictive)
        draws = predictive.loc[:num_draws, 0, 0, :, 0]
        if len(draws) == 1:
            generator = torch.Generator(draws.device).manual_seed(0)
            draws = predictive.sample(2, generator)[:, 0, :, 0]
        mean, stddev = predictive.mean[0, :, 0], predictive.stddev[0, :, 0]
        return cls(x, truth, x_context, y_context, mean, stddev, draws)


def draw_panel(axes: Axes, panel: Panel, model: str) -> None:
    """Draw the truth, the context, the mean with ±3σ, and a few draws."""
    panel = Panel(*(value.cpu() for value in panel))
    colour = colour_of(model)
    low, high = panel.mean - 3 * panel.stddev, panel.mean + 3 * panel.stddev
    axes.fill_between(panel.x, low, high, color=colour, alpha=0.18, linewidth=0, label="±3σ")
    for number, draw in enumerate(panel.draws):
        label = "draws" if number == 0 else None
        axes.plot(panel.x, draw, color=colour, linewidth=0.6, alpha=0.6, label=label)
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
            axes.set_title(text_of(model), color=colour_of(model), fontweight="bold")
        grid[0, 0].set_ylim(*limits)
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return save(figure, path)


class Line(NamedTuple):
    """A curve for each seed: x [N] and, a row a seed, y [seeds, N]."""

    x: Sequence[float]
    y: Sequence[Sequence[float]]


def draw_lines(axes: Axes, lines: Mapping[str, Line]) -> None:
    """Draw the mean over seeds in a band from the lowest to the highest; variants of a model are dashed.

    Unlike a standard deviation, that band leaves neither [0, 1] nor a logarithmic axis.
    """
    for label, line in lines.items():
        y = torch.tensor(line.y, dtype=torch.float64)
        style = "-" if label == base_name(label) else "--"
        axes.plot(line.x, y.mean(0), style, color=colour_of(label), linewidth=1.5, label=text_of(label))
        axes.fill_between(line.x, y.amin(0), y.amax(0), color=colour_of(label), alpha=0.2, linewidth=0)


def make_log_x(axes: Axes) -> None:
    """Make x logarithmic, with plain numbers at 1, 2 and 5, or at powers of ten where those would be too many."""
    axes.set_xscale("log")
    left, right = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if right < 100 * left else (1,)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def lines_figure(
    panels: Sequence[tuple[str, str, str, Mapping[str, Line]]],
    path: Path,
    diagonal: bool = False,
    log_y: bool | Sequence[bool] = False,
    log_x: bool = False,
    columns: int | None = None,
) -> Path:
    """Draw one or more plots of lines beside each other and save them.

    Args:
        panels: for each plot its title, the names of its axes, and its lines by model.
        path: where to save; the ending decides the format.
        diagonal: draw y = x, what perfect calibration would be.
        log_y: logarithmic y, of all plots or of each.
        log_x: logarithmic x.
        columns: plots beside each other, the rest below them; all by default.
    """
    columns = columns or len(panels)
    logarithmic = [log_y] * len(panels) if isinstance(log_y, bool) else log_y
    rows = -(-len(panels) // columns)
    with house_style():
        figure = Figure(figsize=(3.8 * columns, 3 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in grid[len(panels) :]:
            axes.remove()
        for axes, (title, x_name, y_name, lines), log in zip(grid, panels, logarithmic, strict=False):
            if diagonal:
                axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
            draw_lines(axes, lines)
            axes.set(title=title, xlabel=x_name, ylabel=y_name)
            axes.set_yscale("log" if log else "linear")
            if log_x:
                make_log_x(axes)
        named = {
            label: handle
            for axes in figure.axes  # a model may be in some of the plots only
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=min(4, len(named)))
        return save(figure, path)


def dots_figure(panels: Sequence[tuple[str, str, Mapping[str, Sequence[float]]]], path: Path) -> Path:
    """Draw a line of dots a model, one for each seed, with their mean; plots lie beside each other.

    Args:
        panels: for each plot its title, the name of its axis, and the values by model.
        path: where to save; the ending decides the format.
    """
    rows = max(len(values) for _, _, values in panels)
    with house_style():
        figure = Figure(figsize=(4.4 * len(panels), 0.8 + 0.24 * rows), layout="constrained")
        for axes, (title, axis, values) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
        ):
            for height, (model, seeds) in enumerate(values.items()):
                colour = colour_of(model)
                axes.plot(seeds, [height] * len(seeds), "o", color=colour, markersize=3, alpha=0.5)
                axes.plot(
                    sum(seeds) / len(seeds), height, "|", color=colour, markersize=12, markeredgewidth=2
                )
            axes.set_yticks(range(len(values)), [text_of(model) for model in values])
            axes.invert_yaxis()
            axes.set(title=title, xlabel=axis)
        return save(figure, path)
