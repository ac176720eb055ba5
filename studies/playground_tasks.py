"""Tasks that the playground's networks learn from: curves, two branches, pushes of a cart-pole, digits.

    curves     f ~ GP(0, k), y = f(x) + σ ε; kernel, ℓ, s, period and σ differ from task to task
    branches   y = c(x) ± g(x) + 0.05 ε, the sign drawn for each point: two curves, each point on one of them
    cart-pole  (θ, ẋ, θ̇, u) → change of (ẋ, θ̇) in 0.1 s, measured with noise; the cart's mass differs by task
    digits     (column, row) → ink of a pixel, both in [−1, 1]

Axes: N tasks of a pool, T points.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product

import torch
from torch import Tensor

from dsvnp.networks import Shape
from dsvnp.paper.cartpole.physics import CartPole, rk4_step
from dsvnp.sources.base import TaskSource, Tensors, check_context, first_points, take_batch
from dsvnp.sources.gp import GPPrior, draw, uniform_inputs
from dsvnp.task import Task

INTERVAL = (-2.0, 2.0)
NOISES = (0.02, 0.05, 0.1, 0.2)
KERNELS = {
    "rbf": GPPrior("rbf", length=(0.2, 1.0), scale=(0.5, 1.2)),
    "matern52": GPPrior("matern52", length=(0.2, 1.0), scale=(0.5, 1.2)),
    "periodic": GPPrior("periodic", length=(0.6, 1.4), scale=(0.5, 1.2), period=(0.8, 2.0)),
}
MASSES = (0.2, 1.6)  # kg
FRICTION = 0.1
UNITS = (1.0, 2.0, 5.0, 5.0)  # of θ, ẋ, θ̇, u: a network reads each over its unit
LIMITS = (1.6, 1.5, 1.6, 1.6)  # largest input in these units
CHANGES = (1.0, 3.0)  # units of the changes of ẋ and θ̇
SENSOR = 0.1  # noise of a measured change, in those units
SIDE = 28


@dataclass(frozen=True)
class PlaygroundTasks(TaskSource):
    """What the four sources share: a pool of tasks, each used once, and small contexts more often than large ones."""

    batch_size: int = 16  # tasks of a batch
    num_points: int = 64  # points of a task
    max_context: int = 32  # largest context; the smallest is empty
    refresh_every: int = 128  # steps that one pool serves

    def __post_init__(self) -> None:
        check_context((0, self.max_context), self.num_points)

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """Draw as many tasks as the steps of a pool take."""
        x, y = self.points(self.batch_size * self.refresh_every, generator)
        return {"x": x.float(), "y": y.float()}

    def points(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw tasks: x [count, T, dim_x] and y [count, T, dim_y], the context's points first."""
        raise NotImplementedError

    def uniform_shapes(self) -> Mapping[str, Shape]:
        return {"context": (self.batch_size,)}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        """The next tasks of the pool; half of the contexts have less than a quarter of the largest size."""
        x = take_batch(tensors["x"], step, self.batch_size)
        y = take_batch(tensors["y"], step, self.batch_size)
        return Task.from_points(x, y, first_points(uniforms["context"].square(), 0, self.max_context, x))


