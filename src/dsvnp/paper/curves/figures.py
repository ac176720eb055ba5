"""Figures of the curves: Fig. 2's second and third rows, the effect of context, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dsvnp.paper.curves.measures import INSIDE
from dsvnp.paper.experiment import UnitResult
from dsvnp.plotting.figures import Line, Panel, functions_figure, lines_figure


def draw_functions(units: Sequence[UnitResult], out: Path) -> list[Path]:
    """A figure for the paper's architecture and one for the wider: a model a column."""
    shown = {u.model: u.extras["panels"] for u in units if u.extras["panels"]}
    paths = []
    for variant in ("paper", "wide"):
        models = {m: panels for m, panels in shown.items() if m.endswith("-wide") == (variant == "wide")}
        if models:
            rows = [
                (title, {m: Panel.from_lists(panels[title]) for m, panels in models.items()})
                for title in ("interpolation", "extrapolation")
            ]
            paths.append(functions_figure(rows, out / f"functions-{variant}.svg", trained=INSIDE))
    return paths


def draw_by_context(units: Sequence[UnitResult], out: Path) -> Path:
    """What more context points buy."""
    lines = _lines(units, "context_sizes", "nll_by_context")
    panel = ("interpolation, outside the context", "context points", "NLL (nats/point)", lines)
    return lines_figure([panel], out / "nll-by-context.svg", log_x=True)


def draw_calibration(units: Sequence[UnitResult], out: Path) -> Path:
    """Empirical against nominal coverage."""
    lines = _lines(units, "levels", "coverage")
    panel = ("interpolation, outside the context", "nominal coverage", "empirical coverage", lines)
    return lines_figure([panel], out / "calibration.svg", diagonal=True)


def _lines(units: Sequence[UnitResult], x: str, y: str) -> dict[str, Line]:
    """Lines of each model with all its seeds."""
    lines: dict[str, Line] = {}
    for unit in units:
        before = lines.get(unit.model, Line(unit.extras[x], []))
        lines[unit.model] = Line(before.x, [*before.y, *unit.extras[y]])
    return lines
