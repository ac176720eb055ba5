"""Problem: a distribution over tasks whose true conditional is known; its tasks to learn from and to test on.

Each problem draws tasks with parameters θ of their own (curves, link lengths, masses), and gives p(y | x, θ): what a
model would say that had identified the task from its context. It is the ceiling for a model's likelihood; no model
sees θ. Two more ceilings come from its first two moments: the best Gaussian for each point, with a diagonal or with a
full covariance, is the one with the moments of p(y | x, θ).

Axes: N or B tasks, T points, dim_x inputs, dim_y outputs. Parameters are tensors [N, ...] by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.naming import at_least_one
from dsvnp.networks import Shape
from dsvnp.paper.ambiguity.densities import diagonal_gaussian, full_gaussian
from dsvnp.sources.base import TaskSource, Tensors, check_context, first_points, take_batch
from dsvnp.task import Task

NUM_POINTS = 50
CONTEXT = (3, 46)
CHUNK = 1024  # tasks that are drawn at once: trajectories and covariance matrices take memory


class Points(NamedTuple):
    """Points of tasks in float64: x [N, T, dim_x], y [N, T, dim_y] and the parameters, [N, ...] each."""

    x: Tensor
    y: Tensor
    parameters: Tensors


class ProblemTask(NamedTuple):
    """A batch of tasks together with their parameters, which no model sees."""

    task: Task
    parameters: Tensors


class Problem(ABC):
    """A distribution over tasks; see the module's docstring."""

    dim_x: int  # number of inputs
    dim_y: int  # number of outputs

    @abstractmethod
    def draw(self, count: int, num_points: int, generator: torch.Generator) -> Points:
        """Draw tasks on the generator's device, their points in random order."""

    @abstractmethod
    def log_density(self, x: Tensor, y: Tensor, parameters: Tensors) -> Tensor:
        """ln p(y | x, θ) of each point, all outputs together, [N, T]; inputs and outputs in float64."""

    @abstractmethod
    def moments(self, x: Tensor, parameters: Tensors) -> tuple[Tensor, Tensor]:
        """Mean [N, T, dim_y] and covariance [N, T, dim_y, dim_y] of p(y | x, θ)."""

    @abstractmethod
    def sample(self, x: Tensor, parameters: Tensors, generator: torch.Generator) -> Tensor:
        """Draw y ~ p(y | x, θ) at given inputs, [N, T, dim_y]: what a model's samples are held against."""

    def unseen(self) -> Problem:
        """The distribution to test on; the same unless a problem keeps some parameters out of training."""
        return self

    def truth(self, known: ProblemTask) -> Tensor:
        """ln p(y | x, θ) of each target of tasks whose parameters are known, [B, T]."""
        y, _ = known.task.all_points()
        return self.log_density(known.task.x_target.double(), y.double(), known.parameters)

    def diagonal(self, known: ProblemTask) -> Tensor:
        """What the best Gaussian with a diagonal covariance says of each target, [B, T]."""
        y, _ = known.task.all_points()
        return diagonal_gaussian(y.double(), *self.moments(known.task.x_target.double(), known.parameters))

    def full(self, known: ProblemTask) -> Tensor:
        """What the best Gaussian with a full covariance says of each target, [B, T]."""
        y, _ = known.task.all_points()
        return full_gaussian(y.double(), *self.moments(known.task.x_target.double(), known.parameters))

    def source(
        self,
        batch_size: int = 16,
        num_points: int = NUM_POINTS,
        context: tuple[int, int] = CONTEXT,
        refresh_every: int = 64,
        dtype: torch.dtype = torch.float32,
    ) -> ProblemTasks:
        """Tasks to learn from; see `ProblemTasks`."""
        return ProblemTasks(self, batch_size, num_points, context, refresh_every, dtype)

    def tasks(
        self,
        num_tasks: int,  # tasks in all
        generator: torch.Generator,  # decides all
        batch_size: int = 100,  # tasks of a batch; the last batch may have fewer
        num_points: int = NUM_POINTS,  # points of a task, all of them targets
        context: tuple[int, int] = CONTEXT,  # smallest and largest context
        # from the distribution to test on; False gives the one of training, to choose settings by
        unseen: bool = True,
        dtype: torch.dtype = torch.float32,  # floating-point type of the tasks; parameters stay in float64
    ) -> list[ProblemTask]:
        """Draw tasks in batches, contexts of uniform sizes within `context`."""
        check_context(context, num_points)
        problem = self.unseen() if unseen else self
        batches = []
        for start in range(0, num_tasks, batch_size):
            x, y, parameters = problem.draw(min(batch_size, num_tasks - start), num_points, generator)
            uniform = torch.rand(len(x), generator=generator, device=generator.device)
            task = Task.from_points(x.to(dtype), y.to(dtype), first_points(uniform, *context, x))
            batches.append(ProblemTask(task, parameters))
        return batches


class ProblemTasks(TaskSource):
    """Tasks of a problem, each used once, then the pool is drawn again."""

    def __init__(
        self,
        problem: Problem,  # where tasks come from
        batch_size: int,  # tasks of a batch
        num_points: int,  # points of a task, all of them targets
        context: tuple[int, int],  # smallest and largest context; each task has its own size
        refresh_every: int,  # steps that one pool serves, which has batch_size × refresh_every tasks
        dtype: torch.dtype,  # floating-point type of the tasks
    ) -> None:
        check_context(context, num_points)
        at_least_one(batch_size=batch_size, refresh_every=refresh_every)
        self.problem = problem
        self.shape = (batch_size, num_points)
        self.context = context
        self.refresh_every = refresh_every
        self.dtype = dtype

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """Draw the tasks, some at a time."""
        batch, points = self.shape
        total = batch * self.refresh_every
        parts = [
            self.problem.draw(min(CHUNK, total - start), points, generator)
            for start in range(0, total, CHUNK)
        ]
        return {
            "x": torch.cat([part.x.to(self.dtype) for part in parts]),
            "y": torch.cat([part.y.to(self.dtype) for part in parts]),
        }

    def uniform_shapes(self) -> Mapping[str, Shape]:
        return {"context": self.shape[:1]}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        x = take_batch(tensors["x"], step, self.shape[0])
        y = take_batch(tensors["y"], step, self.shape[0])
        return Task.from_points(x, y, first_points(uniforms["context"], *self.context, x))
