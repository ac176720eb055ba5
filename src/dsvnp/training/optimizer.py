"""Adam and AdamW for a fleet: a pure function of flat [R, P] tensors with a learning rate per replica.

torch's fused Adam takes no learning rate per replica, rounds differently by shape, and cannot be part of one
compiled step; this is the same arithmetic (the tests hold it against `torch.optim`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dsvnp.naming import lookup


@dataclass(frozen=True)
class Adam:
    """Settings of the optimiser."""

    # "adam" (weight decay, if any, goes into the gradient) or "adamw" (it shrinks the weights)
    kind: str = "adam"
    beta1: float = 0.9  # decay of the first moment
    beta2: float = 0.999  # decay of the second moment
    eps: float = 1e-8  # added to the root of the second moment
    weight_decay: float = 0.0  # strength of the decay
    clip_norm: float | None = None  # largest norm of a replica's gradient; None does not clip

    def __post_init__(self) -> None:
        lookup(self.kind, {"adam": 0, "adamw": 0}, "optimiser")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        for name in ("eps", "weight_decay"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(
                f"clip_norm must be positive, got {self.clip_norm}; leave it out for no clipping"
            )

    def update(
        self, params: Tensor, grads: Tensor, norm: Tensor, m: Tensor, v: Tensor, step: Tensor, lr: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return new parameters and moments m and v, [R, P] each.

        `norm` is that of each replica's gradient, [R, 1], see `norm_of_each`; `step` counts the steps taken before;
        `lr` has a learning rate per replica, [R, 1].
        """
        if self.clip_norm is not None:
            grads = grads * (self.clip_norm / (norm + 1e-6)).clamp(max=1)
        if self.kind == "adamw":
            params = params * (1 - lr * self.weight_decay)
        elif self.weight_decay:
            grads = grads + self.weight_decay * params
        m = self.beta1 * m + (1 - self.beta1) * grads
        v = self.beta2 * v + (1 - self.beta2) * grads.square()
        # In float64: 1 − 0.999 loses three digits in float32, which would scale the first steps.
        count = (step + 1).double()
        correct1 = (1 - torch.pow(self.beta1, count)).to(params.dtype)
        correct2 = (1 - torch.pow(self.beta2, count)).sqrt().to(params.dtype)
        params = params - lr / correct1 * m / (v.sqrt() / correct2 + self.eps)
        return params, m, v


def norm_of_each(grads: Tensor) -> Tensor:
    """Norm of each replica's gradient, [R, P] → [R, 1]."""
    return grads.square().sum(1, keepdim=True).sqrt()
