"""Stationary Gaussian processes of random kernels, all by their spectra.

The kernel k(d) = E cos(ω·d) over frequencies ω has the features

    f(x) = √(1/m) Σ_k a_k cos(ω_k·x) + b_k sin(ω_k·x),   a, b ~ N(0, 1):

given the frequencies, f is a Gaussian process with kernel (1/m) Σ cos(ω_k·d). Every usual kernel is a law of ω:

    RBF                  ω = ε / ℓ
    Matérn-ν/2           ω = ε / ℓ · √(ν / χ²_ν)
    rational quadratic   ω = ε / ℓ · √(χ²_ν / ν), α = ν/2
    periodic             ω = 2πj/p, with j by the kernel's Fourier series
    sum of kernels       some of the features for each
    product of kernels   the sum of their frequencies

so a locally periodic kernel is periodic × RBF, and a spectral mixture is a sum of cosine × RBF. The length |ω|·ℓ of
a frequency comes from quantiles of its law at evenly spaced levels with a random shift, its direction and harmonic from
a quasi-random sequence: with a few hundred features (1/m) Σ cos is then close to k.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from scipy import special
from torch import Tensor

from dsvnp.sources.priors.randomness import Random

FEATURES = 256
COMPONENTS = 3  # most kernels in a sum
DIMENSIONS = 3  # most inputs
NONE, RBF, MATERN, RATIONAL = range(4)  # first factor of a product
PERIODIC, COSINE = 1, 2  # second factor; 0 is none
HARMONICS = 33
LEVELS = 4096  # of the quantile tables
# Multiples of irrational numbers fill a unit cube evenly: for the harmonic, then for two angles of a direction.
STRIDES = ((math.sqrt(5) - 1) / 2, math.sqrt(2) - 1, math.sqrt(3) - 1)


@dataclass(frozen=True)
class Kernels:
    """Kernels of n tasks, each a sum of up to C products of two factors; leading axes [n, C]."""

    number: Tensor  # number of kernels in each sum, [n, 1]
    envelope: Tensor  # first factor, NONE, RBF, MATERN or RATIONAL
    freedom: Tensor  # ν of the first factor, 1, 3 or 5
    inverse: Tensor  # 1/ℓ per dimension, zero for an input that is not used, [n, C, 3]
    second: Tensor  # second factor, 0 for none, PERIODIC or COSINE
    base: Tensor  # 2π/p times a direction, the second factor's frequency, [n, C, 3]
    smoothness: Tensor  # ℓ of the periodic kernel exp(−2 sin²(πd/p)/ℓ²)
    amplitude: Tensor  # standard deviation of each kernel


def draw_kernels(random: Random, used: Tensor) -> Kernels:
    """Draw random kernels for tasks with inputs `used` [n, 3], on a domain of width 2."""
    tasks = len(used)
    shape = (tasks, COMPONENTS)
    dims = used.sum(-1).view(-1, 1, 1)
    second = random.choice((0.6, 0.25, 0.15), *shape)
    envelope = 1 + random.choice((3, 4, 1), *shape)
    pure = (second == PERIODIC) & random.chance(0.4, *shape)
    shortest = 0.04 * 2.5 ** (dims - 1.0)  # in more dimensions points are farther apart
    length = shortest * (2.5 / shortest) ** random.uniform(*shape, 1)
    # Within a product the first factor is an envelope of some periods.
    length = torch.where(second.unsqueeze(-1) > 0, random.log_uniform(0.3, 4.0, *shape, 1), length)
    length = length * torch.exp(0.4 * random.normal(*shape, DIMENSIONS) * (dims > 1))
    direction = torch.where(used.unsqueeze(1), random.normal(*shape, DIMENSIONS), 0.0)
    direction = direction / direction.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    # A series of one input may have seventy seasons (a year each); in more dimensions no context would resolve them.
    briefest = torch.where(dims == 1, 0.03, 0.12)
    period = briefest * (1.5 / briefest) ** random.uniform(*shape, 1) * dims.sqrt()
    return Kernels(
        number=1 + random.choice((5, 3, 2), tasks, 1),
        envelope=torch.where(pure, NONE, envelope),
        freedom=1 + 2 * random.integers(0, 2, *shape),
        inverse=torch.where(used.unsqueeze(1), 1 / length, 0.0),
        second=second,
        base=2 * math.pi / period * direction,
        smoothness=random.log_uniform(0.4, 3.0, *shape),
        amplitude=random.log_uniform(0.3, 1.0, *shape),
    )


def draw_frequencies(random: Random, kernels: Kernels, features: int = FEATURES) -> tuple[Tensor, Tensor]:
    """Draw frequencies [n, m, 3], and the amplitude of each feature [n, m], from the spectra of kernels."""
    tasks, place = len(kernels.number), torch.arange(features, device=random.device)
    part = place % kernels.number  # which kernel of the sum a feature belongs to, [n, m]
    turn = place // kernels.number
    members = (part.unsqueeze(-1) == torch.arange(COMPONENTS, device=random.device)).sum(1)  # [n, C]
    # evenly spaced, one feature in each step
    level = (turn + random.uniform(tasks, 1)) / members.gather(1, part)
    strides = torch.tensor(STRIDES, dtype=torch.float64, device=random.device)
    shift = random.uniform(tasks, 1, len(STRIDES))
    cube = ((turn.unsqueeze(-1) * strides + shift) % 1.0).float()  # float64 before: multiples must not round
    dims = (kernels.inverse[:, 0] > 0).sum(-1, keepdim=True)  # [n, 1]
    law = _law(kernels.envelope, kernels.freedom).gather(1, part)
    table = radius_quantiles(random.device)
    radius = table[dims - 1, law, (level * LEVELS).long().clamp(max=LEVELS - 1)]  # [n, m]
    index = part.unsqueeze(-1).expand(-1, -1, DIMENSIONS)
    frequency = radius.unsqueeze(-1) * _directions(cube[..., 1:], dims) * kernels.inverse.gather(1, index)
    multiple = _harmonics(kernels, part, cube[..., 0].contiguous())
    frequency = frequency + multiple.unsqueeze(-1) * kernels.base.gather(1, index)
    amplitude = kernels.amplitude / members.clamp(min=1).sqrt()
    return frequency, amplitude.gather(1, part)


def _law(envelope: Tensor, freedom: Tensor) -> Tensor:
    """Row of the quantile tables: none, RBF, Matérn with ν = 1, 3, 5, rational quadratic with ν = 1, 3, 5."""
    return torch.where(envelope >= MATERN, 2 + 3 * (envelope - MATERN) + freedom // 2, envelope)


def _directions(uniform: Tensor, dims: Tensor) -> Tensor:
    """Unit vectors [n, m, 3] from two uniform numbers; −1 or 1 in one dimension."""
    angle, height = 2 * math.pi * uniform[..., 0], 2 * uniform[..., 1] - 1
    height = torch.where(dims == 3, height, 0.0)
    width = (1 - height.square()).sqrt()
    cosine = torch.where(dims == 1, (0.5 - uniform[..., 0]).sign(), width * angle.cos())
    sine = torch.where(dims == 1, 0.0, width * angle.sin())
    return torch.stack([cosine, sine, height], dim=-1)


@lru_cache(maxsize=8)
def radius_quantiles(device: torch.device) -> Tensor:
    """Quantiles of |ω|·ℓ in one to three dimensions for each law of `_law`, [3, 8, LEVELS]."""
    level = (np.arange(LEVELS) + 0.5) / LEVELS
    table = np.zeros((DIMENSIONS, 8, LEVELS))
    for dim in range(1, DIMENSIONS + 1):
        rows = table[dim - 1]
        rows[1] = np.sqrt(special.chdtri(dim, 1 - level))
        for place, freedom in enumerate((1, 3, 5)):
            rows[2 + place] = np.sqrt(dim * special.fdtri(dim, freedom, level))
            # χ²_d χ²_ν / ν: the distribution function of the first, averaged over quantiles of the second.
            mixing = special.chdtri(freedom, 1 - level[::16]) / freedom
            grid = np.geomspace(1e-10, 1e3, 2000)
            below = special.chdtr(dim, grid[:, None] / mixing).mean(1)
            rows[5 + place] = np.sqrt(np.interp(level, below, grid))
    return torch.tensor(table, dtype=torch.float32, device=device)


def _harmonics(kernels: Kernels, part: Tensor, uniform: Tensor) -> Tensor:
    """The multiple of the base frequency per feature, [n, m]: 0 without a second factor, 1 for a cosine.

    A periodic kernel's Fourier coefficients are those of one sampled period.
    """
    phase = torch.arange(2 * HARMONICS - 2, device=part.device) / (2 * HARMONICS - 2)
    # [n, C, 64]
    period = torch.exp(-2 * torch.sin(math.pi * phase).square() / kernels.smoothness.unsqueeze(-1).square())
    weight = torch.fft.rfft(period).real.clamp(min=0)
    weight[..., 1:-1] *= 2  # both signs
    edges = (weight / weight.sum(-1, keepdim=True)).cumsum(-1)
    edges = edges.gather(1, part.unsqueeze(-1).expand(-1, -1, HARMONICS))  # [n, m, H]
    order = torch.searchsorted(edges, uniform.unsqueeze(-1)).squeeze(-1).clamp(max=HARMONICS - 1)
    second = kernels.second.gather(1, part)
    return torch.where(second == PERIODIC, order, (second == COSINE).long()).to(uniform.dtype)


def draw_process(random: Random, x: Tensor, kernels: Kernels) -> Tensor:
    """Draw one function per task at x [n, T, 3], [n, T]."""
    frequency, amplitude = draw_frequencies(random, kernels)
    angle = x @ frequency.mT  # [n, T, m]
    weight = amplitude.unsqueeze(-1) * random.normal(*amplitude.shape, 2)
    cosine = angle.cos() @ weight[..., :1]
    return (cosine + angle.sin_() @ weight[..., 1:]).squeeze(-1)
