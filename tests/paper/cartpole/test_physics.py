"""The Cart-Pole against its Lagrangian, against SciPy, and against what its experiment asks of it."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.stats import kstest
from torch import Tensor
from torch.func import grad, jacrev, vmap

from dsvnp.paper.cartpole.physics import (
    ENVIRONMENTS,
    TEST_ENVIRONMENTS,
    TRAIN_ENVIRONMENTS,
    CartPole,
    derivative,
    euler_step,
    rollout,
    simulate,
)

# no two parameters alike and no round ratio: no slip can hide
ODD = CartPole(mass_cart=0.37, friction=0.23, mass_pole=0.81, length=1.3, gravity=7.1)
FREE = CartPole(mass_cart=0.4, friction=0.0)


def energy(system: CartPole, state: Tensor) -> Tensor:
    """Returns T + V in J, `[...]`; zero for a rod that hangs at rest, and dE/dt = (u − b ẋ) ẋ."""
    _, theta, x_dot, theta_dot = state.unbind(-1)
    m, length = system.mass_pole, system.length
    cart = 0.5 * (system.mass_cart + m) * x_dot**2
    coupling = 0.5 * m * length * x_dot * theta_dot * theta.cos()
    rod = m * length**2 * theta_dot**2 / 6
    # 1 − cos θ = 2 sin²(θ/2) keeps its digits near θ = 0
    potential = m * system.gravity * length * (theta / 2).sin() ** 2
    return cart + coupling + rod + potential


def rk4_step(system: CartPole, state: Tensor, force: Tensor | float, dt: float = 0.1) -> Tensor:
    """Returns the state after one classical Runge-Kutta step, the force held: the reference for Euler."""
    k1 = derivative(system, state, force)
    k2 = derivative(system, state + dt / 2 * k1, force)
    k3 = derivative(system, state + dt / 2 * k2, force)
    k4 = derivative(system, state + dt * k3, force)
    return state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_states(*shape: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(*shape, 4, generator=seeded(seed), dtype=torch.float64)


def environments(pairs: tuple[tuple[float, float], ...], dtype: torch.dtype = torch.float64) -> CartPole:
    return CartPole(*torch.tensor(pairs, dtype=dtype).unbind(-1))


def kinetic_and_potential(system: CartPole, q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """T and V of the cart and the matter along the rod; two Gauss points integrate a uniform rod exactly."""
    r = system.length * (0.5 + torch.tensor([-0.5, 0.5], dtype=q.dtype) / math.sqrt(3))

    def rod(q: Tensor) -> Tensor:
        return torch.stack([q[0] + r * q[1].sin(), -r * q[1].cos()])

    velocity = jacrev(rod)(q) @ v  # [2, 2]: direction, Gauss point
    kinetic = 0.5 * system.mass_cart * v[0] ** 2 + 0.5 * system.mass_pole * (velocity**2).sum(0).mean()
    return kinetic, system.mass_pole * system.gravity * rod(q)[1].mean()


def lagrange_derivative(system: CartPole, state: Tensor, force: Tensor) -> Tensor:
    """d/dt ∂L/∂v = ∂L/∂q + Q by automatic differentiation, from positions alone."""

    def lagrangian(q: Tensor, v: Tensor) -> Tensor:
        kinetic, potential = kinetic_and_potential(system, q, v)
        return kinetic - potential

    q, v = state[:2], state[2:]
    push = torch.stack([force - system.friction * v[0], torch.zeros_like(force)])
    momentum = grad(lagrangian, argnums=1)
    mixed, mass = jacrev(momentum, argnums=(0, 1))(q, v)
    return torch.cat([v, torch.linalg.solve(mass, grad(lagrangian)(q, v) - mixed @ v + push)])


def mass_matrix_derivative(system: CartPole, state: np.ndarray, force: float) -> np.ndarray:
    """The two Euler-Lagrange equations of the module's docstring, solved numerically."""
    _, theta, x_dot, theta_dot = state
    m, length, g = system.mass_pole, system.length, system.gravity
    coupling = m * length / 2 * np.cos(theta)
    mass = [[system.mass_cart + m, coupling], [coupling, m * length**2 / 3]]
    along = force - system.friction * x_dot + m * length / 2 * theta_dot**2 * np.sin(theta)
    return np.array([x_dot, theta_dot, *np.linalg.solve(mass, [along, -m * g * length / 2 * np.sin(theta)])])


Step = Callable[[CartPole, Tensor, float, float], Tensor]


def integrate(
    step: Step, system: CartPole, start: Tensor, seconds: float, num_steps: int, force: float = 0.0
) -> Tensor:
    path = [start]
    for _ in range(num_steps):
        path.append(step(system, path[-1], force, seconds / num_steps))
    return torch.stack(path)


