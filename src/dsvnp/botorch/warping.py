"""A warp of outputs that stretches what lies near the best: −ln(top − y + c), standardised.

A network's errors are a share of the outputs' spread. On a function with a deep range, as Branin's, all that matters
for its maximum lies within a hundredth of that spread.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Warp:
    """y -> (−ln(top − y + c) − mean) / std, above the top a straight line with the slope that it has there."""

    top: float  # the best output
    offset: float  # c
    mean: float = 0.0  # of the warped outputs
    std: float = 1.0  # of the warped outputs

    @classmethod
    def of(cls, y: Tensor, share: float = 0.02) -> Warp:
        """The warp of outputs y [N]; c is a share of their median distance from the best."""
        top = float(y.max())
        raw = cls(top, share * float((top - y).median()) + 1e-12)
        warped = raw(y)
        return cls(raw.top, raw.offset, float(warped.mean()), float(warped.std().clamp(min=1e-12)))

    def __call__(self, y: Tensor) -> Tensor:
        gap = self.top - y
        warped = -torch.log(gap.clamp(min=0) + self.offset) - gap.clamp(max=0) / self.offset
        return (warped - self.mean) / self.std

    def log_slope(self, y: Tensor) -> Tensor:
        """ln of the warp's derivative at y; above the top it is that at the top."""
        return -torch.log(((self.top - y).clamp(min=0) + self.offset) * self.std)
