"""Tasks of the Cart-Pole: each from one environment, held-out trajectories apart, contexts flagged."""

import pytest
import torch

from dsvnp.models import Architecture, make_model
from dsvnp.paper.cartpole.data import (
    CartPoleTasks,
    Transitions,
    average_step,
    held_out_task,
    identification_task,
)
from dsvnp.paper.cartpole.physics import TEST_ENVIRONMENTS, TRAIN_ENVIRONMENTS, CartPole, euler_step
from dsvnp.training import Fleet, Settings

CPU = torch.device("cpu")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(num_trajectories: int = 12, environments=TRAIN_ENVIRONMENTS) -> Transitions:
    return Transitions.draw(environments, num_trajectories, 10, seeded())


def pool_and_batches(source: CartPoleTasks, steps: range, context: float = 0.5):
    tensors = {**source.static(), **source.pool(seeded(1), CPU)}
    uniforms = {"context": torch.full(source.uniform_shapes()["context"], context)}
    return [source.batch(tensors, uniforms, torch.tensor(step)) for step in steps]


def forces(x: torch.Tensor) -> list[float]:
    """Forces are drawn from a continuum: a force identifies its transition."""
    return x[..., 4].flatten().tolist()


# --- transitions ---


def test_each_environment_moves_by_its_own_parameters():
    data = drawn()
    assert (data.x.shape, data.y.shape) == ((6, 12, 10, 5), (6, 12, 10, 4))
    for pair, x, y in zip(TRAIN_ENVIRONMENTS, *data, strict=True):
        torch.testing.assert_close(y, euler_step(CartPole(*pair), x[..., :4], x[..., 4]))
        assert torch.equal(x[:, 1:, :4], y[:, :-1])


def test_held_out_are_whole_trajectories_the_last_ones():
    data = drawn()
    kept, held_out = data.split(0.25)
    assert (kept.x.shape[1], held_out.x.shape[1]) == (9, 3)
    for part in (0, 1):
        assert torch.equal(torch.cat([kept[part], held_out[part]], dim=1), data[part])


@pytest.mark.parametrize("share", [0.0, 0.01, 1.0])
def test_a_split_that_leaves_a_part_empty_is_refused(share):
    with pytest.raises(ValueError, match=f"a share of {share} of 12 trajectories leaves one part empty"):
        drawn().split(share)


def test_rows_keep_inputs_and_outputs_together():
    data = drawn()
    x, y = data.rows()
    assert (x.shape, y.shape) == ((6, 120, 5), (6, 120, 4))
    assert torch.equal(x[2, 37], data.x[2, 3, 7])
    assert torch.equal(y[2, 37], data.y[2, 3, 7])


# --- training tasks ---


def test_a_batch_is_a_task_of_each_environment():
    source = CartPoleTasks(drawn(), num_points=30, max_context=20)
    for task in pool_and_batches(source, range(3)):
        assert task.x_target.shape == (6, 30, 5)
        for pair, x, y in zip(TRAIN_ENVIRONMENTS, task.x_target, task.y_target, strict=True):
            torch.testing.assert_close(y, euler_step(CartPole(*pair), x[:, :4], x[:, 4]))
            assert len(set(forces(x))) == 30


def test_a_pass_visits_every_transition_once_and_each_environment_in_its_own_order():
    data = drawn()
    source = CartPoleTasks(data, num_points=30, max_context=20, passes=2)
    assert source.refresh_every == 8
    first, second = (pool_and_batches(source, steps) for steps in (range(4), range(4, 8)))
    for tasks in (first, second):
        visited = torch.cat([task.x_target for task in tasks], dim=1)
        for environment in range(6):
            assert sorted(forces(visited[environment])) == sorted(forces(data.x[environment]))
    assert forces(first[0].x_target) != forces(second[0].x_target)
    rows = source.pool(seeded(1), CPU)["order"]
    assert not torch.equal(rows[0, 0], rows[0, 1])


@pytest.mark.parametrize(("uniform", "size"), [(0.0, 1), (0.9999, 20)])
def test_contexts_have_one_to_max_context_transitions(uniform, size):
    source = CartPoleTasks(drawn(), num_points=30, max_context=20)
    (task,) = pool_and_batches(source, range(1), uniform)
    assert task.in_context.sum(1).tolist() == [size] * 6


