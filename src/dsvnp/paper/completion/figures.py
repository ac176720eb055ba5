"""Figures of image completion: the pictures that people know, and log-likelihood against the size of the context."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from dsvnp.paper.completion.measures import COLUMNS
from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.figures import names_of
from dsvnp.paper.images.measures import unpack
from dsvnp.plotting.figures import Line, Plot, lines_figure
from dsvnp.plotting.style import INK, Look, house_style, save

Row = tuple[str, str, Tensor]  # name, its colour, and pictures [columns, 3, H, W]


def pictures_figure(unit: UnitResult, path: Path) -> Path:
    """Draw truth, context, mean, σ and samples next to each other, one row per image and size of context."""
    look, shown = unit.label.look, unit.extras["pictures"]
    return _draw_rows([(title, INK, row) for title, row in _rows(shown)], path, (look.text, look.colour))


def compared_figure(units: Sequence[UnitResult], path: Path, num_context: int) -> Path:
    """Draw the same with one size of context, one row per model, images below each other."""
    found = [
        [
            (unit.label.look.text, unit.label.look.colour, row)
            for title, row in _rows(unit.extras["pictures"])
            if title == f"{num_context} pixels"
        ]
        for unit in units
    ]
    return _draw_rows([row for image in zip(*found, strict=True) for row in image], path)


def _rows(shown: Mapping[str, Any]) -> list[tuple[str, Tensor]]:
    """The title and the pictures of each row, [columns, 3, H, W]."""
    return list(zip(shown["titles"], unpack(shown["images"], shown["shape"]), strict=True))


def _draw_rows(rows: Sequence[Row], path: Path, title: tuple[str, str] | None = None) -> Path:
    """Draw rows of pictures, each with its name at the left, and the figure's title in its colour."""
    with house_style():
        size = (0.9 * len(COLUMNS) + 0.4, 0.9 * len(rows) + 0.4)
        figure = Figure(figsize=size, layout="constrained")
        if title is not None:
            figure.suptitle(title[0], color=title[1], fontsize=10)
        grid = figure.subplots(len(rows), len(COLUMNS), squeeze=False)
        for axes, (name, colour, pictures) in zip(grid, rows, strict=True):
            for place, image in zip(axes, pictures, strict=True):
                place.imshow(image.permute(1, 2, 0).numpy(), interpolation="none")
                place.set(xticks=[], yticks=[])
                place.spines[:].set_visible(False)
            axes[0].set_ylabel(name, fontsize=7, color=colour)
        for place, text in zip(grid[0], COLUMNS, strict=True):
            place.set_title(text, fontsize=8)
        return save(figure, path)


def context_figure(units: Sequence[UnitResult], path: Path) -> Path:
    """Draw log-likelihood against the number of context pixels, one plot per set of images."""
    sets: dict[str, dict[Look, dict[int, list[float]]]] = {}
    for unit in units:
        for m in unit.measurements:
            if m.metric == "log-likelihood":
                lines = sets.setdefault(m.dataset, {}).setdefault(unit.label.look, {})
                lines.setdefault(int(m.split.removeprefix("context-")), []).extend(m.values)
    titles = names_of("completion")
    plots = [
        Plot(
            titles[name],
            "context pixels",
            "log-likelihood (nats/pixel)",
            {look: Line(list(by), list(zip(*by.values(), strict=True))) for look, by in models.items()},
            log="x",
        )
        for name, models in sets.items()
    ]
    return lines_figure(plots, path)
