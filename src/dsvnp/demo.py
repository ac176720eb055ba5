"""The demo: what networks that ship with the package predict of data they have never seen, in seconds.

Functions are predicted by the network for curves, or by the one for tables where the package has no other. Nothing is
trained; `demo_training` trains six small models instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_diabetes, load_iris, make_moons

from dsvnp.models import NeuralProcess
from dsvnp.plotting import plot_calibration, plot_predictive
from dsvnp.plotting.everyday import CLASS_COLOURS
from dsvnp.plotting.style import INK, house_style, save
from dsvnp.predictive import GaussianPredictive
from dsvnp.pretrained import load_pretrained
from dsvnp.pretrained.heads import for_classes, for_numbers
from dsvnp.pretrained.loading import WeightsError
from dsvnp.pretrained.tables import TableUse, predict_classes, predict_numbers
from dsvnp.tabular.curves import CurveRegressor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
LEVEL = 0.9
KNOWN_PATIENTS = 300  # of 442
SIDE = 40  # points of a map along each axis
TRAIN_IT = "dsvnp demo --train"
USE = TableUse(num_orders=2)


@dataclass(frozen=True)
class Example:
    """A function that the demo shows."""

    title: str  # what it is
    function: Callable[[Floats], Floats]  # E[y | x]
    noise: Callable[[Floats], Floats]  # standard deviation of y at x
    count: int  # points that are known
    gap: tuple[float, float] = (0.0, 0.0)  # an interval without known points

    def points(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw known points in [0, 10], outside of the gap."""
        x = rng.uniform(0, 10, 4 * self.count)
        x = x[(x < self.gap[0]) | (x >= self.gap[1])][: self.count]
        return x, self.function(x) + self.noise(x) * rng.normal(size=len(x))


def quiet(x: Floats) -> Floats:
    """Hardly any noise."""
    return 0.02 + 0 * x


def smooth(x: Floats) -> Floats:
    """A smooth function."""
    return np.sin(x) + np.sin(0.6 * x + 1)


EXAMPLES = (
    *(Example(f"{count} points", smooth, quiet, count) for count in (3, 6, 12, 24)),
    Example("season and trend, a gap", lambda x: np.sin(4 * x) + 0.4 * x, lambda x: 0.15 + 0 * x, 90, (5, 7)),
    Example("steps", lambda x: np.floor(x.clip(0, 9.9) / 2) % 3, lambda x: 0.1 + 0 * x, 80),
    Example("noise that grows", lambda x: 0.3 * x, lambda x: 0.02 + 0.12 * x, 120),
    Example("a burst", lambda x: 3 * np.exp(-4 * (x - 5) ** 2) - 0.2 * x, lambda x: 0.1 + 0 * x, 60),
)


def run_demo(out: Path, console: Console, device: str = "cpu", seed: int = 0) -> Path:
    """Predict eight functions and three tables, print how long it took, and draw them."""
    from matplotlib.figure import Figure

    from dsvnp.plotting.figures import add_legend

    started = time.perf_counter()
    with house_style():
        figure = Figure(figsize=(12, 7.6), layout="constrained")
        grid = figure.subplots(3, 4)
        shown = zip(EXAMPLES, grid.flat, strict=False)
        rows = [_show(example, ax, seed + number, device) for number, (example, ax) in enumerate(shown)]
        rows.append(_show_patients(grid[2, 0], grid[2, 1], device))
        petals, kinds = load_iris(return_X_y=True)
        _show_classes(grid[2, 2], "iris: three classes", petals[::2, 2:], kinds[::2], device)
        places, sides = make_moons(60, noise=0.15, random_state=seed)
        _show_classes(grid[2, 3], "two moons: 60 points", places, sides, device)
        for label, ax in zip(("one function", "other functions", "tables"), grid[:, 0], strict=True):
            ax.set_ylabel(label, fontweight="bold")
        add_legend(figure, 7)
        figure.suptitle(
            "Data that the networks have never seen, predicted without training", fontweight="bold"
        )
        path = save(figure, out / "demo.png")
    console.print(_report(rows))
    seconds = time.perf_counter() - started
    console.print(
        f"All of it took {seconds:.1f} s, and nothing was trained. The figure is in [bold]{path}[/bold]."
    )
    console.print(f"To train six small models yourself, in about four minutes: [bold]{TRAIN_IT}[/bold]")
    return path


def predict_function(x: Floats, y: Floats, asked: Floats, device: str = "cpu") -> GaussianPredictive:
    """Predict a function of one input from its points, by the network alone: the figure shows what it has learned."""
    try:
        return CurveRegressor(device=device, process=False).fit(x, y).predict_dist(asked)
    except WeightsError:
        tensors = (torch.from_numpy(x)[:, None], torch.from_numpy(y), torch.from_numpy(asked)[:, None])
        return predict_numbers(for_numbers(_tables(device)), *tensors, TableUse(num_orders=1))


