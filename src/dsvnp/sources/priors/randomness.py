"""Random: every number that a prior draws, from one generator.

`torch.distributions` takes no generator, so all laws here are made of uniform and normal numbers. The same
generator state gives the same pool, which is what lets a stopped run continue to the bit.
"""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

TINY = 1e-7  # keeps logarithms and quantiles of uniform numbers finite


class Random:
    """Random tensors of float32 on one device, on which their generator lies."""

    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        self.generator, self.device = generator, device

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        """Numbers in [low, high)."""
        numbers = torch.rand(shape, generator=self.generator, device=self.device)
        return numbers if (low, high) == (0.0, 1.0) else low + (high - low) * numbers

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(shape, generator=self.generator, device=self.device)

    def log_uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Numbers in [low, high) whose logarithm is uniform."""
        return torch.exp(self.uniform(*shape, low=math.log(low), high=math.log(high)))

    def exponential(self, *shape: int) -> Tensor:
        """Numbers with density e⁻ᵗ."""
        return -torch.log(self.uniform(*shape).clamp(min=TINY))

    def chance(self, probability: float | Tensor, *shape: int) -> Tensor:
        """Flags that are True with the given probability."""
        return self.uniform(*shape) < probability

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Integers low … high, both included."""
        return torch.randint(low, high + 1, shape, generator=self.generator, device=self.device)

    def sign(self, *shape: int) -> Tensor:
        """−1 or 1."""
        return 2.0 * self.chance(0.5, *shape) - 1.0

    def choice(self, weights: Sequence[float], *shape: int) -> Tensor:
        """Indices into `weights`, each as likely as its weight says."""
        edges = [edge / sum(weights) for edge in accumulate(weights)][:-1]
        return torch.bucketize(self.uniform(*shape), torch.tensor(edges, device=self.device), right=True)

    def permutations(self, *shape: int) -> Tensor:
        """Independent permutations along the last axis."""
        return self.uniform(*shape).argsort(-1)

    def allot(self, count: int, shares: Sequence[float]) -> list[Tensor]:
        """Deal `count` tables out at random, in fixed proportions: the rows of each share."""
        order = torch.randperm(count, generator=self.generator, device=self.device)
        total = sum(shares)
        ends = [0, *(round(count * end / total) for end in accumulate(shares))]
        return [order[start:end] for start, end in pairwise(ends)]

    def student(self, freedom: Tensor, *shape: int) -> Tensor:
        """Student's t by Bailey's polar method: √(ν (u^(−2/ν) − 1)) cos 2πv has ν degrees of freedom."""
        u, v = self.uniform(*shape).clamp(min=TINY), self.uniform(*shape)
        return torch.sqrt(freedom * (u ** (-2 / freedom) - 1)) * torch.cos(2 * math.pi * v)

    def frequency_scale(self, freedom: Tensor, *shape: int) -> Tensor:
        """√(ν / χ²_ν) for whole ν = 0 … 5; 1 for ν = 0.

        A normal vector times this number is multivariate t, the spectral law of the Matérn kernel with
        smoothness ν/2: 1, 3 and 5 give Matérn-1/2, 3/2 and 5/2; 0 stands for ∞, the RBF kernel.
        """
        squares = self.normal(*shape, 5).square()
        counted = torch.arange(5, device=self.device) < freedom.unsqueeze(-1)
        chi = torch.where(counted, squares, 0.0).sum(-1)
        return torch.where(freedom > 0, (freedom / chi.clamp(min=TINY)).sqrt(), 1.0)


def unit(values: Tensor, dim: int = 1, bound: float = 8.0) -> Tensor:
    """Zero mean and unit variance along `dim`, cut at ±bound; zeros where nothing varies."""
    centred = values - values.mean(dim, keepdim=True)
    std = centred.square().mean(dim, keepdim=True).sqrt()
    varies = std > 1e-5 * values.abs().amax(dim, keepdim=True).clamp(min=1e-3)
    return torch.where(varies, (centred / std.clamp(min=1e-12)).clamp(-bound, bound), 0.0)
