"""Validation of a network for curves: held-out draws of its prior, and Gaussian processes.

    python -m studies.curves_validation WEIGHTS OUT.jsonl [--parts families,field,kernels]

where WEIGHTS is the folder of a network (`dsvnp pretrain` writes one). Log-likelihoods are per target, each by itself,
averaged over the targets of a task first.

| part | what is predicted | held against |
| --- | --- | --- |
| families | draws of the prior, one kind of function at a time | – |
| field | RBF, Matérn-5/2 and periodic processes of `sources.gp` | the process with known hyper-parameters |
| kernels | the kernels of the prior (`curve_kernels`) | the same, and one with hyper-parameters of maximum likelihood |

The second part predicts by the network alone and as `CurveRegressor` does, the third as `CurveRegressor` does; the
fitted rival knows which kernel it is. Every task has sizes of its own, so standard errors are over independent tasks.
The file gets a line per cell. Run again, it does what is missing. For real series see `benchmarks/tables/series.py`.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import norm
from sklearn.gaussian_process import kernels
from torch import Tensor

from dsvnp.models import NeuralProcess
from dsvnp.predictive import GaussianPredictive
from dsvnp.pretrained import load_pretrained
from dsvnp.pretrained.curves import predict_views
from dsvnp.pretrained.seasons import CurveView
from dsvnp.pretrained.series import fit_curve, mixed, predict_process
from dsvnp.sources.gp import GPPrior, KnownTask, gp_tasks
from dsvnp.sources.gp_exact import exact, integrated
from dsvnp.sources.priors import curves
from dsvnp.sources.priors.randomness import Random, unit
from dsvnp.sources.priors.scaling import output_scale, standardise
from dsvnp.sources.priors.shapes import SHAPES, Shape
from dsvnp.sources.priors.spectra import draw_kernels, draw_process
from dsvnp.task import Task
from studies.curve_kernels import KERNELS, draw_values, fitted, kernel_of, posterior
from studies.resume import Settings as Cell
from studies.resume import finish

MAX_CONTEXT = 896  # points, the most that networks are trained with
SEED = 20_000  # no training run has it
MANY = 32  # points of a function to which a fit is reliable
NODES = 8  # of the ideal learner, per hyper-parameter: three times as many change its mean by less than 0.001
PATTERNS = {"random": (1.0, 0.0, 0.0), "gap": (0.0, 1.0, 0.0), "end": (0.0, 0.0, 1.0)}
FIELD = {
    "rbf": GPPrior("rbf", noise=0.05),
    "matern52": GPPrior("matern52", noise=0.05),
    "periodic": GPPrior("periodic", length=(0.4, 1.5), period=(0.3, 1.5), noise=0.05),
}
PARTS = ("families", "field", "kernels")


# --- draws of the prior ---


def families() -> dict[str, curves.Functions]:
    """Kinds of functions by name: all of the prior, its processes, each of its shapes."""

    def shaped(shape: Shape) -> curves.Functions:
        return lambda random, x, used: unit(shape(random, curves.direction(random, x, used)))

    def process(random: Random, x: Tensor, used: Tensor) -> Tensor:
        return unit(draw_process(random, x, draw_kernels(random, used)))

    return {"all": curves.draw_curve_functions, "process": process} | {
        str(getattr(shape, "__name__", shape)): shaped(shape) for shape in SHAPES
    }


def score_family(model: NeuralProcess, family: str, dims: int, pattern: str, count: int) -> Cell:
    """Mean log-likelihood, and its standard error, on held-out curves of a kind."""
    shares = float(dims == 1), float(dims == 2), float(dims == 3)
    settings = curves.CurveSettings(
        count, 256, dimensions=shares, patterns=PATTERNS[pattern], refresh_every=1
    )
    generator = torch.Generator().manual_seed(SEED)
    drawn = curves.draw_prior_curves(
        Random(generator, torch.device("cpu")), settings, count, families()[family]
    )
    uniform = {"context": torch.rand(count, generator=generator)}
    task = curves.CurvePrior(settings).batch(drawn, uniform, torch.tensor(0))
    return summary(task_means(model, task))


def task_means(model: NeuralProcess, task: Task) -> Tensor:
    """Log-likelihood of the targets outside the context, averaged over those of each task, [B]."""
    assert task.y_target is not None
    value = model.predict(task, 1).log_prob(task.y_target)
    counted = model.counted(task)
    return torch.where(counted, value, 0.0).sum(1) / counted.sum(1)


def summary(values: Tensor, name: str = "log_likelihood") -> dict[str, Any]:
    """Mean and standard error."""
    error = float(values.std()) / len(values) ** 0.5
    return {name: round(float(values.mean()), 4), f"{name}_error": round(error, 4)}


# --- the field's processes ---


def score_field(model: NeuralProcess, kernel: str, count: int) -> Cell:
    """Log-likelihoods of the network, of `CurveRegressor` and of the known process, and the gaps between them.

    An ideal learner, which knows the kind of kernel and the prior of its hyper-parameters, has a gap too.
    """
    prior = FIELD[kernel]
    batches = gp_tasks(
        prior, count, torch.Generator().manual_seed(SEED), batch_size=64, share=1, num_points=64
    )
    own = torch.cat([_network_means(model, known.task.joined()) for known in batches])
    best = torch.cat([exact(known.task, known.hyper, prior).task_means() for known in batches])
    whole = torch.cat([_regressor_means(model, known) for known in batches])
    found = {
        **summary(own),
        **summary(best, "exact"),
        **summary(best - own, "gap"),
        **summary(best - whole, "regressor_gap"),
    }
    if kernel == "periodic":
        return found
    ideal = torch.cat([integrated(known.task, prior, NODES).task_means() for known in batches])
    return found | summary(best - ideal, "ideal_gap")


def _network_means(model: NeuralProcess, task: Task) -> Tensor:
    """Mean log-likelihood of each task in its own units, all targets scored by one pass of the network, [B]."""
    scaled, std = in_units(task)
    return task_means(model, scaled) - std.log()


def in_units(task: Task) -> tuple[Task, Tensor]:
    """A task of one input in the network's units, and the deviation [B] by which its outputs were divided."""
    y, seen = task.all_points()
    empty = torch.zeros(*seen.shape, 2)
    used = torch.tensor([True, False, False]).expand(len(y), 3)
    x = standardise(
        torch.cat([task.x_target, empty], -1), used, seen, task.mask_target, clip=curves.CLIP_INPUT
    )
    mean, std = output_scale(y.squeeze(-1), seen)
    scaled = ((y.squeeze(-1) - mean) / std).unsqueeze(-1)
    return Task.from_points(x, scaled, seen, task.mask_target), std.squeeze(1)


