"""Tasks of the Cart-Pole experiment (Sec. 4.2): transitions of one environment, some of them seen.

Axes: E environments, N trajectories of H steps; 5 inputs [x, θ, ẋ, θ̇, u], 4 outputs, the next state. Raw units.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from dsvnp.networks import Shape
from dsvnp.paper.cartpole.physics import CartPole, euler_step, simulate
from dsvnp.sources.base import TaskSource, Tensors, check_context, first_points, take_batch
from dsvnp.task import Task

Environments = Sequence[tuple[float, float]]  # (mass of the cart, friction)


class Transitions(NamedTuple):
    """Transitions by environment and trajectory: inputs x [E, N, H, 5] and next states y [E, N, H, 4]."""

    x: Tensor
    y: Tensor

    @classmethod
    def draw(
        cls, environments: Environments, num_trajectories: int, horizon: int, generator: torch.Generator
    ) -> Self:
        """Simulate a random controller in each environment, on the generator's device."""
        mass_cart, friction = torch.tensor(environments, device=generator.device).unbind(-1)
        return cls(*simulate(CartPole(mass_cart, friction), num_trajectories, horizon, generator))

    def split(self, share: float) -> "tuple[Transitions, Transitions]":
        """Hold out the last `share` of each environment's trajectories, whole ones: what stays, what is held out."""
        kept = self.x.shape[1] - round(share * self.x.shape[1])
        if not 0 < kept < self.x.shape[1]:
            raise ValueError(
                f"a share of {share} of {self.x.shape[1]} trajectories leaves one part empty; "
                "simulate more of them, or choose another share"
            )
        (x, held_x), (y, held_y) = ((part[:, :kept], part[:, kept:]) for part in self)
        return Transitions(x, y), Transitions(held_x, held_y)

    def rows(self) -> tuple[Tensor, Tensor]:
        """Inputs [E, N·H, 5] and outputs [E, N·H, 4] without regard to trajectories."""
        return self.x.flatten(1, 2), self.y.flatten(1, 2)


class CartPoleTasks(TaskSource):
    """A batch is one task of each environment: random transitions, the first of them its context.

    A pass visits the transitions of each environment once, in a random order; a pool holds several passes.
    """

    def __init__(
        self,
        data: Transitions,  # transitions to learn from
        num_points: int = 200,  # transitions of a task
        min_context: int = 1,  # smallest context
        max_context: int = 100,  # largest context
        passes: int = 20,  # passes that a pool holds: drawing it again is no part of a captured step
    ) -> None:
        self.x, self.y = data.rows()
        self.num_points, self.passes = num_points, passes
        self.context = (min_context, max_context)
        check_context(self.context, num_points)
        self.per_pass = self.x.shape[1] // num_points  # the rest of a pass, too few for a task, is left out
        if self.per_pass < 1 or passes < 1:
            raise ValueError(
                f"an environment has {self.x.shape[1]} transitions, too few for a task of {num_points}, or passes is "
                f"{passes}; simulate more trajectories, lower num_points, or pass at least 1"
            )
        self.refresh_every = passes * self.per_pass

    def static(self) -> Tensors:
        return {"x": self.x, "y": self.y}

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """Indices of the transitions of each step, [steps, E, points]."""
        environments, rows = self.x.shape[:2]
        uniform = torch.rand(self.passes, environments, rows, generator=generator, device=device)
        order = uniform.argsort(-1)[..., : self.per_pass * self.num_points]
        tasks = order.unflatten(-1, (self.per_pass, self.num_points))  # [passes, E, tasks, points]
        return {"order": tasks.transpose(1, 2).flatten(0, 1)}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        return {"context": self.x.shape[:1]}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        rows = take_batch(tensors["order"], step, 1)[0].unsqueeze(-1)  # [E, points, 1]
        x, y = (tensors[name].take_along_dim(rows, 1) for name in ("x", "y"))
        return Task.from_points(x, y, first_points(uniforms["context"], *self.context, x))


def identification_task(data: Transitions, num_context: int, generator: torch.Generator) -> Task:
    """One task per environment: `num_context` random transitions to identify it by, all of them as targets."""
    x, y = data.rows()
    chosen = _choose(x, num_context, generator)
    flags = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device).scatter(1, chosen.squeeze(-1), True)
    task = Task.from_sets(x.take_along_dim(chosen, 1), y.take_along_dim(chosen, 1), x, y)
    return replace(task, in_context=flags)


def held_out_task(
    seen: Transitions, held_out: Transitions, num_context: int, generator: torch.Generator
) -> Task:
    """One task per environment: the context from trajectories that may be seen, all held-out ones as targets."""
    x, y = seen.rows()
    chosen = _choose(x, num_context, generator)
    return Task.from_sets(x.take_along_dim(chosen, 1), y.take_along_dim(chosen, 1), *held_out.rows())


def average_step(environments: Environments, x: Tensor) -> Tensor:
    """The exact next state of inputs [..., 5] averaged over environments: the best guess without identification."""
    steps = [euler_step(CartPole(*pair), x[..., :4], x[..., 4]) for pair in environments]
    return torch.stack(steps).mean(0)


def _choose(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Different random rows of each environment, [E, count, 1]."""
    if not 1 <= count <= x.shape[1]:
        raise ValueError(
            f"num_context must lie between 1 and {x.shape[1]}, the transitions of an environment, got {count}"
        )
    uniform = torch.rand(x.shape[:2], generator=generator, device=x.device)
    return uniform.argsort(-1)[:, :count].unsqueeze(-1)
