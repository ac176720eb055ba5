"""What fails while a step is prepared falls back; a device without memory gets fewer replicas at once."""

import warnings

import pytest
import torch
from small_fleet import distance, make_fleet, run_steps, same

from dsvnp.training import checkpoint as checkpoints
from dsvnp.training import preparation, train


def limited(monkeypatch, most: int):
    """Let steps of more than `most` replicas at once run out of memory, after half of their work."""
    make_step = preparation.make_step
    sizes = []

    def making(plan, compile, singly=False):
        step = make_step(plan, False, singly)
        chunk = 1 if singly else min(len(plan.settings.beta_local), plan.settings.chunk_size or 99)

        def call(state, *args):
            sizes.append(chunk)
            step(state, *args)
            if chunk > most:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nGPU 0 has …")

        return call

    monkeypatch.setattr(preparation, "make_step", making)
    return sizes


def fleet_of(count: int, **changes):
    return make_fleet(seeds=range(count), beta_local=(1.0,) * count, **changes)


@pytest.mark.parametrize("compile", [False, True])
def test_fewer_replicas_at_once_are_taken_until_they_fit(monkeypatch, compile):
    expected = run_steps(fleet_of(5, chunk_size=2), 3)
    sizes = limited(monkeypatch, 2)
    fleet = fleet_of(5, compile=compile)
    with pytest.warns(UserWarning, match=r"5 replicas at once do not fit.*training continues with 2 at once"):
        run_steps(fleet, 3)
    assert sizes[0] == 5
    assert set(sizes[1:]) == {2}
    assert same(fleet.state, expected.state)
    for mine, theirs in zip(fleet.generators, expected.generators, strict=True):
        assert torch.equal(mine.get_state(), theirs.get_state())


def test_eight_replicas_come_down_to_one(monkeypatch):
    sizes = limited(monkeypatch, 1)
    fleet = fleet_of(8)
    with pytest.warns(UserWarning, match="training continues with") as caught:
        run_steps(fleet, 2)
    assert len(caught) == 3
    assert sizes == [8, 4, 2, 1, 1]
    monkeypatch.undo()
    assert distance(fleet.state, run_steps(fleet_of(8), 2).state) < 1e-9


def test_a_run_on_fewer_at_once_can_be_resumed_by_the_same_settings(monkeypatch, tmp_path):
    limited(monkeypatch, 2)
    with pytest.warns(UserWarning, match="with 2 at once"):
        train(fleet_of(4, num_steps=2), tmp_path)
    with pytest.warns(UserWarning, match="with 2 at once"):
        fleet = train(fleet_of(4, num_steps=4), tmp_path)
    assert fleet.num_steps_taken == 4


def test_one_replica_that_does_not_fit_stops_with_advice_and_unchanged(monkeypatch):
    fleet = make_fleet(beta_local=(1.0,))
    before = {name: value.clone() for name, value in fleet.state.items()}
    limited(monkeypatch, 0)
    with pytest.raises(torch.OutOfMemoryError, match=r"with one replica at a time.*choose a smaller batch"):
        run_steps(fleet, 1)
    assert same(fleet.state, before)


def test_memory_that_runs_out_later_names_the_checkpoint(tmp_path, monkeypatch):
    fleet = make_fleet(num_steps=9, checkpoint_every=2)
    run = fleet._run

    def running(*args):
        if fleet.num_steps_taken == 5:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        run(*args)

    monkeypatch.setattr(fleet, "_run", running)
    with pytest.raises(
        torch.OutOfMemoryError,
        match=r"out of memory at step 5: .*step-000000004: run again to resume from there",
    ) as caught:
        train(fleet, tmp_path)
    assert "\n" not in str(caught.value)
    assert checkpoints.list_checkpoints(tmp_path)[-1].name == "step-000000004"
    monkeypatch.undo()
    resumed = train(make_fleet(num_steps=9, checkpoint_every=2), tmp_path)
    assert same(resumed.state, train(make_fleet(num_steps=9)).state)


# --- compiling and capturing ---


def test_regions_that_do_not_compile_run_as_they_are(monkeypatch):
    plain = run_steps(make_fleet("tnp", (1, 2), chunk_size=1), 3)
    fleet = make_fleet("tnp", (1, 2), compile="regions")
    parts = fleet.model.regions()
    assert parts

    def broken(self, **options):
        def fail(*_):
            raise RuntimeError("no C++ compiler\nand a long story")

        self._compiled_call_impl = fail

    monkeypatch.setattr(torch.nn.Module, "compile", broken)
    with pytest.warns(UserWarning, match=r"^training continues uncompiled: RuntimeError: no C\+\+ compiler$"):
        run_steps(fleet, 3)
    assert all(part._compiled_call_impl is None for part in parts)
    assert same(fleet.state, plain.state)


@pytest.mark.parametrize("factor", [-1.0, float("nan")])
def test_regions_that_compile_to_something_else_run_as_they_are(monkeypatch, factor):
    plain = run_steps(make_fleet("tnp", (1, 2), chunk_size=1), 3)
    fleet = make_fleet("tnp", (1, 2), compile="regions")

    def wrong(self, **options):
        def call(h, *rest):
            tokens, slots = self._call_impl(h, *rest)
            return factor * tokens, slots

        self._compiled_call_impl = call

    monkeypatch.setattr(torch.nn.Module, "compile", wrong)
    with pytest.warns(UserWarning, match="uncompiled: ArithmeticError: compiled, a step changes"):
        run_steps(fleet, 3)
    assert same(fleet.state, plain.state)


def test_a_recording_that_breaks_off_falls_back(monkeypatch):
    plain = run_steps(make_fleet(seeds=(1, 2)), 3)
    fleet = make_fleet(seeds=(1, 2))

    def broken(function, lane):
        fleet._run(function, lane)
        raise RuntimeError("operation not permitted when stream is capturing\nCUDA kernel errors …")

    monkeypatch.setattr(fleet, "_capture", broken)
    lane, step = fleet.lanes[0], preparation.make_step(fleet.plan, False)
    with pytest.warns(
        UserWarning, match="training continues without a CUDA graph: RuntimeError: operation not"
    ):
        assert fleet._captured(step, lane) is None
    assert same(run_steps(fleet, 3).state, plain.state)


def test_memory_that_lacks_while_compiling_is_no_matter_of_the_compiler(monkeypatch):
    def compile(function, **options):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(torch, "compile", compile)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(torch.OutOfMemoryError, match="choose a smaller batch"):
            run_steps(make_fleet(compile=True), 1)


@pytest.mark.parametrize(("chunk_size", "fixed"), [(1, True), (None, False), (2, False)])
def test_kernels_are_not_timed_against_each_other_where_bits_are_promised(monkeypatch, chunk_size, fixed):
    from torch._inductor import config

    seen = []

    def compile(function, **options):
        def call(*args):
            seen.append(config.deterministic)
            return function(*args)

        return call

    monkeypatch.setattr(torch, "compile", compile)
    run_steps(make_fleet(seeds=(1, 2), compile=True, chunk_size=chunk_size), 1)
    assert seen[0] is fixed  # the first call compiles, and is a trial
    assert not config.deterministic
