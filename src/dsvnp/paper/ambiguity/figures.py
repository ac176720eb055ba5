"""Figures of the ambiguity experiment: NLL against the truth, and samples in a plane, over x, and as arms.

Samples are of the first seed; each row of panels is one problem, each column the truth or a model. They are pixels:
thousands of dots as paths would make a large file.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dsvnp.paper.ambiguity.arms import direction
from dsvnp.paper.ambiguity.recipes import NO_CONTEXT, REFERENCES
from dsvnp.paper.ambiguity.shown import PLANE
from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.figures import lines_of, names_of
from dsvnp.paper.rows import grouped
from dsvnp.plotting.figures import Plot, lines_figure
from dsvnp.plotting.style import INK, Look, house_style, save

TITLES = names_of("ambiguity")
OUTPUTS = {"inverse-kinematics": ("shoulder (rad)", "elbow (rad)")}  # names of the two outputs of a plane
STYLES = {"truth": "-", "diagonal": ":", "full": "--"}
COLUMNS = 6  # panels in a row
NUM_ARMS = 24
Shown = Mapping[str, Any]
Draw = Callable[[Axes, Shown, Shown, str], None]  # what the truth says, what is shown, and its colour


def nll_figure(units: Sequence[UnitResult], out: Path) -> Path | None:
    """One panel per problem: dots for the seeds of each model, lines for truth and best Gaussians."""
    by_problem = grouped(units, lambda unit: unit.label.dataset)
    if not by_problem:
        return None
    columns = min(3, len(by_problem))
    rows = -(-len(by_problem) // columns)
    with house_style():
        figure = Figure(figsize=(4 * columns, 3.2 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes in grid[len(by_problem) :]:
            axes.remove()
        for axes, (problem, found) in zip(grid, by_problem.items(), strict=False):
            _draw_dots(axes, found)
            axes.set_title(TITLES[problem])
            axes.set_xlabel("NLL (nats/point)")
        return save(figure, out / "nll.svg")


def _draw_dots(axes: Axes, units: Sequence[UnitResult]) -> None:
    """Dots of one problem; the references are lines across all models."""
    values: dict[Look, list[float]] = {}
    for unit in units:
        seeds = [value for m in unit.measurements if m.metric == "nll" for value in m.values]
        if unit.label.model in REFERENCES:
            style = STYLES[unit.label.model]
            axes.axvline(seeds[0], color=INK, linestyle=style, linewidth=1, label=unit.label.model)
        else:
            values.setdefault(unit.label.look, []).extend(seeds)
    for height, (look, seeds) in enumerate(values.items()):
        axes.plot(seeds, [height] * len(seeds), "o", color=look.colour, markersize=3, alpha=0.5)
        axes.plot(sum(seeds) / len(seeds), height, "|", color=look.colour, markersize=10, markeredgewidth=2)
    axes.set_yticks(range(len(values)), [look.text for look in values])
    axes.invert_yaxis()
    axes.legend(fontsize=7)


def plane_figure(units: Sequence[UnitResult], out: Path) -> Path | None:
    """Samples of two outputs at one input, one row per problem: do they depend on each other as in the truth?"""

    def draw(axes: Axes, truth: Shown, shown: Shown, colour: str) -> None:
        places = torch.tensor(truth["at"])
        axes.plot(places[:, 0], places[:, 1], ".", color="0.75", markersize=3)
        if shown is not truth:
            drawn = torch.tensor(shown["at"])
            axes.plot(drawn[:, 0], drawn[:, 1], ".", color=colour, markersize=3, alpha=0.7)
        # The truth's samples decide the range: one far sample of a model would make all others one dot.
        for limits, values in ((axes.set_xlim, places[:, 0]), (axes.set_ylim, places[:, 1])):
            low, high = float(values.min()), float(values.max())
            margin = 0.35 * (high - low) + 0.05
            limits(low - margin, high + margin)

    return _panels([unit for unit in units if unit.label.dataset in PLANE], draw, out / "plane.webp")


def branches_figure(units: Sequence[UnitResult], out: Path) -> Path | None:
    """Samples of one output over x with both branches and the context."""

    def draw(axes: Axes, truth: Shown, shown: Shown, colour: str) -> None:
        for number, curve in enumerate(truth["curves"]):
            axes.plot(truth["x"], curve, color=INK, linewidth=1, label=None if number else "branches")
        for drawn in shown["over_x"]:
            axes.plot(truth["x"], drawn, ".", color=colour, markersize=2, alpha=0.5)
        axes.plot(*truth["context"], "o", color=INK, markersize=2.5, label="context")
        low, high = min(map(min, truth["curves"])), max(map(max, truth["curves"]))
        axes.set_ylim(low - 0.6, high + 0.6)

    return _panels(_on(units, "branches"), draw, out / "branches.webp")


def arms_figures(units: Sequence[UnitResult], out: Path) -> list[Path | None]:
    """Sampled arms: elbow up and elbow down, and poses whose shoulder alone is known."""

    def kinematics(axes: Axes, truth: Shown, shown: Shown, colour: str) -> None:
        lengths = torch.tensor(truth["lengths"])
        for angles in torch.tensor(shown["at"])[:NUM_ARMS]:
            elbow = lengths[0] * direction(angles[0])
            hand = elbow + lengths[1] * direction(angles.sum())
            _draw_arm(axes, torch.stack([elbow, hand]), colour)
        axes.plot(*truth["place"], "x", color=INK, markersize=7, markeredgewidth=1.5)
        _within_reach(axes, truth)

    def pose(axes: Axes, truth: Shown, shown: Shown, colour: str) -> None:
        for markers in torch.tensor(shown["at"])[:NUM_ARMS]:
            _draw_arm(axes, markers.unflatten(-1, (4, 2)), colour)
        _within_reach(axes, truth)

    return [
        _panels(_on(units, problem), draw, out / f"arms-{problem}.webp")
        for problem, draw in (("inverse-kinematics", kinematics), ("hidden-pose", pose))
    ]


def links_figure(units: Sequence[UnitResult], out: Path) -> Path | None:
    """Lengths of the outer two links in sampled poses: whatever the pose, an arm has one of each."""

    def draw(axes: Axes, truth: Shown, shown: Shown, colour: str) -> None:
        _, _, wrist, hand = torch.tensor(shown["at"]).unflatten(-1, (4, 2)).unbind(-2)
        elbow = torch.tensor(shown["at"])[:, :2]
        second, third = (wrist - elbow).norm(dim=-1), (hand - wrist).norm(dim=-1)
        axes.plot(second, third, ".", color=colour, markersize=3, alpha=0.7)
        axes.plot(*truth["lengths"][1:], "+", color=INK, markersize=9, markeredgewidth=1.5)
        longest = 2.2 * max(truth["lengths"])
        axes.set(xlim=(0, longest), ylim=(0, longest), aspect="equal", xlabel="second link")

    return _panels(_on(units, "hidden-pose"), draw, out / "links-hidden-pose.webp", "third link")


def by_context_figure(units: Sequence[UnitResult], out: Path) -> Path | None:
    """NLL against the size of the context, one plot per problem, of rows that read a context."""
    plots = []
    for problem, found in grouped(units, lambda unit: unit.label.dataset).items():
        read = [unit for unit in found if "by_context" in unit.extras and unit.label.variant != NO_CONTEXT]
        lines = lines_of(read, lambda e: e["by_context"]["context"], lambda e: e["by_context"]["nll"])
        if lines:
            title = TITLES[problem]
            plots.append(Plot(title, "context points", "NLL (nats/point)", lines))
    return lines_figure(plots, out / "by-context.svg") if plots else None


def _on(units: Sequence[UnitResult], problem: str) -> list[UnitResult]:
    """The units of a problem."""
    return [unit for unit in units if unit.label.dataset == problem]


def _within_reach(axes: Axes, truth: Shown) -> None:
    """The same frame for all: as far as the arm can reach, and a little more."""
    reach = 1.15 * sum(truth["lengths"])
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")


def _draw_arm(axes: Axes, joints: torch.Tensor, colour: str) -> None:
    """An arm from the shoulder, which is at 0, through its joints [J, 2]."""
    path = torch.cat([torch.zeros(1, 2), joints])
    axes.plot(path[:, 0], path[:, 1], "-", color=colour, linewidth=0.6, alpha=0.35)
    axes.plot(joints[:, 0], joints[:, 1], ".", color=colour, markersize=2.5, alpha=0.8)


def _panels(units: Sequence[UnitResult], draw: Draw, path: Path, name: str | None = None) -> Path | None:
    """Draw one panel per unit, problems below each other, where the truth is known; None without any.

    The first panel of a row has the problem's name at its left, or `name`.
    """
    by_problem = {
        problem: found
        for problem, found in grouped(units, lambda unit: unit.label.dataset).items()
        if any(unit.label.model == "truth" for unit in found)
    }
    lines = [
        (problem, found, found[start : start + COLUMNS])
        for problem, found in by_problem.items()
        for start in range(0, len(found), COLUMNS)
    ]
    if not lines:
        return None
    with house_style():
        columns = min(COLUMNS, max(len(part) for _, _, part in lines))
        figure = Figure(figsize=(2.1 * columns, 2.2 * len(lines)), layout="constrained")
        grid = figure.subplots(len(lines), columns, squeeze=False)
        for row, (problem, found, part) in zip(grid, lines, strict=True):
            truth = next(unit.extras["shown"] for unit in found if unit.label.model == "truth")
            for axes, unit in zip(row, part, strict=False):
                look = unit.label.look
                draw(axes, truth, unit.extras["shown"], look.colour)
                axes.set_title(look.text, color=look.colour, fontsize=8)
            row[0].set_ylabel(name or TITLES[problem])
            for axes in row[len(part) :]:
                axes.remove()
        return save(figure, path)
