"""Plots for everyday use: each draws on axes of matplotlib and returns them.

    plot_predictive    mean and interval along an input; on request the epistemic part of the interval
    plot_functions     functions drawn from a prediction
    plot_calibration   share of outputs inside intervals against their level, or accuracy against confidence
    plot_residuals     r = Φ⁻¹(P(Y ≤ y)): standard normal if the prediction is calibrated

A prediction is what `predict_dist` of an estimator returns, or `predict` of a model. Without axes a function makes a
figure by pyplot, with a legend; it imports matplotlib when it is called and leaves its settings and backend alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom, norm
from torch import Tensor

from dsvnp.metrics import pit_coverage, reliability
from dsvnp.plotting.style import COLOURS, INK, house_style
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, Predictive

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE = COLOURS["dsvnp"]
CLASS_COLOURS = [
    COLOURS[name] for name in ("dsvnp", "attnnp", "tabtnp", "mc-dropout", "cnp", "tnp", "dsvtnp", "nn")
]
CHANCE = 0.95  # share of calibrated predictions inside the grey band of a calibration plot
LARGEST = 5.0  # residuals beyond it are drawn there

Array = NDArray[Any]


def plot_predictive(
    prediction: Any,
    x: Any,
    ax: Axes | None = None,
    *,
    known: tuple[Any, Any] | None = None,
    truth: Any = None,
    coverage: float = 0.9,
    parts: bool = False,
    output: int = 0,
    task: int = 0,
    colour: str = BLUE,
) -> Axes:
    """Draw mean and interval of a prediction along an input; of classes, the probability of each.

    Args:
        prediction: of T rows.
        x: where to draw them, [T]: numbers or dates, in any order.
        ax: axes to draw on.
        known: observations (x, y) to draw as dots.
        truth: the function to draw as a dashed line, [T].
        coverage: of the interval.
        parts: draw the epistemic part as well, mean ± z·σ_epistemic: what more data would reduce.
        output: which of several outputs.
        task: which of several tasks.
        colour: of mean and interval.
    """
    found = mixture_of(prediction)
    x, order = _sorted(x, found.shape[3])
    drawing = _Drawing(ax)
    mean = found.mean[task].cpu().numpy()[order]  # [T, outputs or classes]
    if isinstance(found, GaussianPredictive):
        low, high = _interval(found, coverage)[:, task, order, output]
        drawing.band(x, low, high, colour, 0.2, f"{coverage:.0%} interval")
        if parts:
            reach = norm.ppf((1 + coverage) / 2) * found.epistemic[task].sqrt().cpu().numpy()[order, output]
            drawing.band(x, mean[:, output] - reach, mean[:, output] + reach, colour, 0.35, "epistemic")
        drawing.ax.plot(x, mean[:, output], color=colour, label="mean")
    else:
        for number, name in enumerate(getattr(prediction, "classes", range(mean.shape[1]))):
            tint = CLASS_COLOURS[number % len(CLASS_COLOURS)]
            drawing.ax.plot(x, mean[:, number], color=tint, label=f"P({name})")
    drawing.points(x, order, known, truth)
    return drawing.done()


def plot_functions(
    functions: Any,
    x: Any,
    ax: Axes | None = None,
    *,
    known: tuple[Any, Any] | None = None,
    truth: Any = None,
    colour: str = BLUE,
) -> Axes:
    """Draw sampled functions along an input.

    Args:
        functions: [points, samples], as `sample_y(X, n, noise=False)` of an estimator returns them; samples of a model
            are `model.sample_functions(task, n)[:, 0, :, 0].T`.
        x: where to draw them, [points]: numbers or dates, in any order.
        ax: axes to draw on.
        known: observations (x, y) to draw as dots.
        truth: the function to draw as a dashed line, [points].
        colour: of the functions.
    """
    values = np.asarray(functions, dtype=float)
    x, order = _sorted(x, len(values))
    drawing = _Drawing(ax)
    lines = drawing.ax.plot(x, values.reshape(len(values), -1)[order], color=colour, alpha=0.6, linewidth=0.8)
    lines[0].set_label("functions")
    drawing.points(x, order, known, truth)
    return drawing.done()


def plot_calibration(
    prediction: Any, y: Any, ax: Axes | None = None, *, colour: str = BLUE, label: str | None = None
) -> Axes:
    """Draw the share of outputs inside central intervals of every level; of classes, accuracy against confidence.

    A calibrated prediction lies on the diagonal, with 95 % chance inside the grey band if outputs are independent.

    Args:
        prediction: of rows whose outputs are known.
        y: those outputs; NaN where one is missing.
        ax: axes to draw on.
        colour: of the line.
        label: of the line in a legend.
    """
    found = mixture_of(prediction)
    if isinstance(found, GaussianPredictive):
        return draw_calibration(_pit(found, y), ax, colour=colour, label=label)
    labels = _labels(prediction, y, found)
    probs = found.mean.reshape(-1, found.mean.shape[-1]).double()
    return draw_calibration(torch.cat([probs, labels[:, None].to(probs)], 1), ax, colour=colour, label=label)


def draw_calibration(
    calibration: Tensor, ax: Axes | None = None, *, colour: str = BLUE, label: str | None = None
) -> Axes:
    """Draw PITs [N] as coverage, or class probabilities with the label behind them [N, classes + 1] as reliability."""
    drawing, calibration = _Drawing(ax, square=True), calibration.cpu()
    chance = "chance" if "chance" not in drawing.ax.get_legend_handles_labels()[1] else "_chance"  # once
    drawing.ax.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
    if calibration.ndim == 1:
        levels = torch.linspace(0.02, 0.98, 49, dtype=calibration.dtype)
        count = len(calibration)
        low, high = (each / count for each in binom.interval(CHANCE, count, levels.numpy()))
        drawing.band(levels.numpy(), low, high, INK, 0.12, chance)
        drawing.ax.plot(levels, pit_coverage(calibration, levels), color=colour, label=label or "coverage")
        drawing.ax.set(xlabel="level of the interval", ylabel="share of outputs inside")
    else:
        found = reliability(calibration[:, :-1], calibration[:, -1].long(), num_bins=10)
        filled = found.num_points > 0
        at, sizes = found.confidence[filled].numpy(), found.num_points[filled].numpy()
        low, high = (each / sizes for each in binom.interval(CHANCE, sizes, np.minimum(at, 1.0)))
        drawing.ax.vlines(at, low, high, color=INK, alpha=0.2, linewidth=5, label=chance)
        drawing.ax.plot(
            at, found.accuracy[filled], "o-", color=colour, markersize=3, label=label or "accuracy"
        )
        drawing.ax.set(xlabel="confidence", ylabel="accuracy")
    drawing.ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    return drawing.done()


def plot_residuals(prediction: Any, y: Any, ax: Axes | None = None, *, colour: str = BLUE) -> Axes:
    """Draw residuals Φ⁻¹(P(Y ≤ y)) against the mean; of a calibrated prediction 95 % lie between the dotted lines.

    Args:
        prediction: of numbers, of rows whose outputs are known.
        y: those outputs; NaN where one is missing.
        ax: axes to draw on.
        colour: of the dots.
    """
    found = mixture_of(prediction)
    if not isinstance(found, GaussianPredictive):
        raise ValueError("residuals are of numbers, got a prediction of classes; use plot_calibration")
    residuals = torch.special.ndtri(_pit(found, y)).clamp(-LARGEST, LARGEST).cpu()
    mean = found.mean[~_outputs(found, y).isnan()].cpu()
    drawing = _Drawing(ax)
    drawing.ax.axhline(0, color=INK, linewidth=0.8)
    for edge in (-norm.ppf(0.975), norm.ppf(0.975)):
        drawing.ax.axhline(edge, color=INK, linewidth=0.8, linestyle=":")
    drawing.ax.plot(mean, residuals, "o", color=colour, alpha=0.6, markersize=3, label="rows")
    drawing.ax.set(xlabel="predicted mean", ylabel="residual, standard deviations")
    return drawing.done()


def mixture_of(prediction: Any) -> Predictive:
    """The mixture behind a prediction: of a model it is one, of an estimator's rows it is their `predictive`."""
    found = getattr(prediction, "predictive", prediction)
    if not isinstance(found, GaussianPredictive | CategoricalPredictive):
        raise TypeError(
            f"expected what predict_dist of an estimator or predict of a model returns, got {type(found).__name__}"
        )
    return found


