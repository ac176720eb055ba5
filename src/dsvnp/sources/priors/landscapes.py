"""LandscapePrior: synthetic functions of the unit cube to pretrain on, as Bayesian optimisation meets them.

    g(x) = s Σ_k a_k cos(ω_k·v(x)) + b_k sin(ω_k·v(x)) − w bowl(x)      a process and, in half of them, a bowl
    f(x) = (exp(r g(x)) − 1) / r                                        r between −0.7 and 1.2: skew

ω_k = ε_k / ℓ has a length ℓ_d for each input, which grows with √D, and the law of an RBF or Matérn kernel; some inputs
do not matter. v warps each input (Kumaraswamy) in half of the functions, as in PFNs4BO (Müller et al., 2023). A bowl
has its centre anywhere in the cube: a sum over inputs, Σ_d u_d |x_d − c_d|^p, or round, (Σ_d u_d (x_d − c_d)²)^(p/2).
Most functions have no noise; that of others stands for ripples, too, which are finer than the points are.

Points of a context lie anywhere in the cube or near the best of many, as an optimiser leaves them. Targets lie anywhere
or near the best points of their context: a place that depended on f in any other way would reveal its value.

What a task holds
    x  [B, T, 2·D]  inputs in [−2, 2], then codes 0 for an input that is there, −1 for one that is not.
    y  [B, T, 1]    numbers standardised by the context.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dsvnp.naming import at_least_one
from dsvnp.networks import Shape
from dsvnp.sources.base import TaskSource, Tensors, take_batch
from dsvnp.sources.priors.randomness import Random
from dsvnp.sources.priors.scaling import OBSERVED, UNUSED, context_sizes, output_scale
from dsvnp.task import Task

CLIP_OUTPUT = 15.0  # standard deviations of the context
FEATURES = 128
CHUNK_ENTRIES = 2**24  # features that are computed at once
CENTRES = 4  # of the points near the best
HALF_WIDTH = 2.0  # of the cube as a network reads it, whose finest waves are 1 long


@dataclass(frozen=True)
class LandscapeSettings:
    """Settings of synthetic functions of the unit cube."""

    batch_size: int = 64  # functions of a batch
    num_points: int = 96  # points of a function, context and targets together
    min_context: int = 2  # smallest context
    max_context: int = 64  # largest context
    max_inputs: int = 10  # largest number of inputs, and the D of the module's docstring
    refresh_every: int = 64  # steps that one pool serves
    dtype: torch.dtype = torch.float32  # floating-point type of the tasks

    def __post_init__(self) -> None:
        if not 1 <= self.min_context <= self.max_context < self.num_points:
            raise ValueError(
                f"expected 1 ≤ min_context ≤ max_context < num_points, got {self.min_context}, "
                f"{self.max_context} and {self.num_points}; leave at least one point to predict"
            )
        if not 1 <= self.max_inputs <= 64:
            raise ValueError(f"expected 1 ≤ max_inputs ≤ 64, got {self.max_inputs}")
        at_least_one(batch_size=self.batch_size, refresh_every=self.refresh_every)


class LandscapePrior(TaskSource):
    """A supply of synthetic functions of the unit cube; see the module's docstring."""

    def __init__(self, settings: LandscapeSettings | None = None) -> None:
        self.settings = LandscapeSettings() if settings is None else settings
        self.refresh_every = self.settings.refresh_every

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """Draw functions: x, y, which inputs are used, and sizes of contexts."""
        settings, random = self.settings, Random(generator, device)
        count = settings.batch_size * settings.refresh_every
        size = max(1, CHUNK_ENTRIES // (settings.num_points * FEATURES))
        chunks = [
            draw_landscapes(random, settings, min(size, count - done)) for done in range(0, count, size)
        ]
        return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        """Nothing is left to chance once the pool is drawn."""
        return {}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        """The next functions of the pool, their outputs scaled by their contexts."""
        x, y, used, sizes = (
            take_batch(tensors[name], step, self.settings.batch_size) for name in ("x", "y", "used", "sizes")
        )
        in_context = torch.arange(self.settings.num_points, device=x.device) < sizes.unsqueeze(1)  # [B, T]
        code = torch.where(used, OBSERVED, UNUSED).to(x.dtype).unsqueeze(1).expand_as(x)
        mean, std = output_scale(y, in_context)
        outputs = ((y - mean) / std).clamp(-CLIP_OUTPUT, CLIP_OUTPUT)
        inputs = torch.cat([HALF_WIDTH * x, code], dim=-1)
        return Task.from_points(inputs, outputs.unsqueeze(-1), in_context)


def draw_landscapes(random: Random, settings: LandscapeSettings, count: int) -> Tensors:
    """Draw functions and their points: x [n, T, D] in [−1, 1], y [n, T], used [n, D], sizes of contexts [n]."""
    inputs, total = settings.max_inputs, settings.num_points
    used = torch.arange(inputs, device=random.device) < random.integers(1, inputs, count, 1)
    sizes = context_sizes(random.uniform(count), settings.min_context, settings.max_context)
    seen = torch.arange(total, device=random.device) < sizes.unsqueeze(1)  # [n, T]
    function = draw_function(random, used)
    tried, fresh = (random.uniform(count, total, inputs, low=-1.0, high=1.0) for _ in range(2))
    values = function(tried)
    noise = random.log_uniform(1e-3, 0.6, count, 1) * random.chance(0.35, count, 1)
    noise = noise * values.std(1, keepdim=True) * random.normal(count, total)
    share = random.uniform(count, 1, high=0.9)  # of a context's points that an optimiser chose
    known = _choose(
        random.chance(share, count, total), _near(random, tried, values, 0 * sizes + total), tried
    )
    known_values = torch.where(seen, function(known) + noise, -torch.inf)
    targets = _choose(random.chance(0.5, count, total), _near(random, known, known_values, sizes), fresh)
    x = torch.where(used.unsqueeze(1), _choose(seen, known, targets), 0.0)
    y = function(x) + noise
    return {"x": x.to(settings.dtype), "y": y.to(settings.dtype), "used": used, "sizes": sizes}


def _near(random: Random, x: Tensor, values: Tensor, known: Tensor) -> Tensor:
    """As many points near the best of x [n, T, D], by values [n, T] of which so many are known [n], others −∞."""
    count, total, _ = x.shape
    best = values.topk(CENTRES, dim=1).indices  # [n, C]
    centres = known.clamp(max=CENTRES).unsqueeze(1)
    centre = best.gather(1, (random.uniform(count, total) * centres).long().clamp(max=CENTRES - 1))
    width = random.log_uniform(0.02, 0.5, count, 1, 1)
    return (x.take_along_dim(centre.unsqueeze(-1), 1) + width * random.normal(*x.shape)).clamp(-1, 1)


def _choose(flags: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Points [n, T, D] of one where flags [n, T] are True, of the other elsewhere."""
    return torch.where(flags.unsqueeze(-1), one, other)


def draw_function(random: Random, used: Tensor) -> Callable[[Tensor], Tensor]:
    """Draw one function per row of `used` [n, D]: from x [n, T, D] in [−1, 1] to [n, T]."""
    count, inputs = used.shape
    matters = used & ~(random.chance(0.15, count, inputs) & random.chance(0.5, count, 1))
    matters[:, 0] = True  # no function is constant
    has_bowl = random.chance(0.5, count, 1)
    process, bowl = _draw_process(random, used, matters), _draw_bowl(random, used, matters)
    size = torch.where(has_bowl, random.log_uniform(0.03, 1.0, count, 1), 1.0)
    depth = random.log_uniform(0.3, 8.0, count, 1) * has_bowl
    skew = random.uniform(count, 1, low=-0.7, high=1.2)
    skew = torch.where(skew.abs() < 0.05, 0.05, skew)

    def function(x: Tensor) -> Tensor:
        raw = (size * process(x) - depth * bowl(x)).clamp(-8, 8)
        return (torch.exp(skew * raw) - 1) / skew

    return function


def _draw_process(random: Random, used: Tensor, matters: Tensor) -> Callable[[Tensor], Tensor]:
    """Draw a sum of waves of about unit variance for each function, of inputs that are warped in half of them."""
    count, inputs = used.shape
    spread = 0.8 * random.normal(count, 1) + 0.6 * random.normal(count, inputs) - 0.4
    length = used.sum(1, keepdim=True).sqrt() * torch.exp(spread)
    law = random.frequency_scale(
        random.choice((0.5, 0.0, 0.0, 0.2, 0.0, 0.3), count, 1).expand(-1, FEATURES), count, FEATURES
    )  # RBF, Matérn-3/2 and -5/2
    frequency = law.unsqueeze(-1) * random.normal(count, FEATURES, inputs)
    frequency = frequency * torch.where(matters, 1 / length, 0.0).unsqueeze(1)
    waves = random.normal(2, count, FEATURES, 1) / FEATURES**0.5
    warps = random.chance(0.5, count, 1, 1)
    a, b = torch.exp(0.5 * warps * random.normal(2, count, 1, inputs))

    def process(x: Tensor) -> Tensor:
        u = (0.5 * x + 0.5).clamp(1e-4, 1 - 1e-4)
        angle = torch.where(warps, 1 - 2 * (1 - u**a) ** b, x) @ frequency.mT  # [n, T, m]
        return (angle.cos() @ waves[0] + angle.sin() @ waves[1]).squeeze(-1)

    return process


def _draw_bowl(random: Random, used: Tensor, matters: Tensor) -> Callable[[Tensor], Tensor]:
    """Draw a bowl for each function."""
    count, inputs = used.shape
    centre = random.uniform(count, 1, inputs, low=-1.0, high=1.0)
    weight = torch.where(matters, random.exponential(count, inputs), 0.0)
    weight = (weight / used.sum(1, keepdim=True)).unsqueeze(1)
    is_round = random.chance(0.5, count, 1)
    power = random.uniform(count, 1, low=0.7, high=2.0)

    def bowl(x: Tensor) -> Tensor:
        apart = (x - centre).abs() + 1e-6
        whole = (weight * apart.square()).sum(-1) ** (power / 2)
        return torch.where(is_round, whole, (weight * apart ** power.unsqueeze(-1)).sum(-1))

    return bowl
