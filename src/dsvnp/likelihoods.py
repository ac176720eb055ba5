"""Likelihoods: how a decoder's raw output becomes a distribution of y, and how y enters an encoder.

Each has `dim_raw` (what the decoder must put out), `dim_encoded` (the size of y as an encoder sees it),
`encode`, `log_prob` for training, and `components` with `predictive` for use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsvnp.gaussian import gaussian_log_prob
from dsvnp.networks import full_precision
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, Predictive

SMALLEST_SIGMA = 1e-6  # with a floor of 0: softplus(−104) is 0 in float32, whose logarithm is infinite


class Likelihood(nn.Module, ABC):
    """p(y | raw), with raw [..., B, T, dim_raw] from the decoder and y [B, T, dim_y]."""

    dim_raw: int
    dim_encoded: int

    @abstractmethod
    def encode(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """Turn y into what an encoder reads, [B, T, dim_encoded], in the given floating-point type."""

    @abstractmethod
    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """The training term of each point, [..., B, T]."""

    @abstractmethod
    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Turn raw draws into the parameters of mixture components, each [K, S, B, T, ...]."""

    @abstractmethod
    def predictive(self, *components: Tensor) -> Predictive:
        """Make the predictive distribution of such components."""

    @abstractmethod
    def check(self, y: Tensor, name: str) -> None:
        """Refuse a y of the wrong size or type; `name` is what the caller calls it."""

    def check_values(self, y: Tensor, mask: Tensor, name: str) -> None:
        """Refuse values that the type alone does not rule out."""


class Gaussian(Likelihood):
    """N(μ, σ²) for each output with a learned σ = floor + (1 − floor)·softplus(·).

    With the floor of 0.1 that is customary, a negative log-likelihood cannot fall below −1.384 per output.

    Args:
        dim_y: number of outputs.
        floor: smallest σ, in the units of y; 0 stands for a millionth, for a logarithm that is finite.
    """

    def __init__(self, dim_y: int, floor: float = 0.1) -> None:
        super().__init__()
        if not 0 <= floor < 1:
            raise ValueError(f"the floor of sigma must be at least 0 and below 1, got {floor}")
        self.dim_y = self.dim_encoded = dim_y
        self.dim_raw = 2 * dim_y
        self.floor = floor

    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """μ and σ."""
        mean, raw_scale = full_precision(raw).chunk(2, dim=-1)
        floor = max(self.floor, SMALLEST_SIGMA)
        return mean, floor + (1 - floor) * F.softplus(raw_scale)

    def encode(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """y itself, with zero for a missing value."""
        return torch.where(torch.isnan(y), 0.0, y).to(dtype)

    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """ln N(y; μ, σ²) summed over the outputs that are there."""
        mean, scale = self.components(raw)
        missing = torch.isnan(y)
        log_prob = gaussian_log_prob(torch.where(missing, 0.0, y), mean, scale)
        return torch.where(missing, 0.0, log_prob).sum(-1)

    def predictive(self, *components: Tensor) -> Predictive:
        """A mixture of Gaussians."""
        return GaussianPredictive(*components)

    def check(self, y: Tensor, name: str) -> None:
        """Refuse a wrong number of outputs, and integers."""
        _check_outputs(y, self.dim_y, name)


class FixedGaussian(Likelihood):
    """Squared error, averaged over outputs, as the training term (Sec. 4.3); σ is not learned.

    For prediction σ is a buffer, one value per output: 1 until someone who has held-out residuals sets it.

    Args:
        dim_y: number of outputs.
    """

    sigma: Tensor

    def __init__(self, dim_y: int) -> None:
        super().__init__()
        self.dim_y = self.dim_encoded = self.dim_raw = dim_y
        self.register_buffer("sigma", torch.ones(dim_y))

    def encode(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """y itself, with zero for a missing value."""
        return torch.where(torch.isnan(y), 0.0, y).to(dtype)

    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """−mean over the outputs that are there of (y − μ)²."""
        there = ~torch.isnan(y)
        error = torch.where(there, y - full_precision(raw), 0.0)
        return -error.square().sum(-1) / there.sum(-1).clamp(min=1)

    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """μ alone."""
        return (full_precision(raw),)

    def predictive(self, *components: Tensor) -> Predictive:
        """A mixture of Gaussians around the decoder's outputs, all with the fixed σ."""
        return GaussianPredictive(components[0], self.sigma)

    def check(self, y: Tensor, name: str) -> None:
        """Refuse a wrong number of outputs, and integers."""
        _check_outputs(y, self.dim_y, name)


class Categorical(Likelihood):
    """One of several classes; labels are integers [B, T, 1], read by an encoder as one-hot vectors.

    Args:
        num_classes: number of classes.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = self.dim_raw = self.dim_encoded = num_classes

    def encode(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """One-hot vectors."""
        classes = torch.arange(self.num_classes, device=y.device)
        return (y == classes).to(dtype)

    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """Log-probability of the label."""
        log_probs = full_precision(raw).log_softmax(-1)
        return (log_probs * self.encode(y, log_probs.dtype)).sum(-1)

    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Log-probabilities of the classes."""
        return (full_precision(raw).log_softmax(-1),)

    def predictive(self, *components: Tensor) -> Predictive:
        """A mixture of categorical distributions."""
        return CategoricalPredictive(*components)

    def check(self, y: Tensor, name: str) -> None:
        """Refuse labels that are not one integer per point."""
        if y.is_floating_point() or y.dtype == torch.bool:
            raise ValueError(f"{name} must hold integer class labels, got {y.dtype}; pass y.long()")
        if y.shape[-1] != 1:
            raise ValueError(
                f"{name} must hold one label per point, [tasks, points, 1], got {tuple(y.shape)}; "
                "pass class indices, not one-hot vectors"
            )

    def check_values(self, y: Tensor, mask: Tensor, name: str) -> None:
        """Refuse labels outside 0 … num_classes − 1."""
        labels = y.squeeze(-1)[mask]
        if labels.numel() and (int(labels.min()) < 0 or int(labels.max()) >= self.num_classes):
            raise ValueError(
                f"{name} must hold labels from 0 to {self.num_classes - 1}, got {int(labels.min())} to "
                f"{int(labels.max())}; renumber the classes or raise num_classes"
            )


def _check_outputs(y: Tensor, dim_y: int, name: str) -> None:
    """Refuse a wrong number of outputs, and integers."""
    if y.shape[-1] != dim_y:
        raise ValueError(f"{name} has {y.shape[-1]} outputs but the model was made for {dim_y}")
    if not y.is_floating_point():
        raise ValueError(f"{name} must be floating point for regression, got {y.dtype}; pass y.float()")
