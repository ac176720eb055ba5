"""The captured and the compiled step on a CUDA device."""

import copy
import signal
from dataclasses import replace

import pytest
import torch
from small_fleet import (
    ARCH,
    BLOCK,
    bits,
    curves,
    distance,
    images,
    make_fleet,
    make_vgg,
    rows_of,
    run_steps,
    same,
    shifted_images,
)

from dsvnp.models import MODELS, Architecture, Transformer, make_model
from dsvnp.objectives import Objective
from dsvnp.task import Task
from dsvnp.training import Adam, CheckpointError, Interrupted, Schedule, train
from dsvnp.training import checkpoint as checkpoints
from dsvnp.training.loop import restore, save

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.xdist_group("cuda"),
    # A compiler may warn of what it likes, but it must not fail.
    pytest.mark.filterwarnings("default", "error:training continues uncompiled"),
]

SEEDS = (1, 2, 3)
EAGER = {"compile": False, "capture": False}
CAPTURED = {"compile": False, "capture": True}
COMPILED = {"compile": True, "capture": False}
BOTH = {"compile": True, "capture": True}


def on_cuda(name: str = "dsvnp", seeds=SEEDS, **chosen):
    return make_fleet(name, seeds, device="cuda", **chosen)


def named(name: str) -> dict:
    """The model and the architecture of a row."""
    return {"name": "attnnp", "arch": BLOCK} if name == "attnnp-block" else {"name": name}


def assert_same_run(a, b) -> None:
    for name in a.state:
        assert torch.equal(bits(a.state[name]), bits(b.state[name])), name
    for one, other in zip(a.generators, b.generators, strict=True):
        assert torch.equal(one.get_state(), other.get_state())


# --- the same step, however it is run ---


@pytest.mark.parametrize("name", MODELS)
def test_a_captured_step_equals_an_eager_one(name):
    # 20 steps see three pools of 8: the graph reads what was drawn again.
    eager = run_steps(on_cuda(name, **EAGER), 20)
    captured = run_steps(on_cuda(name, **CAPTURED), 20)
    assert distance(captured.state, eager.state) < 1e-9
    assert captured.num_steps_taken == int(captured.state["step"]) == 20


@pytest.mark.parametrize("how", [COMPILED, BOTH], ids=["compiled", "compiled and captured"])
def test_a_compiled_step_equals_an_eager_one(how):
    chosen = {
        "optimizer": Adam("adamw", weight_decay=0.01, clip_norm=1.0),
        "schedule": Schedule("cosine", warmup=5),
        "objective": Objective(anneal="linear", anneal_steps=8, epsilon_global=0.5),
        "num_steps": 20,
    }
    eager = run_steps(on_cuda(**EAGER, **chosen), 20)
    other = run_steps(on_cuda(**how, **chosen), 20)
    assert distance(other.state, eager.state) < 1e-9


@pytest.mark.parametrize("name", ["tnp", "dsvtnp"])
@pytest.mark.parametrize(
    "how",
    [{}, {"equivariant": True}, {"equivariant": True, "rotary": 20.0}],
    ids=["", "equivariant", "rotary"],
)
def test_a_compiled_and_captured_transformer_equals_an_eager_one(name, how):
    arch = replace(ARCH, transformer=replace(ARCH.transformer, **how))
    eager = run_steps(on_cuda(name, arch=arch, **EAGER), 20)
    other = run_steps(on_cuda(name, arch=arch, **BOTH), 20)
    assert distance(other.state, eager.state) < 1e-9


def test_compiled_and_captured_blocks_equal_eager_ones():
    chosen = {"name": "attnnp", "arch": BLOCK, "objective": Objective(kind="iw", num_global=4)}
    eager = run_steps(on_cuda(**chosen, **EAGER), 20)
    for how in (CAPTURED, BOTH):
        assert distance(run_steps(on_cuda(**chosen, **how), 20).state, eager.state) < 1e-9


