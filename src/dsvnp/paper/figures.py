"""Figures that several experiments share: lines with all seeds of a model, and the course of training."""

import math
import tomllib
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from dsvnp.paper.experiment import UnitResult
from dsvnp.plotting.figures import Line, Plot, lines_figure
from dsvnp.plotting.style import Look

TERMS = {"log_likelihood": "log-likelihood", "kl_global": "KL_G", "kl_local": "KL_L"}
LOSS = "cross-entropy"
Values = Sequence[Sequence[float | None]]


def lines_of(
    units: Sequence[UnitResult], x: Callable[[Any], Sequence[float]], y: Callable[[Any], Values]
) -> dict[Look, Line]:
    """One line per model with all its seeds.

    `x` and `y` take the places and the values, one row per seed, out of a unit's extras; no rows leave a model out.
    """
    lines: dict[Look, Line] = {}
    for unit in units:
        if rows := filled(y(unit.extras)):
            before = lines.get(unit.label.look, Line(x(unit.extras), []))
            lines[unit.label.look] = Line(before.x, [*before.y, *rows])
    return lines


def names_of(experiment: str) -> dict[str, str]:
    """Data sets and splits of an experiment in words, as its report has them."""
    words = files("dsvnp.paper").joinpath(experiment, "words.toml").read_text(encoding="utf-8")
    names: dict[str, str] = tomllib.loads(words)["names"]
    return names


def filled(rows: Values) -> list[list[float]]:
    """Put NaN where JSON holds null."""
    return [[math.nan if value is None else value for value in row] for row in rows]


def training_figure(
    units: Sequence[UnitResult], path: Path, unit: str = "nats/point", loss: bool = False
) -> Path:
    """Draw each term of `training_log`, all seeds of a model together, but for divergences that a model lacks.

    KL_L is on a logarithmic axis: it spans decades, and a latent that is hardly used is not one that is not used. With
    `loss` the likelihood of classes is drawn as what it lacks to 0, and all axes are logarithmic.
    """
    plots = []
    for term, title in (TERMS | {"log_likelihood": LOSS} if loss else TERMS).items():
        lines = lines_of(units, lambda e: e["training"]["step"], _course(term, -1 if title == LOSS else 1))
        if lines:
            log = "y" if loss or title == TERMS["kl_local"] else ""
            plots.append(Plot(title, "step", unit, lines, log=log))
    return lines_figure(plots, path, bands=not loss)  # losses of seeds differ by decades


def _course(term: str, sign: int) -> Callable[[Any], Values]:
    """Takes a term's course out of a unit's extras; none where it is zero throughout."""

    def rows(extras: Any) -> Values:
        seeds = filled(list(zip(*extras["training"][term], strict=True)))
        used = any(value != 0 for seed in seeds for value in seed if not math.isnan(value))
        return [[sign * value for value in seed] for seed in seeds] if used else []

    return rows
