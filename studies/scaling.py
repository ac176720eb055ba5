"""What more compute would buy: the likelihood of synthetic tables against weights and steps, and where it leads.

    python -m studies.scaling results/pretrained/scaling

The folder holds a log of `dsvnp pretrain tables --width W` per size: `main.jsonl`, `small.jsonl`, `large.jsonl`; the
last two may be missing. No function is drawn twice, so the training likelihood of a line is that of tables the network
has not seen. Only lines at the constant rate belong there. To all sizes together we fit

    L(N, S) = E + A N^−α + B S^−β          negative log-likelihood, N weights and S steps in units of the main network

with C = N·S the compute. For k times the compute of the main run the best size minimises L on N·S = k. Runs are cut
into blocks of lines that are drawn again with replacement; the spread over such draws is the uncertainty. It writes
`fit.json` into the folder, and `docs/images/scaling.svg`; the right panel shows the scores of `tables-validation.jsonl`
above the folder, on real tables, if that file is there.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.optimize import least_squares
from torch.utils.flop_counter import FlopCounterMode

from dsvnp.plotting.style import save
from dsvnp.pretrained.recipes import PretrainingRecipe, tables
from dsvnp.task import Task

Floats = NDArray[np.float64]
WIDTHS = {"small": 0.5, "main": 1.0, "large": 2.0}
WARM = 1500  # steps that the fit leaves out: warm-up and the first fall
UNIT = 10_000  # steps
TIMES = (1, 10, 100)
NUM_DRAWS, BLOCKS = 200, 5
NO_TERM = -30.0  # ln A of a law without a term for the size


class Course(NamedTuple):
    """Steps of a run and the negative log-likelihood of each interval, [lines] each, and its weights next to main's."""

    size: float
    steps: Floats
    loss: Floats


def read_course(path: Path, size: float) -> Course:
    """Read a log; sittings follow each other."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [(line["step"], -line["log_likelihood"][0]) for line in lines if line["step"] > WARM]
    if not rows:
        raise ValueError(f"{path} has no line beyond step {WARM}, where the warm-up ends; train for longer")
    steps, loss = np.array(rows, float).T
    return Course(size, steps, loss)


# --- the law ---


def law(theta: Floats, size: Floats, steps: Floats) -> Floats:
    """L(N, S); theta = (E, ln A, α, ln B, β), steps in units of `UNIT`."""
    floor, a, alpha, b, beta = theta
    return floor + np.exp(a) * size**-alpha + np.exp(b) * steps**-beta


def fit_law(courses: Sequence[Course]) -> Floats:
    """Least squares over all lines, each size with the same weight; the best of several starts."""
    size = np.concatenate([np.full(len(c.steps), c.size) for c in courses])
    steps = np.concatenate([c.steps for c in courses]) / UNIT
    loss = np.concatenate([c.loss for c in courses])
    weight = np.concatenate([np.full(len(c.steps), len(c.steps) ** -0.5) for c in courses])

    def errors(theta: Floats) -> Floats:
        return weight * (law(theta, size, steps) - loss)

    low, high = [-3, -8, 0.05, -8, 0.05], [2, 2, 1.0, 2, 1.5]
    if len(courses) == 1:  # nothing is known of other sizes: no term for them
        low[1], high[1], low[2], high[2] = NO_TERM, NO_TERM + 1e-6, 0.05, 0.05 + 1e-6
    starts = [
        (loss.min() - gap, np.log(gap), 0.3, np.log(gap), slope) for gap in (0.1, 0.3) for slope in (0.3, 0.6)
    ]
    found = [
        least_squares(errors, np.clip(s, low, high), bounds=(low, high), loss="soft_l1", f_scale=0.02)
        for s in starts
    ]
    return min(found, key=lambda each: each.cost).x


def best_size(theta: Floats, compute: float) -> tuple[float, float]:
    """The size that minimises L for a compute (1: main size, `UNIT` steps), and L there; main's if alone."""
    if theta[1] < NO_TERM + 1:
        return 1.0, float(law(theta, np.array(1.0), np.array(compute)))
    sizes = np.exp(np.linspace(np.log(0.02), np.log(2000), 2000))
    values = law(theta, sizes, compute / sizes)
    return float(sizes[values.argmin()]), float(values.min())


def redrawn(courses: Sequence[Course], rng: np.random.Generator) -> list[Course]:
    """Each course with blocks of its lines drawn with replacement."""
    made = []
    for course in courses:
        blocks = np.array_split(np.arange(len(course.steps)), min(BLOCKS, len(course.steps)))
        rows = np.concatenate([blocks[i] for i in rng.integers(0, len(blocks), len(blocks))])
        made.append(Course(course.size, course.steps[rows], course.loss[rows]))
    return made


def predictions(courses: Sequence[Course], compute: float) -> dict[str, Any]:
    """Parameters and what they predict for multiples of a compute, each with its 10th and 90th percentile."""
    rng = np.random.default_rng(0)
    theta = fit_law(courses)
    draws = [fit_law(redrawn(courses, rng)) for _ in range(NUM_DRAWS)]

    def spread(values: Sequence[float]) -> list[float]:
        return [round(float(value), 4) for value in np.quantile(values, [0.1, 0.9])]

    names = ("E", "ln A", "alpha", "ln B", "beta")
    fitted = {
        name: [round(float(theta[i]), 4), *spread([d[i] for d in draws])] for i, name in enumerate(names)
    }
    ahead = {}
    for times in TIMES:
        size, value = best_size(theta, times * compute)
        each = [best_size(draw, times * compute) for draw in draws]
        ahead[str(times)] = {
            "size": [round(size, 2), *spread([s for s, _ in each])],
            "loss": [round(value, 4), *spread([v for _, v in each])],
        }
    return {"fit": fitted, "ahead": ahead}