def _regressor_means(model: NeuralProcess, known: KnownTask) -> Tensor:
    """The same by what `CurveRegressor` predicts of each task, [B]."""
    task = known.task.joined()
    y, seen = task.all_points()
    means = []
    for inputs, outputs, inside, outside in zip(
        task.x_target.double(), y.double(), seen, task.mask_target & ~seen, strict=True
    ):
        found = predicted(model, inputs[inside], outputs[inside, 0], inputs[outside])
        means.append(found.log_prob(outputs[outside][None]).mean())
    return torch.stack(means)


# --- every kernel of the prior ---


def score_kernel(model: NeuralProcess, name: str, dims: int, count: int) -> Cell:
    """Log-likelihoods of `CurveRegressor`, of the known process and of the fitted one, and what each pair differs by.

    A fit to few points may fail widely: there are also the median, and the mean over functions with many points.
    """
    rng = np.random.default_rng([SEED, dims, KERNELS[dims].index(name)])
    rows = [_score_function(model, name, dims, rng) for _ in range(count)]
    own, known, rival, size = torch.tensor(rows, dtype=torch.float64).T
    behind = rival - own
    return {
        **summary(own),
        **summary(known, "exact"),
        **summary(rival, "fitted"),
        **summary(known - own, "gap"),
        **summary(behind, "gap_to_fitted"),
        "gap_to_fitted_median": round(float(behind.median()), 4),
        **summary(behind[size >= MANY], "gap_to_fitted_many"),
    }


