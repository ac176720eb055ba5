"""Figures of the image experiment: Fig. 4, calibration, and images that a model is most and least sure of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.images.measures import unpack
from dsvnp.plotting.figures import Line, lines_figure
from dsvnp.plotting.style import INK, colour_of, house_style, save, text_of

FEW = 10
SURE = {"most": "most sure of", "least": "least sure of"}


def cdf_figure(units: Sequence[UnitResult], path: Path) -> Path:
    """Draw the share of images whose predictive entropy does not exceed a value, for each set (Fig. 4)."""
    panels = []
    for name in units[0].extras["cdf"]:
        lines: dict[str, Line] = {}
        for unit in units:
            before = lines.get(unit.model, Line(unit.extras["entropies"], []))
            lines[unit.model] = Line(before.x, [*before.y, *unit.extras["cdf"][name]])
        panels.append((name, "entropy (nats)", "share of images", lines))
    return lines_figure(panels, path, columns=3)


def reliability_figure(groups: Mapping[str, Sequence[UnitResult]], path: Path) -> Path:
    """Draw accuracy against confidence, a panel for each group of units, by its title."""
    panels = [(title, "confidence", "accuracy", _reliability(units)) for title, units in groups.items()]
    return lines_figure(panels, path, diagonal=True)


def _reliability(units: Sequence[UnitResult]) -> dict[str, Line]:
    """A line for each model, the images of all seeds together; a bin with few of them says nothing."""
    lines = {}
    for label in dict.fromkeys(unit.model for unit in units):
        seeds = [bins for unit in units if unit.model == label for bins in unit.extras["reliability"]]
        total = {name: torch.tensor([bins[name] for bins in seeds]).double().sum(0) for name in seeds[0]}
        number = total["num_points"]
        filled = number >= min(FEW, int(number.max()))
        confidence, accuracy = (
            (total[name] / number)[filled].tolist() for name in ("confidence", "accuracy")
        )
        lines[label] = Line(confidence, [accuracy])
    return lines


def pictures_figure(unit: UnitResult, path: Path) -> Path:
    """Draw the images of each set that a model is most and least sure of, and what it takes them for."""
    sets: Mapping[str, Any] = unit.extras["pictures"]
    number = next(iter(sets.values()))["most"]["shape"][0]
    with house_style():
        figure = Figure(figsize=(0.95 * 2 * number + 0.6, 1.25 * len(sets) + 0.4), layout="constrained")
        halves = figure.subfigures(1, 2, squeeze=False, wspace=0.04)[0]
        for half, (kind, text) in zip(halves, SURE.items(), strict=True):
            half.suptitle(f"{text_of(unit.model)} is {text}", color=colour_of(unit.model), fontsize=10)
            grid = half.subplots(len(sets), number, squeeze=False)
            for row, (name, kinds) in zip(grid, sets.items(), strict=True):
                _draw_row(row, kinds[kind])
                if kind == "most":
                    row[0].set_ylabel(name, fontsize=8)
        return save(figure, path)


def _draw_row(row: Sequence[Axes], shown: Mapping[str, Any]) -> None:
    """Draw images beside each other, each with its class and entropy."""
    images = unpack(shown["images"], shown["shape"])
    for axes, image, name, entropy in zip(row, images, shown["taken_for"], shown["entropy"], strict=True):
        axes.imshow(image.permute(1, 2, 0).squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=255)
        axes.set_title(f"{name}, {entropy:.2f}", fontsize=7, color=INK, pad=2)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
