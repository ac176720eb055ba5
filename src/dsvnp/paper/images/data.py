"""Data of the image experiment: all sets of a domain, on the device (PROTOCOLS §5)."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.naming import lookup
from dsvnp.paper.datasets.catalogue import ImageSet, load_images
from dsvnp.paper.images.ood import IN_RANGE, NOISES, noise, noise_in_range, shuffle_blocks
from dsvnp.paper.images.source import normalise

BLOCKS = 4  # along each side of a shuffled image


class Domain(NamedTuple):
    """A set of images that models are trained on, and the choices that belong to it."""

    embedding: str  # "lenet" or "vgg"
    image: tuple[int, int, int]  # channels, height, width
    dim_lat: int  # size of representations and latents (App. E)
    dropout: float  # rate of MC-Dropout (App. E)
    # whether images have mean 0 and standard deviation 1 in each channel, or lie in [0, 1]
    standardised: bool
    others: tuple[str, ...]  # image sets that are out of distribution


DOMAINS = {
    "mnist": Domain("lenet", (1, 28, 28), 64, 0.1, False, ("fashion-mnist", "kmnist")),
    "cifar10": Domain("vgg", (3, 32, 32), 128, 0.2, True, ("svhn",)),
}


@dataclass(frozen=True)
class ImagePortions:
    """Numbers of images of each set, by use."""

    # "test" for the test images, the other image sets and noise; "held-out" for training images that are not learned
    # from, the same shuffled, and noise: what settings are chosen on
    judged_on: str = "test"
    num_train: int | None = None  # images learned from; None for all that are not held out
    num_held_out: int = 5000  # training images that are held out, if they are judged on
    num_test: int = 10_000  # images of each set that is judged on, at most
    num_context: int = 100  # images of a context

    @property
    def held_out(self) -> bool:
        """Whether held-out training images are judged on."""
        return lookup(self.judged_on, {"test": False, "held-out": True}, "set to judge on")


class ContextImages(NamedTuple):
    """Images [C, pixels] and labels [C, 1] that a model may look at."""

    x: Tensor
    y: Tensor


class Sets(NamedTuple):
    """A domain on the device."""

    images: Tensor  # what models learn from, bytes [N, channels, height, width]
    labels: Tensor  # their classes, [N]
    mean: Tensor  # what is taken off each channel, [channels]
    std: Tensor  # what each channel is divided by, [channels]
    context: ContextImages  # images of the training part, for prediction
    # what models are judged on, by name: numbers [N, pixels]; the domain's own images first
    x: dict[str, Tensor]
    y: Tensor  # classes of the domain's own, [N]
    shown: dict[str, Tensor]  # the bytes of those sets that are images
    class_names: tuple[str, ...]  # what the classes stand for


def load_sets(
    name: str, directory: Path | None, device: torch.device, portions: ImagePortions, verify: bool = True
) -> Sets:
    """Read a domain and what is out of it, the same for all models and seeds; CUDA draws other noise than a CPU."""
    domain = lookup(name, DOMAINS, "domain")
    read, *others = read_sets(name, directory, portions, verify)
    order = torch.randperm(len(read.images), generator=torch.Generator().manual_seed(1_000_000))
    kept = portions.num_held_out if portions.held_out else 0
    images, labels = _tensors(read, order[kept:][: portions.num_train], device)
    mean, std = _statistics(images)
    off, by = (mean, std) if domain.standardised else (torch.zeros_like(mean), torch.ones_like(std))

    def numbers(sets: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: normalise(images.flatten(1), off, by) for name, images in sets.items()}

    generator = torch.Generator(device).manual_seed(2_000_000 + portions.held_out)
    if portions.held_out:
        own, y = _tensors(read, order[:kept][: portions.num_test], device)
        shown = {f"{name}-held-out": own, "shuffled": shuffle_blocks(own, BLOCKS, generator)}
    else:
        first = torch.arange(portions.num_test)
        both = [_tensors(part, first[: len(part.images)], device) for part in others]
        shown, y = {part.name: pair[0] for part, pair in zip(others, both, strict=True)}, both[0][1]
    shape = (len(y), *domain.image)
    noises = {kind: noise(kind, shape, generator).flatten(1) for kind in NOISES}  # fed as it is, [N, pixels]
    in_range = {kind + IN_RANGE: 255 * noise_in_range(kind, shape, mean, std, generator) for kind in NOISES}
    x = numbers(shown) | noises | numbers(in_range)
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(3_000_000))
    rows = chosen[: portions.num_context].to(device)
    context = ContextImages(normalise(images[rows].flatten(1), off, by), labels[rows, None])
    return Sets(images, labels, off, by, context, x, y, shown, read.class_names)


def read_sets(name: str, directory: Path | None, portions: ImagePortions, verify: bool) -> list[ImageSet]:
    """Read a domain's training images and, where they are judged on, the test images of all sets, its own first."""
    others = () if portions.held_out else (name, *lookup(name, DOMAINS, "domain").others)
    parts = [(name, "train"), *((other, "test") for other in others)]
    return [_read(each, directory, part, verify) for each, part in parts]


@lru_cache(maxsize=8)  # a run reads the same files for each of its units
def _read(name: str, directory: Path | None, part: str, verify: bool) -> ImageSet:
    """Read one part of an image set."""
    return load_images(name, directory, part, verify=verify)


def _tensors(read: ImageSet, rows: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """Some images and their labels."""
    images, labels = torch.from_numpy(read.images)[rows], torch.from_numpy(read.labels)[rows].long()
    return images.to(device), labels.to(device)


def _statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel in [0, 1], from a count of bytes: exact, and without a large copy."""
    values = torch.arange(256, dtype=torch.float64, device=images.device) / 255
    shares = torch.stack(
        [torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)]
    ).double()
    shares = shares / shares.sum(1, keepdim=True)
    mean = shares @ values
    std = (shares * (values - mean[:, None]).square()).sum(1).sqrt()
    return mean.float(), std.float()