def test_pools_come_from_their_generator():
    source = CartPoleTasks(drawn(), num_points=30, max_context=20)
    one, again, other = (source.pool(seeded(seed), CPU)["order"] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_a_fleet_learns_from_it():
    source = CartPoleTasks(drawn(), num_points=30, max_context=20, passes=1)
    arch = Architecture(5, 4, encoder=(8,), dim_lat=8, decoder=(8,))
    fleet = Fleet(lambda: make_model("dsvnp", arch), source, (0, 1), Settings(60, learning_rate=1e-2))
    fleet.step()
    before = fleet.read_metrics()["log_likelihood"]
    for _ in range(59):
        fleet.step()
    assert (fleet.read_metrics()["log_likelihood"] > before + 1).all()


@pytest.mark.parametrize("changes", [{"num_points": 121}, {"num_points": 30, "max_context": 20, "passes": 0}])
def test_too_few_transitions_or_passes_are_refused(changes):
    with pytest.raises(ValueError, match="an environment has 120 transitions, too few for a task of"):
        CartPoleTasks(drawn(), **changes)


# --- tasks to measure on ---


def test_identification_flags_its_context_among_all_transitions():
    data = drawn(environments=TEST_ENVIRONMENTS)
    task = identification_task(data, 25, seeded())
    assert task.x_context.shape == (14, 25, 5)
    assert torch.equal(task.x_target, data.x.flatten(1, 2))
    assert torch.equal(task.y_target, data.y.flatten(1, 2))
    for environment in range(14):
        flagged = task.in_context[environment]
        assert int(flagged.sum()) == 25
        assert sorted(forces(task.x_target[environment][flagged])) == sorted(
            forces(task.x_context[environment])
        )
        ends = euler_step(
            CartPole(*TEST_ENVIRONMENTS[environment]),
            task.x_context[environment, :, :4],
            task.x_context[environment, :, 4],
        )
        torch.testing.assert_close(task.y_context[environment], ends)
    assert not torch.equal(task.in_context[0], task.in_context[1])


def test_a_smaller_context_is_part_of_a_larger_one():
    data = drawn()
    small, large = (identification_task(data, size, seeded(3)) for size in (5, 50))
    assert torch.equal(small.x_context, large.x_context[:, :5])


def test_held_out_targets_are_none_that_were_seen():
    seen, held_out = drawn().split(0.25)
    task = held_out_task(seen, held_out, 25, seeded())
    assert task.in_context is None
    assert torch.equal(task.x_target, held_out.x.flatten(1, 2))
    assert torch.equal(task.y_target, held_out.y.flatten(1, 2))
    assert set(forces(task.x_context)) <= set(forces(seen.x))
    assert len(set(forces(task.x_context))) == 6 * 25


@pytest.mark.parametrize("count", [0, 121])
def test_a_context_that_cannot_be_is_refused(count):
    with pytest.raises(ValueError, match=f"num_context must lie between 1 and 120, .* got {count}"):
        identification_task(drawn(), count, seeded())


# --- the reference ---


def test_the_average_of_one_environment_is_that_environment():
    data = drawn()
    torch.testing.assert_close(average_step(TRAIN_ENVIRONMENTS[:1], data.x[0]), data.y[0])
    both = [euler_step(CartPole(*pair), data.x[..., :4], data.x[..., 4]) for pair in TRAIN_ENVIRONMENTS[:2]]
    torch.testing.assert_close(average_step(TRAIN_ENVIRONMENTS[:2], data.x), (both[0] + both[1]) / 2)


def test_who_cannot_tell_environments_apart_has_an_error_of_0_055():
    data = drawn(400, TEST_ENVIRONMENTS)
    error = (average_step(TRAIN_ENVIRONMENTS, data.x) - data.y).square()
    assert float(error.mean()) == pytest.approx(0.055, abs=0.002)
    assert (
        float(error[..., :2].max()) < 1e-6
    )  # positions do not tell, one Euler step depends on velocities alone
