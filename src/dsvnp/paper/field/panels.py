"""Two curves as each model and the exact GP see them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsvnp.models import NeuralProcess
from dsvnp.paper.field.unseen import PRIORS
from dsvnp.paper.measuring import seeded_predict
from dsvnp.plotting.figures import FunctionPanel
from dsvnp.sources.gp import GPPrior, Hyperparameters
from dsvnp.task import Task

SHOWN = (("RBF", "rbf", 6), ("Matérn-5/2", "matern52", 12))  # title, data set, points of the context
GRID = 120
NUM_DRAWS = 3
BLOCK = 8  # targets that a chain samples at once
# models whose functions are chains although they have a z_G, which changes next to nothing
CHAINS = ("dsvtnp",)


class Curve(NamedTuple):
    """A function on a grid and at a few places where it is observed, all flat."""

    title: str
    prior: GPPrior
    hyper: Hyperparameters
    grid: Tensor
    truth: Tensor
    x: Tensor
    y: Tensor


def curves() -> Iterator[Curve]:
    """The curves that are shown: the same on every device and for every model."""
    for number, (title, dataset, num_context) in enumerate(SHOWN):
        generator, prior = torch.Generator().manual_seed(number + 3), PRIORS[dataset]
        grid = torch.linspace(-2, 2, GRID, dtype=torch.float64)
        places = 4 * torch.rand(num_context, generator=generator, dtype=torch.float64) - 2
        hyper = Hyperparameters(*(torch.full((1, 1), v, dtype=torch.float64) for v in (0.35, 0.6, 0.3)))
        values = prior.functions(torch.cat([grid, places])[None, :, None], hyper, generator)[0, :, 0]
        seen = prior.observe(values[GRID:], generator)
        yield Curve(title, prior, hyper, grid, values[:GRID], places, seen)


def model_panels(net: NeuralProcess, num_global: int, device: torch.device) -> dict[str, Any]:
    """Predictions of a model with a few coherent functions: draws of z_G or, without one and in `CHAINS`, chains."""
    shown = {}
    for curve in curves():
        context = (part.float()[None, :, None] for part in (curve.x, curve.y, curve.grid))
        task = Task.from_sets(*context).to(device)
        generator = torch.Generator(device).manual_seed(0)
        by_chains = net.name in CHAINS or None
        functions = net.sample_functions(
            task, NUM_DRAWS, noise=False, autoregressive=by_chains, block=BLOCK, generator=generator
        )
        predictive = seeded_predict(net, task, (num_global, 1))
        parts = predictive.mean[0, :, 0], predictive.stddev[0, :, 0], functions[:, 0, :, 0]
        shown[curve.title] = FunctionPanel(curve.grid, curve.truth, curve.x, curve.y, *parts).to_lists()
    return shown


def gp_panels() -> dict[str, Any]:
    """The posterior of the GP that each curve was drawn from, with its noise in σ and without it in the functions."""
    shown = {}
    for curve in curves():
        mean, covariance = posterior(curve)
        generator = torch.Generator().manual_seed(0)
        white = torch.randn(NUM_DRAWS, GRID, generator=generator, dtype=torch.float64)
        values, vectors = torch.linalg.eigh(covariance)  # it is singular, up to rounding
        draws = mean + (white * values.clamp(min=0).sqrt()) @ vectors.T
        stddev = (covariance.diagonal() + curve.prior.noise**2).sqrt()
        panel = FunctionPanel(curve.grid, curve.truth, curve.x, curve.y, mean, stddev, draws)
        shown[curve.title] = panel.to_lists()
    return shown


def posterior(curve: Curve) -> tuple[Tensor, Tensor]:
    """Mean [T] and covariance [T, T] of the function on the grid, given its observations."""
    own = Hyperparameters(*(value[0, 0] for value in curve.hyper))
    noise = curve.prior.noise**2 * torch.eye(len(curve.x), dtype=torch.float64)
    gram = curve.prior.covariance(curve.x, curve.x, own) + noise
    cross = curve.prior.covariance(curve.grid, curve.x, own)  # [T, C]
    gain = torch.linalg.solve(gram, cross.T).T
    covariance = curve.prior.covariance(curve.grid, curve.grid, own) - gain @ cross.T
    return gain @ curve.y, (covariance + covariance.T) / 2
