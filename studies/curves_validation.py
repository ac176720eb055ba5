"""Validation of a network for curves: held-out draws of its prior, and Gaussian processes.

    python -m studies.curves_validation WEIGHTS OUT.jsonl [--parts families,field,kernels]

where WEIGHTS is the folder of a network (`dsvnp pretrain` writes one). Log-likelihoods are per target, each by itself,
averaged over the targets of a task first.

| part | what is predicted | held against |
| --- | --- | --- |
| families | draws of the prior, one kind of function at a time | – |
| field | RBF, Matérn-5/2 and periodic processes of `sources.gp` | the process with known hyper-parameters |
| kernels | every kernel of the prior | the same, and one with hyper-parameters found by maximum likelihood |

In the last part the network is shown each function as `CurveRegressor` shows it (`dsvnp.pretrained.seasons`); the rival
knows which kernel it is. The file gets a line per cell. Run again, it does what is missing. For real series see
`benchmarks/tables/series.py`.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor, kernels
from torch import Tensor

from dsvnp.models import NeuralProcess
from dsvnp.predictive import GaussianPredictive
from dsvnp.pretrained import load_pretrained
from dsvnp.pretrained.curves import predict_views
from dsvnp.pretrained.seasons import CurveView
from dsvnp.pretrained.series import fit_curve, mixed, predict_process
from dsvnp.sources.gp import GPPrior, gp_tasks
from dsvnp.sources.gp_exact import exact
from dsvnp.sources.priors import curves
from dsvnp.sources.priors.randomness import Random, unit
from dsvnp.sources.priors.scaling import output_scale, standardise
from dsvnp.sources.priors.shapes import SHAPES, Shape
from dsvnp.sources.priors.spectra import draw_kernels, draw_process
from dsvnp.task import Task
from studies.resume import Settings as Cell
from studies.resume import finish

Floats = NDArray[np.float64]
MAX_CONTEXT = 896  # points, the most that networks are trained with
SEED = 20_000  # no training run has it
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
    draws = model.draws(task.joined(), {})
    value = torch.where(draws.counted, draws.log_likelihood[0, 0], 0.0)
    return value.sum(1) / draws.counted.sum(1)


def summary(values: Tensor, name: str = "log_likelihood") -> dict[str, Any]:
    """Mean and standard error."""
    error = float(values.std()) / len(values) ** 0.5
    return {name: round(float(values.mean()), 4), f"{name}_error": round(error, 4)}


# --- the field's processes ---


def score_field(model: NeuralProcess, kernel: str, count: int) -> Cell:
    """The network's log-likelihood, the exact one, and the gap between the two."""
    prior = FIELD[kernel]
    known = gp_tasks(prior, count, torch.Generator().manual_seed(SEED), batch_size=count, num_points=64)[0]
    task = known.task.joined()
    y, seen = task.all_points()
    empty = torch.zeros(*seen.shape, 2)
    used = torch.tensor([True, False, False]).expand(len(y), 3)
    x = standardise(
        torch.cat([task.x_target, empty], -1), used, seen, task.mask_target, clip=curves.CLIP_INPUT
    )
    mean, std = output_scale(y.squeeze(-1), seen)
    scaled = ((y.squeeze(-1) - mean) / std).unsqueeze(-1)
    own = task_means(model, Task.from_points(x, scaled, seen, task.mask_target)) - std.squeeze(1).log()
    best = exact(known.task, known.hyper, prior).task_means()
    return {**summary(own), **summary(best, "exact"), **summary(best - own, "gap")}


# --- every kernel of the prior ---


def kernel_of(name: str, length: float, period: float) -> kernels.Kernel:
    """A kernel of unit variance; `length` is the envelope's where there is one."""
    made: dict[str, Callable[[], kernels.Kernel]] = {
        "rbf": lambda: kernels.RBF(length),
        "matern12": lambda: kernels.Matern(length, nu=0.5),
        "matern32": lambda: kernels.Matern(length, nu=1.5),
        "matern52": lambda: kernels.Matern(length, nu=2.5),
        "rational": lambda: kernels.RationalQuadratic(length, alpha=1.0),
        "periodic": lambda: kernels.ExpSineSquared(1.0, period),
        "locally periodic": lambda: kernels.ExpSineSquared(1.0, period) * kernels.RBF(3 * length),
        "rbf + periodic": lambda: 0.5 * kernels.RBF(length) + 0.5 * kernels.ExpSineSquared(1.0, period),
        "rbf + matern32": lambda: 0.5 * kernels.RBF(3 * length) + 0.5 * kernels.Matern(length, nu=1.5),
    }
    return made[name]()


KERNELS = (
    "rbf",
    "matern12",
    "matern32",
    "matern52",
    "rational",
    "periodic",
    "locally periodic",
    "rbf + periodic",
    "rbf + matern32",
)