@dataclass(frozen=True)
class MixedCurves(PlaygroundTasks):
    """Curves of three kernels and four levels of noise, in equal parts."""

    def points(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw some from each process, then shuffle the tasks."""
        kinds = [
            GPPrior(prior.kernel, prior.length, prior.scale, prior.period, noise)
            for prior, noise in product(KERNELS.values(), NOISES)
        ]
        each = math.ceil(count / len(kinds))
        drawn = [draw(kind, each, self.num_points, generator, INTERVAL, torch.float64) for kind in kinds]
        order = torch.randperm(each * len(kinds), generator=generator, device=generator.device)[:count]
        return torch.cat([x for x, _, _ in drawn])[order], torch.cat([y for _, y, _ in drawn])[order]


@dataclass(frozen=True)
class TwoBranches(PlaygroundTasks):
    """Two smooth curves, one above the other; each point lies on the upper or on the lower one."""

    centre: GPPrior = field(default_factory=lambda: GPPrior("rbf", length=(0.5, 1.2), scale=(0.3, 0.7)))
    gap: GPPrior = field(default_factory=lambda: GPPrior("rbf", length=(0.6, 1.2), scale=(0.2, 0.3)))
    noise: float = 0.05

    def points(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw centre and half the gap, then the branch and the noise of each point."""
        x = uniform_inputs(count, self.num_points, generator, INTERVAL, torch.float64)
        c, g = (
            prior.functions(x, prior.hyperparameters((count, 1), generator), generator)
            for prior in (self.centre, self.gap)
        )
        upper = torch.empty_like(x).uniform_(generator=generator) < 0.5
        half = (0.7 + g).abs()
        noise = self.noise * torch.empty_like(x).normal_(generator=generator)
        return x, c + torch.where(upper, half, -half) + noise


@dataclass(frozen=True)
class Pushes(PlaygroundTasks):
    """Transitions of a cart-pole with a cart of unknown mass, from states that pushes lead to."""

    num_points: int = 48
    max_context: int = 24

    def points(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw a mass per task, states and forces at random, and measure the changes with noise."""
        shape = (count, self.num_points)
        uniform = torch.rand(*shape, 4, generator=generator, device=generator.device, dtype=torch.float64)
        inputs = 2 * uniform - 1  # of [θ, ẋ, θ̇, u]
        inputs = inputs * inputs.new_tensor(LIMITS)
        low, high = MASSES
        mass = low + (high - low) * torch.rand(
            count, 1, generator=generator, device=generator.device, dtype=torch.float64
        )
        noise = torch.randn(*shape, 2, generator=generator, device=generator.device, dtype=torch.float64)
        return inputs, changes(inputs, mass) + SENSOR * noise


def changes(inputs: Tensor, mass: Tensor) -> Tensor:
    """Changes of (ẋ, θ̇) within 0.1 s, [..., 2], of scaled inputs [..., 4] and masses that broadcast to [...]."""
    theta, x_dot, theta_dot, force = (inputs * inputs.new_tensor(UNITS)).unbind(-1)
    state = torch.stack([torch.zeros_like(theta), theta, x_dot, theta_dot], dim=-1)
    after = rk4_step(CartPole(mass, FRICTION), state, force)
    return (after - state)[..., 2:] / inputs.new_tensor(CHANGES)


@dataclass(frozen=True)
class DigitPixels(PlaygroundTasks):
    """Pixels of digits; contexts are scattered, follow a stroke of a brush, or prefer the ink, as people paint."""

    # bytes, [N, 28, 28]
    images: Tensor = field(default_factory=lambda: torch.zeros(1, SIDE, SIDE, dtype=torch.uint8))
    num_points: int = 200
    max_context: int = 120

    def points(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw images, the order in which their pixels are painted, and other pixels to predict."""
        device = generator.device
        rows = torch.randint(len(self.images), (count,), generator=generator, device=device)
        ink = self.images.to(device)[rows].flatten(1).double() / 255  # [count, 784]
        grid = pixel_grid().to(device)
        order = self._painted(grid, ink, generator)  # [count, 784]
        rest = torch.rand(ink.shape, generator=generator, device=device)
        rest.scatter_(1, order[:, : self.max_context], -1.0)  # what may be painted is not drawn twice
        others = rest.argsort(1, descending=True)[:, : self.num_points - self.max_context]
        chosen = torch.cat([order[:, : self.max_context], others], dim=1)
        return grid[chosen], (2 * ink - 1).gather(1, chosen).unsqueeze(-1)

    def _painted(self, grid: Tensor, ink: Tensor, generator: torch.Generator) -> Tensor:
        """Pixels in the order in which a person might paint them, [count, 784]."""
        count, device = len(ink), grid.device
        uniform = torch.rand(count, 7, 1, generator=generator, device=device, dtype=torch.float64)
        start, end = 2 * uniform[:, 0:2] - 1, 2 * uniform[:, 2:4] - 1  # of a stroke, [count, 2, 1]
        along = (end - start).transpose(1, 2)  # [count, 1, 2]
        offset = grid - start.transpose(1, 2)  # [count, 784, 2]
        share = (offset * along).sum(-1) / along.square().sum(-1).clamp(min=1e-6)
        distance = (offset - share.clamp(0, 1).unsqueeze(-1) * along).norm(dim=-1)
        scatter = torch.rand(ink.shape, generator=generator, device=device, dtype=torch.float64)
        stroke, wanted = (uniform[:, 4] < 0.6).double(), 2 * (uniform[:, 5] < 0.5) * uniform[:, 6]
        return (stroke * distance + (0.15 + 0.85 * (1 - stroke)) * scatter - wanted * ink).argsort(1)


def pixel_grid() -> Tensor:
    """(column, row) of each pixel, both in [−1, 1], [784, 2]; the first row is at the top."""
    line = torch.linspace(-1, 1, SIDE, dtype=torch.float64)
    row, column = torch.meshgrid(line, line, indexing="ij")
    return torch.stack([column, row], dim=-1).flatten(0, 1)
