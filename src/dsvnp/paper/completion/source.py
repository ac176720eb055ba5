"""Images as functions: a pixel's place in [−1, 1]² is the input, its value − 0.5 in each channel the output.

Axes: B images, C channels, P = height × width pixels, T pixels of a task.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from dsvnp.networks import Shape
from dsvnp.sources.base import TaskSource, Tensors, check_context, first_points, take_batch
from dsvnp.task import Task


class Pixels(TaskSource):
    """Tasks that are images, each seen at some of its pixels; an epoch visits the images in a random order."""

    def __init__(
        self,
        images: Tensor,  # bytes, [N, channels, height, width], uint8
        batch_size: int = 16,  # images of a batch
        num_points: int = 200,  # pixels of a task, drawn without replacement
        min_context: int = 3,  # smallest context
        max_context: int | None = None,  # largest context; all pixels of a task by default
    ) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise ValueError(
                f"images must be bytes [N, channels, height, width], got {images.dtype} {tuple(images.shape)}"
            )
        self.images, self.places = images.flatten(2), pixel_grid(*images.shape[2:])
        self.shape = (batch_size, num_points)
        self.context = (min_context, num_points if max_context is None else max_context)
        check_context(self.context, num_points)
        if num_points > len(self.places):
            raise ValueError(
                f"an image has {len(self.places)} pixels, fewer than num_points={num_points}; lower num_points"
            )
        self.refresh_every = len(images) // batch_size
        if self.refresh_every < 1:
            raise ValueError(f"got {len(images)} images, fewer than the {batch_size} of a batch; pass more")

    def static(self) -> Tensors:
        """The bytes, and the places of all pixels."""
        return {"images": self.images, "places": self.places}

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """The order in which an epoch visits the images."""
        return {"order": torch.randperm(len(self.images), generator=generator, device=device)}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        """A number for the size of each context, and one for each pixel: those with the smallest are taken."""
        return {"context": self.shape[:1], "pixels": (self.shape[0], len(self.places))}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        """Some pixels of the next images of the order."""
        rows = take_batch(tensors["order"], step, self.shape[0])
        chosen = uniforms["pixels"].argsort(-1)[:, : self.shape[1]]  # [B, T]
        x = tensors["places"][chosen]
        y = values_at(tensors["images"][rows], chosen, x.dtype)
        return Task.from_points(x, y, first_points(uniforms["context"], *self.context, x))


def pixel_grid(height: int, width: int) -> Tensor:
    """Row and column of each pixel in [−1, 1]², line by line, [P, 2]."""
    rows, columns = torch.linspace(-1, 1, height), torch.linspace(-1, 1, width)
    return torch.cartesian_prod(rows, columns)


def values_at(images: Tensor, chosen: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Values − 0.5 of chosen pixels, [B, T, C], of bytes [B, C, P]."""
    index = chosen.unsqueeze(1).expand(-1, images.shape[1], -1)  # [B, C, T]
    return images.gather(-1, index).transpose(1, 2).to(dtype) / 255 - 0.5


def split_pixels(images: Tensor, num_context: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pixels of the context, [B, num_context], and all others, of bytes [B, C, H, W]; the same on every device."""
    pixels = images.shape[2] * images.shape[3]
    if not 0 <= num_context < pixels:
        raise ValueError(f"a context of {num_context} pixels leaves none of {pixels} to complete; lower it")
    order = torch.rand(len(images), pixels, generator=torch.Generator().manual_seed(seed)).argsort(-1)
    order = order.to(images.device)
    return order[:, :num_context], order[:, num_context:]


def completion_task(images: Tensor, context: Tensor, targets: Tensor) -> Task:
    """A task of bytes [B, C, H, W] seen at the pixels `context` [B, N] and asked about at `targets` [B, T]."""
    places, flat = pixel_grid(*images.shape[2:]).to(images.device), images.flatten(2)
    both = [(places[chosen], values_at(flat, chosen)) for chosen in (context, targets)]
    return Task.from_sets(*both[0], *both[1])
