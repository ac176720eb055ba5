"""The state of a fleet: stopping and keeping the best, pools, precision, and what happens if compiling fails."""

import warnings
from dataclasses import replace
from functools import partial

import pytest
import torch
from small_fleet import (
    ARCH,
    BLOCK,
    curves,
    distance,
    images,
    make_fleet,
    make_vgg,
    rows_of,
    run_steps,
    same,
    table,
)

from dsvnp.networks import full_precision
from dsvnp.training.step import STOP_REASONS

NAN = float("nan")


def weights(fleet, row: int, best: bool = False) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in fleet.replica(row, best).state_dict().items()}


def poison(fleet, row: int, name: str) -> None:
    """Put NaN into a parameter of one replica."""
    fleet.plan.layout.unflatten(fleet.state["params"])[name][row].fill_(NAN)


def stops(fleet) -> list[tuple[int, str]]:
    """Step and reason of each replica, (-1, ...) for one that continues."""
    pairs = zip(fleet.state["stop_step"].tolist(), fleet.state["stop_reason"].tolist(), strict=True)
    return [(step, STOP_REASONS[reason]) for step, reason in pairs]


# --- early stopping ---


def test_each_replica_stops_on_its_own_and_keeps_its_best_weights():
    fleet = make_fleet(seeds=(1, 2), validate_every=1, patience=2, precision="float32")
    metrics = [(3.0, 1.0), (2.0, 0.9), (2.5, 0.8), (2.1, 0.7), (1.0, 0.6), (9.0, 0.8)]
    history = []
    for step, metric in enumerate(metrics, start=1):
        run_steps(fleet, 1)
        fleet.note_validation(torch.tensor(metric))
        history.append([weights(fleet, 0), weights(fleet, 1)])
        assert fleet.active == [step < 4, True]
    assert same(weights(fleet, 0, best=True), history[1][0])  # 1.0 came after it had stopped
    assert same(weights(fleet, 0), history[3][0])
    assert same(weights(fleet, 1, best=True), history[4][1])
    assert same(weights(fleet, 1), history[5][1])
    assert fleet.state["best_metric"].tolist() == pytest.approx([2.0, 0.6])
    assert stops(fleet)[0][0] == -1  # out of patience is no failure


def test_a_replica_that_stopped_leaves_the_other_alone():
    fleet = make_fleet(seeds=(1, 2), validate_every=1, patience=1, precision="float32")
    twin = run_steps(make_fleet(seeds=(1, 2), precision="float32"), 6)
    for metric in ((1.0, 2.0), (1.0, 1.0)):
        run_steps(fleet, 1)
        fleet.note_validation(torch.tensor(metric))
    assert fleet.active == [False, True]
    frozen = rows_of(fleet, 0)["m"].clone()
    run_steps(fleet, 4)
    assert same(weights(fleet, 1), weights(twin, 1))
    assert torch.equal(fleet.state["m"][0], frozen)


def test_without_patience_the_best_is_kept_and_nothing_stops():
    fleet = make_fleet(validate_every=1)
    for metric in (1.0, 2.0, 3.0, 4.0):
        run_steps(fleet, 1)
        fleet.note_validation(torch.tensor([metric]))
        if metric == 1:
            first = weights(fleet, 0)
    assert fleet.active == [True]
    assert same(weights(fleet, 0, best=True), first)


def test_a_better_metric_starts_the_waiting_anew():
    fleet = make_fleet(validate_every=1, patience=2)
    for metric, on in ((3.0, True), (4.0, True), (2.0, True), (4.0, True), (4.0, False)):
        run_steps(fleet, 1)
        fleet.note_validation(torch.tensor([metric]))
        assert fleet.active == [on]


def test_a_metric_that_is_not_a_number_is_no_improvement():
    fleet = run_steps(make_fleet(validate_every=1, patience=2), 1)
    for on in (True, False):
        fleet.note_validation(torch.tensor([NAN]))
        assert fleet.active == [on]
    assert same(weights(fleet, 0, best=True), weights(fleet, 0))  # there is no best one: the latest


