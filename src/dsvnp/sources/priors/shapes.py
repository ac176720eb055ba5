"""Curves that no stationary process has: waves with corners, steps, seasons on a trend, oscillations that die out,
growth, peaks. Each is a function of u [n, T] in about [−1, 1], a coordinate or a random direction, to [n, T].
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from dsvnp.sources.priors.randomness import Random

STEPS, PEAKS, HARMONICS = 10, 6, 3

Shape = Callable[[Random, Tensor], Tensor]


def waves(random: Random, u: Tensor) -> Tensor:
    """Sawtooth, square, triangle or rectified sine, with an amplitude that may drift."""
    tasks = len(u)
    phase = (u / random.log_uniform(0.06, 2.0, tasks, 1) + random.uniform(tasks, 1)) % 1.0
    kind, duty = random.integers(0, 3, tasks, 1), random.uniform(tasks, 1, low=0.15, high=0.85)
    wave = torch.where(kind == 1, (phase < duty) * 2.0 - 1.0, 2 * phase - 1)
    wave = torch.where(kind == 2, torch.where(phase < duty, phase / duty, (1 - phase) / (1 - duty)), wave)
    wave = torch.where(kind == 3, torch.sin(math.pi * phase), wave)
    return wave * (1 + 0.7 * random.normal(tasks, 1) * random.chance(0.3, tasks, 1) * u)


def steps(random: Random, u: Tensor) -> Tensor:
    """Constant between one and ten jumps, some of which are slopes."""
    tasks = len(u)
    at = random.uniform(tasks, 1, STEPS, low=-1.1, high=1.1)
    width = torch.where(random.chance(0.75, tasks, 1, 1), 1e-4, random.log_uniform(0.01, 0.3, tasks, 1, 1))
    rise = torch.sigmoid((u.unsqueeze(-1) - at) / width)
    counted = torch.arange(STEPS, device=u.device) < random.integers(1, STEPS, tasks, 1)
    height = torch.where(counted, random.normal(tasks, STEPS), 0.0)
    return (rise @ height.unsqueeze(-1)).squeeze(-1)


def seasons(random: Random, u: Tensor) -> Tensor:
    """A straight, bent or exponential trend, plus one or two seasons of three harmonics."""
    tasks = len(u)
    slope, bend = random.normal(tasks, 1), random.normal(tasks, 1) * random.chance(0.5, tasks, 1)
    growth = random.uniform(tasks, 1, low=0.5, high=3.0)
    trend = torch.where(
        random.chance(0.25, tasks, 1), torch.exp(growth * (u - 1)), slope * u + bend * u.square()
    )
    order = torch.arange(1, HARMONICS + 1, device=u.device)
    total = random.log_uniform(0.2, 3.0, tasks, 1) * trend
    for chance in (1.0, 0.4):
        period = random.log_uniform(0.03, 1.0, tasks, 1, 1)
        phase = random.uniform(tasks, 1, HARMONICS, high=2 * math.pi)
        size = random.normal(tasks, HARMONICS, 1) / order.unsqueeze(-1)
        season = torch.cos(2 * math.pi * order * u.unsqueeze(-1) / period + phase) @ size
        total = total + random.chance(chance, tasks, 1) * season.squeeze(-1)
    return total


def damped(random: Random, u: Tensor) -> Tensor:
    """An oscillation that dies out after it begins, or one whose frequency changes."""
    tasks = len(u)
    since = u - random.uniform(tasks, 1, low=-1.2, high=0.2)
    rate = random.log_uniform(0.5, 5.0, tasks, 1)
    speed = 2 * math.pi / random.log_uniform(0.12, 1.0, tasks, 1)
    bend = random.uniform(tasks, 1, high=0.4) * random.chance(0.4, tasks, 1)
    wave = torch.cos(speed * since * (1 + bend * since) + random.uniform(tasks, 1, high=2 * math.pi))
    ringing = torch.where(since > 0, torch.exp(-rate * since.clamp(min=0)) * wave, 0.0)
    return torch.where(random.chance(0.3, tasks, 1), wave, ringing)


def growth(random: Random, u: Tensor) -> Tensor:
    """Logistic, Gompertz, saturating or power-law growth, upward or downward."""
    tasks = len(u)
    since, rate = (u + 1.05).clamp(min=1e-3), random.log_uniform(1.0, 12.0, tasks, 1)
    middle = random.uniform(tasks, 1, low=0.2, high=1.8)
    kind = random.integers(0, 3, tasks, 1)
    curve = torch.sigmoid(rate * (since - middle))
    curve = torch.where(kind == 1, torch.exp(-torch.exp((rate * (middle - since)).clamp(max=20))), curve)
    curve = torch.where(kind == 2, since / (since + middle / 2), curve)
    curve = torch.where(kind == 3, since ** (rate / 4), curve)
    return random.sign(tasks, 1) * curve


def peaks(random: Random, u: Tensor) -> Tensor:
    """One to six peaks, Gaussian or Lorentzian, on a sloping base line."""
    tasks = len(u)
    at, width = (
        random.uniform(tasks, 1, PEAKS, low=-1, high=1),
        random.log_uniform(0.03, 0.4, tasks, 1, PEAKS),
    )
    square = ((u.unsqueeze(-1) - at) / width).square()
    bump = torch.where(random.chance(0.5, tasks, 1, 1), torch.exp(-0.5 * square), 1 / (1 + square))
    counted = torch.arange(PEAKS, device=u.device) < random.integers(1, PEAKS, tasks, 1)
    height = torch.where(counted, random.log_uniform(0.2, 2.0, tasks, PEAKS), 0.0)
    height = torch.where(random.chance(0.7, tasks, 1), height, height * random.sign(tasks, PEAKS))
    return (bump @ height.unsqueeze(-1)).squeeze(-1) + 0.3 * random.normal(tasks, 1) * u


SHAPES: dict[Shape, float] = {waves: 0.2, steps: 0.15, seasons: 0.25, damped: 0.12, growth: 0.16, peaks: 0.12}
