"""A training leaves torch as it was, and several in threads do not change each other's results."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from small_fleet import ARCH, make_fleet, same
from torch import nn

from dsvnp.models import make_model
from dsvnp.training import train
from dsvnp.training.shared import matmul_precision, seeded


def switches():
    """All that a training could leave changed."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    flags = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    return flags, handlers, torch.get_num_threads(), torch.get_default_dtype()


@pytest.fixture
def untouched():
    """What torch has once per process is afterwards what it was."""
    torch.manual_seed(5)
    numbers, before = torch.get_rng_state(), switches()
    yield
    assert switches() == before
    assert torch.equal(torch.get_rng_state(), numbers)


# --- first weights ---


def draw_in_many_ways():
    table = torch.empty(3, 4)
    nn.init.xavier_uniform_(table)
    more = [
        nn.init.orthogonal_(torch.empty(4, 4)),
        nn.init.trunc_normal_(torch.empty(9)),
        nn.Linear(3, 2).weight,
    ]
    more += [
        torch.randn(2, 3),
        torch.rand(4),
        torch.randint(9, (5,)),
        torch.randint(2, 9, (5,)),
        torch.randperm(7),
    ]
    more += [torch.rand_like(table), torch.randn_like(table), torch.bernoulli(torch.full((9,), 0.5))]
    return [table, *more, torch.multinomial(torch.ones(5), 3), torch.normal(torch.zeros(3), 1.0)]


def test_numbers_are_those_of_torchs_generator_with_that_seed(untouched):
    found = seeded(draw_in_many_ways, 3)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        expected = draw_in_many_ways()
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_a_generator_of_the_users_own_is_left_to_him():
    g = torch.Generator()
    found = seeded(lambda: torch.randn(3, generator=g.manual_seed(1)), 0)
    assert torch.equal(found, torch.randn(3, generator=g.manual_seed(1)))


def test_other_threads_draw_from_torchs_generator_meanwhile():
    torch.manual_seed(0)
    expected = torch.rand(100)
    torch.manual_seed(0)
    drawn = []

    def make():
        other = threading.Thread(target=lambda: drawn.append(torch.rand(100)))
        other.start()
        other.join()
        return torch.rand(100)

    assert not torch.equal(seeded(make, 1), expected)
    assert torch.equal(drawn[0], expected)


def test_fleets_made_at_the_same_moment_have_their_own_first_weights():
    together = threading.Barrier(2, timeout=20)

    def make():
        together.wait()  # both have their seed; then both draw
        model = make_model("np", ARCH)
        together.wait()
        return model

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda seed: make_fleet(seeds=(seed,), make=make).state, (1, 2)))
    for seed, state in zip((1, 2), found, strict=True):
        assert same(state, make_fleet("np", (seed,)).state)


# --- trainings in threads ---


def fit(seed: int):
    name, precision = ("dsvnp", "np")[seed % 2], ("float32", "tf32", "float64")[seed % 3]
    return train(make_fleet(name, (seed, seed + 1), num_steps=4, precision=precision)).state


def test_trainings_in_eight_threads_equal_the_serial_ones(untouched):
    serial = [fit(seed) for seed in range(16)]
    with ThreadPoolExecutor(8) as pool:
        threaded = list(pool.map(fit, range(16)))
    for a, b in zip(serial, threaded, strict=True):
        assert same(a, b)


@pytest.mark.parametrize("precision", ["tf32", "float32"])
@pytest.mark.parametrize("where", ["make", "step", "validation"])
def test_nothing_stays_changed_after_an_error(untouched, where, precision, monkeypatch):
    def fail(*_):
        torch.rand(3, generator=torch.Generator())
        raise KeyError(where)

    def act():
        made = {"make": fail} if where == "make" else {}
        fleet = make_fleet(num_steps=2, validate_every=1, precision=precision, **made)
        if where == "step":
            monkeypatch.setattr(fleet, "step", fail)
        train(fleet, validation=fail)

    with pytest.raises(KeyError, match=where):
        act()


def test_another_precision_waits_and_the_same_one_does_not():
    entered, leave, order = threading.Event(), threading.Event(), []

    def hold():
        with matmul_precision("tf32"):
            entered.set()
            leave.wait(10)
            order.append("first")

    def enter(precision):
        with matmul_precision(precision):
            order.append((precision, torch.get_float32_matmul_precision()))

    before = torch.get_float32_matmul_precision()
    threads = [threading.Thread(target=hold)]
    threads[0].start()
    assert entered.wait(10)
    enter("tf32")
    threads.append(threading.Thread(target=enter, args=("float32",)))
    threads[1].start()
    threads[1].join(0.2)
    assert threads[1].is_alive()
    leave.set()
    for thread in threads:
        thread.join(10)
    assert order == [("tf32", "high"), "first", ("float32", "highest")]
    assert torch.get_float32_matmul_precision() == before


def test_a_training_inside_another_has_its_own_precision():
    states = []
    before = torch.get_float32_matmul_precision()
    with matmul_precision("tf32"):
        with matmul_precision("float32"):
            states.append(torch.get_float32_matmul_precision())
        states.append(torch.get_float32_matmul_precision())
    assert [*states, torch.get_float32_matmul_precision()] == ["highest", "high", before]


def test_a_training_inside_another_does_not_turn_what_other_threads_use():
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with matmul_precision("tf32"):
            entered.set()
            leave.wait(10)

    other = threading.Thread(target=hold)
    other.start()
    assert entered.wait(10)
    try:
        with matmul_precision("tf32"):
            inner = matmul_precision("float32")
            with pytest.raises(RuntimeError, match="give both the same precision"):
                inner.__enter__()
    finally:
        leave.set()
        other.join(10)


# --- modes of torch ---


def test_inference_mode_is_refused():
    fleet = make_fleet(num_steps=1)
    with torch.inference_mode():
        for action in (partial(make_fleet, num_steps=1), partial(train, fleet)):
            with pytest.raises(RuntimeError, match=r"leave that block before you train"):
                action()


def test_another_default_dtype_is_refused():
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(RuntimeError, match=r"the default dtype is torch\.float64.*precision='float64'"):
            make_fleet(num_steps=1)
    finally:
        torch.set_default_dtype(torch.float32)


def test_autocast_is_refused():
    fleet = make_fleet(num_steps=1)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match=r"autocast is on.*'bf16'"):
        train(fleet)


def test_a_training_without_gradients_around_it_is_the_same():
    with torch.no_grad():
        found = train(make_fleet(num_steps=2, seeds=(1, 2))).state
    assert same(found, train(make_fleet(num_steps=2, seeds=(1, 2))).state)


def test_first_weights_are_those_of_a_seeded_model():
    torch.manual_seed(7)
    expected = make_model("dsvnp", ARCH).double().state_dict()
    found = make_fleet(seeds=(7,)).replica(0).state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())