def test_the_same_metric_in_double_precision_is_no_improvement():
    # 0.1 is below its own rounding to float32.
    fleet = run_steps(make_fleet(validate_every=1, patience=1, precision="float32"), 1)
    for on in (True, False):
        fleet.note_validation(torch.tensor([0.1], dtype=torch.float64))
        assert fleet.active == [on]


def test_the_best_weights_come_with_their_statistics():
    fleet = run_steps(make_fleet(source=images(), make=make_vgg, validate_every=1), 1)
    fleet.note_validation(torch.tensor([1.0]))
    best = weights(fleet, 0)
    run_steps(fleet, 2)
    fleet.note_validation(torch.tensor([2.0]))
    name = next(name for name in best if name.endswith("running_mean"))
    assert torch.equal(weights(fleet, 0, best=True)[name], best[name])
    assert not torch.equal(weights(fleet, 0)[name], best[name])


def test_a_validation_gives_one_value_per_replica():
    fleet = run_steps(make_fleet(seeds=(1, 2), validate_every=1), 1)
    with pytest.raises(ValueError, match=r"one value per replica, \(2,\), got \(\)"):
        fleet.note_validation(torch.tensor(1.0))


# --- a replica whose loss is not finite ---


def test_bad_data_stops_its_replica_and_no_other():
    seeds = (1, 2, 3)
    folds = [table(seed=seed, dtype=torch.float32) for seed in seeds]
    clean = run_steps(make_fleet("np", seeds, folds, precision="float32"), 6)
    folds[1].x[17] = float("inf")  # visited once in an epoch of four steps
    fleet = make_fleet("np", seeds, folds, precision="float32")
    bad_step = fleet.lanes[0].supply.pool["order"][1].tolist().index(17) // 10
    before = weights(run_steps(fleet, bad_step), 1)
    run_steps(fleet, 6 - bad_step)
    assert fleet.active == [True, False, True]
    assert stops(fleet)[1] == (bad_step, "log_likelihood")
    assert [step for step, _ in stops(fleet)] == [-1, bad_step, -1]
    for row in (0, 2):
        assert same(rows_of(fleet, row), rows_of(clean, row))
    assert same(weights(fleet, 1), before)
    assert all(
        value.isfinite().all() for name, value in rows_of(fleet, 1).items() if name in ("m", "v", "metrics")
    )


@pytest.mark.parametrize(
    ("parameter", "term"),
    [
        ("decoder.rest.0.bias", "log_likelihood"),
        ("local_prior.head.linear.bias", "kl_local"),  # the likelihood does not see p(z_*)
        ("z_global.prior_head.linear.bias", "kl_global"),  # nor p(z_G)
    ],
)
def test_the_term_that_broke_is_named(parameter, term):
    fleet = make_fleet(seeds=(1, 2), arch=replace(ARCH, separate_encoders=True))
    run_steps(fleet, 3)
    poison(fleet, 0, parameter)
    run_steps(fleet, 2)
    assert stops(fleet)[0] == (3, term)
    assert fleet.active == [False, True]


def test_a_gradient_that_overflows_is_named():
    # ln p is −(1e12)², which float32 holds; the square of its gradient is not.
    source = table(dtype=torch.float32)
    source.y += 1e12
    fleet = run_steps(make_fleet("nn", (1,), source, precision="float32"), 1)
    assert stops(fleet) == [(0, "gradient")]


def test_a_learning_rate_beyond_reason_stops_its_replica_alone():
    fleet = make_fleet(seeds=(1, 2), learning_rate=(1e-2, 1e30), precision="float32")
    twin = make_fleet(seeds=(1, 2), learning_rate=(1e-2, 1e-2), precision="float32")
    run_steps(fleet, 10)
    assert fleet.active == [True, False]
    assert same(rows_of(fleet, 0), rows_of(run_steps(twin, 10), 0))