def _show(example: Example, ax: Axes, seed: int, device: str) -> tuple[str, int, float, float]:
    """Draw one function; return its title, its points, the share of new outputs inside intervals, and seconds."""
    rng = np.random.default_rng(seed)
    x, y = example.points(rng)
    asked = np.linspace(-1, 11, 240)
    started = time.perf_counter()
    found = predict_function(x, y, asked, device)
    seconds = time.perf_counter() - started
    plot_predictive(found, asked, ax, known=(x, y), truth=example.function(asked), coverage=LEVEL)
    ax.set(title=example.title, xticks=[], ylim=_limits(example.function(asked), y))
    low, high = found.quantile([(1 - LEVEL) / 2, (1 + LEVEL) / 2])[:, 0, :, 0].numpy()
    new = example.function(asked) + example.noise(asked) * rng.normal(size=len(asked))
    inside = ((low <= new) & (new <= high))[(asked >= 0) & (asked <= 10)]  # where points may lie
    return example.title, len(x), float(inside.mean()), seconds


def _limits(*values: Floats) -> tuple[float, float]:
    """A range of y that shows the function, however wide the intervals are."""
    both = np.concatenate(values)
    room = 0.6 * np.ptp(both)
    return float(both.min() - room), float(both.max() + room)


def _show_patients(left: Axes, right: Axes, device: str) -> tuple[str, int, float, float]:
    """Draw the progression of diabetes in patients the network is asked about, and how calibrated that is."""
    x, y = (torch.from_numpy(array) for array in load_diabetes(return_X_y=True))
    known, asked = slice(0, KNOWN_PATIENTS), slice(KNOWN_PATIENTS, None)
    started = time.perf_counter()
    found = predict_numbers(for_numbers(_tables(device)), x[known], y[known], x[asked], USE)
    seconds = time.perf_counter() - started
    rank = found.mean[0, :, 0].argsort().argsort().numpy()
    plot_predictive(found, rank, left, known=(rank, y[asked]), coverage=LEVEL)
    left.set(title=f"diabetes: {len(rank)} patients from {KNOWN_PATIENTS} others", xticks=[])
    plot_calibration(found, y[asked], right).set_title("the same patients: calibration")
    low, high = found.quantile([(1 - LEVEL) / 2, (1 + LEVEL) / 2])[:, 0, :, 0]
    inside = ((low <= y[asked]) & (y[asked] <= high)).double().mean()
    return "diabetes, ten columns", KNOWN_PATIENTS, float(inside), seconds


def _show_classes(ax: Axes, title: str, x: Floats, y: NDArray[Any], device: str) -> None:
    """Draw the probabilities of classes over two columns, mixed from the classes' colours, and the known rows."""
    from matplotlib.colors import to_rgb

    low, high = x.min(0), x.max(0)
    low, high = low - 0.3 * (high - low), high + 0.3 * (high - low)
    across, up = (np.linspace(*ends, SIDE) for ends in zip(low, high, strict=True))
    asked = np.stack(np.meshgrid(across, up), -1).reshape(-1, 2)
    network = for_classes(_tables(device), len(np.unique(y)))
    known, labels, places = (torch.from_numpy(array) for array in (x, y, asked))
    found = predict_classes(network, known, labels, places, USE)
    tints = np.array([to_rgb(colour) for colour in CLASS_COLOURS[: network.arch.dim_y]])
    share = found.mean[0].numpy()
    share = (share - 1 / share.shape[1]).clip(0)  # as pale as unsure
    picture = 1 - (share[..., None] * (1 - tints)).sum(1).reshape(SIDE, SIDE, 3)
    ax.imshow(picture, origin="lower", extent=(low[0], high[0], low[1], high[1]), aspect="auto")
    for label, tint in enumerate(tints):
        ax.plot(*x[y == label].T, "o", color=tint, markersize=4, markeredgecolor=INK, markeredgewidth=0.5)
    ax.set(title=title, xticks=[], yticks=[])


def _report(rows: Sequence[tuple[str, int, float, float]]) -> Table:
    """What each prediction was made from, how good it is, and how long it took."""
    table = Table(title="No training: the points are an input of the network")
    for column in ("data", "known points", f"new outputs inside {LEVEL:.0%} intervals", "seconds"):
        table.add_column(column, justify="left" if column == "data" else "right")
    for name, points, inside, seconds in rows:
        table.add_row(name, str(points), f"{inside:.0%}", f"{seconds:.2f}")
    return table


@cache
def _tables(device: str) -> NeuralProcess:
    """The network for tables, loaded once."""
    return load_pretrained("tables").to(device)
