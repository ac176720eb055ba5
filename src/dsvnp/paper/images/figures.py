"""Figures of the image experiment: Fig. 4, calibration, and images that a model is most and least sure of."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.figures import lines_of
from dsvnp.paper.images.measures import unpack
from dsvnp.plotting.figures import Line, Plot, lines_figure
from dsvnp.plotting.style import INK, Look, house_style, look_of, save

FEW = 10
SURE = {"most": "most sure of", "least": "least sure of"}


def cdf_figure(units: Sequence[UnitResult], path: Path) -> Path:
    """Draw the share of images whose predictive entropy does not exceed a value, for each set (Fig. 4).

    Lines are means over seeds without bands: six bands over each other cannot be read.
    """
    plots = [
        Plot(name, "entropy (nats)", "share of images", _cdfs(units, name)) for name in units[0].extras["cdf"]
    ]
    return lines_figure(plots, path, columns=3, bands=False)


def _cdfs(units: Sequence[UnitResult], name: str) -> dict[Look, Line]:
    """One line per model, for one set of images."""
    return lines_of(units, lambda extras: extras["entropies"], lambda extras: extras["cdf"][name])


def reliability_figure(groups: Mapping[str, Sequence[UnitResult]], path: Path) -> Path:
    """Draw accuracy against confidence, one plot per group of units, by its title."""
    plots = [Plot(title, "confidence", "accuracy", _reliability(units)) for title, units in groups.items()]
    return lines_figure(plots, path, diagonal=True)


def _reliability(units: Sequence[UnitResult]) -> dict[Look, Line]:
    """One line per model, the images of all seeds together; bins with few of them are left out."""
    lines = {}
    for model in dict.fromkeys(unit.label.model for unit in units):
        seeds = [bins for unit in units if unit.label.model == model for bins in unit.extras["reliability"]]
        total = {name: torch.tensor([bins[name] for bins in seeds]).double().sum(0) for name in seeds[0]}
        number = total["num_points"]
        filled = number >= min(FEW, int(number.max()))
        confidence, accuracy = (
            (total[name] / number)[filled].tolist() for name in ("confidence", "accuracy")
        )
        lines[look_of(model)] = Line(confidence, [accuracy])
    return lines


def pictures_figure(unit: UnitResult, path: Path) -> Path:
    """Draw the images of each set that a model is most and least sure of, and what it takes them for."""
    sets: Mapping[str, Any] = unit.extras["pictures"]
    first = next(iter(sets.values()))["most"]
    number = len(unpack(first["images"], first["shape"]))
    with house_style():
        figure = Figure(figsize=(0.95 * 2 * number + 0.6, 1.25 * len(sets) + 0.4), layout="constrained")
        halves = figure.subfigures(1, 2, squeeze=False, wspace=0.04)[0]
        for half, (kind, text) in zip(halves, SURE.items(), strict=True):
            half.suptitle(f"{unit.label.look.text} is {text}", color=unit.label.look.colour, fontsize=10)
            grid = half.subplots(len(sets), number, squeeze=False)
            for row, (name, kinds) in zip(grid, sets.items(), strict=True):
                _draw_row(row, kinds[kind])
                if kind == "most":
                    row[0].set_ylabel(name, fontsize=8)
        return save(figure, path)


def _draw_row(row: Sequence[Axes], shown: Mapping[str, Any]) -> None:
    """Draw images next to each other, each with its class and entropy."""
    images = unpack(shown["images"], shown["shape"])
    for axes, image, name, entropy in zip(row, images, shown["taken_for"], shown["entropy"], strict=True):
        axes.imshow(image.permute(1, 2, 0).squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=255)
        axes.set_title(f"{name}, {entropy:.2f}", fontsize=7, color=INK, pad=2)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