def score_kernel(model: NeuralProcess, name: str, count: int) -> Cell:
    """Log-likelihoods of the network, of the known process and of the fitted one, and what each pair differs by."""
    rng = np.random.default_rng([SEED, KERNELS.index(name)])
    rows = [_score_function(model, name, rng) for _ in range(count)]
    own, known, fitted = torch.tensor(rows).T
    return {
        **summary(own),
        **summary(known, "exact"),
        **summary(fitted, "fitted"),
        **summary(known - own, "gap"),
        **summary(fitted - own, "gap_to_fitted"),
        "gap_to_fitted_median": round(
            float((fitted - own).median()), 4
        ),  # a fit to few points may fail widely
    }


def _score_function(model: NeuralProcess, name: str, rng: np.random.Generator) -> tuple[float, float, float]:
    """Draw one function on [−1, 1] and score the network, the known process and the fitted one on it."""
    length, period = np.exp(rng.uniform(np.log([0.1, 0.15]), np.log([1.0, 1.0])))
    noise = float(np.exp(rng.uniform(np.log(0.03), np.log(0.3))))
    kernel = kernel_of(name, length, period) + kernels.WhiteKernel(noise**2)
    size = int(np.exp(rng.uniform(np.log(8), np.log(120))))
    x = rng.uniform(-1, 1, (size + 64, 1))
    y = np.linalg.cholesky(kernel(x) + 1e-10 * np.eye(len(x))) @ rng.normal(size=len(x))
    parts = (x[:size], y[:size], x[size:])
    predictive = predicted(model, *parts)
    own = predictive.log_prob(torch.from_numpy(y[size:])[None, :, None]).mean()
    known = norm.logpdf(y[size:], *posterior(kernel, *parts)).mean()
    fitted = norm.logpdf(y[size:], *_fitted(name, *parts)).mean()
    return float(own), float(known), float(fitted)


def predicted(model: NeuralProcess, x: Floats, y: Floats, x_target: Floats) -> GaussianPredictive:
    """What `CurveRegressor` predicts with this network at inputs [T, 1]."""
    known, outputs, asked = (torch.from_numpy(part) for part in (x, y, x_target))

    def ask(views: Sequence[CurveView], x: Tensor, y: Tensor, x_target: Tensor) -> list[GaussianPredictive]:
        return predict_views(model, x, y, x_target, MAX_CONTEXT, views)

    fit = fit_curve(known, outputs, "auto", True, ask)
    (found,) = ask([fit.view], known, outputs, asked)
    if fit.process is None:
        return found
    return mixed(found, *predict_process(fit.process, known, outputs, asked, MAX_CONTEXT), fit.share)


def posterior(kernel: kernels.Kernel, x: Floats, y: Floats, x_target: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of observations under a process with known hyper-parameters, [T] each."""
    factor = cho_factor(kernel(x) + 1e-10 * np.eye(len(x)), lower=True)
    cross = kernel(x_target, x)
    variance = kernel.diag(x_target) - (cross * cho_solve(factor, cross.T).T).sum(1)
    return cross @ cho_solve(factor, y), np.sqrt(np.maximum(variance, 1e-10))


def _fitted(name: str, x: Floats, y: Floats, x_target: Floats) -> tuple[Floats, Floats]:
    """The same with hyper-parameters of maximum likelihood, from two starts; the kind of kernel is known."""
    scaled = kernels.ConstantKernel(1.0, (1e-3, 1e3)) * kernel_of(name, 0.3, 0.4)
    noisy = scaled + kernels.WhiteKernel(0.01, (1e-5, 1e1))
    process = GaussianProcessRegressor(noisy, n_restarts_optimizer=1, normalize_y=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # searches that end at a bound
        mean, std = process.fit(x, y).predict(x_target, return_std=True)
    return mean, std


# --- all of it ---


def cells(parts: list[str], count: int, fits: int) -> Iterator[Cell]:
    """What to measure, in order."""
    if "families" in parts:
        yield from (
            {"part": "families", "family": f, "dims": 1, "pattern": "random", "count": count}
            for f in families()
        )
        for dims, pattern in ((d, p) for d in (1, 2, 3) for p in PATTERNS):
            yield {"part": "families", "family": "all", "dims": dims, "pattern": pattern, "count": count}
    if "field" in parts:
        yield from ({"part": "field", "kernel": kernel, "count": count} for kernel in FIELD)
    if "kernels" in parts:
        yield from ({"part": "kernels", "kernel": kernel, "count": fits} for kernel in KERNELS)


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
                found = score_kernel(model, cell["kernel"], cell["count"])
    line = {**found, "wall_seconds": round(time.perf_counter() - start, 2)}
    print({**cell, **line}, flush=True)
    return line


def main() -> None:
    """Measure what a file lacks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--count", type=int, default=256, help="tasks of a family or a process of the field")
    parser.add_argument("--fits", type=int, default=48, help="functions of each kernel that are fitted")
    options = parser.parse_args()
    model = load_pretrained("curves", options.weights)
    wanted = cells(options.parts.split(","), options.count, options.fits)
    finish(([cell] for cell in wanted), options.out, lambda cells: [run_cell(model, cell) for cell in cells])


if __name__ == "__main__":
    main()
