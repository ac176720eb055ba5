"""Images as a source of tasks: bytes on the device, turned into numbers batch by batch.

CIFAR-10 is 150 MB as bytes and 600 MB as numbers; the whole of it lies on the device, and a step normalises the hundred
images it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dsvnp.data.base import RowSource, Tensors


class Images(RowSource):
    """Tasks that are random batches of labelled images.

    Args:
        images: bytes, [N, channels, height, width], uint8.
        labels: class of each image, [N].
        mean: mean of each channel in [0, 1]; zeros leave images in [0, 1].
        std: standard deviation of each channel, likewise; ones leave images in [0, 1].
        num_points: images of a task.
        batch_size: tasks of a batch.
        min_context: smallest context.
        max_context: largest context; all images of a task by default.
        dtype: floating-point type of the tasks.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        num_points: int = 100,
        batch_size: int = 1,
        min_context: int = 1,
        max_context: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise ValueError(
                f"images must be bytes [N, channels, height, width], got {images.dtype} {tuple(images.shape)}"
            )
        self.image = tuple(images.shape[1:])
        self.mean, self.std, self.dtype = tuple(mean), tuple(std), dtype
        labels = labels.long().reshape(-1, 1)
        super().__init__(images.flatten(1), labels, num_points, batch_size, min_context, max_context)

    def static(self) -> Tensors:
        """The bytes, and the statistics: a captured step can copy nothing from the host."""
        mean, std = (torch.tensor(value, dtype=self.dtype) for value in (self.mean, self.std))
        return {**super().static(), "mean": mean, "std": std}

    def prepare(self, x: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """Bytes [B, T, pixels] to normalised numbers."""
        return normalise(x, tensors["mean"], tensors["std"])


def normalise(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Turn bytes [..., channels × height × width] into (x / 255 − mean) / std, channel by channel."""
    channels = x.unflatten(-1, (len(mean), -1)).to(mean.dtype) / 255  # [..., channels, height × width]
    return ((channels - mean.unsqueeze(-1)) / std.unsqueeze(-1)).flatten(-2)
