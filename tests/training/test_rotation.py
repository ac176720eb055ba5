"""Sources that take turns: batches of different shapes train one state."""

import pytest
import torch
from small_fleet import curves, distance, make_fleet, rows_of, run_steps, same

from dsvnp.sources.base import Rotation
from dsvnp.training import CheckpointError, train


def turns(**changes):
    return Rotation((curves(**changes), curves(num_points=14, batch_size=2, max_context=9, **changes)))


def test_steps_alternate_and_each_lane_goes_through_its_own_pool():
    fleet = make_fleet("cnp", source=turns())
    short, long = (lane.supply.sources[0] for lane in fleet.lanes)
    seen: list[tuple[int, int]] = []
    for number, source in enumerate((short, long)):
        batch = source.batch

        def spy(tensors, uniforms, step, number=number, batch=batch):
            task = batch(tensors, uniforms, step)
            first = fleet.lanes[number].supply.pool["x"][0]
            width = task.num_tasks
            turn = int(step)
            assert torch.equal(task.x_target, first[turn * width : (turn + 1) * width])
            seen.append((number, turn))
            return task

        source.batch = spy
    run_steps(fleet, 5)
    assert seen == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]


def test_lanes_draw_pools_of_their_own():
    fleet = make_fleet("cnp", source=Rotation((curves(), curves())))
    first, second = (lane.supply.pool["x"] for lane in fleet.lanes)
    assert not torch.isclose(first, second).any()


def test_a_rotation_of_one_is_that_source_alone():
    alone = run_steps(make_fleet("dsvnp"), 6)
    turning = run_steps(make_fleet("dsvnp", source=Rotation((curves(),))), 6)
    assert same(alone.state, turning.state)
    assert alone.describe() == turning.describe()


def test_replicas_in_a_rotation_are_what_they_are_alone():
    both = run_steps(make_fleet("np", seeds=(3, 4), source=turns()), 7)
    for row, seed in enumerate((3, 4)):
        single = run_steps(make_fleet("np", seeds=(seed,), source=turns()), 7)
        assert distance(rows_of(both, row), rows_of(single, 0)) < 1e-13


def test_a_rotation_resumes_to_the_bit(tmp_path):
    whole = train(make_fleet("np", source=turns(), num_steps=9))
    train(make_fleet("np", source=turns(), num_steps=4, log_every=1), tmp_path)
    rest = train(make_fleet("np", source=turns(), num_steps=9, log_every=1), tmp_path)
    for name in ("params", "m", "v"):
        assert torch.equal(whole.state[name], rest.state[name])


def test_a_checkpoint_of_other_turns_is_refused(tmp_path):
    train(make_fleet("cnp", source=turns(), num_steps=2), tmp_path)
    with pytest.raises(CheckpointError, match="source"):
        train(make_fleet("cnp", source=turns(interval=(-3.0, 3.0)), num_steps=4), tmp_path)


def test_no_source_is_refused():
    with pytest.raises(ValueError, match="at least one source"):
        Rotation(())