def _score_function(
    model: NeuralProcess, name: str, dims: int, rng: np.random.Generator
) -> tuple[float, float, float, int]:
    """Draw a function on [−1, 1]^D; score the regressor, the known process and the fitted one; count its points."""
    noise = float(np.exp(rng.uniform(np.log(0.03), np.log(0.3))))
    kernel = kernel_of(name, draw_values(rng, dims)) + kernels.WhiteKernel(noise**2)
    size = int(np.exp(rng.uniform(np.log(8), np.log(120))))
    x = rng.uniform(-1, 1, (size + 64, dims))
    y = np.linalg.cholesky(kernel(x) + 1e-10 * np.eye(len(x))) @ rng.normal(size=len(x))
    parts = (x[:size], y[:size], x[size:])
    predictive = predicted(model, *(torch.from_numpy(part) for part in parts))
    own = predictive.log_prob(torch.from_numpy(y[size:])[None, :, None]).mean()
    known = norm.logpdf(y[size:], *posterior(kernel, *parts)).mean()
    rival = norm.logpdf(y[size:], *fitted(name, *parts)).mean()
    return float(own), float(known), float(rival), size


def predicted(model: NeuralProcess, x: Tensor, y: Tensor, x_target: Tensor) -> GaussianPredictive:
    """What `CurveRegressor` predicts with this network at inputs [T, D] from points x [N, D], y [N], in float64."""

    def ask(views: Sequence[CurveView], x: Tensor, y: Tensor, x_target: Tensor) -> list[GaussianPredictive]:
        return predict_views(model, x, y, x_target, MAX_CONTEXT, views)

    fit = fit_curve(x, y, "auto", True, ask)
    (found,) = ask([fit.view], x, y, x_target)
    if fit.process is None:
        return found
    return mixed(found, *predict_process(fit.process, x, y, x_target, MAX_CONTEXT), fit.share)


# --- all of it ---


def cells(parts: list[str], count: int, tasks: int, fits: int) -> Iterator[Cell]:
    """What to measure, in order."""
    if "families" in parts:
        yield from (
            {"part": "families", "family": f, "dims": 1, "pattern": "random", "count": count}
            for f in families()
        )
        for dims, pattern in ((d, p) for d in (1, 2, 3) for p in PATTERNS):
            yield {"part": "families", "family": "all", "dims": dims, "pattern": pattern, "count": count}
    if "field" in parts:
        yield from ({"part": "field", "kernel": kernel, "count": tasks} for kernel in FIELD)
    if "kernels" in parts:
        for dims, names in KERNELS.items():
            yield from ({"part": "kernels", "kernel": name, "dims": dims, "count": fits} for name in names)


def run_cell(model: NeuralProcess, cell: Cell) -> Cell:
    """Measure one cell, and how long it takes."""
    start = time.perf_counter()
    with torch.no_grad():
        match cell["part"]:
            case "families":
                found = score_family(model, cell["family"], cell["dims"], cell["pattern"], cell["count"])
            case "field":
                found = score_field(model, cell["kernel"], cell["count"])
            case _:
                found = score_kernel(model, cell["kernel"], cell["dims"], cell["count"])
    line = {**found, "wall_seconds": round(time.perf_counter() - start, 2)}
    print({**cell, **line}, flush=True)
    return line


def main() -> None:
    """Measure what a file lacks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--count", type=int, default=256, help="tasks of a family")
    parser.add_argument("--tasks", type=int, default=8192, help="tasks of a process of the field")
    parser.add_argument("--fits", type=int, default=200, help="functions of each kernel that are fitted")
    options = parser.parse_args()
    model = load_pretrained("curves", options.weights)
    wanted = cells(options.parts.split(","), options.count, options.tasks, options.fits)
    finish(([cell] for cell in wanted), options.out, lambda cells: [run_cell(model, cell) for cell in cells])


if __name__ == "__main__":
    main()
