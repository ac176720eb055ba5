"""A fleet of replicas gives what single runs give, and a single run what a plain loop gives."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from plain_loop import negative_bound, train_like
from small_fleet import (
    ARCH,
    BLOCK,
    IMAGE_ARCH,
    curves,
    distance,
    images,
    make_fleet,
    make_vgg,
    rows_of,
    run_steps,
    same,
    shifted_images,
    table,
)

from dsvnp.models import MODELS, make_model
from dsvnp.objectives import Objective
from dsvnp.sources.base import RowSource
from dsvnp.training import Adam, Fleet, Schedule
from dsvnp.training import step as step_module
from dsvnp.training.step import make_step

SEEDS = (11, 5)


def seeded(make, seed: int):
    """A model as a replica with that seed starts out."""
    torch.manual_seed(seed)
    return make().double()


def assert_weights(fleet: Fleet, row: int, model: torch.nn.Module, tolerance: float = 1e-9) -> None:
    expected = model.state_dict()
    found = fleet.replica(row).state_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


# --- a fleet against single runs ---


@pytest.mark.parametrize("name", MODELS)
def test_a_fleet_equals_its_single_runs(name):
    fleet = run_steps(make_fleet(name, SEEDS), 20)  # two and a half pools
    assert distance(rows_of(fleet, 0), rows_of(fleet, 1)) > 1e-2  # the seeds do differ
    for row, seed in enumerate(SEEDS):
        single = run_steps(make_fleet(name, [seed]), 20)
        assert distance(rows_of(single, 0), rows_of(fleet, row)) < 1e-9


def test_a_seed_gives_the_same_run_wherever_it_stands():
    a = run_steps(make_fleet(seeds=(1, 2, 3), precision="float32"), 5)
    b = run_steps(make_fleet(seeds=(3, 1, 2), precision="float32"), 5)
    assert same(rows_of(a, 0), rows_of(b, 1))
    assert same(rows_of(a, 2), rows_of(b, 0))


@pytest.mark.parametrize("clip_norm", [None, 0.1])
def test_one_replica_at_a_time_is_exact_in_single_precision(clip_norm):
    chosen = {"precision": "float32", "chunk_size": 1, "optimizer": Adam(clip_norm=clip_norm)}
    fleet = run_steps(make_fleet(seeds=(*SEEDS, 3), **chosen), 30)
    for row, seed in enumerate(SEEDS):
        single = run_steps(make_fleet(seeds=[seed], **chosen), 30)
        assert same(rows_of(single, 0), rows_of(fleet, row))


def test_replicas_handled_singly_take_their_step_one_by_one(monkeypatch):
    """A compiler may round a step of three rows other than that of one."""
    rows, apply = [], step_module._apply

    def noted(plan, state, *results):
        rows.append(len(state["params"]))
        assert {len(results[0]), *(len(value) for value in state.values() if value.ndim)} == {1}
        apply(plan, state, *results)

    monkeypatch.setattr(step_module, "_apply", noted)
    fleet = run_steps(make_fleet(seeds=(1, 2, 3), chunk_size=1), 2)
    assert rows == [1] * 6
    assert int(fleet.state["step"]) == 2


def test_replicas_handled_singly_are_exact_by_the_transform_that_compiles_too(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)

    def made(seeds):
        return run_steps(make_fleet(seeds=seeds, precision="float32", chunk_size=1, compile=True), 30)

    fleet = made((*SEEDS, 3))
    for row, seed in enumerate(SEEDS):
        assert same(rows_of(made([seed]), 0), rows_of(fleet, row))


def test_each_replica_has_its_learning_rate_and_weights_of_the_bound():
    rates, local, glob = (1e-3, 1e-2, 1e-2), (1.0, 30.0, 1.0), (0.0, 1.0, 20.0)
    fleet = make_fleet(seeds=(7, 7, 7), learning_rate=rates, beta_local=local, beta_global=glob)
    run_steps(fleet, 20)
    for row in range(3):
        single = make_fleet(
            seeds=[7],
            learning_rate=rates[row],
            objective=Objective(beta_local=local[row], beta_global=glob[row]),
        )
        assert distance(rows_of(run_steps(single, 20), 0), rows_of(fleet, row)) < 1e-9


def test_each_replica_may_have_its_own_fold():
    folds = [table(seed=1), table(seed=2)]
    fleet = run_steps(make_fleet("np", (7, 7), folds), 20)
    assert distance(rows_of(fleet, 0), rows_of(fleet, 1)) > 1e-3
    for row, fold in enumerate(folds):
        assert distance(rows_of(run_steps(make_fleet("np", [7], fold), 20), 0), rows_of(fleet, row)) < 1e-9


# --- a single run against a plain loop ---


@pytest.mark.parametrize("name", MODELS)
def test_a_run_equals_a_plain_loop(name):
    fleet = make_fleet(name, SEEDS, curves(refresh_every=10))
    for row, seed in enumerate(SEEDS):
        model = seeded(partial(make_model, name, ARCH), seed)
        train_like(fleet, row, model, torch.optim.Adam(model.parameters(), lr=1e-2), 10)
        assert_weights(run_steps(fleet, 10 - fleet.num_steps_taken), row, model)
        fleet.generators = make_fleet(name, SEEDS).generators  # for the other row, from the start again


def test_several_draws_equal_a_plain_loop():
    fleet = make_fleet(
        seeds=[3], source=curves(refresh_every=10), objective=Objective(num_global=3, num_local=2)
    )
    model = seeded(partial(make_model, "dsvnp", ARCH), 3)
    train_like(fleet, 0, model, torch.optim.Adam(model.parameters(), lr=1e-2), 10)
    assert_weights(run_steps(fleet, 10), 0, model)


def test_an_undivided_global_kl_equals_a_plain_loop():
    fleet = make_fleet(
        "np", [3], curves(refresh_every=10), objective=Objective(divide_global=False, beta_global=2)
    )
    model = seeded(partial(make_model, "np", ARCH), 3)

    def loss(bound, step):
        return -bound.log_likelihood.sum() / bound.num_points.sum() + 2 * bound.kl_global.mean()

    train_like(fleet, 0, model, torch.optim.Adam(model.parameters(), lr=1e-2), 10, loss)
    assert_weights(run_steps(fleet, 10), 0, model)


def test_dividing_by_all_points_equals_a_plain_loop():
    fleet = make_fleet("cnp", [3], curves(refresh_every=10), objective=Objective(divide_by="all"))
    model = seeded(partial(make_model, "cnp", ARCH), 3)
    num_points = fleet.lanes[0].supply.example(torch.float64).mask_target.sum()
    shares, per_scored = [], []

    def loss(bound, step):
        shares.append(float(bound.num_points.sum() / num_points))
        per_scored.append((bound.log_likelihood.sum() / bound.num_points.sum()).item())
        return -bound.log_likelihood.sum() / num_points

    train_like(fleet, 0, model, torch.optim.Adam(model.parameters(), lr=1e-2), 10, loss)
    assert max(shares) > 1.2 * min(shares)
    assert_weights(run_steps(fleet, 10), 0, model)
    logged = fleet.read_metrics()["log_likelihood"].item()
    assert logged == pytest.approx(sum(per_scored) / 10)  # what is reported is a mean over scored points


def test_adamw_clipping_and_a_schedule_equal_a_plain_loop():
    fleet = make_fleet(
        seeds=[4],
        source=curves(refresh_every=16),
        num_steps=16,
        optimizer=Adam("adamw", weight_decay=0.1, clip_norm=3.0),
        schedule=Schedule("cosine", warmup=4, final=0.1),
    )
    model = seeded(partial(make_model, "dsvnp", ARCH), 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    norms = []

    def prepare(step):
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 3.0)))
        optimizer.param_groups[0]["lr"] = 1e-2 * float(fleet.settings.schedule.factor(torch.tensor(step), 16))

    train_like(fleet, 0, model, optimizer, 16, after_backward=prepare)
    assert min(norms) < 3 < max(norms)
    assert_weights(run_steps(fleet, 16), 0, model)


@pytest.mark.parametrize(
    ("anneal", "ramp"),
    [("linear", lambda step: min(1, step / 8)), ("cyclic", lambda step: min(1, step % 8 / 4))],
)
def test_annealing_scales_both_divergences(anneal, ramp):
    objective = Objective(beta_local=20.0, beta_global=3.0, anneal=anneal, anneal_steps=8)
    fleet = make_fleet(seeds=[2], source=curves(refresh_every=18), objective=objective)
    model = seeded(partial(make_model, "dsvnp", ARCH), 2)

    def loss(bound, step):
        return negative_bound(bound, step, 20 * ramp(step), 3 * ramp(step))

    train_like(fleet, 0, model, torch.optim.Adam(model.parameters(), lr=1e-2), 18, loss)
    assert_weights(run_steps(fleet, 18), 0, model)


def test_constraints_raise_and_lower_their_multipliers():
    objective = Objective(epsilon_local=0.05, epsilon_global=50.0, multiplier_rate=0.1, anneal="none")
    fleet = make_fleet(seeds=SEEDS, source=curves(refresh_every=15), objective=objective)
    model = seeded(partial(make_model, "dsvnp", ARCH), SEEDS[1])
    log_multipliers = torch.zeros(2, dtype=torch.float64)

    def loss(bound, step):
        value = negative_bound(bound, step, *log_multipliers.exp().tolist())
        kl = torch.stack([bound.kl_local.sum() / bound.num_points.sum(), bound.kl_global.mean()]).detach()
        log_multipliers.add_(0.1 * (kl / torch.tensor([0.05, 50.0]) - 1).clamp(-1, 1))
        return value

    train_like(fleet, 1, model, torch.optim.Adam(model.parameters(), lr=1e-2), 15, loss)
    assert_weights(run_steps(fleet, 15), 1, model)
    torch.testing.assert_close(fleet.state["log_multipliers"][1], log_multipliers, rtol=0, atol=1e-9)
    assert log_multipliers[0] > 0.1  # the local KL was above its bound,
    assert log_multipliers[1] < -0.1  # the global KL below


def test_a_constrained_divergence_comes_to_its_bound():
    objective = Objective(epsilon_global=2.0, multiplier_rate=0.05)  # with a weight of 1 it goes to 0.7
    fleet = make_fleet("np", (0, 1), curves(batch_size=16, min_context=5), objective=objective)
    run_steps(fleet, 300).read_metrics()
    per_task = 10 * run_steps(fleet, 100).read_metrics()["kl_global"]  # reports are per point, ten a task
    torch.testing.assert_close(per_task, torch.full((2,), 2.0, dtype=torch.float64), rtol=0.2, atol=0)


# --- likelihoods and networks ---


@pytest.mark.parametrize("name", ["dsvnp", "tnp"])
@pytest.mark.parametrize("likelihood", ["categorical", "squared-error"])
def test_other_likelihoods_train(likelihood, name):
    source = images() if likelihood == "categorical" else table(batch_size=4)
    arch = replace(IMAGE_ARCH if likelihood == "categorical" else ARCH, likelihood=likelihood, dropout=0.1)
    arch = replace(arch, decoder=(32,))  # of eight units, steps of this size can put all to rest
    fleet = make_fleet(name, (0, 1), source, arch)
    run_steps(fleet, 10)
    before = fleet.read_metrics()["log_likelihood"]
    run_steps(fleet, 80)
    fleet.read_metrics()
    run_steps(fleet, 10)
    after = fleet.read_metrics()["log_likelihood"]
    assert (after > before + 0.1).all()
    assert (after <= 0).all()


@pytest.mark.parametrize("name", ["dsvnp", "mc-dropout"])
def test_batch_norm_in_a_fleet_equals_a_plain_loop(name):
    make = partial(make_vgg, name)
    fleet = make_fleet(seeds=SEEDS, source=images(rows=16 * 12), make=make)
    model = seeded(make, SEEDS[1]).train()
    train_like(fleet, 1, model, torch.optim.Adam(model.parameters(), lr=1e-2), 12)
    run_steps(fleet, 12)
    statistics = dict(model.named_buffers())
    assert any(n.endswith("running_var") and (v - 1).abs().max() > 0.1 for n, v in statistics.items())
    assert {int(v) for n, v in statistics.items() if n.endswith("num_batches_tracked")} == {12}
    assert_weights(fleet, 1, model)  # the state dictionary holds the statistics


def test_a_single_replica_steps_alike_by_autograd_and_by_the_transform_that_compiles(monkeypatch):
    def made():
        return make_fleet(source=shifted_images(), make=make_vgg)

    by_autograd, by_transform = made(), made()
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    for fleet, compile in ((by_autograd, False), (by_transform, True)):
        fleet._step = partial(fleet._run, make_step(fleet.plan, compile, singly=True))
        run_steps(fleet, 5)
    assert distance(rows_of(by_autograd, 0), rows_of(by_transform, 0)) < 1e-9
    assert distance(rows_of(by_transform, 0), rows_of(made(), 0)) > 1e-3  # it did learn


def test_each_replica_shifts_its_images_by_numbers_of_its_own():
    fleet = run_steps(make_fleet(seeds=SEEDS, source=shifted_images(), make=make_vgg), 5)
    for row, seed in enumerate(SEEDS):
        single = run_steps(make_fleet(seeds=[seed], source=shifted_images(), make=make_vgg), 5)
        assert distance(rows_of(single, 0), rows_of(fleet, row)) < 1e-9


EQUIVARIANT = replace(ARCH, transformer=replace(ARCH.transformer, equivariant=True, relative=4))


@pytest.mark.parametrize(
    ("name", "arch"),
    [("tnp", EQUIVARIANT), ("dsvtnp", EQUIVARIANT), ("attnnp", BLOCK)],
    ids=["tnp-equivariant", "dsvtnp-equivariant", "attnnp-block"],
)
def test_a_fleet_of_other_attention_equals_its_single_runs(name, arch):
    fleet = run_steps(make_fleet(name, SEEDS, arch=arch), 10)
    for row, seed in enumerate(SEEDS):
        single = run_steps(make_fleet(name, [seed], arch=arch), 10)
        assert distance(rows_of(single, 0), rows_of(fleet, row)) < 1e-9


ONE_LAYER = replace(EQUIVARIANT, transformer=replace(EQUIVARIANT.transformer, num_layers=1))


@pytest.mark.parametrize(
    ("name", "arch", "objective"),
    [
        ("dsvtnp", ONE_LAYER, Objective()),
        ("dsvtnp", ONE_LAYER, Objective(kind="npml", num_global=2, num_local=2)),
        ("dsvtnp", ONE_LAYER, Objective(common_steps=2)),
        ("attnnp", BLOCK, Objective(kind="iw", num_global=4)),
    ],
    ids=["elbo", "npml", "common", "blocks"],
)
def test_the_step_of_a_transformer_compiles_without_a_break(monkeypatch, name, arch, objective):
    eager = run_steps(make_fleet(name, SEEDS, arch=arch, objective=objective), 3)
    compiler, options = torch.compile, []

    def compile(function, **given):
        options.append(given)
        return compiler(function, backend="eager", **given)  # traced only: to generate code takes minutes

    monkeypatch.setattr(torch, "compile", compile)
    compiled = run_steps(make_fleet(name, SEEDS, arch=arch, objective=objective, compile=True), 3)
    assert options == [{"dynamic": False, "fullgraph": True}]
    assert distance(compiled.state, eager.state) < 1e-9


# --- what a fleet leaves alone, and what it hands out ---


@pytest.mark.parametrize("name", MODELS)
def test_torchs_own_generator_is_untouched(name):
    before = torch.get_rng_state()
    fleet = run_steps(make_fleet(name, SEEDS), 2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(123)
    assert same(rows_of(run_steps(make_fleet(name, SEEDS), 2), 0), rows_of(fleet, 0))


def test_the_generator_is_left_alone_even_if_making_a_model_fails():
    before = torch.get_rng_state()

    def make():
        torch.rand(3)
        raise OSError("no weights")

    with pytest.raises(OSError, match="no weights"):
        make_fleet(make=make)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_replica_is_a_model_of_its_own():
    fleet = run_steps(make_fleet("np", SEEDS), 3)
    model = fleet.replica(1)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    assert not model.training
    run_steps(fleet, 1)
    assert same(model.state_dict(), weights)
    assert not same(fleet.replica(1).state_dict(), weights)
    assert not same(fleet.replica(0).state_dict(), fleet.replica(1).state_dict())


def test_metrics_are_means_since_the_last_reading():
    fleet, twin = make_fleet(seeds=SEEDS), make_fleet(seeds=SEEDS)
    each = [run_steps(twin, 1).read_metrics() for _ in range(6)]
    run_steps(fleet, 2).read_metrics()
    together = run_steps(fleet, 4).read_metrics()
    assert list(together) == ["log_likelihood", "kl_local", "kl_global"]
    for name, value in together.items():
        torch.testing.assert_close(value, torch.stack([one[name] for one in each[2:]]).mean(0))


@pytest.mark.parametrize(("name", "context"), [("cnp", 9), ("cnp", 4), ("dsvnp", 4)])
def test_metrics_are_per_counted_point(name, context):
    fleet = make_fleet(name, [3], table(min_context=context, max_context=context))
    model = fleet.replica(0)
    bounds = []

    def loss(bound, step):
        bounds.append(bound)
        return negative_bound(bound, step)

    train_like(fleet, 0, model, torch.optim.Adam(model.parameters()), 1, loss)
    found = run_steps(fleet, 1).read_metrics()
    for term in ("log_likelihood", "kl_local", "kl_global"):
        expected = getattr(bounds[0], term).sum() / (10 - context if name == "cnp" else 10)
        torch.testing.assert_close(found[term][0], expected.detach())


def test_a_batch_without_a_counted_point_has_no_gradient():
    fleet = make_fleet("cnp", [3], table(min_context=10, max_context=10))  # CNP scores what is not context
    before = fleet.state["params"].clone()
    run_steps(fleet, 2)
    assert fleet.active == [True]
    assert torch.equal(fleet.state["params"], before)


@pytest.mark.parametrize(("name", "term"), [("cnp", "log_likelihood"), ("np", "kl_global")])
def test_a_batch_without_a_counted_point_is_not_in_the_means(name, term):
    arch = replace(ARCH, score_context=False, separate_encoders=True)  # or KL_G would be 0 there by itself

    def made():
        return make_fleet(name, [3], table(min_context=8, max_context=10), arch)

    single = made()
    each = [float(run_steps(single, 1).read_metrics()[term]) for _ in range(30)]
    counted = [value for value in each if not math.isnan(value)]
    assert 10 < len(counted) < 30  # a third of the batches are all context
    together = run_steps(made(), 30).read_metrics()[term]
    torch.testing.assert_close(float(together), sum(counted) / len(counted))


def test_a_batch_without_a_counted_point_moves_no_multiplier():
    objective = Objective(epsilon_local=0.05, epsilon_global=0.05)
    arch = replace(ARCH, score_context=False)
    fleet = make_fleet("dsvnp", [3], table(min_context=10, max_context=10), arch, objective=objective)
    run_steps(fleet, 3)
    assert fleet.state["log_multipliers"].tolist() == [[0.0, 0.0]]


# --- what is refused ---


def test_a_fleet_needs_seeds():
    with pytest.raises(ValueError, match="a fleet needs at least one seed"):
        make_fleet(seeds=[])


def test_one_source_or_one_for_each():
    with pytest.raises(ValueError, match="got 2 sources for 3 replicas; pass one each, or one for all"):
        make_fleet(seeds=(1, 2, 3), source=[table(), table()])


def test_folds_have_as_many_rows():
    with pytest.raises(ValueError, match=r"differ in the shape of 'x': \[\(40, 1\), \(50, 1\)\]; give each"):
        make_fleet(seeds=(1, 2), source=[table(40), table(50)])


def test_folds_have_the_same_settings():
    sources = [table(), table(max_context=5)]
    with pytest.raises(
        ValueError, match=r"differ in context: \(1, 10\) and \(1, 5\); they may differ in their data"
    ):
        make_fleet(seeds=(1, 2), source=sources)


def test_as_many_learning_rates_as_replicas():
    with pytest.raises(ValueError, match="learning_rate has 2 values but the fleet has 1 replicas"):
        make_fleet(learning_rate=(0.1, 0.2))


def bad_table(x=1.0, y=1.0, dtype=torch.float64):
    return RowSource(torch.full((20, 1), x, dtype=dtype), torch.full((20, 1), y, dtype=dtype), num_points=10)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (curves(torch.float32), "x is torch.float32 but the model computes in torch.float64"),
        (bad_table(x=float("nan")), "x_context must be finite"),
        (bad_table(y=float("inf")), "y_context is infinite"),
        (images(), "x has 16 features but the model was made for 1"),
        (RowSource(torch.ones(20, 1).double(), torch.ones(20, 1).long(), num_points=10), "y_context must"),
    ],
)
def test_a_bad_batch_is_refused_before_training(source, message):
    with pytest.raises(ValueError, match=message):
        make_fleet(source=source)
