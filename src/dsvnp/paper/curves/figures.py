"""Figures of the curves: Fig. 2's second and third rows, the effect of context, calibration."""

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from dsvnp.paper.curves.data import INSIDE
from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.figures import lines_of
from dsvnp.plotting.figures import FunctionPanel, Plot, functions_figure, lines_figure

SHOWN = "interpolation, outside the context"


def draw_functions(units: Sequence[UnitResult], out: Path) -> list[Path]:
    """A figure for each recipe, one column per model. Of the wider its first row too."""
    paths = []
    for variant in ("", "wide", "equivariant"):
        models = {
            u.label.look: u.extras["panels"]
            for u in units
            if u.label.variant == variant and u.extras["panels"]
        }
        if models:
            rows = [
                (title, {look: FunctionPanel.from_lists(panels[title]) for look, panels in models.items()})
                for title in ("interpolation", "extrapolation")
            ]
            path = out / f"functions-{variant or 'paper'}.svg"
            paths.append(functions_figure(rows, path, trained=INSIDE))
            if variant == "wide":
                paths.append(functions_figure(rows[:1], out / "inside-wide.svg"))
    return paths


def draw_by_context(units: Sequence[UnitResult], out: Path) -> Path:
    """NLL against the number of context points."""
    lines = lines_of(units, itemgetter("context_sizes"), itemgetter("nll_by_context"))
    plot = Plot(SHOWN, "context points", "NLL (nats/point)", lines, log="x")
    return lines_figure([plot], out / "nll-by-context.svg")


def draw_calibration(units: Sequence[UnitResult], out: Path) -> Path:
    """Empirical against nominal coverage."""
    lines = lines_of(units, itemgetter("levels"), itemgetter("coverage"))
    plot = Plot(SHOWN, "nominal coverage", "empirical coverage", lines)
    return lines_figure([plot], out / "calibration.svg", diagonal=True)
