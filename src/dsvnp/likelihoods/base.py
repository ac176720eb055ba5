"""What every likelihood can do."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from dsvnp.predictive import Predictive


class Likelihood(nn.Module, ABC):
    """p(y | raw), with raw [..., B, T, dim_raw] from the decoder and y [B, T, dim_y]."""

    dim_raw: int
    dim_encoded: int
    coherent: bool = False  # whether all targets of a task have one density together, and not one each
    common: Tensor | None = None  # set by a training step only, see `Objective.common_steps`

    @abstractmethod
    def encode(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """Turn y into what an encoder reads, [B, T, dim_encoded], in the given floating-point type."""

    @abstractmethod
    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """The training term of each point by itself, [..., B, T]."""

    def score(self, raw: Tensor, y: Tensor, counted: Tensor) -> Tensor:
        """The training term of each point where `counted` [B, T] is True, [..., B, T]; of others anything finite.

        Where targets have one density together, each point has an equal share of it.
        """
        return self.log_prob(raw, y)

    @abstractmethod
    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Turn raw draws [K, S, B, T, dim_raw] into parameters of mixture components, each [K, S', B, T, ·].

        S' is S, or a multiple of it where a draw has several components. Every part has tasks and targets as the two
        axes before its last, because `predict` fills in the targets of one chunk after the other.
        """

    @abstractmethod
    def predictive(self, *components: Tensor) -> Predictive:
        """Make the predictive distribution of such components."""

    @abstractmethod
    def check(self, y: Tensor, name: str) -> None:
        """Refuse a y of the wrong size or type; `name` is what the caller calls it."""

    def check_values(self, y: Tensor, mask: Tensor, name: str) -> None:
        """Refuse values that the type alone does not rule out."""
