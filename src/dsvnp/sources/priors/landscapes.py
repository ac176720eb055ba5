"""LandscapePrior: synthetic functions of the unit cube to pretrain on, as Bayesian optimisation meets them.

    g(x) = s Σ_k a_k cos(ω_k·x) + b_k sin(ω_k·x) − w Σ_d u_d |x_d − c_d|^p        a process and, in half of them, a bowl
    f(x) = (exp(r g(x)) − 1) / r                                                  r between −1.2 and 1.2: skew

ω_k = ε_k / ℓ has a length ℓ_d for each input, which grows with √D, and the law of an RBF or Matérn kernel; some inputs
do not matter. Most functions have no noise, others a little. Half of a function's points lie anywhere in the cube, the
other half near the best of these, as an optimiser leaves them.

What a task holds
    x  [B, T, 2·D]  inputs in [−1, 1], then codes 0 for an input that is there, −1 for one that is not.
    y  [B, T, 1]    numbers standardised by the context.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dsvnp.networks import Shape
from dsvnp.sources.base import TaskSource, Tensors, take_batch
from dsvnp.sources.priors.randomness import Random
from dsvnp.sources.priors.scaling import OBSERVED, UNUSED, context_sizes, output_scale
from dsvnp.task import Task

CLIP_OUTPUT = 15.0  # standard deviations of the context
FEATURES = 128
CHUNK_ENTRIES = 2**24  # features that are computed at once
CENTRES = 4  # of the points near the best


@dataclass(frozen=True)
class LandscapeSettings:
    """Settings of synthetic functions of the unit cube."""

    batch_size: int = 64  # functions of a batch
    num_points: int = 128  # points of a function, context and targets together, an even number
    min_context: int = 2  # smallest context
    max_context: int = 96  # largest context
    max_inputs: int = 10  # largest number of inputs, and the D of the module's docstring
    refresh_every: int = 64  # steps that one pool serves
    dtype: torch.dtype = torch.float32  # floating-point type of the tasks

    def __post_init__(self) -> None:
        if not 1 <= self.min_context <= self.max_context < self.num_points or self.num_points % 2:
            raise ValueError(
                f"expected 1 ≤ min_context ≤ max_context < num_points, an even number, got {self.min_context}, "
                f"{self.max_context} and {self.num_points}; leave at least one point to predict"
            )
        if not 1 <= self.max_inputs <= 64 or min(self.batch_size, self.refresh_every) < 1:
            raise ValueError(
                "expected 1 ≤ max_inputs ≤ 64 and batch_size and refresh_every of at least 1, got "
                f"{self.max_inputs}, {self.batch_size} and {self.refresh_every}"
            )


class LandscapePrior(TaskSource):
    """A supply of synthetic functions of the unit cube; see the module's docstring.

    Args:
        settings: sizes.
    """

    def __init__(self, settings: LandscapeSettings | None = None) -> None:
        self.settings = LandscapeSettings() if settings is None else settings
        self.refresh_every = self.settings.refresh_every

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """Draw functions: x, y, and which inputs are used."""
        settings, random = self.settings, Random(generator, device)
        count = settings.batch_size * settings.refresh_every
        size = max(1, CHUNK_ENTRIES // (settings.num_points * FEATURES))
        chunks = [
            draw_landscapes(random, settings, min(size, count - done)) for done in range(0, count, size)
        ]
        return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        """One number per task, for the size of its context."""
        return {"context": (self.settings.batch_size,)}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        """The next functions of the pool, their outputs scaled by their contexts."""
        settings = self.settings
        x, y, used = (take_batch(tensors[name], step, settings.batch_size) for name in ("x", "y", "used"))
        sizes = context_sizes(uniforms["context"], settings.min_context, settings.max_context)
        in_context = torch.arange(settings.num_points, device=x.device) < sizes.unsqueeze(1)  # [B, T]
        code = torch.where(used, OBSERVED, UNUSED).to(x.dtype).unsqueeze(1).expand_as(x)
        mean, std = output_scale(y, in_context)
        outputs = ((y - mean) / std).clamp(-CLIP_OUTPUT, CLIP_OUTPUT)
        return Task.from_points(torch.cat([x, code], dim=-1), outputs.unsqueeze(-1), in_context)


def draw_landscapes(random: Random, settings: LandscapeSettings, count: int) -> Tensors:
    """Draw functions and their points: x [n, T, D] in [−1, 1], y [n, T], used [n, D]."""
    inputs, half = settings.max_inputs, settings.num_points // 2
    used = torch.arange(inputs, device=random.device) < random.integers(1, inputs, count, 1)
    function = draw_function(random, used)
    anywhere = random.uniform(count, half, inputs, low=-1.0, high=1.0)
    best = function(anywhere).topk(CENTRES, dim=1).indices  # [n, C]
    centre = best.gather(1, random.integers(0, CENTRES - 1, count, half))
    near = anywhere.take_along_dim(centre.unsqueeze(-1), 1)
    width = random.log_uniform(0.02, 0.5, count, 1, 1)
    near = (near + width * random.normal(count, half, inputs)).clamp(-1, 1)
    x = torch.where(used.unsqueeze(1), torch.cat([anywhere, near], dim=1), 0.0)
    x = x.take_along_dim(random.permutations(count, settings.num_points).unsqueeze(-1), 1)
    y = function(x)
    size = random.log_uniform(1e-3, 0.2, count, 1) * random.chance(0.3, count, 1)
    y = y + size * y.std(1, keepdim=True) * random.normal(*y.shape)
    return {"x": x.to(settings.dtype), "y": y.to(settings.dtype), "used": used}


def draw_function(random: Random, used: Tensor) -> Callable[[Tensor], Tensor]:
    """Draw one function per row of `used` [n, D]: from x [n, T, D] in [−1, 1] to [n, T], of about unit variance."""
    count, inputs = used.shape
    matters = used & ~(random.chance(0.15, count, inputs) & random.chance(0.5, count, 1))
    matters[:, 0] = True  # no function is constant
    dims = used.sum(1, keepdim=True)  # [n, 1]
    length = dims.sqrt() * torch.exp(0.6 * random.normal(count, 1) + 0.6 * random.normal(count, inputs) - 0.5)
    law = random.frequency_scale(
        random.choice((0.5, 0.0, 0.0, 0.2, 0.0, 0.3), count, 1).expand(-1, FEATURES), count, FEATURES
    )  # RBF, Matérn-3/2 and -5/2
    frequency = law.unsqueeze(-1) * random.normal(count, FEATURES, inputs)
    frequency = frequency * torch.where(matters, 1 / length, 0.0).unsqueeze(1)
    waves = random.normal(2, count, FEATURES, 1) / FEATURES**0.5
    centre, weight = (
        random.uniform(count, 1, inputs, low=-1.0, high=1.0),
        random.exponential(count, 1, inputs),
    )
    weight = torch.where(matters.unsqueeze(1), weight, 0.0) / dims.unsqueeze(-1)
    power = 1.0 + random.chance(0.6, count, 1, 1).float()
    depth = random.log_uniform(0.3, 6.0, count, 1) * random.chance(0.5, count, 1)
    skew = random.uniform(count, 1, low=-1.2, high=1.2)
    skew = torch.where(skew.abs() < 0.05, 0.05, skew)

    def function(x: Tensor) -> Tensor:
        angle = x @ frequency.mT  # [n, T, m]
        process = (angle.cos() @ waves[0] + angle.sin() @ waves[1]).squeeze(-1)
        bowl = (weight * ((x - centre).abs() + 1e-6) ** power).sum(-1)
        raw = (process - depth * bowl).clamp(-8, 8)
        return (torch.exp(skew * raw) - 1) / skew

    return function