class _Drawing:
    """Axes that were given, or new ones in the house style, which get a legend at the end."""

    def __init__(self, ax: Axes | None, square: bool = False) -> None:
        self._own = ax is None
        if ax is None:
            import matplotlib.pyplot as plt

            with house_style():
                size = (3.6, 3.6) if square else (6.4, 3.2)
                ax = plt.figure(figsize=size, layout="constrained").add_subplot()
        self.ax = ax

    def band(self, x: Array, low: Array, high: Array, colour: str, alpha: float, label: str) -> None:
        """Fill between two lines."""
        self.ax.fill_between(x, low, high, color=colour, alpha=alpha, linewidth=0, label=label)

    def points(self, x: Array, order: Array, known: tuple[Any, Any] | None, truth: Any) -> None:
        """Draw what is known: the function, and observations of it."""
        if truth is not None:
            values = np.asarray(truth, dtype=float).ravel()[order]
            self.ax.plot(x, values, color=INK, linewidth=1, linestyle=(0, (4, 2)), label="truth")
        if known is not None:
            at, seen = (np.asarray(each).ravel() for each in known)
            self.ax.plot(at, seen, "o", color=INK, markersize=2.5, label="observed")

    def done(self) -> Axes:
        """Add a legend to axes of our own."""
        if self._own:
            with house_style():
                self.ax.legend(loc="best")
        return self.ax


