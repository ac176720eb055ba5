"""Layout: the parameters of a model as one flat vector, and back.

A fleet keeps its parameters, gradients and moments as [R, P] tensors: the optimiser is then a handful of
operations on three tensors however many layers a model has, clipping is one norm, and one `all_reduce`
carries all gradients.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

ALIGN = 64  # each parameter starts at a multiple of this many elements: matrix kernels want aligned operands


class Layout:
    """The place of each named parameter in the flat vector."""

    def __init__(self, model: nn.Module) -> None:
        self.shapes = {name: p.shape for name, p in model.named_parameters()}
        self.slots = [-(-math.prod(shape) // ALIGN) * ALIGN for shape in self.shapes.values()]
        self.size = sum(self.slots)

    def flatten(self, named: Mapping[str, Tensor]) -> Tensor:
        """Put named tensors with any leading axes [..., *shape] into one [..., P]; gaps hold zeros."""
        first = next(iter(named.values()))
        leading = first.shape[: first.ndim - len(self.shapes[next(iter(named))])]
        flat = torch.zeros(*leading, self.size, dtype=first.dtype, device=first.device)
        for name, value in self.unflatten(flat).items():
            value.copy_(named[name].detach())
        return flat

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Views of a flat [..., P] by name, each [..., *shape].

        One split, whose gradient is one concatenation: a slice each would add up as many vectors of size P.
        """
        parts = flat.split(self.slots, dim=-1)
        return {
            name: part[..., : math.prod(shape)].view((*flat.shape[:-1], *shape))
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }
