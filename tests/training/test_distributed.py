"""Two processes give what one gives; they share files and signals."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from plain_loop import task_of
from rank_script import DATA, SEEDS, SHARED, validation
from safetensors.torch import load_file
from small_fleet import (
    bits,
    curves,
    distance,
    images,
    make_fleet,
    make_vgg,
    rows_of,
    run_steps,
    subprocess_environment,
)

from dsvnp.training import Cluster, train
from dsvnp.training import checkpoint as checkpoints
from dsvnp.training.step import make_step

pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """Where two processes left what came out."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = [sys.executable, str(Path(__file__).with_name("rank_script.py")), str(folder)]
    torchrun = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "CUDA_VISIBLE_DEVICES": "",
    }
    processes = [
        subprocess.Popen(
            script,
            env=subprocess_environment(**torchrun, RANK=str(rank), LOCAL_RANK=str(rank)),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
    return folder


@pytest.fixture(scope="module")
def notes(out):
    return [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(2)]


def state(out: Path, name: str, rank: int = 0) -> dict[str, torch.Tensor]:
    return load_file(out / f"{name}.rank{rank}.safetensors")


def assert_same_run(checkpoint, fleet, tolerance: float = 0.0) -> None:
    """A checkpoint holds the weights of a fleet."""
    for name, value in fleet.plan.layout.unflatten(fleet.state["params"]).items():
        torch.testing.assert_close(checkpoint.tensors[f"params.{name}"], value, rtol=0, atol=tolerance)


def last(folder: Path):
    return checkpoints.load(checkpoints.list_checkpoints(folder)[-1])


# --- one batch over two processes ---


@pytest.mark.parametrize("name", DATA)
def test_parts_of_a_batch_equal_the_whole(out, name):
    alone = run_steps(make_fleet(seeds=SEEDS, **DATA[name]), 10)
    for rank in range(2):
        assert distance(state(out, f"data-{name}", rank), alone.state) < 1e-9


def test_the_parts_do_not_count_the_same():
    # Or the test above would not see a mean of means.
    fleet = make_fleet("cnp", SEEDS)
    uniform = torch.empty(4, dtype=torch.float64).uniform_(generator=fleet.generators[0])
    counted = fleet.model.counted(task_of(fleet, 0, 0, uniform.tolist())).sum(1)
    assert counted[:2].sum() != counted[2:].sum()


@pytest.mark.parametrize("name", [*(f"data-{name}" for name in DATA), "data-vgg", "data-resumed"])
def test_both_processes_hold_the_same(out, name):
    first, second = state(out, name, 0), state(out, name, 1)
    assert all(torch.equal(bits(first[key]), bits(second[key])) for key in first)


def test_a_compiler_that_one_process_lacks_is_used_by_none(out, notes):
    assert [note["uncompiled"] for note in notes] == [
        ["training continues uncompiled: another process could not compile it"],
        ["training continues uncompiled: RuntimeError: no compiler here"],
    ]
    for rank in range(2):
        assert distance(state(out, "data-one-compiler", rank), state(out, "data-cnp", rank)) == 0


def test_statistics_of_batch_norm_are_averaged(out):
    # A mean of the halves' means is the mean of the whole; of the first layer, which sees the same images.
    alone = run_steps(make_fleet(source=images(), make=make_vgg), 1)
    name = "buffers.embed.x.blocks.0.norm.running_mean"
    torch.testing.assert_close(state(out, "data-vgg")[name], alone.state[name], rtol=0, atol=1e-12)
    assert alone.state[name].abs().max() > 1e-3


def test_a_batch_that_cannot_be_split_is_refused(notes):
    for note in notes:
        assert note["odd batch"] == (
            "a batch of 3 tasks cannot be split over 2 processes; choose a batch size that is a multiple of 2"
        )


# --- replicas over two processes ---


def test_replicas_are_shared_out(notes):
    assert [note["share"] for note in notes] == [[0], [1, 2]]


def test_a_shared_fleet_equals_one_process(out):
    alone = train(make_fleet(num_steps=10, **SHARED), validation=validation)
    found = last(out / "shared")
    assert found.step == 10
    assert_same_run(found, alone, 1e-9)
    torch.testing.assert_close(found.tensors["best_metric"], alone.state["best_metric"], rtol=0, atol=1e-9)


def test_each_process_has_its_replicas_sources(out):
    folds = [images(seed=seed) for seed in (1, 2, 3)]
    alone = run_steps(make_fleet("np", (1, 2, 3), folds, make_vgg().arch), 3)
    shared = [state(out, "folds", rank) for rank in range(2)]
    whole = {
        name: torch.cat([part[name] for part in shared]) for name, value in alone.state.items() if value.ndim
    }
    for row in range(3):
        assert distance({name: value[row] for name, value in whole.items()}, rows_of(alone, row)) < 1e-9


def test_fewer_replicas_than_processes_are_refused_by_all(notes):
    for note in notes:
        assert note["few seeds"] == "1 replicas are too few for 2 processes"


# --- files, signals, messages ---


def test_one_process_writes(notes, out):
    assert [note["writes"] for note in notes] == [True, False]
    assert notes[1]["said"] == notes[1]["broken"] == ""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4, 5, 6, 8, 10]
    assert all(len(line["log_likelihood"]) == len(line["validation"]) == 3 for line in lines)
    assert "run: continuing from step 5\n" in notes[0]["said"]


def test_processes_that_see_different_folders_are_told(notes, out):
    for rank, step in ((0, 5), (1, 0)):
        assert notes[rank]["apart"] == (
            f"{out / f'apart{rank}'}: the processes found different checkpoints there, this one step {step}; "
            "give them a folder that all of them see"
        )


def test_what_two_processes_saved_two_go_on_with(out):
    alone = train(make_fleet(num_steps=8))
    assert distance(state(out, "data-resumed"), alone.state) < 1e-9


@pytest.mark.parametrize("how", ["data", "shared"])
def test_what_two_processes_saved_one_goes_on_with(out, tmp_path, how):
    chosen = SHARED if how == "shared" else {}
    newest = checkpoints.list_checkpoints(out / how)[0]
    assert newest.name == "step-000000005"
    shutil.copytree(newest, tmp_path / newest.name)
    fleet = train(make_fleet(num_steps=12, **chosen), tmp_path, validation)
    assert_same_run(last(tmp_path), train(make_fleet(num_steps=12, **chosen), None, validation), 1e-9)
    assert fleet.num_steps_taken == 12


def test_a_signal_to_one_process_stops_both(notes, out):
    assert notes[0]["interrupted"].startswith("stopped by SIGTERM after step 6, saved in ")
    assert notes[1]["interrupted"].startswith(
        f"stopped by SIGTERM after step 6, saved in {out / 'interrupted'}"
    )
    assert last(out / "interrupted").step == 6


def test_a_replica_that_broke_elsewhere_is_named_by_its_own_number(notes):
    assert "replica 1 (seed 2) stopped: log_likelihood was not finite at step 0" in notes[0]["broken"]
    assert [note["active"] for note in notes] == [[True], [False, True]]


# --- one process among others, without the others ---


def test_shares_are_contiguous_and_even():
    for count in (2, 3, 5, 8):
        shares = [list(Cluster(rank, 2).share(count)) for rank in range(2)]
        assert [row for share in shares for row in share] == list(range(count))
        assert abs(len(shares[0]) - len(shares[1])) <= 1
    assert list(Cluster(0, 3).share(7, rank=2)) == [4, 5, 6]
    assert list(Cluster(1, 2, "data").share(5)) == list(range(5))


def test_a_part_has_its_tasks_and_their_noise():
    task = curves().batch(
        curves().pool(torch.Generator(), torch.device("cpu")), {"context": torch.rand(4)}, torch.tensor(0)
    )
    noise = {
        "global": torch.rand(2, 4, 8),
        "local": torch.rand(2, 3, 4, 10, 8),
        "dropout.0": torch.rand(2, 4, 10, 8),
    }
    part, own = Cluster(1, 2, "data").my_part(task, noise)
    assert torch.equal(part.x_target, task.x_target[2:])
    assert torch.equal(part.in_context, task.in_context[2:])
    assert torch.equal(own["global"], noise["global"][:, 2:])
    assert torch.equal(own["local"], noise["local"][:, :, 2:])
    assert torch.equal(own["dropout.0"], noise["dropout.0"][:, 2:])


@pytest.mark.parametrize(
    ("cluster", "singly", "parts"),
    [
        (Cluster(), False, ["step"]),
        (Cluster(), True, ["of_one", "_apply"]),  # once, for all replicas
        (Cluster(0, 2, "data"), False, ["of_all", "_apply"]),
        (Cluster(0, 2, "data"), True, ["of_one", "_apply"]),
    ],
)
def test_a_step_is_compiled_whole_or_in_two_parts(monkeypatch, cluster, singly, parts):
    compiled = []

    def compile(function, **options):
        compiled.append(getattr(function, "func", function).__name__)
        return function

    monkeypatch.setattr(torch, "compile", compile)
    make_step(make_fleet(cluster=cluster).plan, True, singly)
    assert compiled == parts


def test_processes_that_share_a_batch_go_by_the_mean_of_their_validations(monkeypatch):
    fleet = make_fleet(cluster=Cluster(0, 2, "data"), validate_every=1)
    monkeypatch.setattr(Cluster, "all_reduce", lambda self, *tensors: [value.add_(3.0) for value in tensors])
    fleet.note_validation(torch.tensor([1.0]))
    assert fleet.state["best_metric"].tolist() == [2.0]


def test_one_process_alone_needs_no_group(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    cluster = Cluster.from_environment("data")
    assert (cluster.rank, cluster.size, cluster.writes) == (0, 1, True)
    assert not cluster.splits_data
    assert not cluster.splits_replicas
    assert cluster.largest(3) == 3


def test_an_unknown_way_is_refused():
    with pytest.raises(ValueError, match=r"unknown way to spread a fleet 'replica'. Did you mean 'replicas'"):
        Cluster(mode="replica")


@pytest.mark.parametrize(
    ("gpus", "calls"), [(True, [("device", 1), ("group", "nccl")]), (False, [("group", "gloo")])]
)
def test_each_process_takes_a_gpu_of_its_own_before_it_meets_the_others(monkeypatch, gpus, calls):
    made = []
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda number: made.append(("device", number)))
    monkeypatch.setattr(dist, "init_process_group", lambda backend: made.append(("group", backend)))
    monkeypatch.setattr(dist, "get_rank", lambda: 3)
    assert Cluster.from_environment() == Cluster(3, 4, "replicas")
    assert made == calls
