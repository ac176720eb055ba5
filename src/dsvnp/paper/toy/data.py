"""The toy function (Sec. 4.1, Fig. 2's first row): 20 noisy observations with a gap, and tasks made of them."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dsvnp.networks import Shape
from dsvnp.sources.base import TaskSource, Tensors, first_points
from dsvnp.task import Task

NOISE = 0.003
PARTS = ((12, 0.0, 0.6), (8, 0.8, 1.0))  # number of observations, and the interval they lie in


def toy_function(x: Tensor) -> Tensor:
    """f(x) = x + sin 4x + sin 13x, the observations without their noise."""
    return x + torch.sin(4 * x) + torch.sin(13 * x)


def draw_observations(
    generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Draw the 20 observations, x and y = f(x + ε) with ε ~ N(0, 0.003²), each [20, 1].

    The noise shifts the input: y is noisier where f is steep.
    """
    device = generator.device
    x = torch.cat(
        [
            low + (high - low) * torch.rand(count, 1, generator=generator, dtype=dtype, device=device)
            for count, low, high in PARTS
        ]
    )
    epsilon = NOISE * torch.randn(x.shape, generator=generator, dtype=dtype, device=device)
    return x, toy_function(x + epsilon)


class Subsets(TaskSource):
    """Tasks of one small set of points: all of them are targets, a random subset of them is the context.

    A context has 1 to N − 1 of the N points: a model that is scored outside its context always has a scored point.
    """

    def __init__(self, x: Tensor, y: Tensor, batch_size: int = 16) -> None:
        if len(x) != len(y) or len(x) < 2:
            raise ValueError(
                f"expected as many outputs as inputs and at least 2 of each, got {len(x)} rows of x and {len(y)} of y"
            )
        self.x, self.y = x, y
        self.batch_size = batch_size

    def static(self) -> Tensors:
        return {"x": self.x, "y": self.y}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        """Per task one number for the size of its context, and one per point for their order."""
        return {"context": (self.batch_size,), "order": (self.batch_size, len(self.x))}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        """All points in a random order for each task, the first of them its context."""
        order = uniforms["order"].argsort(-1)  # [B, N]: the ranks of independent numbers are a permutation
        x = tensors["x"][order]
        in_context = first_points(uniforms["context"], 1, len(self.x) - 1, x)
        return Task.from_points(x, tensors["y"][order], in_context)