def test_a_transformer_predicts_on_cuda_as_on_the_cpu_and_from_an_empty_context():
    """In single precision, where torch has kernels of its own for attention; the CPU in double is the truth."""
    torch.manual_seed(0)
    model = make_model("tnp", ARCH)
    x = torch.rand(3, 37, 1)
    filled = torch.arange(37) < torch.tensor([[37], [0], [20]])
    task = Task.from_sets(x, x.sin(), torch.rand(3, 11, 1), mask_context=filled)
    expected = copy.deepcopy(model).double().predict(task.to(dtype=torch.float64)).loc
    found = model.cuda().predict(task.to("cuda")).loc
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equivariant", [False, True], ids=["", "equivariant"])
def test_a_hundred_thousand_context_points_fit_in_16_gb(equivariant):
    model = make_model("tnp", Architecture(1, 1, transformer=Transformer(equivariant=equivariant))).cuda()
    size = 20_000 if equivariant else 100_000  # an equivariant score is a network of each pair
    x = torch.linspace(-2, 2, size, device="cuda").reshape(1, -1, 1)
    torch.cuda.reset_peak_memory_stats()
    prediction = model.predict(Task.from_sets(x, x.sin(), x[:, ::100]))
    assert prediction.mean.isfinite().all()
    assert torch.cuda.max_memory_allocated() < 16e9


@pytest.mark.parametrize("seeds", [SEEDS, (1,)], ids=["fleet", "single"])
@pytest.mark.parametrize("source", [images, shifted_images])
@pytest.mark.parametrize("how", [CAPTURED, BOTH], ids=["captured", "compiled and captured"])
def test_batch_norm_is_captured(how, source, seeds):
    chosen = {"source": source(), "make": make_vgg, "seeds": seeds}
    eager = run_steps(on_cuda(**EAGER, **chosen), 10)
    other = run_steps(on_cuda(**how, **chosen), 10)
    assert distance(other.state, eager.state) < 1e-9
    tracked = next(name for name in other.state if name.endswith("num_batches_tracked"))
    assert other.state[tracked].tolist() == [10] * len(seeds)  # trial steps before the capture do not count


def test_replicas_handled_singly_are_exact_in_single_precision():
    chosen = {"precision": "float32", "chunk_size": 1, **BOTH}
    fleet = run_steps(on_cuda(**chosen), 20)
    single = run_steps(on_cuda(seeds=SEEDS[1:2], **chosen), 20)
    mine, theirs = rows_of(single, 0), rows_of(fleet, 1)
    differ = {name: distance({name: mine[name]}, {name: theirs[name]}) for name in mine}
    assert same(mine, theirs), {name: value for name, value in differ.items() if value}


@pytest.mark.parametrize("name", ["dsvnp", "mc-dropout", "tnp", "dsvtnp", "tabtnp", "attnnp-block"])
def test_a_captured_fleet_equals_its_single_runs(name):
    fleet = run_steps(on_cuda(**named(name), **CAPTURED), 100)
    for row, seed in enumerate(SEEDS):
        single = run_steps(on_cuda(**named(name), seeds=[seed], **CAPTURED), 100)
        assert distance(rows_of(single, 0), rows_of(fleet, row)) < 1e-9


def test_each_step_of_a_graph_draws_new_numbers():
    fleet = run_steps(on_cuda(**CAPTURED), 2)
    first = fleet.lanes[0].normal.clone()
    run_steps(fleet, 1)
    assert not torch.isclose(fleet.lanes[0].normal, first).any()
    assert not torch.isclose(fleet.lanes[0].normal[0], fleet.lanes[0].normal[1]).any()


@pytest.mark.parametrize("name", ["dsvnp", "tnp", "dsvtnp", "tabtnp", "attnnp-block"])
def test_bfloat16_is_captured(name):
    """The first step is close to that in float32; later ones are not: training at this rate amplifies any rounding."""
    half = run_steps(on_cuda(**named(name), precision="bf16", **CAPTURED), 1)
    expected = run_steps(on_cuda(**named(name), precision="float32", **CAPTURED), 1).read_metrics()
    for name, value in half.read_metrics().items():
        torch.testing.assert_close(value, expected[name], rtol=0.01, atol=0.01)
    assert run_steps(half, 19).active == [True] * len(SEEDS)
    assert all(value.isfinite().all() for value in half.read_metrics().values())


@pytest.mark.parametrize("seeds", [SEEDS, (1,)], ids=["fleet", "single"])
@pytest.mark.parametrize("how", [CAPTURED, BOTH], ids=["captured", "compiled and captured"])
def test_batch_norm_is_captured_in_bfloat16(how, seeds):
    chosen = {"source": images(dtype=torch.float32), "make": make_vgg, "seeds": seeds, **how}
    half, single = (run_steps(on_cuda(precision=p, **chosen), 30) for p in ("bf16", "float32"))
    assert half.active == [True] * len(seeds)
    expected = single.read_metrics()
    for name, value in half.read_metrics().items():
        torch.testing.assert_close(value, expected[name], rtol=0.05, atol=0.02)


