"""Outputs of synthetic tables: numbers and classes, made of standardised functions and noise."""

import torch
from torch import Tensor

from dsvnp.sources.priors.noise import add_outliers, draw_error
from dsvnp.sources.priors.randomness import TINY, Random, unit

BINS = 24  # most quantile bins that get labels
RAREST = 0.02  # smallest share of a bin before scaling
PLAIN, SKEWED, HEAVY, ROUNDED, BOUNDED, CENSORED, COUNTS = range(7)
WARPS = (50.0, 14.0, 5.0, 8.0, 6.0, 6.0, 11.0)


def draw_numbers(random: Random, f: Tensor, log_size: Tensor) -> Tensor:
    """Numbers f + s·ε, then skewed, rounded, bounded, censored, or counts instead, standardised, [n, T].

    f, and `log_size`, which the size of the noise may follow, are standardised functions, [n, T].
    """
    tables = len(f)
    size = random.log_uniform(0.01, 3.0, tables, 1)  # from nearly noise-free to R² = 0.1
    y = unit(f + size * draw_error(random, log_size), bound=50.0)
    kind, amount = random.choice(WARPS, tables, 1), random.uniform(tables, 1)
    flip, cut = random.sign(tables, 1), y.clamp(-6, 6)
    out = torch.where(kind == SKEWED, flip * torch.exp((0.3 + 1.2 * amount) * cut), y)
    out = torch.where(kind == HEAVY, torch.sinh((0.4 + 0.8 * amount) * cut), out)
    grain = 0.5 + 9.5 * amount.square()  # levels per standard deviation
    out = torch.where(kind == ROUNDED, torch.round(y * grain) / grain, out)
    out = torch.where(kind == BOUNDED, torch.sigmoid((0.5 + 2 * amount) * (y - flip * amount)), out)
    out = torch.where(kind == CENSORED, flip * (y + 1.5 * amount).clamp(min=0), out)
    out = torch.where(kind == COUNTS, _counts(random, f), out)
    return unit(add_outliers(random, out), bound=100.0)


def _counts(random: Random, f: Tensor) -> Tensor:
    """Poisson counts whose logarithmic rate is linear in f; in half of the tables a gamma law spreads the rate."""
    tables, rows = f.shape
    rate = random.log_uniform(0.3, 200.0, tables, 1) * torch.exp(
        random.uniform(tables, 1, high=1.2) * f.clamp(-4, 4)
    )
    spread = random.exponential(tables, rows)
    rate = torch.where(random.chance(0.3, tables, 1), rate * spread, rate)
    return torch.poisson(rate.clamp(max=1e5), generator=random.generator)


def draw_classes(random: Random, f: Tensor) -> Tensor:
    """Labels 0 … K − 1 with K ≤ O classes per table, from standardised functions f [n, T, O], as floats [n, T].

    Three ways: cut one function at K − 1 quantiles; give its quantile bins, more than K, random labels; take the
    largest of K functions. Labels are permuted, and in a fifth of the tables some are replaced by those of other rows.
    """
    tables, rows, most = f.shape
    extra = random.integers(min(3, most), most, tables)
    number = torch.where(random.chance(0.45, tables), 2, extra).unsqueeze(-1)  # K, [n, 1]
    by_bins = _label_bins(random, f[..., 0], f[..., -1], number, most)
    by_largest = _label_largest(random, f, number)
    labels = torch.where(random.chance(0.4, tables, 1), by_largest, by_bins)
    score = torch.where(torch.arange(most, device=f.device) < number, random.uniform(tables, most), 2.0)
    labels = score.argsort(-1).gather(1, labels)  # the first K places hold a permutation of 0 … K − 1
    flipped = 0.2 * random.uniform(tables, 1) * random.chance(0.2, tables, 1)
    other = labels.gather(1, random.integers(0, rows - 1, tables, rows))
    return torch.where(random.chance(flipped, tables, rows), other, labels).to(f.dtype)


def _label_bins(random: Random, f: Tensor, log_size: Tensor, number: Tensor, most: int) -> Tensor:
    """Cut a noisy function into quantile bins, and give bins labels, [n, T]."""
    tables, rows = f.shape
    noisy = f + random.log_uniform(0.01, 1.5, tables, 1) * draw_error(random, log_size)
    level = (noisy.argsort(-1).argsort(-1) + 0.5) / rows
    more = number + (random.uniform(tables, 1) * (2 * number + 1)).long()
    bins = torch.where(random.chance(0.6, tables, 1), number, more.clamp(max=BINS))
    place = torch.arange(BINS, device=f.device)
    share = RAREST + random.exponential(tables, BINS) ** random.uniform(tables, 1, high=1.5)
    edge = torch.where(place < bins, share, 0.0).cumsum(-1)
    index = torch.searchsorted(edge / edge[:, -1:], level, right=True)
    # Bins 0 … K − 1 have a label each, further ones any; then the bins change places.
    label = torch.where(place < number, place, (random.uniform(tables, BINS) * number).long())
    score = torch.where(place < bins, random.uniform(tables, BINS), 2.0)
    label = label.gather(1, score.argsort(-1))
    return label.gather(1, torch.minimum(index, bins - 1))


def _label_largest(random: Random, f: Tensor, number: Tensor) -> Tensor:
    """The largest of K functions, with a bias per class and Gumbel noise: labels follow a softmax, [n, T]."""
    tables, _, most = f.shape
    bias = 0.7 * random.uniform(tables, 1, 1) * random.normal(tables, 1, most)
    noise = -torch.log(random.exponential(*f.shape).clamp(min=TINY))
    score = f + bias + random.log_uniform(0.01, 0.8, tables, 1, 1) * noise
    there = torch.arange(most, device=f.device) < number.unsqueeze(-1)
    return torch.where(there, score, -torch.inf).argmax(-1)