def test_a_stopped_replica_has_no_metrics():
    fleet = make_fleet(seeds=(1, 2))
    poison(fleet, 1, "decoder.rest.0.bias")
    run_steps(fleet, 3)
    for value in fleet.read_metrics().values():
        assert value.isfinite().tolist() == [True, False]


def test_a_stopped_replica_changes_no_more():
    fleet = make_fleet(seeds=(1, 2), validate_every=1)
    poison(fleet, 1, "decoder.rest.0.bias")
    run_steps(fleet, 1)
    fleet.plan.layout.unflatten(fleet.state["params"])["decoder.rest.0.bias"][1].fill_(
        0.0
    )  # healed, too late
    before = rows_of(fleet, 1)["params"].clone()
    run_steps(fleet, 2)
    fleet.note_validation(torch.tensor([1.0, 1.0]))
    assert fleet.active == [True, False]
    assert torch.equal(fleet.state["params"][1], before)
    assert stops(fleet)[1][0] == 0
    assert fleet.state["best_metric"].tolist() == [1.0, float("inf")]


def test_a_stopped_replica_keeps_its_statistics():
    fleet = run_steps(make_fleet(seeds=(1, 2), source=images(), make=make_vgg), 2)
    poison(fleet, 1, "decoder.rest.0.bias")
    before = {name: value.clone() for name, value in fleet.state.items() if name.startswith("buffers.")}
    run_steps(fleet, 2)
    assert fleet.active == [True, False]
    for name, value in before.items():
        assert torch.equal(fleet.state[name][1], value[1]), name
        assert not torch.equal(fleet.state[name][0], value[0]), name


# --- pools ---


def test_a_pool_is_drawn_anew_by_the_number_of_steps():
    fleet = make_fleet(seeds=(1, 2), source=curves(refresh_every=3))
    first, place = fleet.lanes[0].supply.pool["x"].clone(), fleet.lanes[0].supply.pool["x"].data_ptr()
    run_steps(fleet, 3)
    assert torch.equal(
        fleet.lanes[0].supply.pool["x"], first
    )  # a pool of three steps serves steps 0, 1 and 2
    run_steps(fleet, 1)
    assert not torch.isclose(fleet.lanes[0].supply.pool["x"], first).any()
    assert fleet.lanes[0].supply.pool["x"].data_ptr() == place  # where a captured graph reads it
    assert not torch.isclose(fleet.lanes[0].supply.pool["x"][0], fleet.lanes[0].supply.pool["x"][1]).any()


def test_a_pool_depends_on_seed_and_step_alone():
    fleet = run_steps(make_fleet(seeds=(1, 2), source=curves(refresh_every=3)), 8)
    late = make_fleet(seeds=[2], source=curves(refresh_every=3))
    late.num_steps_taken = 7  # as after a resume, in the middle of the third pool
    late.step()
    assert torch.equal(late.lanes[0].supply.pool["x"][0], fleet.lanes[0].supply.pool["x"][1])
    assert torch.equal(late.lanes[0].supply.pool["y"][0], fleet.lanes[0].supply.pool["y"][1])


# --- precision ---


@pytest.mark.parametrize(
    ("name", "arch"),
    [*((name, ARCH) for name in ("dsvnp", "tnp", "dsvtnp", "tabtnp")), ("attnnp", BLOCK)],
    ids=["dsvnp", "tnp", "dsvtnp", "tabtnp", "attnnp-block"],
)
def test_bfloat16_stays_near_single_precision(name, arch):
    single = run_steps(make_fleet(name, (1, 2), arch=arch, precision="float32"), 20)
    half = run_steps(make_fleet(name, (1, 2), arch=arch, precision="bf16"), 20)
    assert half.state["params"].dtype == torch.float32
    assert half.active == [True, True]
    expected = single.read_metrics()
    for name, value in half.read_metrics().items():
        assert value.isfinite().all()
        torch.testing.assert_close(value, expected[name], rtol=0.05, atol=0.02)
    assert not torch.equal(half.state["params"], single.state["params"])