def test_a_graph_is_captured_unless_told_otherwise():
    graphs = [
        getattr(run_steps(on_cuda(compile=False, capture=how), 1).lanes[0].step, "__self__", None)
        for how in (None, False)
    ]
    assert isinstance(graphs[0], torch.cuda.CUDAGraph)
    assert graphs[1] is None


def test_torchs_own_generators_are_untouched():
    cpu, cuda = torch.get_rng_state(), torch.cuda.get_rng_state()
    run_steps(on_cuda(**CAPTURED), 3)
    assert torch.equal(torch.get_rng_state(), cpu)
    assert torch.equal(torch.cuda.get_rng_state(), cuda)


# --- resuming ---


def stop_at(step: int, fleet):
    original = fleet.step

    def stepping() -> None:
        original()
        if fleet.num_steps_taken == step:
            signal.raise_signal(signal.SIGINT)

    fleet.step = stepping
    return fleet


@pytest.mark.parametrize(
    ("how", "precision", "name"),
    [
        (EAGER, "float32", "dsvnp"),
        (CAPTURED, "float32", "dsvnp"),
        (COMPILED, "float32", "dsvnp"),
        (BOTH, "tf32", "dsvnp"),
        (BOTH, "tf32", "dsvtnp"),
        (BOTH, "tf32", "tabtnp"),
        (BOTH, "tf32", "attnnp-block"),
    ],
    ids=[
        "eager",
        "captured",
        "compiled",
        "compiled and captured, tf32",
        "a transformer",
        "a table network",
        "blocks",
    ],
)
def test_interruptions_leave_no_trace(tmp_path, how, precision, name):
    chosen = how | named(name) | {"num_steps": 24, "precision": precision, "source": curves(torch.float32)}
    undisturbed = train(on_cuda(**chosen))
    for step in (5, 13):
        fleet = stop_at(step, on_cuda(**chosen))
        with pytest.raises(Interrupted):
            train(fleet, tmp_path)
    assert_same_run(train(on_cuda(**chosen), tmp_path), undisturbed)


@pytest.mark.parametrize("how", [CAPTURED, BOTH], ids=["captured", "compiled and captured"])
def test_a_captured_fleet_goes_on_with_what_is_restored_into_it(tmp_path, how):
    fleet = run_steps(on_cuda(precision="float32", **how), 5)
    path = save(fleet, tmp_path)
    run_steps(fleet, 7)  # into the second pool
    expected = {name: value.clone() for name, value in fleet.state.items()}
    graph = fleet.lanes[0].step
    restore(fleet, checkpoints.load(path, fleet.describe()))
    assert fleet.num_steps_taken == int(fleet.state["step"]) == 5
    run_steps(fleet, 7)
    assert same(fleet.state, expected)
    assert fleet.lanes[0].step is graph


def test_a_checkpoint_of_a_cpu_is_refused(tmp_path):
    train(make_fleet(seeds=SEEDS, num_steps=2), tmp_path)
    with pytest.raises(
        CheckpointError, match="written on cpu, whose random generators differ from those of cuda"
    ):
        train(on_cuda(num_steps=2, **EAGER), tmp_path)


# --- a replica that breaks ---


@pytest.mark.parametrize("how", [CAPTURED, BOTH], ids=["captured", "compiled and captured"])
def test_a_replica_that_breaks_leaves_the_others_alone(how):
    clean = run_steps(on_cuda(precision="float32", **how), 10)
    fleet = run_steps(on_cuda(precision="float32", **how), 4)
    fleet.plan.layout.unflatten(fleet.state["params"])["local_prior.head.linear.bias"][1].fill_(float("nan"))
    run_steps(fleet, 6)
    assert fleet.active == [True, False, True]
    assert fleet.state["stop_step"].tolist() == [-1, 4, -1]
    assert fleet.state["stop_reason"][1] == 1  # the local KL
    for row in (0, 2):
        assert same(rows_of(fleet, row), rows_of(clean, row))


def test_validation_on_the_cpu_stops_a_captured_replica():
    fleet = on_cuda(validate_every=1, patience=1, **CAPTURED)
    for metric in ([1.0, 1.0, 1.0], [0.5, 1.0, 0.5]):
        run_steps(fleet, 1)
        fleet.note_validation(torch.tensor(metric))
    frozen = fleet.state["params"][1].clone()
    run_steps(fleet, 3)
    assert fleet.active == [True, False, True]
    assert torch.equal(fleet.state["params"][1], frozen)
