"""What more compute would buy: the likelihood of synthetic tables against weights and steps, and where it leads.

    python -m studies.scaling results/pretrained/scaling

The folder holds a log of `dsvnp pretrain tables --width W` per size: `main.jsonl`, `small.jsonl`, `large.jsonl`; the
last two may be missing. No function is drawn twice, so the training likelihood of a line is that of tables the network
has not seen. Only lines at the constant rate belong there. To all sizes together we fit

    L(N, S) = E + A N^−α + B S^−β          negative log-likelihood, N weights and S steps in units of the main network

with C = N·S the compute. For k times the compute of the main run the best size minimises L on N·S = k. Runs are cut
into blocks of lines that are drawn again with replacement; the spread over such draws is the uncertainty of the fit.
The law itself may be wrong: `held_out` compares fits to the first steps of the main run with what came later, and what
they miss by, per e-fold of compute, widens the intervals of what lies ahead.

It writes `fit.json` into the folder, and `docs/images/scaling.svg`. Above the folder, `tables-log.jsonl` gives one more
test by the fourth sitting of the main run, and `tables-validation.jsonl` the right panel, scores on real tables.
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
TEST_DRAWS = 50
CUTS = (8_000, 12_000)  # steps: fits to the lines up to there predict the last ones
END = 3  # lines at the end of a run, whose mean is its last loss
LATER = (47_286, 53_908)  # steps of the fourth sitting after its warm-up and before its decay
Z90 = 1.2816  # standard deviations from the median of a normal distribution to its 90th percentile
NO_TERM = -30.0  # ln A of a law without a term for the size


class Course(NamedTuple):
    """Steps of a run and the negative log-likelihood of each interval, [lines] each, and its weights next to main's."""

    size: float
    steps: Floats
    loss: Floats

    def take(self, kept: NDArray[np.bool_]) -> "Course":
        """Some of its lines."""
        return Course(self.size, self.steps[kept], self.loss[kept])


def read_course(path: Path, size: float) -> Course:
    """Read a log; sittings follow each other."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows = [(line["step"], -line["log_likelihood"][0]) for line in lines if line["step"] > WARM]
    if not rows:
        raise ValueError(f"{path} has no line beyond step {WARM}, where the warm-up ends; train for longer")
    steps, loss = np.array(rows, float).T
    return Course(size, steps, loss)


def read_later(path: Path) -> Course | None:
    """The lines of the fourth sitting at its constant rate, if that log is there."""
    if not path.is_file():
        return None
    course = read_course(path, 1.0)
    return course.take((course.steps > LATER[0]) & (course.steps <= LATER[1]))


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


def fits(courses: Sequence[Course], count: int) -> tuple[Floats, list[Floats]]:
    """The law of some courses, and those of courses drawn again."""
    rng = np.random.default_rng(0)
    return fit_law(courses), [fit_law(redrawn(courses, rng)) for _ in range(count)]


def spread(values: Sequence[float]) -> list[float]:
    """The 10th and the 90th percentile."""
    return [round(float(value), 4) for value in np.quantile(values, [0.1, 0.9])]


def held_out(main: Course, later: Course | None) -> list[dict[str, Any]]:
    """Tests of the law on steps that its fit has not seen: the last of the run, and those of a later sitting."""
    is_last = np.arange(len(main.steps)) >= len(main.steps) - END
    tests = [(main.take(main.steps <= cut), main.take(is_last)) for cut in CUTS]
    tests += [(main, later)] if later is not None else []
    found = []
    for seen, asked in tests:
        theta, draws = fits([seen], TEST_DRAWS)
        value, *others = (float(law(t, np.array(1.0), asked.steps / UNIT).mean()) for t in (theta, *draws))
        at, measured = asked.steps.mean(), float(asked.loss.mean())
        found.append(
            {
                "fitted_to": int(seen.steps[-1]),
                "asked_at": round(at),
                "predicted": [round(value, 4), *spread(others)],
                "measured": round(measured, 4),
                "error_per_e_fold": round(float((value - measured) / np.log(at / seen.steps[-1])), 4),
            }
        )
    return found


def predictions(courses: Sequence[Course], compute: float, error: float = 0.0) -> dict[str, Any]:
    """Parameters and what they predict for multiples of a compute, each with its 10th and 90th percentile.

    `error` is the standard deviation of what the law misses by, per e-fold of compute.
    """
    theta, draws = fits(courses, NUM_DRAWS)
    names = ("E", "ln A", "alpha", "ln B", "beta")
    fitted = {
        name: [round(float(theta[i]), 4), *spread([d[i] for d in draws])] for i, name in enumerate(names)
    }
    ahead = {}
    for times in TIMES:
        size, value = best_size(theta, times * compute)
        each = [best_size(draw, times * compute) for draw in draws]
        low, high = spread([v for _, v in each])
        margin = Z90 * error * np.log(times)
        widened = (value - np.hypot(value - low, margin), value + np.hypot(high - value, margin))
        ahead[str(times)] = {
            "size": [round(size, 2), *spread([s for s, _ in each])],
            "loss": [round(float(part), 4) for part in (value, *widened)],
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
    tests = held_out(courses["main"], read_later(folder.resolve().parent / "tables-log.jsonl"))
    error = float(np.mean([test["error_per_e_fold"] ** 2 for test in tests]) ** 0.5)
    found = {
        "weights": weights,
        "flops_of_step": {name: round(value) for name, value in flops.items()},
        "steps": {name: int(course.steps[-1]) for name, course in courses.items()},
        "last_loss": {name: round(float(course.loss[-END:].mean()), 4) for name, course in courses.items()},
        "compute": compute,
        "held_out": tests,
        "error_per_e_fold": round(error, 4),
        **predictions(list(courses.values()), compute, error),
    }
    (folder / "fit.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    scores = folder.resolve().parent / "tables-validation.jsonl"
    real = [json.loads(line) for line in scores.read_text().splitlines()] if scores.is_file() else []
    draw(courses, found, flops, real, Path("docs/images/scaling.svg"))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
