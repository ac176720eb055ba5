"""Small fleets for the tests of training: a few points, eight units, milliseconds a step."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsvnp.models import Architecture, Transformer, make_model
from dsvnp.networks import VGG
from dsvnp.paper.images.source import Images
from dsvnp.sources.base import RowSource, TaskSource
from dsvnp.sources.curves import Curves
from dsvnp.training import Cluster, Fleet, Settings

TRANSFORMER = Transformer(width=8, num_layers=2, num_heads=2, feedforward=8, embedder=(8,))
ARCH = Architecture(
    1, 1, encoder=(8,), dim_lat=8, decoder=(8,), dropout=0.5, transformer=TRANSFORMER, cells=TRANSFORMER
)
# AttnNP with the blocks of the field's code
BLOCK = replace(ARCH, attention="block", num_heads=2, self_attention=1)
IMAGE = (1, 4, 4)
IMAGE_ARCH = Architecture(
    16,
    3,
    "categorical",
    dim_latx=6,
    encoder=(8,),
    dim_lat=8,
    decoder=(8,),
    dropout=0.5,
    transformer=TRANSFORMER,
    cells=TRANSFORMER,
)


def curves(dtype: torch.dtype = torch.float64, **changes: Any) -> Curves:
    sizes: dict[str, Any] = {"batch_size": 4, "num_points": 10, "min_context": 1, "max_context": 6}
    return Curves(**sizes | {"refresh_every": 8, "dtype": dtype} | changes)


def make_fleet(
    name: str = "dsvnp",
    seeds: Sequence[int] = (0,),
    source: TaskSource | Sequence[TaskSource] | None = None,
    arch: Architecture = ARCH,
    make: Any = None,
    device: str = "cpu",
    cluster: Cluster | None = None,
    **settings: Any,
) -> Fleet:
    """A fleet in float64 on curves, unless told otherwise."""
    chosen = Settings(**{"num_steps": 100, "precision": "float64", "learning_rate": 1e-2} | settings)
    source = curves(chosen.dtype) if source is None else source
    return Fleet(make or partial(make_model, name, arch), source, seeds, chosen, device, cluster)


def run_steps(fleet: Fleet, count: int) -> Fleet:
    for _ in range(count):
        fleet.step()
    return fleet


def images(rows: int = 48, seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> RowSource:
    """Noisy images of three classes, a bright column for each."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (rows, 1), generator=g)
    x = 0.5 * torch.randn(rows, *IMAGE, generator=g, dtype=dtype)
    x[torch.arange(rows), 0, :, labels[:, 0]] += 2
    return RowSource(x.flatten(1), labels, **{"num_points": 8, "batch_size": 2} | changes)


def shifted_images(rows: int = 48, seed: int = 0, dtype: torch.dtype = torch.float64) -> Images:
    """The same as bytes, shifted and mirrored at random."""
    plain = images(rows, seed, dtype)
    pixels = (60 * plain.x + 60).clamp(0, 255).to(torch.uint8).unflatten(1, IMAGE)
    sizes: dict[str, Any] = {"num_points": 8, "batch_size": 2, "pad": 1, "flip": 0.5}
    return Images(pixels, plain.y, mean=(0.2,), std=(0.3,), dtype=dtype, **sizes)


def make_vgg(name: str = "dsvnp") -> Any:
    """A model with batch norm in the embedding of its images."""
    return make_model(name, IMAGE_ARCH, embedding=VGG(IMAGE, 6, layers=(4, "M", 4)))


def table(rows: int = 40, seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> RowSource:
    """Rows of a noisy line."""
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(rows, 1, generator=g, dtype=dtype)
    y = 2 * x + 0.1 * torch.randn(rows, 1, generator=g, dtype=dtype)
    return RowSource(x, y, **{"num_points": 10, "batch_size": 1} | changes)


def rows_of(fleet: Fleet, row: int) -> dict[str, Tensor]:
    """The state of one replica; the step that all share is left out."""
    return {name: value[row] for name, value in fleet.state.items() if value.ndim}


def distance(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference between two states, which must have the same names and no NaN apart."""
    assert a.keys() == b.keys()
    largest = 0.0
    for name, value in a.items():
        x, y = value.double(), b[name].double()
        assert torch.equal(x.isfinite(), y.isfinite()), name
        difference = torch.where(x.isfinite(), x - y, 0.0)
        largest = max([largest, *difference.abs().flatten().tolist()])
    return largest


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether two states are equal bit by bit (NaN equals NaN)."""
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and torch.equal(bits(a[name]), bits(b[name])) for name in a
    )


def bits(value: Tensor) -> Tensor:
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)


def subprocess_environment(**changes: str) -> dict[str, str]:
    """What a process started by a test needs to import what the test imports; one thread."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | changes
