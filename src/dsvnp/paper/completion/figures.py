"""Figures of image completion: the pictures that people know, and log-likelihood against the size of the context."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dsvnp.paper.completion.measures import COLUMNS
from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.images.measures import unpack
from dsvnp.plotting.figures import Line, Plot, lines_figure
from dsvnp.plotting.style import Look, house_style, save


def pictures_figure(unit: UnitResult, path: Path) -> Path:
    """Draw truth, context, mean, σ and samples next to each other, one row per image and size of context."""
    shown: Mapping[str, Any] = unit.extras["pictures"]
    images = unpack(shown["images"], shown["shape"])
    with house_style():
        size = (0.9 * len(COLUMNS) + 0.4, 0.9 * len(images) + 0.4)
        figure = Figure(figsize=size, layout="constrained")
        figure.suptitle(unit.label.look.text, color=unit.label.look.colour, fontsize=10)
        grid = figure.subplots(len(images), len(COLUMNS), squeeze=False)
        for axes, row, title in zip(grid, images, shown["titles"], strict=True):
            for place, image in zip(axes, row, strict=True):
                place.imshow(image.permute(1, 2, 0).numpy(), interpolation="nearest")
                place.set(xticks=[], yticks=[])
                place.spines[:].set_visible(False)
            axes[0].set_ylabel(title, fontsize=7)
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
    plots = [
        Plot(
            name,
            "context pixels",
            "log-likelihood (nats/pixel)",
            {look: Line(list(by), list(zip(*by.values(), strict=True))) for look, by in models.items()},
            log="x",
        )
        for name, models in sets.items()
    ]
    return lines_figure(plots, path)
