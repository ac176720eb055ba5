"""How the next point is chosen: at random, by a Gaussian process, or by a network that has seen related functions.

Both surrogates use BoTorch's qLogExpectedImprovement. For a Gaussian process BoTorch's `optimize_acqf` maximises it,
for networks rounds of random points around the best so far, in a tenth of the time. `panel` has pretrained networks.
"""

from __future__ import annotations

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
from dsvnp.botorch import NeuralProcessModel
from dsvnp.models import NeuralProcess
from dsvnp.pretrained.heads import for_numbers
from dsvnp.pretrained.loading import load_pretrained

Method = Callable[[Tensor, Tensor], Tensor]  # x [n, dim] in the unit cube and y [n, 1] -> the next x [1, dim]


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
class Related:
    """A network that has seen related functions."""

    family: Family
    search: Search

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        y = self.family.warp(y)
        own = improvement(NeuralProcessModel(self.family.network, inputs(x), y), y, self.search)
        return by_rounds(lambda points: own(inputs(points)), x, y, self.search)


@lru_cache
def shipped(network: str, folder: Path | None) -> NeuralProcess:
    model = load_pretrained(network, folder)
    return for_numbers(model) if model.arch.likelihood == "number-or-class" else model


# --- surrogates ---


def fitted(x: Tensor, y: Tensor) -> SingleTaskGP:
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


# --- acquisition ---


def improvement(model: Model, y: Tensor, search: Search) -> qLogExpectedImprovement:
    point = model.train_inputs[0][..., :1, :]
    sampler = get_sampler(model.posterior(point), torch.Size([search.num_samples]), seed=0)
    return qLogExpectedImprovement(model, best_f=float(y.max()), sampler=sampler)


def by_rounds(
    acquisition: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, search: Search, more: Tensor | None = None
) -> Tensor:
    """The best of random points, of points around the best observed ones, and of ever closer points around those.

    Args:
        acquisition: from points [N, 1, dim] to values [N].
        x: observed points, [n, dim].
        y: their outputs, [n, 1].
        search: sizes.
        more: further points to begin with, [N, dim].
    """
    count, dim = search.round_points, x.shape[-1]
    centres = x[y.flatten().topk(min(4, len(x))).indices]
    points = torch.cat([torch.rand(2 * count // 3, dim, dtype=DOUBLE), around(centres, count // 3, 0.1)])
    points = points if more is None else torch.cat([points, more])
    with torch.no_grad():
        for width in (0.03, 0.01, 0.003, 0.0):
            values = acquisition(points.unsqueeze(1))
            centres = points[values.topk(4).indices]
            points = torch.cat([centres, around(centres, count // 6, width)])
    return centres[:1]


def around(centres: Tensor, count: int, width: float | Tensor) -> Tensor:
    """Points of the unit cube near some centres, [count, dim]; about half of the inputs are left as they are."""
    chosen = centres[torch.randint(len(centres), (count,))]
    moved = torch.rand_like(chosen) < max(0.5, 1 / chosen.shape[-1])
    return (chosen + width * torch.randn_like(chosen) * moved).clamp(0, 1)
