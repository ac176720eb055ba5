"""Functions to maximise over the unit cube: three single ones, eight to choose by, and two families of related ones.

    branin, hartmann, ackley      BoTorch's Branin, Hartmann-6 and Ackley-5, negated
    branins                       a (x₂ − b x₁² + c x₁ − r)² + s (1 − t) cos x₁ + s with six random parameters
    hartmanns                     Hartmann-6 with random heights of its four wells and a random shift of its inputs

The parameters of a family's function come from its seed. Functions that were seen before have the seeds −1, −2, …
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from botorch.test_functions import (
    Ackley,
    Branin,
    Griewank,
    Hartmann,
    Levy,
    Michalewicz,
    Rastrigin,
    Rosenbrock,
    Shekel,
    SixHumpCamel,
    StyblinskiTang,
)
from botorch.test_functions.base import BaseTestProblem
from torch import Tensor
from torch.quasirandom import SobolEngine

DOUBLE = torch.float64


@dataclass(frozen=True)
class Problem:
    """A function of the unit cube [0, 1]^dim.

    Attributes:
        dim: number of inputs.
        value: from inputs [N, dim] to outputs [N], to be maximised.
        known_best: the maximum, where it is published.
    """

    dim: int
    value: Callable[[Tensor], Tensor]
    known_best: float | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return self.value(x.to(DOUBLE)).unsqueeze(-1)

    @cached_property
    def best(self) -> float:
        """The maximum: published, or the best of gradient ascents from the best of many points."""
        return self.known_best if self.known_best is not None else _maximum(self.value, self.dim)


def single(test: BaseTestProblem) -> Problem:
    """A test function of BoTorch over the unit cube."""
    low, high = test.bounds.to(DOUBLE)
    return Problem(test.dim, lambda x: test(low + (high - low) * x), float(test.optimal_value))


def branins(seed: int) -> Problem:
    """One of the related Branins; the ranges are those usual in meta-learning."""
    low = torch.tensor([0.5, 0.1, 1.0, 5.0, 8.0, 0.03], dtype=DOUBLE)
    high = torch.tensor([1.5, 0.15, 2.0, 7.0, 12.0, 0.05], dtype=DOUBLE)
    a, b, c, r, s, t = low + (high - low) * _uniform(seed, 6)

    def value(x: Tensor) -> Tensor:
        x1, x2 = 15 * x[..., 0] - 5, 15 * x[..., 1]
        return -(a * (x2 - b * x1**2 + c * x1 - r) ** 2 + s * (1 - t) * torch.cos(x1) + s)

    return Problem(2, value)


def hartmanns(seed: int) -> Problem:
    """One of the related Hartmann functions: heights between 0.5 and 3.5, inputs shifted by up to 0.1."""
    usual = Hartmann(dim=6, negate=True).to(DOUBLE)
    uniform = _uniform(seed, 10)
    usual.ALPHA = 0.5 + 3 * uniform[:4]
    shift = 0.2 * uniform[4:] - 0.1
    return Problem(6, lambda x: usual._evaluate_true(x + shift).neg())


SINGLE: dict[str, Callable[[], Problem]] = {
    "branin": lambda: single(Branin(negate=True)),
    "hartmann": lambda: single(Hartmann(dim=6, negate=True)),
    "ackley": lambda: single(Ackley(dim=5, negate=True)),
}
# On these the panel's warps were chosen (`results/bayesian-optimisation/choice.jsonl`).
CHOICE: dict[str, Callable[[], Problem]] = {
    "camel": lambda: single(SixHumpCamel(negate=True)),
    "griewank5": lambda: single(Griewank(dim=5, negate=True)),
    "levy5": lambda: single(Levy(dim=5, negate=True)),
    "michalewicz5": lambda: single(Michalewicz(dim=5, negate=True)),
    "rastrigin3": lambda: single(Rastrigin(dim=3, negate=True)),
    "rosenbrock4": lambda: single(Rosenbrock(dim=4, negate=True)),
    "shekel": lambda: single(Shekel(negate=True)),
    "styblinski4": lambda: single(StyblinskiTang(dim=4, negate=True)),
}
FAMILIES: dict[str, Callable[[int], Problem]] = {"branins": branins, "hartmanns": hartmanns}


def problem(name: str, seed: int) -> Problem:
    """The function of a name; of a family, that of a seed."""
    return FAMILIES[name](seed) if name in FAMILIES else (SINGLE | CHOICE)[name]()


def first_points(dim: int, seed: int, count: int) -> Tensor:
    """The first points of a run, the same for all methods, [count, dim]."""
    return SobolEngine(dim, scramble=True, seed=seed).draw(count, dtype=DOUBLE)


def _uniform(seed: int, count: int) -> Tensor:
    """Numbers in [0, 1) that depend on the seed alone; negative seeds are those of functions seen before."""
    return torch.rand(count, generator=torch.Generator().manual_seed(10_000 + seed), dtype=DOUBLE)


def _maximum(value: Callable[[Tensor], Tensor], dim: int) -> float:
    x = SobolEngine(dim, scramble=True, seed=0).draw(2**14, dtype=DOUBLE)
    logits = torch.logit(x[value(x).topk(32).indices].clamp(1e-3, 1 - 1e-3)).requires_grad_()
    ascent = torch.optim.LBFGS([logits], max_iter=300, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        ascent.zero_grad()
        total = -value(logits.sigmoid()).sum()
        total.backward()
        return total

    ascent.step(loss)
    best = float(value(logits.detach().sigmoid()).max())
    assert math.isfinite(best)
    return best
