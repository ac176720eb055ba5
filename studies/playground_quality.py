"""Measure the playground's networks on new tasks of their tabs, next to what knows the truth or the physics.

python -m studies.playground_quality [--weights FOLDER] [--mnist MNIST]

Log-likelihoods are in nats per target (per point with all its outputs), means over tasks; higher is better. Limits:

    curves     the Gaussian process that a curve was drawn from, its hyper-parameters known
    branches   the two hidden curves known: ½ N(c + g, 0.05) + ½ N(c − g, 0.05)
    cart-pole  the posterior of the mass by the equations of motion, on a grid
    digits     the mean and spread of each pixel over the training images: a floor, not a limit
"""

import argparse
import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from dsvnp.estimation import log_likelihood
from dsvnp.gaussian import gaussian_log_prob
from dsvnp.playground import PAGE
from dsvnp.playground.export import load
from dsvnp.sources.gp import GPPrior, draw
from dsvnp.sources.gp_exact import exact
from dsvnp.task import Task
from studies import playground_tasks as tasks
from studies.playground_training import read_images

SIZES = (0, 2, 5, 10, 30)  # points of a context
PIXELS = (0, 20, 60, 120)
Limited = tuple[list[Task], float]  # tasks, and the mean log-likelihood next to which a network's stands


def split(x: Tensor, y: Tensor, size: int) -> Task:
    """A task whose first points are the context and whose others are asked for."""
    return Task.from_points(x.float(), y.float(), (torch.arange(x.shape[1]) < size).expand(x.shape[:2]))


def curves(size: int, count: int, generator: torch.Generator) -> Limited:
    """Curves of each kernel and each level of noise."""
    found, best = [], 0.0
    kinds = list(product(tasks.KERNELS.values(), tasks.NOISES))
    for prior, noise in kinds:
        kind = GPPrior(prior.kernel, prior.length, prior.scale, prior.period, noise)
        x, y, hyper = draw(kind, max(1, count // len(kinds)), 64, generator, tasks.INTERVAL, torch.float64)
        found.append(split(x, y, size))
        best += float(exact(split(x, y, size), hyper, kind).per_point.nanmean()) / len(kinds)
    return found, best


def branches(size: int, count: int, generator: torch.Generator) -> Limited:
    """Two curves; where they are far apart the limit is −ln 2 − ½ ln(2πe 0.05²)."""
    source = tasks.TwoBranches()
    x, y = source.points(count, generator)
    limit = -math.log(2) - 0.5 * math.log(2 * math.pi * math.e * source.noise**2)
    return [split(x, y, size)], limit


def cartpole(size: int, count: int, generator: torch.Generator) -> Limited:
    """Pushes, and ln Σ_m p(m | context) p(y | m)."""
    x, y = tasks.Pushes().points(count, generator)
    masses = torch.linspace(*tasks.MASSES, 200, dtype=torch.float64)[:, None, None]
    each = gaussian_log_prob(y, tasks.changes(x, masses), torch.tensor(tasks.SENSOR)).sum(-1)  # [m, N, T]
    weights = each[..., :size].sum(-1, keepdim=True).log_softmax(0)
    return [split(x, y, size)], float((each + weights).logsumexp(0)[:, size:].mean())


def digits(images: Tensor, size: int, count: int, generator: torch.Generator) -> Limited:
    """Pixels of images that no network has seen, next to each pixel's own mean and spread."""
    x, y = tasks.DigitPixels(images=images[-10_000:]).points(count, generator)
    seen = 2 * images[:-10_000].flatten(1).float() / 255 - 1
    place = ((x.float() + 1) * (tasks.SIDE - 1) / 2).round().long()
    place = place[..., 1] * tasks.SIDE + place[..., 0]
    mean, std = seen.mean(0)[place], seen.std(0).clamp(min=0.05)[place]
    return [split(x, y, size)], float(gaussian_log_prob(y[..., 0].float(), mean, std)[:, size:].mean())


def quality_of(path: Path, images: Tensor | None, count: int) -> list[tuple[int, float, float]]:
    """Size of the context, log-likelihood of a network, and of what stands next to it."""
    tab = path.stem.partition("-")[0]
    network, rows = load(path), []
    for size in PIXELS if tab == "digits" else SIZES:
        if tab == "cartpole" and size > tasks.Pushes.max_context:
            continue
        generator = torch.Generator().manual_seed(1000 + size)
        if tab == "digits":
            assert images is not None
            made, limit = digits(images, size, count, generator)
        else:
            made, limit = {"curves": curves, "branches": branches, "cartpole": cartpole}[tab](
                size, count, generator
            )
        rows.append((size, log_likelihood(network, made, tolerance=0.05, max_draws=128).mean, limit))
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and print one line per network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--weights", type=Path, default=PAGE / "weights", help="folder of the networks")
    parser.add_argument("--mnist", type=Path, help="folder with train-images-idx3-ubyte.gz, for the digits")
    parser.add_argument("--tasks", type=int, default=96, help="tasks per size of the context")
    given = parser.parse_args(arguments)
    images = read_images(given.mnist) if given.mnist else None
    for path in sorted(given.weights.glob("*.safetensors")):
        if images is None and path.stem.startswith("digits"):
            continue
        cells = [
            f"{size}: {own:.2f} ({limit:.2f})" for size, own, limit in quality_of(path, images, given.tasks)
        ]
        print(f"{path.stem:16} " + "  ".join(cells), flush=True)


if __name__ == "__main__":
    main()
