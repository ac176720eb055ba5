"""Figures of the tables: errors by model with their spread over splits, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dsvnp.models import MODELS, base_name
from dsvnp.paper.experiment import Measurement, UnitResult
from dsvnp.plotting.figures import Line, lines_figure, make_log_x
from dsvnp.plotting.style import INK, colour_of, house_style, save, text_of


def by_dataset(units: Sequence[UnitResult]) -> dict[str, dict[str, list[UnitResult]]]:
    """Units by data set and model."""
    out: dict[str, dict[str, list[UnitResult]]] = {}
    for unit in units:
        model = unit.model.partition("@")[0]
        out.setdefault(unit.measurements[0].dataset, {}).setdefault(model, []).append(unit)
    return out


def errors_figure(units: Sequence[UnitResult], path: Path) -> Path:
    """Draw squared errors in unit variance, a plot a data set: filled on the test half, hollow on the training rows."""
    tables = by_dataset(units)
    with house_style():
        rows = max(len(models) for models in tables.values())
        figure = Figure(figsize=(3.4 * len(tables), 1.2 + 0.22 * rows), layout="constrained")
        grid = figure.subplots(1, len(tables), squeeze=False)[0]
        for axes, (dataset, models) in zip(grid, tables.items(), strict=True):
            _draw_errors(axes, models)
            axes.set(title=dataset, xlabel="MSE, unit variance")
            make_log_x(axes)
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        return save(figure, path)


def calibration_figure(units: Sequence[UnitResult], path: Path) -> Path:
    """Draw the share of test outputs inside central intervals, for the models but not their Gaussian variants."""
    panels = []
    for dataset, models in by_dataset(units).items():
        lines = {
            model: Line(parts[0].extras["levels"], [row for part in parts for row in part.extras["coverage"]])
            for model, parts in models.items()
            if base_name(model) in MODELS and not model.endswith("-gaussian")
        }
        if lines:
            panels.append((dataset, "nominal coverage", "share inside", lines))
    return lines_figure(panels, path, diagonal=True) if panels else path


def values_of(parts: Sequence[UnitResult], metric: str, split: str, unit: str) -> torch.Tensor:
    """Values of one quantity over all splits, [splits]."""
    wanted = (metric, split, unit)
    found: list[Measurement] = [
        m for part in parts for m in part.measurements if (m.metric, m.split, m.unit) == wanted
    ]
    return torch.tensor([value for m in found for value in m.values], dtype=torch.float64)


def _draw_errors(axes: Axes, models: dict[str, list[UnitResult]]) -> None:
    """Draw one data set's errors, a line a model."""
    for height, (model, parts) in enumerate(models.items()):
        colour = colour_of(model)
        test, train = (values_of(parts, "mse", split, "standard") for split in ("test", "train"))
        spread = float(test.std()) if len(test) > 1 else 0.0
        first = height == 0
        axes.errorbar(
            float(test.mean()),
            height,
            xerr=spread,
            fmt="o",
            color=colour,
            markersize=4,
            label="test half, ± one standard deviation over splits" if first else None,
        )
        axes.plot(
            float(train.mean()),
            height,
            "o",
            markerfacecolor="none",
            color=colour,
            markersize=4,
            label="training rows" if first else None,
        )
    axes.set_yticks(range(len(models)), [text_of(model) for model in models], color=INK)
    axes.invert_yaxis()
