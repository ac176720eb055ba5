"""The loop: interruptions leave no trace in the weights, and every stop is reported."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console
from small_fleet import (
    ARCH,
    BLOCK,
    bits,
    curves,
    images,
    make_fleet,
    make_vgg,
    same,
    subprocess_environment,
    table,
)

from dsvnp.models import make_model
from dsvnp.objectives import Objective
from dsvnp.training import Adam, CheckpointError, Fleet, Interrupted, Reporter, Schedule, train
from dsvnp.training import checkpoint as checkpoints
from dsvnp.training.loop import restore, save

EVERYTHING = {
    "seeds": (1, 2, 3),
    "source": curves(torch.float32, refresh_every=7),
    "num_steps": 30,
    "precision": "float32",
    "learning_rate": (1e-2, 1e-2, 3e-3),
    "beta_local": (1.0, 5.0, 1.0),
    "optimizer": Adam("adamw", weight_decay=0.01, clip_norm=1.0),
    "schedule": Schedule("cosine", warmup=5),
    "objective": Objective(anneal="cyclic", anneal_steps=9, epsilon_global=0.5),
    "validate_every": 3,
    "patience": 3,
    "log_every": 4,
    "checkpoint_every": 6,
}


def validation(fleet: Fleet) -> torch.Tensor:
    """A likelihood on tasks of its own, for replica 1 with a malus that grows: it stops early."""
    task = (
        fleet.lanes[0]
        .supply.sources[0]
        .batch(
            fleet.lanes[0].supply.sources[0].pool(torch.Generator().manual_seed(0), torch.device("cpu")),
            {"context": torch.full((4,), 0.5)},
            torch.tensor(0),
        )
    )
    scores = []
    for row in range(len(fleet.seeds)):
        predictive = fleet.replica(row).predict(task, generator=torch.Generator().manual_seed(1))
        malus = fleet.num_steps_taken if row == 1 else 0
        scores.append(malus - predictive.log_prob(task.y_target).mean())
    return torch.stack(scores)


def at(step: int, fleet: Fleet, action) -> Fleet:
    """Have something happen at the end of a step."""
    original = fleet.step

    def stepping() -> None:
        original()
        if fleet.num_steps_taken == step:
            action()

    fleet.step = stepping
    return fleet


def stop_at(step: int, fleet: Fleet, number: int = signal.SIGINT) -> Fleet:
    return at(step, fleet, lambda: signal.raise_signal(number))


class Crash(Exception):
    """The process dies."""


def crash_at(step: int, fleet: Fleet) -> Fleet:
    def crash() -> None:
        raise Crash

    return at(step, fleet, crash)


def silent(log: Path | None = None) -> Reporter:
    return Reporter("run", 30, log=log, console=Console(file=io.StringIO(), width=300))


def said(reporter: Reporter) -> list[str]:
    return reporter.console.file.getvalue().splitlines()


def log_of(path: Path) -> list[dict]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "steps_per_second"} for line in lines]


def assert_same_run(a: Fleet, b: Fleet) -> None:
    for name in a.state:
        assert torch.equal(bits(a.state[name]), bits(b.state[name])), name
    for one, other in zip(a.generators, b.generators, strict=True):
        assert torch.equal(one.get_state(), other.get_state())


# --- resuming ---


def test_interruptions_leave_no_trace(tmp_path):
    undisturbed = train(make_fleet(**EVERYTHING), tmp_path / "a", validation, silent(tmp_path / "a.jsonl"))
    assert undisturbed.active == [True, False, True]  # one stopped early
    assert undisturbed.state["log_multipliers"].abs().max() > 0.01
    for step in (1, 5, 12, 19, 20, 29):  # before, at and after validations, pools, logs and checkpoints
        fleet = stop_at(step, make_fleet(**EVERYTHING))
        with pytest.raises(Interrupted):
            train(fleet, tmp_path / "b", validation, silent(tmp_path / "b.jsonl"))
    resumed = train(make_fleet(**EVERYTHING), tmp_path / "b", validation, silent(tmp_path / "b.jsonl"))
    assert_same_run(resumed, undisturbed)
    assert same(resumed.replica(1, best=True).state_dict(), undisturbed.replica(1, best=True).state_dict())
    assert log_of(tmp_path / "b.jsonl") == log_of(tmp_path / "a.jsonl")
    assert [line["step"] for line in log_of(tmp_path / "a.jsonl")] == [4, 8, 12, 16, 20, 24, 28, 30]


@pytest.mark.parametrize(
    ("name", "arch"),
    [("tnp", ARCH), ("dsvtnp", ARCH), ("tabtnp", ARCH), ("attnnp", BLOCK)],
    ids=["tnp", "dsvtnp", "tabtnp", "attnnp-block"],
)
def test_a_transformer_resumes_where_it_was(tmp_path, name, arch):
    chosen = {"name": name, "arch": arch, "seeds": (1, 2), "num_steps": 12, "precision": "float32"}
    undisturbed = train(make_fleet(**chosen))
    with pytest.raises(Interrupted):
        train(stop_at(5, make_fleet(**chosen)), tmp_path)
    assert_same_run(train(make_fleet(**chosen), tmp_path), undisturbed)


def test_crashes_leave_no_trace(tmp_path):
    undisturbed = train(make_fleet(**EVERYTHING), None, validation, silent(tmp_path / "a.jsonl"))
    for step in (3, 11, 17, 30):
        fleet = crash_at(step, make_fleet(**EVERYTHING))
        with pytest.raises(Crash):
            train(fleet, tmp_path / "b", validation, silent(tmp_path / "b.jsonl"))
    resumed = train(make_fleet(**EVERYTHING), tmp_path / "b", validation, silent(tmp_path / "b.jsonl"))
    assert_same_run(resumed, undisturbed)
    assert log_of(tmp_path / "b.jsonl") == log_of(tmp_path / "a.jsonl")


def test_statistics_of_batch_norm_are_resumed(tmp_path):
    chosen = {"source": images(dtype=torch.float32), "make": make_vgg, "precision": "float32", "num_steps": 8}
    undisturbed = train(make_fleet(seeds=(1, 2), **chosen))
    with pytest.raises(Interrupted):
        train(stop_at(5, make_fleet(seeds=(1, 2), **chosen)), tmp_path)
    assert_same_run(train(make_fleet(seeds=(1, 2), **chosen), tmp_path), undisturbed)


def test_a_buffer_may_have_any_name(tmp_path):
    def make():
        model = make_model("cnp", ARCH)
        for name in ("v", "m", "params"):
            model.register_buffer(name, torch.ones(3))
        return model

    undisturbed = train(make_fleet(seeds=(1, 2), make=make, num_steps=8))
    with pytest.raises(Interrupted):
        train(stop_at(5, make_fleet(seeds=(1, 2), make=make, num_steps=8)), tmp_path)
    assert_same_run(train(make_fleet(seeds=(1, 2), make=make, num_steps=8), tmp_path), undisturbed)


def test_a_restored_fleet_keeps_its_memory(tmp_path):
    fleet = train(make_fleet(seeds=(1, 2), num_steps=3), tmp_path)
    target = make_fleet(seeds=(1, 2), num_steps=3)
    places = {name: value.data_ptr() for name, value in target.state.items()}
    restore(target, checkpoints.load(checkpoints.list_checkpoints(tmp_path)[-1]))
    assert_same_run(target, fleet)
    assert {name: value.data_ptr() for name, value in target.state.items()} == places  # of a captured graph


def test_a_finished_run_is_left_as_it_is(tmp_path):
    log = tmp_path / "log.jsonl"
    done = train(make_fleet(num_steps=5), tmp_path / "run", reporter=silent(log))
    before = log.read_text()
    again = train(stop_at(6, make_fleet(num_steps=5)), tmp_path / "run", reporter=silent(log))
    assert_same_run(again, done)
    assert log.read_text() == before


def test_a_constant_rate_may_be_prolonged(tmp_path):
    chosen = {"precision": "float32", "schedule": Schedule(warmup=3)}
    whole = train(make_fleet(num_steps=12, **chosen))
    train(make_fleet(num_steps=7, **chosen), tmp_path)
    longer = train(make_fleet(num_steps=12, **chosen), tmp_path)
    assert same({"params": longer.state["params"]}, {"params": whole.state["params"]})
    assert longer.num_steps_taken == 12


def test_a_cosine_may_not(tmp_path):
    train(make_fleet(num_steps=3, schedule=Schedule("cosine")), tmp_path)
    with pytest.raises(
        CheckpointError, match=r"step-000000003: of another run: settings.num_steps is 3 there but 5"
    ):
        train(make_fleet(num_steps=5, schedule=Schedule("cosine")), tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": (1, 3)}, r"seeds is \[1, 2\] there but \[1, 3\] here"),
        ({"learning_rate": 0.5}, "settings.learning_rate is 0.01 there but 0.5 here"),
        ({"name": "cnp"}, "model is 'np' there but 'cnp' here"),
        ({"source": curves(max_context=5)}, r"source.context is '\(1, 6\)' there but '\(1, 5\)' here"),
    ],
)
def test_another_run_is_refused(tmp_path, change, message):
    train(make_fleet(**{"name": "np", "seeds": (1, 2), "num_steps": 2}), tmp_path)
    with pytest.raises(CheckpointError, match=message):
        train(make_fleet(**{"name": "np", "seeds": (1, 2), "num_steps": 2} | change), tmp_path)


@pytest.mark.parametrize("folds", [(4,), (3, 5), (5, 4)], ids=["one for all", "the second", "exchanged"])
def test_other_data_of_the_same_size_are_refused(tmp_path, folds):
    before = (3,) if len(folds) == 1 else (3, 4) if folds[0] == 3 else (4, 5)
    chosen = {"name": "np", "seeds": (1, 2), "num_steps": 2}

    def source(seeds):
        tables = [table(seed=seed) for seed in seeds]
        return tables[0] if len(tables) == 1 else tables

    train(make_fleet(source=source(before), **chosen), tmp_path)
    train(make_fleet(source=source(before), **chosen | {"num_steps": 3}), tmp_path)
    with pytest.raises(
        CheckpointError, match=r"of another run: source\.data is '\w{16}' there but '\w{16}' here"
    ):
        train(make_fleet(source=source(folds), **chosen | {"num_steps": 4}), tmp_path)


def test_a_network_of_the_users_own_is_part_of_the_run(tmp_path):
    train(make_fleet(source=images(), make=make_vgg, num_steps=1), tmp_path)
    other = make_fleet(source=images(), arch=make_vgg().arch, num_steps=1)  # the same but for the embedding
    with pytest.raises(CheckpointError, match=r"of another run: parameters\.decoder"):
        train(other, tmp_path)


def test_a_damaged_checkpoint_stops_training_and_the_last_good_one_is_offered(tmp_path):
    train(make_fleet(num_steps=6, checkpoint_every=3), tmp_path)
    (tmp_path / "step-000000006" / "state.safetensors").write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=r"step-000000006: damaged: .*the last good one is .*step-000000003"
    ):
        train(make_fleet(num_steps=6, checkpoint_every=3), tmp_path)
    shutil.rmtree(tmp_path / "step-000000006")
    assert train(make_fleet(num_steps=6, checkpoint_every=3), tmp_path).num_steps_taken == 6


def test_generators_of_another_device_are_refused_before_anything_changes(tmp_path):
    train(make_fleet(num_steps=2), tmp_path)
    found = checkpoints.load(checkpoints.list_checkpoints(tmp_path)[-1])
    foreign = replace(found, generators=["00" * 16], environment={"device": "NVIDIA H200"})
    fleet = make_fleet(num_steps=2)
    before = {name: value.clone() for name, value in fleet.state.items()}
    with pytest.raises(
        CheckpointError, match="written on NVIDIA H200, whose random generators differ from those of cpu"
    ):
        restore(fleet, foreign)
    assert same(fleet.state, before)


def test_states_of_generators_that_are_none_are_refused(tmp_path):
    train(make_fleet(num_steps=2), tmp_path)
    found = checkpoints.load(checkpoints.list_checkpoints(tmp_path)[-1])
    length = len(found.generators[0])
    for text in ("00" * (length // 2), "x" * length, "f" * length):
        with pytest.raises(CheckpointError, match=r"checkpoint of step 2: a random generator has no such"):
            restore(make_fleet(num_steps=2), replace(found, generators=[text] * len(found.generators)))
    with pytest.raises(CheckpointError, match="checkpoint of step 2: it has 0 random generators"):
        restore(make_fleet(num_steps=2), replace(found, generators=[]))


@pytest.mark.parametrize("name", ["params.decoder.first.bias", "active"])
def test_tensors_that_are_not_the_fleets_are_refused_by_name(tmp_path, name):
    train(make_fleet(num_steps=2), tmp_path)
    found = checkpoints.load(checkpoints.list_checkpoints(tmp_path)[-1])
    fleet, good = make_fleet(num_steps=2), found.tensors[name]
    for bad, reason in (
        (None, "is not there"),
        (good[:, None], "has the shape"),
        (good.flatten()[0], r"has the shape \(\), not"),
        (good.to(torch.complex64), f"is of torch.complex64, not of {good.dtype}"),
        (good.to(torch.int8), f"is of torch.int8, not of {good.dtype}"),
    ):
        tensors = {key: value for key, value in found.tensors.items() if key != name}
        tensors |= {} if bad is None else {name: bad}
        with pytest.raises(CheckpointError, match=f"checkpoint of step 2: {name} {reason}"):
            restore(fleet, replace(found, tensors=tensors))
    restore(fleet, found)


def test_checkpoints_come_when_due_and_at_the_end(tmp_path, monkeypatch):
    written = []
    real = checkpoints.save

    def counting(folder, content, keep):
        written.append(content.step)
        return real(folder, content, keep)

    monkeypatch.setattr(checkpoints, "save", counting)
    train(make_fleet(num_steps=8, checkpoint_every=3), tmp_path)
    assert written == [3, 6, 8]
    assert [path.name for path in checkpoints.list_checkpoints(tmp_path)] == [
        "step-000000006",
        "step-000000008",
    ]


def test_a_checkpoint_names_each_parameter(tmp_path):
    fleet = train(make_fleet(seeds=(1, 2), num_steps=2), tmp_path)
    found = checkpoints.load(checkpoints.list_checkpoints(tmp_path)[-1])
    for name, value in fleet.replica(1).named_parameters():
        assert torch.equal(found.tensors[f"params.{name}"][1], value)
    files = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {".json", ".safetensors"}


# --- signals ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_and_saves(tmp_path, number):
    fleet = make_fleet(num_steps=20)
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Interrupted) as caught:
        train(stop_at(5, fleet, number), tmp_path)
    path = tmp_path / "step-000000005"
    assert str(caught.value) == (
        f"stopped by {signal.Signals(number).name} after step 5, saved in {path}; run again to continue from there"
    )
    assert caught.value.signal_number == number
    assert checkpoints.load(path).step == 5
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_without_a_folder_nothing_is_saved():
    with pytest.raises(Interrupted, match=r"after step 2, nothing was saved$"):
        train(stop_at(2, make_fleet(), signal.SIGTERM))


def test_a_thread_may_train_without_handlers():
    done = []
    thread = threading.Thread(target=lambda: done.append(train(make_fleet(num_steps=2)).num_steps_taken))
    thread.start()
    thread.join()
    assert done == [2]


SCRIPT = """
import sys
from pathlib import Path
from rich.console import Console
from small_fleet import make_fleet
from dsvnp.training import Interrupted, Reporter, train
fleet = make_fleet(num_steps=100_000, log_every=1)
try:
    train(fleet, Path(sys.argv[1]), reporter=Reporter("run", 100_000, console=Console(file=sys.stdout, width=200)))
