"""How the next point is chosen: at random, by a Gaussian process, by a neural process, or by the last two together.

All surrogates use BoTorch's qLogExpectedImprovement. For a Gaussian process BoTorch's `optimize_acqf` maximises it; for
networks, rounds of random points around the best so far, which take a tenth of the time. Two surrogates together
average their expected improvements with weights by stacking: these make the outputs of each fifth of the points most
likely, given the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.sampling.get_sampler import get_sampler
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.bayesian_optimisation.family import Family, inputs
from benchmarks.bayesian_optimisation.problems import DOUBLE
from benchmarks.bayesian_optimisation.warping import Warp
from dsvnp.botorch import NeuralProcessModel
from dsvnp.models import NeuralProcess
from dsvnp.pretrained.heads import for_numbers
from dsvnp.pretrained.loading import load_pretrained

Method = Callable[[Tensor, Tensor], Tensor]  # x [n, dim] in the unit cube and y [n, 1] -> the next x [1, dim]
FOLDS = 5
SHARES: list[float] = []  # weights of the network next to a Gaussian process, one per step


@dataclass(frozen=True)
class Search:
    """How an acquisition function is maximised.

    Attributes:
        raw_samples: points that it is first computed at.
        num_restarts: of these, from how many a gradient ascent starts.
        max_steps: of an ascent.
        num_samples: samples of the posterior.
        round_points: points that it is first computed at where there is no ascent; fewer in later rounds.
    """

    raw_samples: int = 128
    num_restarts: int = 2
    max_steps: int = 20
    num_samples: int = 128
    round_points: int = 384


def random(x: Tensor, y: Tensor) -> Tensor:
    return torch.rand(1, x.shape[-1], dtype=DOUBLE)


@dataclass(frozen=True)
class GaussianProcess:
    """BoTorch's SingleTaskGP with its defaults."""

    search: Search

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        dim, search = x.shape[-1], self.search
        bounds = torch.stack([torch.zeros(dim, dtype=DOUBLE), torch.ones(dim, dtype=DOUBLE)])
        sizes = {"num_restarts": search.num_restarts, "raw_samples": search.raw_samples}
        options = {"maxiter": search.max_steps}
        found, _ = optimize_acqf(improvement(fitted(x, y), y, search), bounds, q=1, options=options, **sizes)
        return found


@dataclass(frozen=True)
class Network:
    """A neural process, alone or with a Gaussian process on the same outputs.

    Attributes:
        make: makes the model of inputs and outputs as the network reads them.
        warp: of the outputs.
        search: how the acquisition function is maximised.
        with_gp: whether a Gaussian process has a say.
        inputs: from the unit cube to what the network reads.
    """

    make: Callable[[Tensor, Tensor], NeuralProcessModel]
    warp: Callable[[Tensor], Tensor]
    search: Search
    with_gp: bool = False
    inputs: Callable[[Tensor], Tensor] = torch.clone

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        y = self.warp(y)
        own = improvement(self.make(self.inputs(x), y), y, self.search)
        if not self.with_gp:
            return by_rounds(lambda points: own(self.inputs(points)), x, y, self.search)
        gp = fitted(x, y)
        other = improvement(gp, y, self.search)
        weights = stacked(
            torch.stack([left_out_by_network(self.make, self.inputs(x), y), left_out_by_gp(gp)])
        )
        SHARES.append(float(weights[0]))

        def average(points: Tensor) -> Tensor:
            values = torch.stack([own(self.inputs(points)), other(points)], dim=-1)
            return (values + weights.log()).logsumexp(-1)

        return by_rounds(average, x, y, self.search)


def related(family: Family, search: Search, with_gp: bool = False) -> Network:
    """A network that has seen related functions."""
    return Network(
        lambda x, y: NeuralProcessModel(family.network, x, y), family.warp, search, with_gp, inputs
    )


def pretrained(network: str, search: Search, with_gp: bool = False, folder: Path | None = None) -> Network:
    """A network that ships with the package, on outputs that are warped by what was observed."""

    def make(x: Tensor, y: Tensor) -> NeuralProcessModel:
        settings = {"scaling": network, "noise": 0.0, "num_orders": 1, "seed": x.shape[-2]}
        return NeuralProcessModel(shipped(network, folder), x, y, **settings)

    return Network(make, lambda y: Warp.of(y.flatten(), share=0.1)(y), search, with_gp)


