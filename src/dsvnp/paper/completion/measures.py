"""What is measured of a model that completes images: log-likelihoods of hidden pixels, and pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dsvnp.estimation import Method, log_likelihood
from dsvnp.models import NeuralProcess
from dsvnp.paper.completion.source import completion_task, split_pixels
from dsvnp.paper.experiment import Drawn, Measurement
from dsvnp.paper.images.measures import pack
from dsvnp.paper.measuring import seeded_predict
from dsvnp.task import Task

UNIT = "nats/pixel"
IMAGES_AT_ONCE = 50
HIDDEN = (70, 130, 180)  # colour of pixels that a model does not see
NUM_SAMPLES = 3
COLUMNS = ("truth", "context", "mean", "σ", *["sample"] * NUM_SAMPLES)
WIDEST = 0.5  # σ that is drawn white


@dataclass(frozen=True)
class CompletionSizes:
    """How much is tested, and how pictures are drawn."""

    num_tests: int = 500  # test images of each set
    contexts: tuple[int, ...] = (10, 50, 200)  # sizes of the contexts, in pixels
    max_draws: int = 4096  # limit of the draws of an estimate
    tolerance: float = 0.01  # change of an estimate that is none, in nats
    # of the estimates, see `log_likelihood`; where draws from the prior do not suffice, "auto" takes as many passes as
    # there are hidden pixels
    method: Method = "prior"
    chunk: int = 2**19  # number of pixels times draws that are decoded at once
    num_global: int = 32  # draws of z_G in pictures
    block: int = 1  # pixels that a chain samples at once in pictures
    # pixels of the context and of such samples together, from which all others are predicted: the largest context in
    # training, since more would be new to the network
    chain: int = 197
    num_local: int = 16  # draws of each z_* that pictures average over
    # models whose samples are chains although they have a z_G: DSVTNP's collapses to its prior on images
    chains: tuple[str, ...] = ("dsvtnp",)


def measure_completion(
    nets: Sequence[NeuralProcess], tests: Mapping[str, Tensor], sizes: CompletionSizes
) -> tuple[Measurement, ...]:
    """Log-likelihood of a hidden pixel, all channels together, for each set and size of context."""
    rows: list[Measurement] = []
    names = ("max_draws", "tolerance", "method", "chunk")
    limits: dict[str, Any] = {name: getattr(sizes, name) for name in names}
    for name, images in tests.items():
        for size in sizes.contexts:
            tasks, split = hidden_pixels(images, size), f"context-{size}"
            found = [log_likelihood(net, tasks, **limits) for net in nets]
            means, drawn = tuple(each.mean for each in found), tuple(map(Drawn.of, found))
            rows.append(Measurement(name, "log-likelihood", split, UNIT, means, drawn))
    return tuple(rows)


def hidden_pixels(images: Tensor, num_context: int) -> list[Task]:
    """Images seen at some pixels and asked about at all others, a few at once."""
    context, targets = split_pixels(images, num_context, seed=num_context)
    parts = zip(*(each.split(IMAGES_AT_ONCE) for each in (images, context, targets)), strict=True)
    return [completion_task(*part) for part in parts]


def pictured(tests: Mapping[str, Tensor]) -> Tensor:
    """Three images to show, [3, C, H, W]: one of each set, or three of the only one."""
    sets = list(tests.values())
    return torch.cat([images[:1] for images in sets]) if len(sets) > 1 else sets[0][:3]


def pictures(net: NeuralProcess, images: Tensor, sizes: CompletionSizes) -> dict[str, Any]:
    """Context, mean, σ and coherent samples of a few images, for each size of context: one row of pictures each.

    Samples are draws of z_G or, for a model without latents and those of `sizes.chains`, chains of blocks of pixels;
    without pixel noise and without that of the floor under σ: pixels have neither.
    """
    rows = []
    pixels = images.shape[2] * images.shape[3]
    for size in sizes.contexts:
        context, _ = split_pixels(images, size, seed=size)
        every = torch.arange(pixels, device=images.device).expand(len(images), -1)
        task = completion_task(images, context, every)
        predictive = seeded_predict(net, task, (sizes.num_global, sizes.num_local))
        visits = max(1, sizes.chain - size)
        chains: dict[str, Any] = {"noise": False, "block": sizes.block, "visits": visits}
        chains |= {"num_local": sizes.num_local, "autoregressive": net.name in sizes.chains or None}
        chains["known_noise"] = net.arch.sigma_floor
        generator = torch.Generator(images.device).manual_seed(0)
        samples = net.sample_functions(task, NUM_SAMPLES, generator=generator, **chains)
        shown = [predictive.mean + 0.5, predictive.stddev / WIDEST, *(samples + 0.5)]  # each [B, P, C]
        drawn = [_colours(values.transpose(1, 2), images.shape) for values in shown]
        truth = images.expand(-1, 3, -1, -1)
        rows.append(torch.stack([truth, _seen(truth, context), *drawn], dim=1))  # [B, columns, 3, H, W]
    stacked = torch.stack(rows, dim=1).flatten(0, 1)  # the sizes of one image below each other
    titles = [f"{size} pixels" for size in sizes.contexts] * len(images)
    return {"images": pack(stacked), "shape": list(stacked.shape), "titles": titles}


def _colours(values: Tensor, shape: Sequence[int]) -> Tensor:
    """Bytes [B, 3, H, W] of values in [0, 1], [B, C, P]."""
    scaled = (values * 255).round().clamp(0, 255).to(torch.uint8)
    return scaled.reshape(*shape).expand(-1, 3, -1, -1)


def _seen(images: Tensor, context: Tensor) -> Tensor:
    """Images [B, 3, H, W] with all pixels but those of the context in the colour of what is hidden."""
    seen = torch.zeros(len(images), images[0, 0].numel(), dtype=torch.bool, device=images.device)
    seen = seen.scatter(1, context, value=True).reshape(len(images), 1, *images.shape[2:])
    hidden = torch.tensor(HIDDEN, dtype=torch.uint8, device=images.device).reshape(1, 3, 1, 1)
    return torch.where(seen, images, hidden)