class TestMechanics:
    @pytest.mark.parametrize("system", [ODD, CartPole(0.5, 0.1)])
    def test_derivative_is_the_lagrangian_of_a_uniform_rod(self, system: CartPole) -> None:
        states = random_states(64)
        forces = 20 * torch.rand(64, generator=seeded(1), dtype=torch.float64) - 10
        expected = vmap(lambda s, u: lagrange_derivative(system, s, u))(states, forces)
        torch.testing.assert_close(derivative(system, states, forces), expected, rtol=1e-10, atol=1e-10)

    def test_derivative_solves_the_mass_matrix_equations(self) -> None:
        for state, force in zip(random_states(64), np.linspace(-10, 10, 64), strict=True):
            expected = mass_matrix_derivative(ODD, state.numpy(), force)
            np.testing.assert_allclose(derivative(ODD, state, force), expected, rtol=1e-10, atol=1e-10)

    def test_energy_is_kinetic_plus_potential(self) -> None:
        states, rest = random_states(64), torch.zeros(1, 4, dtype=torch.float64)

        def total(states: Tensor) -> Tensor:
            return sum(vmap(lambda s: kinetic_and_potential(ODD, s[:2], s[2:]))(states))

        torch.testing.assert_close(energy(ODD, states), total(states) - total(rest))
        assert energy(ODD, rest).item() == 0

    def test_energy_changes_by_the_power_of_force_and_friction_alone(self) -> None:
        states = random_states(64)
        forces = 20 * torch.rand(64, generator=seeded(1), dtype=torch.float64) - 10
        gradient = vmap(grad(lambda s: energy(ODD, s)))(states)
        power = (forces - ODD.friction * states[:, 2]) * states[:, 2]
        torch.testing.assert_close((gradient * derivative(ODD, states, forces)).sum(-1), power)

    def test_rest_is_an_equilibrium_and_upright_is_unstable(self) -> None:
        assert not derivative(ODD, torch.zeros(4), 0.0).any()
        above, below = derivative(ODD, torch.tensor([[0, math.pi - 0.01, 0, 0], [0, 0.01, 0, 0]]), 0.0)[:, 3]
        assert above < 0  # away from π
        assert below < 0  # back to 0

    def test_mirror_image_moves_as_the_mirror_image(self) -> None:
        states, forces = random_states(16), torch.linspace(-10, 10, 16, dtype=torch.float64)
        torch.testing.assert_close(derivative(ODD, -states, -forces), -derivative(ODD, states, forces))

    def test_friction_brakes_the_cart_and_swings_the_pole_forward(self) -> None:
        coasting = torch.tensor([0.0, 0.0, 1.0, 0.0])
        _, _, x_ddot, theta_ddot = derivative(CartPole(0.5, 0.1), coasting, 0.0)
        assert x_ddot < 0
        assert theta_ddot > 0

    @pytest.mark.parametrize("mass_cart", [0.3, 0.7, 1e6])
    def test_small_oscillations_have_their_frequency(self, mass_cart: float) -> None:
        system = CartPole(mass_cart, 0.0)
        m, length, g = system.mass_pole, system.length, system.gravity
        omega = math.sqrt(6 * (mass_cart + m) * g / (length * (4 * mass_cart + m)))
        if mass_cart == 1e6:  # a cart that cannot move leaves the textbook's swinging rod
            assert omega == pytest.approx(math.sqrt(3 * g / (2 * length)), rel=1e-6)
        start = torch.tensor([0.0, 1e-4, 0.0, 0.0], dtype=torch.float64)
        path = integrate(rk4_step, system, start, 2 * math.pi / omega, 1000)
        torch.testing.assert_close(path[-1], start, rtol=0, atol=1e-10)
        torch.testing.assert_close(path[500, 1], -start[1], rtol=1e-6, atol=0)


