"""Fig. 2's first row: what each model, and an exact GP, predicts from the observations of seed 0."""

from collections.abc import Sequence
from pathlib import Path

from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.label import Label
from dsvnp.plotting.figures import FunctionPanel, functions_figure
from dsvnp.plotting.style import Look


def draw_functions(units: Sequence[UnitResult], order: Sequence[Label], out: Path) -> list[Path]:
    """Draw a panel per model, in an order of labels; no figure where no unit has seed 0."""
    panels = {
        unit.label: FunctionPanel.from_lists(unit.extras["panel"]) for unit in units if "panel" in unit.extras
    }
    if not panels:
        return []
    labels = [*order, *panels]
    shown = {label.look: panels[label] for label in sorted(panels, key=labels.index)}
    rows = [("toy function", shown)]
    return [functions_figure(rows, out / "functions.svg", limits_of(shown), trained=(0.0, 1.0))]


def limits_of(panels: dict[Look, FunctionPanel]) -> tuple[float, float]:
    """A range of y with all of the truth in it, and as much of the bands as leaves the truth readable."""
    truth = next(iter(panels.values())).truth
    low, high = float(truth.min()), float(truth.max())
    room = (high - low) / 2
    lowest = min(float((p.mean - 3 * p.stddev).min()) for p in panels.values())
    highest = max(float((p.mean + 3 * p.stddev).max()) for p in panels.values())
    return min(low, max(lowest, low - room)) - 0.1, max(high, min(highest, high + room)) + 0.1
