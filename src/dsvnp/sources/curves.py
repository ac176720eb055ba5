"""Curves from the paper's stochastic process (Sec. 4.1): y = sin(f(x) + x) with f ~ GP(0, RBF)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from dsvnp.naming import at_least_one
from dsvnp.networks import Shape
from dsvnp.sources.base import TaskSource, Tensors, check_context, first_points, take_batch
from dsvnp.task import Task

LENGTH_SCALE = 0.4


def draw_curves(x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw y = sin(f(x) + x) at inputs x [N, points, 1], one function per row, each at its own inputs.

    f is drawn on a grid g and carried to x by its conditional mean, f(x) = k(x, g) L⁻ᵀ ε with K_gg = L Lᵀ:
    one factorisation serves all functions. At a spacing of a third of the length scale, the variance of f(x) that the
    grid leaves out is below 1e-9. In float64: the matrix is singular in float32.
    """
    x64 = x.double()
    low, high = float(x64.min()) - LENGTH_SCALE, float(x64.max()) + LENGTH_SCALE
    size = 2 + int((high - low) / (LENGTH_SCALE / 3))
    grid = torch.linspace(low, high, size, dtype=torch.float64, device=x.device)
    gram = rbf(grid[:, None], grid) + 1e-10 * torch.eye(size, dtype=torch.float64, device=x.device)
    noise = torch.randn(len(x), size, generator=generator, dtype=torch.float64, device=x.device)
    weights = torch.linalg.solve_triangular(
        torch.linalg.cholesky(gram).T, noise.T, upper=True
    ).T  # L⁻ᵀ ε of each function, [N, grid]
    f = rbf(x64, grid) @ weights.unsqueeze(-1)
    return torch.sin(f + x64).to(x.dtype)


def rbf(a: Tensor, b: Tensor) -> Tensor:
    """exp(−(a − b)² / 2l²), broadcast."""
    return torch.exp(-0.5 * ((a - b) / LENGTH_SCALE).square())


class Curves(TaskSource):
    """Curves at random inputs; each function of a pool is used once, then the pool is redrawn."""

    def __init__(
        self,
        batch_size: int = 16,  # tasks of a batch
        num_points: int = 100,  # points of a task
        min_context: int = 3,  # smallest context
        max_context: int = 50,  # largest context
        interval: tuple[float, float] = (-2.0, 2.0),  # where inputs lie
        # steps that one pool serves, which has batch_size × refresh_every functions
        refresh_every: int = 512,
        dtype: torch.dtype = torch.float32,  # floating-point type of the tasks
    ) -> None:
        self.shape = (batch_size, num_points)
        self.context = (min_context, max_context)
        check_context(self.context, num_points)
        at_least_one(batch_size=batch_size, refresh_every=refresh_every)
        self.interval = interval
        self.refresh_every = refresh_every
        self.dtype = dtype

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """Draw functions, about a thousand at a time, since k(x, g) takes memory."""
        batch, points = self.shape
        low, high = self.interval
        shape = (batch * self.refresh_every, points, 1)
        x = low + (high - low) * torch.rand(shape, generator=generator, dtype=self.dtype, device=device)
        y = torch.cat([draw_curves(part, generator) for part in x.split(1024)])
        return {"x": x, "y": y}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        return {"context": self.shape[:1]}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        x = take_batch(tensors["x"], step, self.shape[0])
        y = take_batch(tensors["y"], step, self.shape[0])
        return Task.from_points(x, y, first_points(uniforms["context"], *self.context, x))


def curve_tasks(
    num_tasks: int,
    num_points: int,
    context: tuple[int, int],
    generator: torch.Generator,
    interval: tuple[float, float] = (-2.0, 2.0),
    batch_size: int = 100,
) -> list[Task]:
    """Draw tasks to test on, in batches: curves at random inputs, contexts of uniform sizes within `context`."""
    check_context(context, num_points)
    low, high = interval
    tasks = []
    for start in range(0, num_tasks, batch_size):
        count = min(batch_size, num_tasks - start)
        uniform = torch.rand(count, num_points + 1, generator=generator, device=generator.device)
        x = low + (high - low) * uniform[:, 1:, None]
        y = draw_curves(x, generator)
        tasks.append(Task.from_points(x, y, first_points(uniform[:, 0], *context, x)))
    return tasks
