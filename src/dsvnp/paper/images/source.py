"""Images as a source of tasks: bytes on the device, turned into numbers batch by batch.

CIFAR-10 is 150 MB as bytes and 600 MB as numbers; the whole of it lies on the device, and a step normalises the hundred
images it needs, shifted and mirrored at random if asked to.
"""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from dsvnp.networks import Shape
from dsvnp.sources.base import RowSource, Tensors


class Images(RowSource):
    """Tasks that are random batches of labelled images."""

    def __init__(
        self,
        images: Tensor,  # bytes, [N, channels, height, width], uint8
        labels: Tensor,  # class of each image, [N]
        mean: Sequence[float] = (0.0,),  # mean of each channel in [0, 1]; zeros leave images in [0, 1]
        # standard deviation of each channel in [0, 1]; ones leave images in [0, 1]
        std: Sequence[float] = (1.0,),
        num_points: int = 100,  # images of a task
        batch_size: int = 1,  # tasks of a batch
        min_context: int = 1,  # smallest context
        max_context: int | None = None,  # largest context; all images of a task by default
        dtype: torch.dtype = torch.float32,  # floating-point type of the tasks
        pad: int = 0,  # shift each image by up to so many pixels each way, black coming in from outside
        flip: float = 0.0,  # probability that an image is mirrored
    ) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise ValueError(
                f"images must be bytes [N, channels, height, width], got {images.dtype} {tuple(images.shape)}"
            )
        if pad < 0 or not 0 <= flip <= 1:
            raise ValueError(
                f"pad must not be negative and flip is a probability, got pad={pad} and flip={flip}"
            )
        self.image: Shape = tuple(images.shape[1:])
        self.mean, self.std, self.dtype = tuple(mean), tuple(std), dtype
        self.pad, self.flip = pad, flip
        labels = labels.long().reshape(-1, 1)
        super().__init__(images.flatten(1), labels, num_points, batch_size, min_context, max_context)

    def static(self) -> Tensors:
        """The bytes, and the statistics: a captured step can copy nothing from the host."""
        mean, std = (torch.tensor(value, dtype=self.dtype) for value in (self.mean, self.std))
        return {**super().static(), "mean": mean, "std": std}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        """The size of a context; and, for each image, a shift both ways and whether it is mirrored."""
        own: dict[str, Shape] = {"shift": (*self.shape, 2), "flip": self.shape}
        return {**super().uniform_shapes(), **(own if self.pad or self.flip else {})}

    def prepare(self, x: Tensor, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor]) -> Tensor:
        """Bytes [B, T, pixels] to normalised numbers."""
        if self.pad or self.flip:
            corner = (uniforms["shift"] * (2 * self.pad + 1)).long()
            x = crop(x, self.image, self.pad, corner, uniforms["flip"] < self.flip)
        return normalise(x, tensors["mean"], tensors["std"])


def normalise(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Turn bytes [..., channels × height × width] into (x / 255 − mean) / std, channel by channel."""
    channels = x.unflatten(-1, (len(mean), -1)).to(mean.dtype) / 255  # [..., channels, height × width]
    return ((channels - mean.unsqueeze(-1)) / std.unsqueeze(-1)).flatten(-2)


def crop(x: Tensor, image: Shape, pad: int, corner: Tensor, mirrored: Tensor) -> Tensor:
    """Cut each image [..., pixels] out of itself with a black border around it, and mirror some; one gather for all.

    Cuts begin at row and column `corner` [..., 2], 0 … 2·pad, of the bordered image.
    """
    channels, height, width = image
    bordered = F.pad(x.unflatten(-1, image), (pad,) * 4).flatten(-2)  # [..., channels, bordered pixels]
    rows = corner[..., :1] + torch.arange(height, device=x.device)  # [..., height]
    columns = torch.arange(width, device=x.device)
    columns = corner[..., 1:] + torch.where(mirrored.unsqueeze(-1), width - 1 - columns, columns)
    index = rows.unsqueeze(-1) * (width + 2 * pad) + columns.unsqueeze(-2)  # [..., height, width]
    index = index.flatten(-2).unsqueeze(-2).expand(*x.shape[:-1], channels, -1)
    return bordered.gather(-1, index).flatten(-2)
