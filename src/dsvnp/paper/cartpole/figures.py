"""Figures of the Cart-Pole experiment: the effect of context, and roll-outs with their uncertainty.

Each is made of finished units, and of the reference that learns nothing where there is one, which is drawn dotted.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from dsvnp.paper.cartpole.rollouts import LEVEL
from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.figures import filled, lines_of
from dsvnp.plotting.figures import Plot, Reference, add_legend, lines_figure
from dsvnp.plotting.style import INK, house_style, save

STATES = {"x (m)": 0, "θ (rad)": 1}
SECONDS = 0.1  # a step
REFERENCE = "no identification (exact map)"
Oracle = Mapping[str, Any] | None


def by_context_figure(units: Sequence[UnitResult], oracle: Oracle, path: Path) -> Path:
    """Draw NLL and squared error against the number of context transitions."""
    title, x_name = "14 unseen configurations, outside the context", "context transitions"
    nll, mse = (lines_of(units, itemgetter("context_sizes"), itemgetter(name)) for name in ("nll", "mse"))
    reference = Reference(float(oracle["mse"]), REFERENCE) if oracle else None
    plots = [
        Plot(title, x_name, "NLL (nats/transition)", nll, log="x"),
        Plot(title, x_name, "MSE", mse, reference, "xy"),
    ]
    return lines_figure(plots, path)


def rollout_error_figure(units: Sequence[UnitResult], oracle: Oracle, path: Path) -> Path:
    """Draw squared error and coverage of roll-outs after each step."""
    steps = units[0].extras["rollout_steps"]
    lines = partial(lines_of, units, itemgetter("rollout_steps"))
    mse, coverage = lines(itemgetter("rollout_mse")), lines(itemgetter("rollout_coverage"))
    reference = Reference(oracle["rollout_mse"], REFERENCE) if oracle else None
    nominal = Reference([LEVEL] * len(steps), f"nominal coverage, {LEVEL:.0%}", "-.")
    plots = [
        Plot("error of roll-outs", "steps", "MSE of the particles' mean", mse, reference, "y"),
        Plot("their calibration", "steps", f"coverage of {LEVEL:.0%} intervals", coverage, nominal),
    ]
    return lines_figure(plots, path)


def rollouts_figure(units: Sequence[UnitResult], oracle: Oracle, path: Path, title: str) -> Path:
    """Draw one roll-out as each model sees it, one row per state and one column per model."""
    paths = {unit.label.look: unit.extras["rollout"] for unit in units if 0 in unit.seeds}
    with house_style():
        figure = Figure(figsize=(2.3 * len(paths), 4), layout="constrained")
        grid = figure.subplots(len(STATES), len(paths), sharex=True, sharey="row", squeeze=False)
        for column, (look, values) in zip(grid.T, paths.items(), strict=True):
            for axes, state in zip(column, STATES.values(), strict=True):
                _draw_path(axes, look.colour, values, oracle, state)
            column[0].set_title(look.text, color=look.colour, fontweight="bold")
            column[-1].set_xlabel("time (s)")
        for axes, name in zip(grid[:, 0], STATES, strict=True):
            axes.set_ylabel(name)
        figure.suptitle(title, fontsize=10)
        add_legend(figure)
        return save(figure, path)


def _draw_path(axes: Axes, colour: str, values: Mapping[str, Any], oracle: Oracle, state: int) -> None:
    """Draw one state of one roll-out."""
    low, mean, high, truth = (_state(values[name], state) for name in ("low", "mean", "high", "truth"))
    time, text = SECONDS * torch.arange(len(truth)), f"{LEVEL:.0%} of particles"
    axes.fill_between(time, low, high, color=colour, alpha=0.2, linewidth=0, label=text)
    axes.plot(time, mean, color=colour, linewidth=1.8, label="their mean")
    axes.plot(time, truth, color=INK, linewidth=1, linestyle=(0, (4, 2)), label="truth")
    if oracle is not None:
        axes.plot(time, _state(oracle["rollout"], state), ":", color=INK, linewidth=1, label=REFERENCE)


def _state(path: Sequence[Sequence[float | None]], state: int) -> Tensor:
    """One state of a path [H + 1, 4], [H + 1]."""
    return torch.tensor(filled(path))[:, state]
