"""How the next point is chosen: at random, by a Gaussian process, by a neural process, or by both.

All surrogates use BoTorch's qLogExpectedImprovement. BoTorch's `optimize_acqf` maximises it, or, where a gradient of
a large network takes too long, rounds of random points around the best so far. "Both" averages the expected improvement
of two surrogates with weights by stacking: they make the outputs most likely, each given all others (leave-one-out).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.sampling.get_sampler import get_sampler
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from benchmarks.bayesian_optimisation.family import Family
from benchmarks.bayesian_optimisation.problems import DOUBLE
from benchmarks.bayesian_optimisation.warping import Warp
from dsvnp.botorch import NeuralProcessModel
from dsvnp.models import NeuralProcess
from dsvnp.pretrained.heads import for_numbers
from dsvnp.pretrained.loading import load_pretrained

SHARES: list[float] = []  # weights of the network in "both", one per step
Method = Callable[[Tensor, Tensor], Tensor]  # x [n, dim] in the unit cube and y [n, 1] -> the next x [1, dim]


@dataclass(frozen=True)
class Search:
    """How an acquisition function is maximised.

    Attributes:
        raw_samples: points that it is first computed at.
        num_restarts: of these, from how many a gradient ascent starts.
        max_steps: of an ascent.
        num_samples: samples of the posterior.
    """

    raw_samples: int = 128
    num_restarts: int = 2
    max_steps: int = 20
    num_samples: int = 128


def random(x: Tensor, y: Tensor) -> Tensor:
    return torch.rand(1, x.shape[-1], dtype=DOUBLE)


@dataclass(frozen=True)
class GaussianProcess:
    """BoTorch's SingleTaskGP with its defaults."""

    search: Search

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return maximise(improvement(fitted(x, y), y, self.search), x.shape[-1], self.search)


@dataclass(frozen=True)
class Pretrained:
    """A network that ships with the package, on outputs that are warped by what was observed.

    Attributes:
        network: "tables" or "curves".
        search: how its acquisition function is maximised.
        with_gp: whether a Gaussian process on the same outputs has a say.
        num_orders: orders of the inputs that a prediction averages over.
        folder: of the weights; None is the package's.
    """

    network: str
    search: Search
    with_gp: bool = False
    num_orders: int = 1
    folder: Path | None = None

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        y = Warp.of(y.flatten(), share=0.1)(y)
        model = self.model(x, y)
        acquisition: AcquisitionFunction = improvement(model, y, self.search)
        if self.with_gp:
            gp = fitted(x, y)
            weights = stacked(torch.stack([left_out_by_network(self.model, x, y), left_out_by_gp(gp)]))
            SHARES.append(float(weights[0]))
            acquisition = Average([acquisition, improvement(gp, y, self.search)], weights)
        return by_rounds(acquisition, x, y, self.search)

    def model(self, x: Tensor, y: Tensor) -> NeuralProcessModel:
        network, settings = shipped(self.network, self.folder), {"noise": 0.0, "num_orders": self.num_orders}
        return NeuralProcessModel(network, x, y, scaling=self.network, seed=x.shape[-2], **settings)


@dataclass(frozen=True)
class Related:
    """A network that has seen related functions."""

    family: Family
    search: Search

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        y = self.family.warp(y)
        model = NeuralProcessModel(self.family.network, x, y)
        return maximise(improvement(model, y, self.search), x.shape[-1], self.search)


class Average(AcquisitionFunction):
    """ln of the weighted mean of expected improvements; weights [number of them]."""

    def __init__(self, parts: list[AcquisitionFunction], weights: Tensor) -> None:
        super().__init__(model=parts[0].model)
        self.parts, self.weights = torch.nn.ModuleList(parts), weights

    def forward(self, X: Tensor) -> Tensor:
        values = torch.stack([part(X) for part in self.parts], dim=-1)
        return (values + self.weights.log()).logsumexp(-1)


