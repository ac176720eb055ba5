"""The mechanics of the Cart-Pole experiment (Sec. 4.2, App. E.2), and random roll-outs.

A cart of mass M slides on a rail with viscous friction b and carries a uniform rod of mass m and length l,
hinged at one end: not a point mass at the tip. The state is [x, θ, ẋ, θ̇]; θ = 0 hangs straight down, and the
rod's centre is at (x + l/2 sin θ, −l/2 cos θ), its moment of inertia about it m l²/12. So L = T − V with

    T = (M+m)/2 ẋ² + m l/2 ẋ θ̇ cos θ + m l²/6 θ̇²,    V = m g l/2 (1 − cos θ),

and Euler-Lagrange, with the force u − b ẋ along x and none about the hinge, reads

    (M+m) ẍ + m l/2 θ̈ cos θ − m l/2 θ̇² sin θ = u − b ẋ,
    2 l θ̈ + 3 ẍ cos θ + 3 g sin θ = 0.

Solved for the accelerations these are PILCO's equations:

    ẍ = (2 m l θ̇² sin θ + 3 m g sin θ cos θ + 4 (u − b ẋ)) / D,              D = 4 (M+m) − 3 m cos² θ,
    θ̈ = (−3 m l θ̇² sin θ cos θ − 6 (M+m) g sin θ − 6 (u − b ẋ) cos θ) / (l D).

Axes: `...` is any batch shape, to which systems, states and forces broadcast; N trajectories, H steps,
4 states, 5 inputs [x, θ, ẋ, θ̇, u].
"""

from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor

# (mass of the cart in kg, friction in N s/m). The paper says "the rest 16" once and 14 later; 20 − 6 is 14.
ENVIRONMENTS: tuple[tuple[float, float], ...] = tuple(
    product((0.3, 0.4, 0.5, 0.6, 0.7), (0.06, 0.08, 0.1, 0.12))
)
TRAIN_ENVIRONMENTS: tuple[tuple[float, float], ...] = tuple(product((0.3, 0.5, 0.7), (0.08, 0.12)))
TEST_ENVIRONMENTS: tuple[tuple[float, float], ...] = tuple(
    environment for environment in ENVIRONMENTS if environment not in TRAIN_ENVIRONMENTS
)


@dataclass(frozen=True, eq=False)  # no `==`: tensors do not compare to one truth value
class CartPole:
    """One cart-pole, or a batch of them where a parameter is a tensor.

    All environments of the paper at once: `CartPole(*torch.tensor(ENVIRONMENTS).unbind(-1))`.
    """

    mass_cart: Tensor | float  # M in kg
    friction: Tensor | float  # b in N s/m, between cart and rail
    mass_pole: float = 0.5  # m in kg
    length: float = 0.6  # l in m, from the hinge to the tip
    gravity: float = 9.82  # g in m/s²


def derivative(system: CartPole, state: Tensor, force: Tensor | float) -> Tensor:
    """Return d/dt [x, θ, ẋ, θ̇] of states `[..., 4]` under a force u `[...]` in N."""
    if state.ndim == 0 or state.shape[-1] != 4:
        raise ValueError(
            f"expected a state of shape [..., 4], got {list(state.shape)}; "
            "pass x, θ, ẋ, θ̇ along the last axis"
        )
    _, theta, x_dot, theta_dot = state.unbind(-1)
    sin, cos = theta.sin(), theta.cos()
    m, length, g = system.mass_pole, system.length, system.gravity
    total = system.mass_cart + m
    push = force - system.friction * x_dot
    swing = m * length * theta_dot**2 * sin
    denominator = 4 * total - 3 * m * cos**2  # at least 4M + m, so never zero
    x_ddot = (2 * swing + 3 * m * g * sin * cos + 4 * push) / denominator
    theta_ddot = (-3 * swing * cos - 6 * total * g * sin - 6 * push * cos) / (length * denominator)
    # every input enters an acceleration, whose shape is therefore the broadcast one
    velocities = x_dot.expand_as(x_ddot), theta_dot.expand_as(x_ddot)
    return torch.stack([*velocities, x_ddot, theta_ddot], dim=-1)


def euler_step(system: CartPole, state: Tensor, force: Tensor | float, dt: float = 0.1) -> Tensor:
    """Return the state after one explicit Euler step, the transition of the experiment."""
    return state + dt * derivative(system, state, force)


def rk4_step(system: CartPole, state: Tensor, force: Tensor | float, dt: float = 0.1) -> Tensor:
    """The state after one classical Runge-Kutta step, the force held: what Euler's step approximates."""
    k1 = derivative(system, state, force)
    k2 = derivative(system, state + dt / 2 * k1, force)
    k3 = derivative(system, state + dt / 2 * k2, force)
    k4 = derivative(system, state + dt * k3, force)
    return state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def rollout(system: CartPole, start: Tensor, forces: Tensor, dt: float = 0.1) -> tuple[Tensor, Tensor]:
    """Take Euler steps from starts [..., 4] under forces [..., H]: inputs [..., H, 5] and next states [..., H, 4]."""
    states = [start]
    for force in forces.unbind(-1):
        states.append(euler_step(system, states[-1], force, dt))
    path = torch.stack([state.expand_as(states[-1]) for state in states], dim=-2)  # [..., H + 1, 4]
    forces = forces.expand(*path.shape[:-2], -1).unsqueeze(-1)  # [..., H, 1]
    return torch.cat([path[..., :-1, :], forces], dim=-1), path[..., 1:, :]


def simulate(
    system: CartPole,
    num_trajectories: int,
    horizon: int,
    generator: torch.Generator,
    dt: float = 0.1,
    *,
    start_std: float = 0.02,
    max_force: float = 10.0,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Sample N trajectories of H steps under a random controller: inputs [..., N, H, 5], next states [..., N, H, 4].

    Starts are N(0, start_std²) in each coordinate; each step's force is uniform in ±max_force, in N. The result lies on
    the generator's device, in the type of the system's parameters unless `dtype` is given.
    """
    if num_trajectories < 1 or horizon < 1:
        raise ValueError(
            f"expected at least one trajectory of one step, got num_trajectories={num_trajectories} and "
            f"horizon={horizon}; pass positive integers (the paper: 400 and 10)"
        )
    batch = torch.as_tensor(system.mass_cart + system.friction)  # [...]: only its shape and dtype matter
    shape, dtype, device = (*batch.shape, num_trajectories), dtype or batch.dtype, generator.device
    start = start_std * torch.randn(*shape, 4, generator=generator, dtype=dtype, device=device)
    uniform = torch.rand(*shape, horizon, generator=generator, dtype=dtype, device=device)
    # a last axis of one: all trajectories of a system share its parameters
    mass_cart = torch.as_tensor(system.mass_cart, dtype=dtype, device=device).unsqueeze(-1)
    friction = torch.as_tensor(system.friction, dtype=dtype, device=device).unsqueeze(-1)
    system = replace(system, mass_cart=mass_cart, friction=friction)
    return rollout(system, start, max_force * (2 * uniform - 1), dt)