@pytest.mark.parametrize("seeds", [(1,), (1, 2)], ids=["alone", "under vmap"])
def test_batch_norm_trains_in_bfloat16(seeds):
    fleets = [
        run_steps(
            make_fleet(seeds=seeds, source=images(dtype=torch.float32), make=make_vgg, precision=how), 10
        )
        for how in ("float32", "bf16")
    ]
    single, half = (fleet.read_metrics()["log_likelihood"] for fleet in fleets)
    torch.testing.assert_close(half, single, rtol=0.05, atol=0.02)
    for name in (name for name in fleets[0].state if name.endswith(("running_mean", "running_var"))):
        expected, found = (fleet.state[name] for fleet in fleets)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
        assert not torch.equal(found, expected)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        ("bf16", torch.bfloat16),
        ("float32", torch.float32),
        ("tf32", torch.float32),
        ("float64", torch.float64),
    ],
)
def test_networks_compute_in_the_precision_asked_for(monkeypatch, precision, dtype):
    seen = set()

    def look(value):
        seen.add(value.dtype)
        return full_precision(value)

    fleet = make_fleet(precision=precision)
    monkeypatch.setattr("dsvnp.networks.full_precision", look)
    run_steps(fleet, 1)
    assert seen == {dtype}


# --- compiling ---


def test_a_failing_compiler_is_mentioned_once_and_changes_nothing(monkeypatch):
    plain = run_steps(make_fleet(seeds=(1, 2), precision="float32"), 4)
    calls = []

    def broken_compile(function, **options):
        def call(*args):
            calls.append(options)
            function(*args)  # half of the work is done, and must be undone
            raise RuntimeError("no C++ compiler\nand a long story")

        return call

    monkeypatch.setattr(torch, "compile", broken_compile)
    fleet = make_fleet(seeds=(1, 2), precision="float32", compile=True)
    with pytest.warns(
        UserWarning, match=r"^training continues uncompiled: RuntimeError: no C\+\+ compiler$"
    ) as caught:
        run_steps(fleet, 4)
    assert len(caught) == len(calls) == 1
    assert same(fleet.state, plain.state)
    assert all(
        torch.equal(a.get_state(), b.get_state())
        for a, b in zip(fleet.generators, plain.generators, strict=True)
    )


def test_a_compiler_that_is_not_there_is_mentioned_as_well(monkeypatch):
    def no_compile(function, **options):
        raise RuntimeError("torch.compile is not supported here")

    monkeypatch.setattr(torch, "compile", no_compile)
    fleet = make_fleet(precision="float32", compile=True)
    with pytest.warns(UserWarning, match="training continues uncompiled: RuntimeError: torch.compile is not"):
        run_steps(fleet, 1)


def test_trying_the_compiled_step_leaves_no_trace(monkeypatch):
    plain = run_steps(make_fleet(seeds=(1, 2), precision="float32"), 4)
    compiled = []

    def compile(function, **options):
        compiled.append(options)
        return function

    monkeypatch.setattr(torch, "compile", compile)
    fleet = run_steps(make_fleet(seeds=(1, 2), precision="float32", compile=True), 4)
    assert compiled == [{"dynamic": False, "fullgraph": True}]
    assert same(fleet.state, plain.state)


def test_replicas_handled_singly_are_compiled_once_for_all(monkeypatch):
    # By torch's own tracing, which gives up at eight versions of a function; without generating code.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    chosen = {"seeds": range(12), "precision": "float32", "chunk_size": 1}
    torch._dynamo.utils.counters.clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "training continues uncompiled")
        fleet = run_steps(make_fleet(compile=True, **chosen), 2)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs == 2  # the gradient of one replica, and the optimiser's step
    assert distance(fleet.state, run_steps(make_fleet(**chosen), 2).state) < 1e-4


@pytest.mark.parametrize("compile", [None, False])
def test_a_cpu_compiles_only_if_asked_to(monkeypatch, compile):
    monkeypatch.setattr(torch, "compile", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_steps(make_fleet(compile=compile, capture=True), 1)
