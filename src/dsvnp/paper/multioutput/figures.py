"""Figures of the tables: errors by model with their spread over splits, and calibration."""

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dsvnp.models import MODELS
from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.figures import lines_of
from dsvnp.paper.rows import grouped
from dsvnp.plotting.figures import Plot, add_legend, lines_figure, make_log_x
from dsvnp.plotting.style import INK, Look, house_style, save


def by_dataset(units: Sequence[UnitResult]) -> dict[str, list[UnitResult]]:
    """Units by data set, as rows name it."""
    return grouped(units, lambda unit: unit.measurements[0].dataset)


def errors_figure(units: Sequence[UnitResult], path: Path) -> Path:
    """Draw squared errors in unit variance, one plot per data set: filled on the test half, hollow on training rows."""
    tables = by_dataset(units)
    with house_style():
        rows = max(len({unit.label for unit in each}) for each in tables.values())
        figure = Figure(figsize=(3.9 * len(tables), 1.2 + 0.22 * rows), layout="constrained")
        grid = figure.subplots(1, len(tables), squeeze=False)[0]
        for axes, (dataset, each) in zip(grid, tables.items(), strict=True):
            _draw_errors(axes, each)
            axes.set(title=dataset, xlabel="MSE, unit variance")
            make_log_x(axes)
        add_legend(figure)
        return save(figure, path)


def calibration_figure(units: Sequence[UnitResult], path: Path) -> Path:
    """Draw the share of test outputs inside central intervals, for the models but not their Gaussian variants."""
    drawn = [unit for unit in units if unit.label.model in MODELS and unit.label.variant != "gaussian"]
    plots = [
        Plot(
            dataset,
            "nominal coverage",
            "share inside",
            lines_of(each, itemgetter("levels"), itemgetter("coverage")),
        )
        for dataset, each in by_dataset(drawn).items()
    ]
    return lines_figure(plots, path, diagonal=True, bands=False) if plots else path


def values_of(units: Sequence[UnitResult], look: Look, split: str) -> torch.Tensor:
    """A model's squared errors in unit variance over all splits, [splits]."""
    wanted = ("mse", split, "standard")
    measured = (m for unit in units if unit.label.look == look for m in unit.measurements)
    values = [value for m in measured if (m.metric, m.split, m.unit) == wanted for value in m.values]
    return torch.tensor(values, dtype=torch.float64)


def _draw_errors(axes: Axes, units: Sequence[UnitResult]) -> None:
    """Draw one data set's errors, one line per model."""
    looks = list(dict.fromkeys(unit.label.look for unit in units))
    for height, look in enumerate(looks):
        test, train = (values_of(units, look, split) for split in ("test", "train"))
        spread = float(test.std()) if len(test) > 1 else 0.0
        style: dict[str, Any] = {"color": look.colour, "markersize": 4}
        text = "test half, ± one standard deviation over splits"
        axes.errorbar(float(test.mean()), height, xerr=spread, fmt="o", label=text, **style)
        axes.plot(float(train.mean()), height, "o", markerfacecolor="none", label="training rows", **style)
    axes.set_yticks(range(len(looks)), [look.text for look in looks], color=INK)
    axes.invert_yaxis()
