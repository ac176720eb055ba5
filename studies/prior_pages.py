"""What pages of the gallery of priors share: panels in rows, draws of a kernel, choices that are made beforehand."""

from collections.abc import Sequence
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from dsvnp.sources.priors.randomness import Random
from dsvnp.sources.priors.spectra import draw_kernels, draw_process

DRAWS = 6  # columns of a page


class Picked(Random):
    """Random numbers of another, but a choice among some weights, or a chance, always falls the same way.

    Args:
        random: where the numbers come from.
        of: the weights, or the chance.
        pick: index of the choice, or whether the chance comes true.
    """

    def __init__(self, random: Random, of: Sequence[float] | float, pick: int) -> None:
        super().__init__(random.generator, random.device)
        self.random, self.of, self.pick = random, of, pick

    def choice(self, weights: Sequence[float], *shape: int) -> Tensor:
        found = self.random.choice(weights, *shape)
        return torch.full_like(found, self.pick) if weights == self.of else found

    def chance(self, probability: float | Tensor, *shape: int) -> Tensor:
        found = self.random.chance(probability, *shape)
        is_picked = not isinstance(probability, Tensor) and probability == self.of
        return torch.full_like(found, bool(self.pick)) if is_picked else found


def kernel_draws(random: Random, x: Tensor, envelope: int, freedom: int, second: int) -> Tensor:
    """Processes of one kind of kernel at x [n, T, 3]."""
    kernels = draw_kernels(random, torch.arange(3).expand(len(x), 3) < 1)
    kernels = replace(
        kernels,
        number=torch.ones_like(kernels.number),
        envelope=torch.full_like(kernels.envelope, envelope),
        freedom=torch.full_like(kernels.freedom, freedom),
        second=torch.full_like(kernels.second, second),
    )
    return draw_process(random, x, kernels)


def page(rows: int, title: str) -> tuple[Figure, np.ndarray]:
    """A page of small panels without ticks."""
    figure, axes = plt.subplots(rows, DRAWS, figsize=(1.9 * DRAWS, 1.25 * rows))
    figure.subplots_adjust(left=0.17, right=0.99, bottom=0.01, top=1 - 0.5 / rows, wspace=0.05, hspace=0.06)
    for panel in axes.flat:
        panel.set(xticks=[], yticks=[])
    figure.suptitle(title, y=1 - 0.15 / rows)
    return figure, axes


def name_row(axes: np.ndarray, name: str) -> None:
    """Write the name of a row to its left."""
    axes[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
