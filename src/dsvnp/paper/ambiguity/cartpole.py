"""Kicked Cart-Pole: the system identification of Sec. 4.2 with pushes that nobody observes.

In a tenth of the steps a push k ~ N(0, 5²) N adds to the force u; the outputs, the next state, have noise of 0.02. An
Euler step is linear in the force, s' = m(s, u) + k g(s): p(s' | s, u) is a mixture of two Gaussians,

    0.9 N(m, 0.02² I) + 0.1 N(m, 0.02² I + 25 g gᵀ).

Each point of a task is one random step of a trajectory of its own: no state of one point is the answer of another.
Training sees six environments, tests the other fourteen. Axes: N tasks, T points, H steps; 5 inputs, 4 outputs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dsvnp.gaussian import gaussian_log_prob
from dsvnp.paper.ambiguity.densities import shared_direction
from dsvnp.paper.ambiguity.problem import Points, Problem
from dsvnp.paper.cartpole.physics import TEST_ENVIRONMENTS, TRAIN_ENVIRONMENTS, CartPole, euler_step, rollout
from dsvnp.sources.base import Tensors


@dataclass(frozen=True)
class KickedCartPole(Problem):
    """State and force → next state, some steps with an unobserved push."""

    dim_x = 5
    dim_y = 4
    kick: float = 5.0  # standard deviation of a push, in N
    chance: float = 0.1  # share of steps with a push
    noise: float = 0.02  # standard deviation of each output's noise
    horizon: int = 10  # steps of a trajectory
    start_std: float = 0.02  # standard deviation of the first state
    max_force: float = 10.0  # largest force, in N
    # pairs of the cart's mass and the friction to draw from
    environments: tuple[tuple[float, float], ...] = TRAIN_ENVIRONMENTS

    def unseen(self) -> KickedCartPole:
        """The environments that training does not see."""
        return replace(self, environments=TEST_ENVIRONMENTS)

    def draw(self, count: int, num_points: int, generator: torch.Generator) -> Points:
        """Draw environments, run a trajectory for each point and keep one of its steps."""
        shape = (count, num_points, self.horizon)
        device = generator.device
        table = torch.tensor(self.environments, dtype=torch.float64, device=device)
        chosen = torch.randint(len(table), (count,), generator=generator, device=device)
        start, force, coin, kick = (
            torch.empty(*size, dtype=torch.float64, device=device)
            for size in ((count, num_points, 4), shape, shape, shape)
        )
        start.normal_(generator=generator)
        force.uniform_(-self.max_force, self.max_force, generator=generator)
        coin.uniform_(generator=generator)
        kick.normal_(generator=generator)
        push = torch.where(coin < self.chance, self.kick * kick, 0.0)
        parameters = {"environment": table[chosen].unsqueeze(1)}  # [N, 1, 2]
        x, y = kicked_rollout(self._system(parameters), self.start_std * start, force, push)
        step = torch.randint(self.horizon, (count, num_points, 1, 1), generator=generator, device=device)
        x, y = (each.take_along_dim(step, 2).squeeze(2) for each in (x, y))
        return Points(x, y + self.noise * torch.empty_like(y).normal_(generator=generator), parameters)

    def log_density(self, x: Tensor, y: Tensor, parameters: Tensors) -> Tensor:
        """A mixture of a step without a push and one with a push."""
        mean, gain = self._step(x, parameters)
        calm = gaussian_log_prob(y, mean, torch.full_like(mean, self.noise)).sum(-1)
        kicked = shared_direction(y - mean, self.kick * gain, self.noise)
        return torch.logaddexp(calm + math.log1p(-self.chance), kicked + math.log(self.chance))

    def sample(self, x: Tensor, parameters: Tensors, generator: torch.Generator) -> Tensor:
        """The next state, in some steps after a push, with noise."""
        mean, gain = self._step(x, parameters)
        coin, push = torch.empty_like(mean[..., :1]), torch.empty_like(mean[..., :1])
        kicked = coin.uniform_(generator=generator) < self.chance
        push = torch.where(kicked, self.kick * push.normal_(generator=generator), 0.0)
        return mean + push * gain + self.noise * torch.empty_like(mean).normal_(generator=generator)

    def moments(self, x: Tensor, parameters: Tensors) -> tuple[Tensor, Tensor]:
        """Mean m, covariance chance · kick² g gᵀ + σ² I."""
        mean, gain = self._step(x, parameters)
        eye = torch.eye(4, dtype=x.dtype, device=x.device)
        spread = self.chance * self.kick**2 * gain[..., :, None] * gain[..., None, :]
        return mean, spread + self.noise**2 * eye

    def _step(self, x: Tensor, parameters: Tensors) -> tuple[Tensor, Tensor]:
        """The next state without a push, and how much a push of 1 N adds to it, [N, T, 4] each."""
        system, state, force = self._system(parameters), x[..., :4], x[..., 4]
        mean = euler_step(system, state, force)
        return mean, euler_step(system, state, force + 1) - mean

    def _system(self, parameters: Tensors) -> CartPole:
        """The environments of the tasks, [N, 1]."""
        mass_cart, friction = parameters["environment"].unbind(-1)
        return CartPole(mass_cart, friction)


def kicked_rollout(system: CartPole, start: Tensor, force: Tensor, push: Tensor) -> tuple[Tensor, Tensor]:
    """Run trajectories under force and push, inputs [..., H, 5] and next states [..., H, 4] from starts [..., 4].

    The inputs show the controller's force [..., H] alone; nobody observes the push [..., H].
    """
    x, y = rollout(system, start, force + push)
    return torch.cat([x[..., :4], force.unsqueeze(-1)], dim=-1), y
