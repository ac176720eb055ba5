"""Figures of the field's table: log-likelihood during training, and two curves as models see them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.field.panels import SHOWN
from dsvnp.paper.figures import Values, lines_of
from dsvnp.plotting.figures import FunctionPanel, Plot, Reference, functions_figure, lines_figure

SHOWN_ROWS = ("", "mixture", "block")  # variants of models that the course shows


def draw_course(units: Sequence[UnitResult], out: Path) -> list[Path]:
    """Log-likelihood of unseen RBF tasks against steps, for all models as the field has them.

    Not against seconds: runs that share a GPU slow each other down.
    """
    trained = [unit for unit in units if "marks" in unit.extras and unit.label.variant in SHOWN_ROWS]
    lines = lines_of(trained, lambda extras: extras["marks"]["step"], _likelihoods)
    if not lines:
        return []
    words = "RBF, unseen tasks", "steps", "log-likelihood (nats/point)"
    return [lines_figure([Plot(*words, lines, _ceiling(units), "x")], out / "course.svg")]


def _likelihoods(extras: Any) -> Values:
    """One row per seed."""
    return list(zip(*extras["marks"]["log_likelihood"], strict=True))


def _ceiling(units: Sequence[UnitResult]) -> Reference | None:
    """What an ideal learner has on the tasks of the marks, where it was measured."""
    for unit in units:
        if "mark" in unit.extras:
            return Reference(float(unit.extras["mark"]), "ideal learner of RBF tasks")
    return None


def draw_functions(units: Sequence[UnitResult], out: Path) -> list[Path]:
    """Two curves, one column per model as the field has it, the exact GP last."""
    models = {
        unit.label.look: unit.extras["panels"]
        for unit in sorted(units, key=lambda unit: unit.label.model == "gp")
        if not unit.label.variant and unit.extras.get("panels")
    }
    if not models:
        return []
    rows = [
        (title, {look: FunctionPanel.from_lists(panels[title]) for look, panels in models.items()})
        for title, _, _ in SHOWN
    ]
    return [functions_figure(rows, out / "functions.svg", trained=(-2.0, 2.0))]
