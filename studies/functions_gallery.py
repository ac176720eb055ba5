"""Draw whole functions on one page: of curves by the shipped network, and of new tasks after `fit_tasks`.

    python -m studies.functions_gallery docs/images/functions.svg      # what docs/models.md shows

Functions come from one pass, joined by a copula; some of a curve's are draws of its small Gaussian process. The tasks
are step responses as in `benchmarks/tasks.py`: those of oscillators with a gain, a delay, a frequency and a damping of
their own.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dsvnp import CurveRegressor, NPRegressor
from dsvnp.plotting import plot_functions, plot_predictive
from dsvnp.plotting.style import house_style, save

Floats = NDArray[np.float64]
FUNCTIONS, LEARNED = 8, 200
KNOWN = (2, 6, 12)  # readings of a new task
SPAN = np.linspace(0, 10, 101)


def curves(rng: np.random.Generator) -> dict[str, tuple[Floats, Floats]]:
    """Points of three curves by title: few, with a gap, and with a step somewhere in a gap."""
    few = np.array([0.5, 2.0, 3.1, 4.0, 7.0, 8.2])
    gap = np.sort(rng.uniform(0, 10, 45))
    gap = gap[(gap < 4) | (gap > 7)]
    step = np.sort(rng.uniform(0, 10, 60))
    step = step[(step < 5) | (step > 6)]
    return {
        "six points": (few, np.sin(few)),
        "a gap": (gap, np.sin(2 * gap) + 0.15 * rng.normal(size=len(gap))),
        "a step somewhere": (step, 2.0 * (step > 5.5) + 0.1 * rng.normal(size=len(step))),
    }


def step_response(rng: np.random.Generator) -> Callable[[Floats], Floats]:
    """The response of a damped oscillator to a step, with random parameters."""
    gain, delay = rng.uniform(0.5, 3), rng.uniform(0, 4)
    frequency, damping = rng.uniform(1, 4), rng.uniform(0.2, 0.9)
    rate, turns = damping * frequency, frequency * np.sqrt(1 - damping**2)

    def response(t: Floats) -> Floats:
        since = np.maximum(0, t - delay)
        swing = np.cos(turns * since) + rate / turns * np.sin(turns * since)
        values: Floats = gain * (1 - np.exp(-rate * since) * swing)
        return values

    return response


def tasks(count: int, rng: np.random.Generator) -> list[tuple[Floats, Floats]]:
    """Noisy readings of step responses."""
    out = []
    for _ in range(count):
        t = rng.uniform(0, 10, rng.integers(20, 61))
        out.append((t[:, None], step_response(rng)(t) + 0.1 * rng.normal(size=len(t))))
    return out


def draw_curve(axes: Axes, title: str, x: Floats, y: Floats) -> None:
    """Interval and functions of a curve."""
    found = CurveRegressor().fit(x, y)
    plot_predictive(found.predict_dist(SPAN), SPAN, axes)
    plot_functions(found.sample_functions(SPAN, FUNCTIONS), SPAN, axes, known=(x, y))
    axes.set_title(title)


def draw_task(axes: Axes, fitted: NPRegressor, known: int, rng: np.random.Generator) -> None:
    """Interval and functions of a new task."""
    response, t = step_response(rng), rng.permutation(np.linspace(0.4, 9.6, 12))[:known]
    seen = t, response(t) + 0.1 * rng.normal(size=known)
    found = fitted.predict_dist(SPAN[:, None], context=(t[:, None], seen[1]))
    plot_predictive(found, SPAN, axes)
    functions = found.sample(FUNCTIONS, 0, noise=False)
    plot_functions(functions, SPAN, axes, known=seen, truth=response(SPAN))
    axes.set_title(f"a new task, {known} readings")


def gallery(effort: str = "balanced", steps: int | None = None) -> Figure:
    """Three curves, and a new task with 2, 6 and 12 readings."""
    rng = np.random.default_rng(0)
    fitted = NPRegressor("tnp", effort=effort, max_steps=steps, random_state=0, device="cpu")
    fitted.fit_tasks(tasks(LEARNED if steps is None else 8, rng))
    with house_style():
        figure = Figure(figsize=(11, 5.4), layout="constrained")
        above, below = figure.subplots(2, 3)
        for axes, (title, points) in zip(above, curves(rng).items(), strict=True):
            draw_curve(axes, title, *points)
        for axes, known in zip(below, KNOWN, strict=True):
            draw_task(axes, fitted, known, np.random.default_rng(4))
        handles, labels = below[-1].get_legend_handles_labels()
        for axes in figure.axes:
            if legend := axes.get_legend():
                legend.remove()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def main() -> None:
    """Draw the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    save(gallery(), parser.parse_args().out)


if __name__ == "__main__":
    main()
