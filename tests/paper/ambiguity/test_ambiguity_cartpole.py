"""Kicked Cart-Pole: the old simulator without pushes, and a truth that is the average over pushes."""

import math

import pytest
import torch
from scipy import integrate, stats

from dsvnp.paper.ambiguity.cartpole import KickedCartPole, kicked_rollout
from dsvnp.paper.cartpole.physics import TRAIN_ENVIRONMENTS, CartPole, euler_step, rollout, simulate


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_without_pushes_it_is_the_old_simulator():
    mass_cart, friction = torch.tensor(TRAIN_ENVIRONMENTS, dtype=torch.float64).unbind(-1)
    x, y = simulate(CartPole(mass_cart, friction), 7, 10, generator())
    system = CartPole(mass_cart[:, None], friction[:, None])
    start, force = x[:, :, 0, :4], x[..., 4]
    ours = kicked_rollout(system, start, force, torch.zeros_like(force))
    assert torch.equal(ours[0], x)
    assert torch.equal(ours[1], y)


def test_pushes_move_the_cart_and_do_not_show():
    system = CartPole(0.5, 0.1)
    start, force = torch.zeros(3, 4), torch.rand(3, 5, generator=generator())
    push = torch.tensor([0.0, 0.0, 4.0, 0.0, 0.0]).expand(3, 5)
    x, y = kicked_rollout(system, start, force, push)
    plain_x, plain_y = rollout(system, start, force)
    assert torch.equal(x[..., 4], force)
    assert torch.equal(y[:, :2], plain_y[:, :2])
    assert torch.allclose(y[:, 2], euler_step(system, plain_x[:, 2, :4], force[:, 2] + 4.0))
    assert torch.equal(x[:, 3, :4], y[:, 2])  # the next step starts where the push led


def test_points_are_steps_of_the_old_simulator_with_noise_and_some_pushes():
    problem = KickedCartPole()
    x, y, parameters = problem.draw(200, 50, generator())
    mass_cart, friction = parameters["environment"].unbind(-1)
    plain = euler_step(CartPole(mass_cart, friction), x[..., :4], x[..., 4])
    residual = y - plain
    # Positions feel no push within a step; velocities do in a tenth of the steps.
    assert stats.kstest((residual[..., :2] / 0.02).flatten().numpy(), "norm").pvalue > 1e-3
    moved = (residual[..., 3].abs() > 5 * 0.02).double()
    assert 0.08 < float(moved.mean()) < 0.11
    assert x[..., 4].abs().max() <= 10
    # A step of each of the ten: first states are near rest, later ones are not.
    still = (x[..., :4].abs() < 0.1).all(-1).double()
    assert abs(float(still.mean()) - 0.1) < 0.02


def test_without_noise_and_pushes_points_are_exact():
    problem = KickedCartPole(chance=0.0, noise=0.0)
    x, y, parameters = problem.draw(5, 20, generator())
    mass_cart, friction = parameters["environment"].unbind(-1)
    assert torch.allclose(y, euler_step(CartPole(mass_cart, friction), x[..., :4], x[..., 4]))


def test_the_truth_is_the_average_over_pushes():
    problem = KickedCartPole()
    x, y, parameters = problem.draw(3, 4, generator())
    system = CartPole(*parameters["environment"][1, 0])
    state, force = x[1, 2, :4], x[1, 2, 4]
    for push in (0.0, 3.0, -9.0):
        value = euler_step(system, state, force + push) + 0.01

        def density(k: float, value: torch.Tensor = value) -> float:
            step = euler_step(system, state, force + k)
            return float(torch.distributions.Normal(step, 0.02).log_prob(value).sum().exp())

        averaged = integrate.quad(
            lambda k: density(k) * stats.norm.pdf(k, 0, 5), push - 2, push + 2, epsrel=1e-5
        )[0]
        expected = math.log(0.9 * density(0.0) + 0.1 * averaged)
        y[1, 2] = value
        assert float(problem.log_density(x, y, parameters)[1, 2]) == pytest.approx(expected, abs=1e-4)
