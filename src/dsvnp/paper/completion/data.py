"""The images that completion learns from and is tested on, as bytes on the device."""

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.naming import lookup
from dsvnp.paper.datasets.catalogue import load_images

DOMAINS = {"mnist": ("mnist", "fashion-mnist", "kmnist"), "cifar10": ("cifar10",)}  # what each is tested on


class ImageTensors(NamedTuple):
    """Bytes, [N, channels, height, width]: to learn from, and by name to test on."""

    train: Tensor
    tests: dict[str, Tensor]


def load_tensors(
    domain: str,
    directory: Path | None,
    device: torch.device,
    num_train: int | None,
    num_tests: int,
    verify: bool,
) -> ImageTensors:
    """Read a domain: the first training images, all if None, and the first test images of each set."""
    names = lookup(domain, DOMAINS, "domain")
    train = _read(domain, directory, "train", verify)[:num_train].to(device)
    return ImageTensors(
        train, {name: _read(name, directory, "test", verify)[:num_tests].to(device) for name in names}
    )


@lru_cache(maxsize=8)  # a run reads the same files for each of its units
def _read(name: str, directory: Path | None, part: str, verify: bool) -> Tensor:
    """The images of one part of a set."""
    return torch.from_numpy(load_images(name, directory, part, verify=verify).images)