def fitted(x: Tensor, y: Tensor) -> SingleTaskGP:
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def left_out_by_gp(model: SingleTaskGP) -> Tensor:
    """ln p(y_i | all others), [n], in the units of the outputs before standardisation (Rasmussen & Williams, 5.12)."""
    with torch.no_grad():
        prior = model.likelihood(model.forward(model.train_inputs[0]))
        inverse = torch.linalg.inv(prior.covariance_matrix)
        variance = 1 / inverse.diagonal()
        error = (inverse @ (model.train_targets - prior.mean)) * variance
        scale = model.outcome_transform.stdvs.squeeze()
        return _log_normal(error, variance) - scale.log()


def left_out_by_network(make: Callable[[Tensor, Tensor], NeuralProcessModel], x: Tensor, y: Tensor) -> Tensor:
    """The same of a network: as many contexts as points, each without one."""
    count = len(x)
    others = torch.arange(count).repeat(count, 1)[~torch.eye(count, dtype=torch.bool)].view(count, count - 1)
    with torch.no_grad():
        posterior = make(x[others], y[others]).posterior(x.unsqueeze(1))
        return _log_normal(y.unsqueeze(1) - posterior.mean, posterior.variance).flatten()


def stacked(log_likelihood: Tensor, rounds: int = 100) -> Tensor:
    """Weights [M] with the largest Σ_i ln Σ_m w_m p_m(y_i), from ln p_m(y_i) [M, n], by expectation maximisation."""
    weights = torch.full_like(log_likelihood[:, 0], 1 / len(log_likelihood))
    for _ in range(rounds):
        weights = (log_likelihood + weights.log().unsqueeze(1)).softmax(0).mean(1)
    return weights


def _log_normal(error: Tensor, variance: Tensor) -> Tensor:
    return -0.5 * (error.square() / variance + variance.log() + math.log(2 * math.pi))


def improvement(model: Model, y: Tensor, search: Search) -> qLogExpectedImprovement:
    point = model.train_inputs[0][..., :1, :]
    sampler = get_sampler(model.posterior(point), torch.Size([search.num_samples]), seed=0)
    return qLogExpectedImprovement(model, best_f=float(y.max()), sampler=sampler)


def maximise(acquisition: AcquisitionFunction, dim: int, search: Search) -> Tensor:
    """The best point of the unit cube, [1, dim]."""
    bounds = torch.stack([torch.zeros(dim, dtype=DOUBLE), torch.ones(dim, dtype=DOUBLE)])
    found, _ = optimize_acqf(
        acquisition,
        bounds,
        q=1,
        num_restarts=search.num_restarts,
        raw_samples=search.raw_samples,
        options={"maxiter": search.max_steps},
    )
    return found


def by_rounds(acquisition: AcquisitionFunction, x: Tensor, y: Tensor, search: Search) -> Tensor:
    """The best of random points, of points around the best observed ones, and of ever closer points around those."""
    count, dim = search.raw_samples, x.shape[-1]
    centres = x[y.flatten().topk(min(4, len(x))).indices]
    points = torch.cat([torch.rand(count, dim, dtype=DOUBLE), _around(centres, count // 2, 0.1)])
    best = points[:1]
    with torch.no_grad():
        for width in (0.03, 0.01, 0.003):
            values = acquisition(points.unsqueeze(1))
            centres = points[values.topk(4).indices]
            best = centres[:1]
            points = torch.cat([centres, _around(centres, count // 4, width)])
    return best


def _around(centres: Tensor, count: int, width: float) -> Tensor:
    """Points of the unit cube near some centres, [count, dim]; about half of the inputs are left as they are."""
    chosen = centres[torch.randint(len(centres), (count,))]
    moved = torch.rand_like(chosen) < max(0.5, 1 / chosen.shape[-1])
    return (chosen + width * torch.randn_like(chosen) * moved).clamp(0, 1)


@lru_cache
def shipped(network: str, folder: Path | None) -> NeuralProcess:
    model = load_pretrained(network, folder)
    return for_numbers(model) if model.arch.likelihood == "number-or-class" else model
