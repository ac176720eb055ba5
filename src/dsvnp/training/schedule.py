"""Learning-rate schedules, as functions of a step that is a tensor: a captured graph sees it change."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dsvnp.naming import lookup


@dataclass(frozen=True)
class Schedule:
    """The course of the learning rate during training."""

    # "constant"; "cosine" from the full rate down to `final` of it after the last step; "trapezoid", constant until
    # the last `decay` steps, over which it falls linearly to `final`. A run with a trapezoid may be prolonged as long
    # as its decay has not begun
    kind: str = "constant"
    warmup: int = 0  # steps over which the rate rises linearly at the start
    final: float = 0.0  # what is left of the rate at the end of a cosine or trapezoid
    decay: int = 0  # length of a trapezoid's fall, in steps

    def __post_init__(self) -> None:
        lookup(self.kind, {"constant": 0, "cosine": 0, "trapezoid": 0}, "schedule")
        if not 0 <= self.warmup < math.inf:
            raise ValueError(f"warmup must be finite and not negative, got {self.warmup}")
        if (self.decay > 0) != (self.kind == "trapezoid"):
            raise ValueError(
                f"a trapezoid, and no other schedule, needs decay > 0, got {self.kind} with {self.decay}"
            )
        if not 0 <= self.final <= 1:
            raise ValueError(f"final is a part of the learning rate, 0 to 1, got {self.final}")

    @property
    def open_ended(self) -> bool:
        """Whether the steps so far do not depend on how many are to come."""
        return self.kind in ("constant", "trapezoid")

    def factor(self, step: Tensor, num_steps: int) -> Tensor:
        """The factor of the learning rate at a step, of `num_steps` in all."""
        time = step.double()
        factor = torch.ones_like(time)
        if self.kind == "cosine":
            progress = ((time - self.warmup) / max(1, num_steps - self.warmup)).clamp(0, 1)
            factor = self.final + (1 - self.final) * 0.5 * (1 + torch.cos(math.pi * progress))
        if self.kind == "trapezoid":
            left = ((num_steps - time) / self.decay).clamp(0, 1)
            factor = self.final + (1 - self.final) * left
        if self.warmup:
            factor = factor * ((time + 1) / self.warmup).clamp(max=1)
        return factor