except Interrupted as stop:
    sys.exit(str(stop))
"""


@pytest.mark.xdist_group("processes")
def test_a_process_that_is_told_to_stop_saves_and_says_so(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", SCRIPT, str(tmp_path / "run")],
        env=subprocess_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while "step 3/" not in (line := process.stdout.readline()):
            assert line, process.stderr.read()
        os.kill(process.pid, signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1
    path = checkpoints.list_checkpoints(tmp_path / "run")[-1]
    step = checkpoints.load(path).step
    assert step >= 3
    assert (
        errors.strip()
        == f"stopped by SIGTERM after step {step}, saved in {path}; run again to continue from there"
    )


# --- what is reported ---


def test_going_on_is_said(tmp_path):
    train(make_fleet(num_steps=3), tmp_path)
    reporter = silent()
    train(make_fleet(num_steps=5), tmp_path, reporter=reporter)
    assert said(reporter)[0] == "run: continuing from step 3"


def test_a_changed_environment_is_said(tmp_path, monkeypatch):
    train(make_fleet(num_steps=3), tmp_path)
    threads = torch.get_num_threads()
    reporter = silent()
    torch.set_num_threads(threads + 1)
    try:
        train(make_fleet(num_steps=5), tmp_path, reporter=reporter)
    finally:
        torch.set_num_threads(threads)
    assert said(reporter)[0] == (
        "run: continuing from step 3; equal to an undisturbed run but for rounding, "
        f"since threads {threads} → {threads + 1}"
    )


def test_reports_hold_terms_and_validation_of_each_replica(tmp_path):
    log = tmp_path / "log.jsonl"
    chosen = {"seeds": (1, 2), "num_steps": 5, "log_every": 2, "validate_every": 3}
    reporter = silent(log)
    train(make_fleet(**chosen), validation=lambda fleet: torch.tensor([1.0, 2.0]), reporter=reporter)
    terms = ["step", "log_likelihood", "kl_local", "kl_global"]
    assert [list(line) for line in log_of(log)] == [terms, [*terms, "validation"], [*terms, "validation"]]
    assert log_of(log)[1]["validation"] == [1.0, 2.0]
    assert all(len(line[name]) == 2 for line in log_of(log) for name in terms[1:])
    assert len(said(reporter)) == 3


def nan_in_replica_1(fleet: Fleet) -> None:
    fleet.plan.layout.unflatten(fleet.state["params"])["local_prior.head.linear.bias"][1].fill_(float("nan"))


def test_a_replica_that_broke_is_said_once(tmp_path):
    chosen = {"seeds": (7, 8), "log_every": 2}
    reporter, later = silent(), silent()
    fleet = make_fleet(num_steps=8, **chosen)
    train(at(3, fleet, lambda: nan_in_replica_1(fleet)), tmp_path, reporter=reporter)
    message = "run: replica 1 (seed 8) stopped: kl_local was not finite at step 3; the others go on."
    assert [line for line in said(reporter) if "stopped" in line] == [
        f"{message} A lower learning rate or clip_norm may help"
    ]
    train(make_fleet(num_steps=12, **chosen), tmp_path, reporter=later)
    assert not [line for line in said(later) if "stopped" in line]


def test_a_replica_that_broke_is_a_warning_where_no_progress_is_shown():
    fleet = make_fleet(
        seeds=(7, 8), num_steps=6, log_every=2, precision="float32", learning_rate=(1e-3, 1e30)
    )
    with pytest.warns(RuntimeWarning, match=r"replica 1 \(seed 8\) stopped: .* was not finite") as caught:
        train(fleet)
    assert fleet.active == [True, False]
    assert [warning.filename for warning in caught] == [__file__]  # once, and at the caller


def test_training_ends_when_no_replica_is_on(tmp_path):
    chosen = {"num_steps": 50, "validate_every": 1, "patience": 1, "log_every": 4, "checkpoint_every": 50}
    metric = iter([1.0, 2.0, 3.0, 4.0])
    fleet = train(make_fleet(**chosen), tmp_path, lambda fleet: torch.tensor([next(metric)]))
    assert fleet.num_steps_taken == 4  # it looks when it reports
    assert [path.name for path in checkpoints.list_checkpoints(tmp_path)] == ["step-000000004"]
    again = train(make_fleet(**chosen), tmp_path, lambda fleet: torch.tensor([0.0]))
    assert_same_run(again, fleet)


def test_validation_comes_when_asked_for():
    seen = []

    def note(fleet):
        seen.append(fleet.num_steps_taken)
        return torch.tensor([1.0])

    train(make_fleet(num_steps=7, validate_every=3), validation=note)
    assert seen == [3, 6]
    train(make_fleet(num_steps=7), validation=note)
    assert seen == [3, 6]


def test_validations_that_are_asked_for_must_be_there():
    with pytest.raises(ValueError, match="the settings ask for validations but there is none"):
        train(make_fleet(validate_every=3))


@pytest.mark.parametrize(
    ("precision", "expected"), [("tf32", ("high", True)), ("float32", ("highest", False))]
)
def test_tf32_is_used_while_training_if_asked_for_and_only_then(precision, expected):
    during = []

    def state():
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    before = state()
    fleet = make_fleet(num_steps=1, precision=precision)
    train(at(1, fleet, lambda: during.append(state())))
    assert during == [expected]
    assert state() == before


def test_saving_by_hand_and_restoring_goes_on_from_there(tmp_path):
    fleet = make_fleet(seeds=(1, 2), precision="float32")
    for _ in range(3):
        fleet.step()
    path = save(fleet, tmp_path)
    fleet.step()
    other = make_fleet(seeds=(1, 2), precision="float32")
    restore(other, checkpoints.load(path, other.describe()))
    other.step()
    assert_same_run(other, fleet)


def test_a_full_disk_ends_a_training_only_at_its_last_checkpoint(tmp_path, monkeypatch):
    write, calls = checkpoints.save, []

    def full(folder, content, keep):
        calls.append(content.step)
        if content.step in refused:
            raise OSError(28, "No space left on device", str(folder))
        return write(folder, content, keep)

    monkeypatch.setattr(checkpoints, "save", full)
    refused = {2}
    with pytest.warns(
        RuntimeWarning, match=r"no checkpoint after step 2: .*No space left.*; training continues"
    ):
        train(make_fleet(num_steps=4, checkpoint_every=2), tmp_path)
    assert calls == [2, 4]
    assert [path.name for path in checkpoints.list_checkpoints(tmp_path)] == ["step-000000004"]
    refused = {6}
    with pytest.raises(OSError, match="No space left on device"):
        train(make_fleet(num_steps=6), tmp_path)