@lru_cache
def shipped(network: str, folder: Path | None) -> NeuralProcess:
    model = load_pretrained(network, folder)
    return for_numbers(model) if model.arch.likelihood == "number-or-class" else model


# --- surrogates ---


def fitted(x: Tensor, y: Tensor) -> SingleTaskGP:
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def folds(count: int) -> list[Tensor]:
    """Five parts of the points, every fifth each; single points where there are no more than five."""
    return [torch.arange(start, count, FOLDS) for start in range(min(FOLDS, count))]


def left_out_by_gp(model: SingleTaskGP) -> Tensor:
    """ln p(y_i | points of other folds), [n], with the kernel of all points, in the units of y.

    With P = K⁻¹ the points of a fold have the covariance (P_ff)⁻¹ and the error (P_ff)⁻¹ (P y)_f given all others; for
    single points that is Eq. 5.12 of Rasmussen & Williams.
    """
    with torch.no_grad():
        prior = model.likelihood(model.forward(model.train_inputs[0]))
        precision = torch.linalg.inv(prior.covariance_matrix)
        pull = precision @ (model.train_targets - prior.mean)
        out = torch.empty_like(pull)
        for fold in folds(len(pull)):
            covariance = torch.linalg.inv(precision[fold][:, fold])
            out[fold] = _log_normal(covariance @ pull[fold], covariance.diagonal())
        return out - model.outcome_transform.stdvs.squeeze().log()


def left_out_by_network(make: Callable[[Tensor, Tensor], NeuralProcessModel], x: Tensor, y: Tensor) -> Tensor:
    """The same of a network, whose context is the other folds."""
    out = torch.empty_like(y[:, 0])
    with torch.no_grad():
        for fold in folds(len(x)):
            others = torch.ones(len(x), dtype=torch.bool).index_fill(0, fold, False)
            model = make(x[others], y[others])
            posterior = model.posterior(x[fold].unsqueeze(1), observation_noise=True)
            out[fold] = _log_normal(y[fold] - posterior.mean[:, 0], posterior.variance[:, 0]).flatten()
    return out


def _log_normal(error: Tensor, variance: Tensor) -> Tensor:
    return -0.5 * (error.square() / variance + variance.log() + math.log(2 * math.pi))


def stacked(log_likelihood: Tensor, rounds: int = 100) -> Tensor:
    """Weights [M] with the largest Σ_i ln Σ_m w_m p_m(y_i), from ln p_m(y_i) [M, n], by expectation maximisation."""
    weights = torch.full_like(log_likelihood[:, 0], 1 / len(log_likelihood))
    for _ in range(rounds):
        weights = (log_likelihood + weights.log().unsqueeze(1)).softmax(0).mean(1)
    return weights


# --- acquisition ---


def improvement(model: Model, y: Tensor, search: Search) -> qLogExpectedImprovement:
    point = model.train_inputs[0][..., :1, :]
    sampler = get_sampler(model.posterior(point), torch.Size([search.num_samples]), seed=0)
    return qLogExpectedImprovement(model, best_f=float(y.max()), sampler=sampler)


def by_rounds(acquisition: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, search: Search) -> Tensor:
    """The best of random points, of points around the best observed ones, and of ever closer points around those."""
    count, dim = search.round_points, x.shape[-1]
    centres = x[y.flatten().topk(min(4, len(x))).indices]
    points = torch.cat([torch.rand(2 * count // 3, dim, dtype=DOUBLE), _around(centres, count // 3, 0.1)])
    with torch.no_grad():
        for width in (0.03, 0.01, 0.003, 0.0):
            values = acquisition(points.unsqueeze(1))
            centres = points[values.topk(4).indices]
            points = torch.cat([centres, _around(centres, count // 6, width)])
    return centres[:1]


def _around(centres: Tensor, count: int, width: float) -> Tensor:
    """Points of the unit cube near some centres, [count, dim]; about half of the inputs are left as they are."""
    chosen = centres[torch.randint(len(centres), (count,))]
    moved = torch.rand_like(chosen) < max(0.5, 1 / chosen.shape[-1])
    return (chosen + width * torch.randn_like(chosen) * moved).clamp(0, 1)