def _sorted(x: Any, count: int) -> tuple[Array, Array]:
    """Places to draw at in ascending order, and that order."""
    places = np.asarray(x).ravel()
    if len(places) != count:
        raise ValueError(f"x must give one place per row, {count}, got {len(places)}; pass one column")
    order = places.argsort(kind="stable")
    return places[order], order


def _interval(found: GaussianPredictive, coverage: float) -> Array:
    """Both ends of the central interval, [2, B, T, outputs]."""
    if not 0 < coverage < 1:
        raise ValueError(
            f"coverage must lie strictly between 0 and 1, got {coverage}; 0.9 is the 90 % interval"
        )
    ends: Array = found.quantile([(1 - coverage) / 2, (1 + coverage) / 2]).cpu().numpy()
    return ends


def _outputs(found: Predictive, y: Any) -> Tensor:
    """Numbers that were observed, in the shape of the mean, [B, T, outputs]."""
    values = torch.tensor(np.asarray(y, dtype=float)).to(found.mean)
    if values.numel() != found.mean.numel():
        raise ValueError(f"y must give one value per prediction, {found.mean.numel()}, got {values.numel()}")
    return values.reshape(found.mean.shape)


def _pit(found: GaussianPredictive, y: Any) -> Tensor:
    """P(Y ≤ y) of each known output, [N]."""
    values = _outputs(found, y)
    return found.cdf(values)[~values.isnan()]


def _labels(prediction: Any, y: Any, found: Predictive) -> Tensor:
    """Indices of the classes that were observed, [N]."""
    labels, count = np.asarray(y).ravel(), found.mean[..., 0].numel()
    if len(labels) != count:
        raise ValueError(f"y must give one label per prediction, {count}, got {len(labels)}")
    classes = np.asarray(getattr(prediction, "classes", np.arange(found.mean.shape[-1])))
    index = np.searchsorted(classes, labels).clip(max=len(classes) - 1)
    if (strange := classes[index] != labels).any():
        raise ValueError(f"label {labels[strange][0]} is not one of {', '.join(map(str, classes))}")
    return torch.from_numpy(index)
