"""Roll-outs of a learned Cart-Pole: particles that continue from their own predictions, and how far to trust them.

Axes: P particles, E environments, M roll-outs of H steps each; 4 states [x, θ, ẋ, θ̇].
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from dsvnp.models import NeuralProcess
from dsvnp.paper.cartpole.data import Environments, Transitions, average_step
from dsvnp.task import Task

LEVEL = 0.9  # of the intervals that are drawn and whose coverage is counted


def roll_out(
    net: NeuralProcess, seen: Task, runs: Transitions, num_particles: int, generator: torch.Generator
) -> Tensor:
    """Predict trajectories from their first state and forces, and one context per environment, [P, E, M, H, 4].

    A particle believes in one system: it keeps its draw of z_G for all steps, of all its roll-outs in one environment,
    and draws z_* and the observation noise afresh at each. Particles are put on the axis of tasks, each with a copy of
    the context: one draw of z_G belongs to each, and no particle is decoded under the draw of another.
    """
    count = len(runs.x)
    x_context = seen.x_context.repeat(num_particles, 1, 1)  # [P·E, C, 5]
    y_context = seen.y_context.repeat(num_particles, 1, 1)
    state = runs.x[:, :, 0, :4].repeat(num_particles, 1, 1)  # [P·E, M, 4]
    kept: dict[str, Tensor] = {}
    path = []
    for force in runs.x[..., 4:].unbind(2):  # [E, M, 1] each
        x = torch.cat([state, force.repeat(num_particles, 1, 1)], dim=-1)
        task = Task.from_sets(x_context, y_context, x)
        noise = net.draw_noise(task, shared=True, generator=generator)
        kept = kept or {name: value for name, value in noise.items() if name != "local"}
        predictive = net.predict(task, 1, 1, noise | kept, validate=False)
        state = predictive.sample(1, generator)[0]
        path.append(state)
    return torch.stack(path, dim=2).unflatten(0, (num_particles, count))


def roll_out_average(environments: Environments, runs: Transitions) -> Tensor:
    """The same by a predictor that knows the mechanics but averages over environments, [E, M, H, 4]."""
    state, path = runs.x[:, :, 0, :4], []
    for force in runs.x[..., 4:].unbind(2):
        state = average_step(environments, torch.cat([state, force], dim=-1))
        path.append(state)
    return torch.stack(path, dim=2)


class RolloutScores(NamedTuple):
    """Scores of roll-outs after each step, [H]: squared error of the particles' mean, and their coverage."""

    mse: Tensor
    coverage: Tensor

    @classmethod
    def of(cls, particles: Tensor, truth: Tensor) -> Self:
        """Score particles [P, E, M, H, 4] against what happened, [E, M, H, 4], averaged over all but H."""
        low, high = band(particles)
        inside = ((low <= truth) & (truth <= high)).to(truth.dtype)
        return cls((particles.mean(0) - truth).square().mean((0, 1, 3)), inside.mean((0, 1, 3)))


def band(particles: Tensor) -> tuple[Tensor, Tensor]:
    """The central interval that holds 90 % of the particles, low and high, each without the first axis."""
    tail = (1 - LEVEL) / 2
    return particles.quantile(tail, dim=0), particles.quantile(1 - tail, dim=0)


def shown_rollout(particles: Tensor, runs: Transitions, environment: int) -> dict[str, Sequence[Any]]:
    """The first roll-out of one environment as a figure shows it, from its start on, [H + 1, 4] each."""
    start = runs.x[environment, 0, :1, :4]
    low, high = band(particles[:, environment, 0])
    parts = {
        "low": low,
        "mean": particles[:, environment, 0].mean(0),
        "high": high,
        "truth": runs.y[environment, 0],
    }
    return {name: torch.cat([start, part]).tolist() for name, part in parts.items()}
