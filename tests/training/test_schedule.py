"""Learning-rate schedules at known steps."""

import math

import pytest
import torch

from dsvnp.training import Schedule, Settings


def factors(schedule: Schedule, steps: list[int], num_steps: int = 100) -> list[float]:
    return [float(schedule.factor(torch.tensor(step), num_steps)) for step in steps]


def test_constant_stays():
    assert factors(Schedule(), [0, 1, 50, 99, 1000]) == [1.0] * 5


def test_warm_up_rises_linearly_and_ends():
    assert factors(Schedule(warmup=4), [0, 1, 2, 3, 4, 50]) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_cosine_falls_from_the_whole_rate_to_nothing():
    expected = [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0.0, 0.0]
    assert factors(Schedule("cosine"), [0, 25, 50, 75, 100, 200]) == pytest.approx(expected, abs=1e-12)


def test_cosine_ends_at_its_final_part():
    assert factors(Schedule("cosine", final=0.2), [0, 50, 100]) == pytest.approx([1.0, 0.6, 0.2], abs=1e-12)


def test_cosine_starts_after_the_warm_up():
    schedule = Schedule("cosine", warmup=20, final=0.1)
    assert factors(schedule, [0, 9, 19, 20, 60, 100]) == pytest.approx(
        [0.05, 0.5, 1.0, 1.0, 0.55, 0.1], abs=1e-12
    )


def test_cosine_is_torchs_own():
    param = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([param], lr=1.0)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30)
    for step in range(30):
        assert factors(Schedule("cosine"), [step], 30)[0] == pytest.approx(theirs.get_last_lr()[0], abs=1e-9)
        optimizer.step()
        theirs.step()


def test_warm_up_longer_than_the_run_is_no_accident():
    assert factors(Schedule("cosine", warmup=10), [0, 4], num_steps=5) == pytest.approx([0.1, 0.5])


def test_a_late_step_keeps_its_digits():
    # In float32 step 2²⁴ + 1 is step 2²⁴.
    late, num_steps = 2**24 + 1, 2**25
    assert (
        factors(Schedule("cosine"), [late], num_steps)[0] < factors(Schedule("cosine"), [2**24], num_steps)[0]
    )


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"kind": "cosin"}, "unknown schedule 'cosin'. Did you mean 'cosine'"),
        ({"warmup": -1}, "warmup must be finite and not negative, got -1"),
        ({"final": 1.5}, "final is a part of the learning rate, 0 to 1, got 1.5"),
        ({"final": -0.1}, "got -0.1"),
    ],
)
def test_bad_settings_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**bad)


def test_a_trapezoid_holds_the_rate_and_falls_over_its_last_steps():
    schedule = Schedule("trapezoid", warmup=10, decay=40, final=0.2)
    steps = [0, 9, 50, 60, 80, 100]
    expected = [0.1, 1.0, 1.0, 1.0, 0.6, 0.2]
    assert factors(schedule, steps) == pytest.approx(expected, abs=1e-12)


def test_a_trapezoid_may_be_prolonged_before_its_decay():
    schedule = Schedule("trapezoid", decay=40)
    assert factors(schedule, [0, 30], 100) == factors(schedule, [0, 30], 10**9)
    assert schedule.open_ended
    assert not Schedule("cosine").open_ended
    plan = {"schedule": schedule, "learning_rate": 0.1}
    other = {**plan, "schedule": Schedule("trapezoid", decay=10)}
    assert Settings(100, **plan).outcome() == Settings(300, **other).outcome()
    assert Settings(100, **plan).outcome() != Settings(100, **{**plan, "learning_rate": 0.2}).outcome()


@pytest.mark.parametrize("settings", [{"kind": "trapezoid"}, {"kind": "cosine", "decay": 5}])
def test_a_decay_belongs_to_a_trapezoid(settings):
    with pytest.raises(ValueError, match="a trapezoid, and no other schedule, needs decay > 0"):
        Schedule(**settings)
