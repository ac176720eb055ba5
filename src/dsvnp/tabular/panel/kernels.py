"""Logistic regression of scaled rows, or of their likeness to some known rows: then it is not linear in x.

    k_j(x) = exp(−γ ‖x − c_j‖² / D),   φ(x) = K^{−1/2} k(x),   K_ij = k_j(c_i)

Inner products of φ are the kernel's wherever x is one of the centres c (Nyström's approximation).
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from dsvnp.tabular.rows.scaling import ClassScaling, InputScaling

MOST_ROWS = 2000  # that a regression on kernel features reads
MOST_CENTRES = 300
LEAST_SHARE = 1e-9  # of the largest eigenvalue of K that a direction must have


@dataclass(frozen=True)
class KernelFeatures:
    """φ of rows of scaled inputs."""

    centres: Tensor  # c, [M, D]
    root: Tensor  # K^{−1/2}, [M, M]
    rate: float  # γ / D

    @classmethod
    def fit(cls, x: Tensor, gamma: float) -> Self:
        """Take half of the rows [N, D] as centres, at most so many."""
        number = min(MOST_CENTRES, (len(x) + 1) // 2)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
        centres, rate = x[order[:number]], gamma / x.shape[1]
        values, vectors = torch.linalg.eigh(_likeness(centres, centres, rate))
        there = values > LEAST_SHARE * values[-1]
        roots = torch.where(there, values.clamp(min=LEAST_SHARE).rsqrt(), 0.0)
        return cls(centres, (vectors * roots) @ vectors.T, rate)

    def __call__(self, x: Tensor) -> Tensor:
        """Features of rows [T, D], [T, M]."""
        return _likeness(x, self.centres, self.rate) @ self.root


@dataclass(frozen=True)
class Logistic:
    """Log-odds of classes for rows in the user's units."""

    inputs: InputScaling
    features: KernelFeatures | None  # None reads scaled rows as they are
    outputs: ClassScaling
    num_classes: int

    @classmethod
    def fit(cls, x: Tensor, y: Tensor, num_classes: int, strength: float, gamma: float | None) -> Self:
        """Fit to rows [N, D] and labels [N]; a gamma asks for kernel features."""
        inputs, features = InputScaling.fit(x), None
        if gamma is not None:
            some = slice(None, None, -(-len(x) // MOST_ROWS))
            x, y = x[some], y[some]
            features = KernelFeatures.fit(inputs.transform(x), gamma)
        rows = inputs.transform(x)
        rows = rows if features is None else features(rows)
        outputs = ClassScaling.fit(rows, y[:, None], num_classes, strength=strength)
        return cls(inputs, features, outputs, num_classes)

    def __call__(self, x: Tensor) -> Tensor:
        """Log-odds of rows [T, D], [T, C]; of rows of one class nothing is known."""
        if not len(self.outputs.bias):
            return x.new_zeros(len(x), self.num_classes)
        rows = self.inputs.transform(x)
        return self.outputs.linear(rows if self.features is None else self.features(rows))


def _likeness(x: Tensor, centres: Tensor, rate: float) -> Tensor:
    """The kernel between rows [T, D] and centres [M, D], [T, M]."""
    squares = x.square().sum(1)[:, None] + centres.square().sum(1) - 2 * x @ centres.T
    return (-rate * squares.clamp(min=0)).exp()
