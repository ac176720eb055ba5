"""A discriminant: classes told apart by a normal distribution of the rows of each.

    ln p(c | x) = ln n_c + ln N(x; μ_c, Σ_c) + constant,   Σ_c = (S_c + ν Σ) / (n_c − 1 + ν)

S_c holds the products of a class's n_c rows around their mean μ_c, and Σ is the covariance within classes, all classes
together. A large ν makes all Σ_c alike, and log-odds linear in x; a small one lets them be quadratic. Where classes are
roughly normal such a discriminant needs fewer rows than logistic regression.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dsvnp.tabular.rows.scaling import ABSENT, InputScaling

SHRINKAGE = 0.1  # of correlations within classes


@dataclass(frozen=True)
class Discriminant:
    """Log-odds of classes for rows in the user's units, by a normal distribution of each class's scaled rows."""

    inputs: InputScaling
    counts: Tensor  # rows of each class, [C]
    means: Tensor  # μ, [C, D]
    roots: Tensor  # L with Σ_c = L Lᵀ, [C, D, D]

    @classmethod
    def fit(cls, x: Tensor, y: Tensor, num_classes: int, alike: float) -> Self:
        """Fit to rows [N, D] and labels [N]; alike is ν / D, how much the covariances share."""
        inputs = InputScaling.fit(x)
        x, of_class = inputs.transform(x), one_hot(y, num_classes).to(x.dtype)  # [N, C]
        counts = of_class.sum(0)
        means = of_class.T @ x / counts.clamp(min=1)[:, None]
        away = x - means[y]
        products = (of_class.T[:, :, None] * away).transpose(1, 2) @ away  # S, [C, D, D]
        eye = torch.eye(x.shape[1], dtype=x.dtype)
        # one row more, of unit variance: without it nothing would vary within classes of one row each
        pooled = (products.sum(0) + eye) / (counts.sum() - (counts > 0).sum() + 1)
        pooled = torch.where(eye > 0, pooled, (1 - SHRINKAGE) * pooled)
        weight = alike * x.shape[1]
        own = (products + weight * pooled) / ((counts - 1).clamp(min=0) + weight)[:, None, None]
        return cls(inputs, counts, means, torch.linalg.cholesky(own))

    def __call__(self, x: Tensor) -> Tensor:
        """Log-odds of rows [T, D], [T, C]; a class that has no rows is less likely than all others."""
        away = (self.inputs.transform(x) - self.means[:, None]).transpose(1, 2)  # [C, D, T]
        squares = torch.linalg.solve_triangular(self.roots, away, upper=False).square().sum(1)
        sizes = self.roots.diagonal(dim1=1, dim2=2).log().sum(1)
        odds = (self.counts.log() - sizes - 0.5 * squares.T).clamp(min=-1e6)
        there = self.counts > 0
        return torch.where(there, odds, odds[:, there].amin(1, keepdim=True) - ABSENT)
