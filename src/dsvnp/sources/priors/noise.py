"""Noise of all kinds: normal, Student's t, skewed; of constant size, or of a size that depends on x; outliers."""

import torch
from torch import Tensor

from dsvnp.sources.priors.randomness import Random

KINDS = (70, 20, 10)  # normal, Student's t, exponential
VARYING = 0.33  # share of tables in which the size of the noise varies


def draw_error(random: Random, log_size: Tensor) -> Tensor:
    """Draw noise of typical size 1, [n, T].

    In a third of the tables its logarithmic standard deviation follows `log_size`, a standardised function of x [n, T].
    """
    tables, rows = log_size.shape
    kind = random.choice(KINDS, tables, 1)
    freedom = random.log_uniform(2.0, 8.0, tables, 1)
    noise = random.normal(tables, rows)
    noise = torch.where(kind == 1, random.student(freedom, tables, rows).clamp(-50, 50), noise)
    skewed = random.sign(tables, 1) * (random.exponential(tables, rows) - 1)
    noise = torch.where(kind == 2, skewed, noise)
    strength = random.uniform(tables, 1, low=0.3, high=1.3) * random.chance(VARYING, tables, 1)
    return noise * torch.exp((strength * log_size).clamp(-4, 3) - 0.5 * strength.square())


def add_outliers(random: Random, y: Tensor, share: float = 0.08) -> Tensor:
    """Move some values of y [n, T] by 3 to 20 of its standard deviations, in `share` of the tables."""
    tables, rows = y.shape
    rate = 0.05 * random.uniform(tables, 1) * random.chance(share, tables, 1)
    shift = random.sign(tables, rows) * random.log_uniform(3.0, 20.0, tables, rows)
    one_sided = random.chance(0.5, tables, 1)
    shift = torch.where(one_sided, shift.abs() * random.sign(tables, 1), shift)
    return torch.where(random.chance(rate, tables, rows), y + y.std(1, keepdim=True) * shift, y)
