"""Images that are out of distribution: noise as the paper makes it, noise in a domain's range, shuffled images.

The paper's noise is centred on zero and fed to a model as it is, whatever the range of the images that the model was
trained on: MNIST's are in [0, 1]. The second version of each has pixels in [0, 1], to be normalised like any image of
the domain: a detector cannot use the range alone.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from dsvnp.naming import lookup
from dsvnp.networks import Shape

NOISES: dict[str, Callable[[Shape, torch.Generator], Tensor]] = {
    "rademacher": lambda shape, generator: (_uniform(shape, generator) < 0.5).float() - 0.5,
    "uniform": lambda shape, generator: _uniform(shape, generator) - 0.5,
    "gaussian": lambda shape, generator: torch.randn(shape, generator=generator, device=generator.device),
}
IN_RANGE = "-in-range"


def noise(kind: str, shape: Shape, generator: torch.Generator) -> Tensor:
    """Draw noise as the paper makes it, on the generator's device: Bernoulli(½) − ½, U[0, 1) − ½, or N(0, 1)."""
    return lookup(kind, NOISES, "noise")(shape, generator)


def noise_in_range(kind: str, shape: Shape, mean: Tensor, std: Tensor, generator: torch.Generator) -> Tensor:
    """Draw noise with pixels in [0, 1]: black or white, U[0, 1), or N(mean, std²) of each channel, cut off there."""
    drawn = noise(kind, shape, generator)
    if kind != "gaussian":
        return drawn + 0.5
    return (mean[:, None, None] + std[:, None, None] * drawn).clamp(0, 1)


def shuffle_blocks(images: Tensor, blocks: int, generator: torch.Generator) -> Tensor:
    """Cut each image [N, channels, height, width] into blocks × blocks pieces and put them together in a random order.

    Made of a domain's own images, these have its pixels and strokes but not its shapes: something to choose settings
    by that is neither noise nor one of the sets that models are tested on.
    """
    number, channels, height, width = images.shape
    if height % blocks or width % blocks:
        raise ValueError(f"images of {height} × {width} pixels cannot be cut into {blocks} × {blocks} blocks")
    pieces = images.reshape(number, channels, blocks, height // blocks, blocks, width // blocks)
    pieces = pieces.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # [N, pieces, channels, h, w]
    order = torch.rand(number, blocks**2, generator=generator, device=images.device).argsort(1)
    pieces = pieces[torch.arange(number, device=images.device)[:, None], order]
    pieces = pieces.unflatten(1, (blocks, blocks)).permute(0, 3, 1, 4, 2, 5)
    return pieces.reshape(images.shape)


def _uniform(shape: Shape, generator: torch.Generator) -> Tensor:
    """U[0, 1)."""
    return torch.rand(shape, generator=generator, device=generator.device)