# --- compute ---


def flops_of_step(recipe: PretrainingRecipe) -> float:
    """Floating-point operations of a training step: three times those of a forward pass, mean over the shapes."""
    model = recipe.make().eval().double()  # what oneDNN computes in single precision is not counted
    arch, total = model.arch, 0.0
    for source in recipe.source.sources:
        settings = source.settings  # type: ignore[attr-defined]
        rows, columns = settings.num_rows, settings.max_columns
        x = torch.zeros(1, rows, 2 * columns, dtype=torch.float64)
        seen = torch.arange(rows)[None] < rows // 2
        task = Task.from_points(x, torch.zeros_like(x[..., :2]), seen, torch.ones_like(seen))
        counter = FlopCounterMode(display=False)
        with torch.no_grad(), counter:
            model.objective(task)
        among_rows = 4 * arch.transformer.width * arch.transformer.num_layers * rows * rows / 2
        among_cells = 4 * arch.cells.width * arch.cells.num_layers * rows * (columns + 1) ** 2
        layers = counter.get_total_flops()  # without attention, which is fused and not counted on a CPU
        total += 3 * settings.batch_size * (layers + among_rows + among_cells)
    return total / len(recipe.source.sources)


# --- all of it ---


def draw(
    courses: dict[str, Course],
    found: dict[str, Any],
    flops: dict[str, float],
    real: list[dict[str, float]],
    path: Path,
) -> None:
    """Loss against compute and, of real tables, against steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2) if real else (7, 4.2), layout="constrained")
    panels = figure.subplots(1, 2 if real else 1, squeeze=False)[0]
    _draw_law(panels[0], courses, found, flops)
    if real:
        _draw_real(panels[1], real)
    save(figure, path)


def _draw_real(axes: Axes, scores: list[dict[str, float]]) -> None:
    """Scores of the main network on real tables; one line per sitting, which begins with a new optimiser."""
    for kind, colour in (("numbers", "tab:blue"), ("classes", "tab:orange")):
        for sitting in sorted({score["sitting"] for score in scores}):
            some = [score for score in scores if score["sitting"] == sitting]
            label = f"ten tables of {kind}" if sitting == scores[0]["sitting"] else None
            steps, losses = [score["step"] for score in some], [score[kind] for score in some]
            axes.plot(steps, losses, "o-", markersize=4, linewidth=1, color=colour, label=label)
    axes.set(xlabel="steps, one line per sitting", ylabel="negative log-likelihood of a row of real tables")
    axes.legend(frameon=False)


def _draw_law(axes: Axes, courses: dict[str, Course], found: dict[str, Any], flops: dict[str, float]) -> None:
    """The runs, the law of each size, and the best that the law gives for any compute."""
    theta = np.array([found["fit"][name][0] for name in ("E", "ln A", "alpha", "ln B", "beta")])
    for name, course in courses.items():
        spent = course.steps * flops[name]
        (line,) = axes.plot(
            spent,
            course.loss,
            ".",
            markersize=4,
            label=f"{name}, {found['weights'][name] / 1e6:.1f} M weights",
        )
        axes.plot(
            spent, law(theta, np.array(course.size), course.steps / UNIT), color=line.get_color(), linewidth=1
        )
    unit = flops["main"] * UNIT
    compute = np.exp(np.linspace(np.log(0.03), np.log(100 * found["compute"]), 60))
    axes.plot(
        compute * unit,
        [best_size(theta, c)[1] for c in compute],
        "k--",
        linewidth=1,
        label="best size, fitted",
    )
    for times, ahead in found["ahead"].items():
        value, low, high = ahead["loss"]
        at = int(times) * found["compute"] * unit
        axes.errorbar(
            [at], [value], [[max(value - low, 0)], [max(high - value, 0)]], fmt="ks", markersize=4, capsize=3
        )
    axes.set(
        xscale="log", xlabel="training compute, FLOP", ylabel="negative log-likelihood of synthetic tables"
    )
    axes.legend(frameon=False)


def main() -> None:
    """Fit, predict, draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    recipes = {name: tables().widened(width) for name, width in WIDTHS.items()}
    weights = {n: sum(p.numel() for p in recipe.make().parameters()) for n, recipe in recipes.items()}
    there = [name for name in WIDTHS if (folder / f"{name}.jsonl").is_file()]
    courses = {n: read_course(folder / f"{n}.jsonl", weights[n] / weights["main"]) for n in there}
    flops = {name: flops_of_step(recipe) for name, recipe in recipes.items()}
    compute = float(courses["main"].steps[-1]) / UNIT
    found = {
        "weights": weights,
        "flops_of_step": {name: round(value) for name, value in flops.items()},
        "steps": {name: int(course.steps[-1]) for name, course in courses.items()},
        "last_loss": {name: round(float(course.loss[-3:].mean()), 4) for name, course in courses.items()},
        "compute": compute,
        **predictions(list(courses.values()), compute),
    }
    (folder / "fit.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    scores = folder.resolve().parent / "tables-validation.jsonl"
    real = [json.loads(line) for line in scores.read_text().splitlines()] if scores.is_file() else []
    draw(courses, found, flops, real, Path("docs/images/scaling.svg"))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