class TestIntegrators:
    @pytest.mark.parametrize(("step", "order", "num_steps"), [(euler_step, 1, 3200), (rk4_step, 4, 200)])
    def test_energy_is_conserved_to_the_order(self, step: Step, order: int, num_steps: int) -> None:
        starts = random_states(32)

        def drift(num_steps: int) -> float:
            energies = energy(FREE, integrate(step, FREE, starts, 1.0, num_steps))
            return (energies - energies[0]).abs().amax(0).mean().item()

        coarse, fine = drift(num_steps), drift(2 * num_steps)
        assert fine < 0.05
        assert math.log2(coarse / fine) == pytest.approx(order, abs=0.3)

    @pytest.mark.parametrize(("step", "order", "num_steps"), [(euler_step, 1, 3200), (rk4_step, 4, 200)])
    def test_states_converge_to_scipy(self, step: Step, order: int, num_steps: int) -> None:
        starts, force = random_states(8), 3.0
        exact = np.stack([self.scipy_end(ODD, start.numpy(), force) for start in starts])

        def error(num_steps: int) -> float:
            ends = integrate(step, ODD, starts, 1.0, num_steps, force)[-1]
            return np.linalg.norm(ends.numpy() - exact).item()

        coarse, fine = error(num_steps), error(2 * num_steps)
        assert fine < 0.05
        assert math.log2(coarse / fine) == pytest.approx(order, abs=0.3)

    @staticmethod
    def scipy_end(system: CartPole, start: np.ndarray, force: float) -> np.ndarray:
        def slope(_: float, state: np.ndarray) -> np.ndarray:
            return mass_matrix_derivative(system, state, force)

        return solve_ivp(slope, (0, 1), start, method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]

    def test_solve_ivp_on_derivative_agrees_with_the_mass_matrix(self) -> None:
        start = random_states(1)[0].numpy()

        def slope(_: float, state: np.ndarray) -> np.ndarray:
            return derivative(ODD, torch.as_tensor(state), 3.0).numpy()

        end = solve_ivp(slope, (0, 1), start, method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
        np.testing.assert_allclose(end, self.scipy_end(ODD, start, 3.0), rtol=1e-8, atol=1e-8)

    def test_friction_dissipates_energy(self) -> None:
        system = CartPole(0.4, 0.5)
        energies = energy(system, integrate(rk4_step, system, random_states(16), 5.0, 5000))
        assert (energies.diff(dim=0) < 1e-9).all()
        assert (energies[-1] < 0.9 * energies[0]).all()

    def test_the_experiments_euler_step_gains_energy(self) -> None:
        # 0.1 s is coarse for a swing of about 6 rad/s: the data are Euler's map, not the continuous mechanics
        system, start = CartPole(0.5, 0.0), torch.tensor([0.0, 0.02, 0.0, 0.0], dtype=torch.float64)
        _, ends = rollout(system, start, torch.zeros(10, dtype=torch.float64))
        omega_squared = 6 * 9.82 / (0.6 * 2.5)
        gain = energy(system, ends[-1]) / energy(system, start)
        assert gain.item() == pytest.approx((1 + 0.01 * omega_squared) ** 10, rel=0.01)


class TestBatches:
    def test_systems_states_and_forces_broadcast(self) -> None:
        system = CartPole(torch.tensor([0.3, 0.5, 0.7]), torch.tensor([[0.08], [0.12]]))
        for state, force in ((torch.ones(4), 1.0), (torch.ones(3, 4), torch.ones(2, 1))):
            assert derivative(system, state, force).shape == (2, 3, 4)
        assert energy(system, torch.ones(2, 1, 4)).shape == (2, 3)
        inputs, ends = rollout(system, torch.ones(4), torch.ones(7))
        assert inputs.shape == (2, 3, 7, 5)
        assert ends.shape == (2, 3, 7, 4)

    def test_a_batch_equals_its_members(self) -> None:
        batch_inputs, batch_ends = simulate(environments(ENVIRONMENTS), 3, 10, seeded())
        for pair, inputs, ends in zip(ENVIRONMENTS, batch_inputs, batch_ends, strict=True):
            for trajectory, following in zip(inputs, ends, strict=True):
                alone = rollout(CartPole(*pair), trajectory[0, :4], trajectory[:, 4])
                torch.testing.assert_close(alone, (trajectory, following), rtol=1e-11, atol=1e-11)

    def test_rollout_follows_the_device_of_its_arguments(self) -> None:
        with torch.device("meta"):
            arguments = CartPole(torch.ones(6, 1), 0.1), torch.ones(6, 8, 4), torch.ones(6, 8, 10)
        inputs, ends = rollout(*arguments)
        assert (inputs.device.type, inputs.shape, ends.shape) == ("meta", (6, 8, 10, 5), (6, 8, 10, 4))

    @pytest.mark.parametrize("shape", [(), (3,), (4, 5)])
    def test_a_wrong_state_is_explained(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"expected a state of shape \[\.\.\., 4\], got .*; pass x"):
            derivative(ODD, torch.zeros(shape), 0.0)


class TestSimulate:
    @pytest.mark.parametrize(
        ("system", "batch"),
        [
            (CartPole(0.5, 0.1), ()),
            (environments(TEST_ENVIRONMENTS, torch.float32), (14,)),
            (CartPole(torch.linspace(0.3, 0.7, 5)[:, None], torch.linspace(0.06, 0.12, 4)), (5, 4)),
        ],
    )
    def test_shapes(self, system: CartPole, batch: tuple[int, ...]) -> None:
        inputs, ends = simulate(system, 6, 10, seeded())
        assert inputs.shape == (*batch, 6, 10, 5)
        assert ends.shape == (*batch, 6, 10, 4)
        assert inputs.dtype == ends.dtype == torch.float32
        assert ends.isfinite().all()

    def test_dtype_is_the_systems_unless_asked_for(self) -> None:
        double, single = environments(ENVIRONMENTS), CartPole(0.5, 0.1)
        assert simulate(double, 1, 1, seeded())[0].dtype == torch.float64
        assert simulate(double, 1, 1, seeded(), dtype=torch.float32)[0].dtype == torch.float32
        assert simulate(single, 1, 1, seeded(), dtype=torch.float64)[0].dtype == torch.float64

    def test_a_float_beside_a_tensor_keeps_its_digits(self) -> None:
        mass_cart = torch.tensor([0.3, 0.7], dtype=torch.float64)
        mixed, tensors = CartPole(mass_cart, 0.1), CartPole(mass_cart, torch.full_like(mass_cart, 0.1))
        assert torch.equal(simulate(mixed, 3, 10, seeded())[1], simulate(tensors, 3, 10, seeded())[1])

    def test_rows_are_chained_euler_steps_of_their_environment(self) -> None:
        system = environments(TRAIN_ENVIRONMENTS)
        inputs, ends = simulate(system, 5, 10, seeded())
        assert torch.equal(inputs[..., 1:, :4], ends[..., :-1, :])
        for k, pair in enumerate(TRAIN_ENVIRONMENTS):
            expected = euler_step(CartPole(*pair), inputs[k, ..., :4], inputs[k, ..., 4])
            torch.testing.assert_close(ends[k], expected)

    def test_starts_are_normal_and_forces_uniform_and_independent(self) -> None:
        inputs, _ = simulate(environments(ENVIRONMENTS), 400, 10, seeded())
        starts, forces = inputs[..., 0, :4], inputs[..., 4]
        for coordinate in starts.unbind(-1):
            assert kstest(coordinate.flatten(), "norm", args=(0, 0.02)).pvalue > 1e-3
        assert kstest(forces.flatten(), "uniform", args=(-10, 20)).pvalue > 1e-3
        correlation = torch.corrcoef(forces.flatten(0, 1).T)  # [H, H], over 8000 trajectories
        assert (correlation - torch.eye(10)).abs().max() < 0.05

    def test_start_and_force_scales_are_arguments(self) -> None:
        still, _ = simulate(CartPole(0.5, 0.1), 4, 3, seeded(), start_std=0.0, max_force=0.0)
        assert not still.any()

    def test_randomness_comes_from_the_generator_alone(self) -> None:
        system, generator, before = environments(ENVIRONMENTS), seeded(), torch.get_rng_state()
        first, second = simulate(system, 4, 10, generator)[0], simulate(system, 4, 10, generator)[0]
        assert torch.equal(first, simulate(system, 4, 10, seeded())[0])
        assert not torch.isclose(first[..., 4], second[..., 4]).any()
        assert torch.equal(before, torch.get_rng_state())

    @pytest.mark.parametrize(("num_trajectories", "horizon"), [(0, 10), (5, 0)])
    def test_an_empty_sample_is_explained(self, num_trajectories: int, horizon: int) -> None:
        with pytest.raises(ValueError, match=r"expected at least one .* got .*; pass positive"):
            simulate(CartPole(0.5, 0.1), num_trajectories, horizon, seeded())

    @pytest.mark.cuda
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_result_lies_on_the_generators_device(self) -> None:
        inputs, ends = simulate(environments(ENVIRONMENTS), 4, 10, torch.Generator("cuda").manual_seed(0))
        assert inputs.is_cuda
        here = rollout(
            CartPole(*torch.tensor(ENVIRONMENTS, dtype=torch.float64)[:, :, None].unbind(1)),
            inputs[..., 0, :4].cpu(),
            inputs[..., 4].cpu(),
        )
        torch.testing.assert_close((inputs.cpu(), ends.cpu()), here, rtol=1e-10, atol=1e-10)


def test_the_papers_environments() -> None:
    assert len(ENVIRONMENTS) == len(set(ENVIRONMENTS)) == 20
    assert (len(TRAIN_ENVIRONMENTS), len(TEST_ENVIRONMENTS)) == (6, 14)
    assert not set(TRAIN_ENVIRONMENTS) & set(TEST_ENVIRONMENTS)
    assert set(TRAIN_ENVIRONMENTS) | set(TEST_ENVIRONMENTS) == set(ENVIRONMENTS)
    assert {mass for mass, _ in TRAIN_ENVIRONMENTS} == {0.3, 0.5, 0.7}
    assert {friction for _, friction in TRAIN_ENVIRONMENTS} == {0.08, 0.12}
