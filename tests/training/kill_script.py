"""Kill a training process again and again, and see what it leaves; prints what happened as JSON.

Run as `python kill_script.py FOLDER`. Torch is imported once, here; each training process is a fork.
"""

import io
import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import torch
from rich.console import Console
from small_fleet import curves, make_fleet, run_steps

from dsvnp.training import Fleet, Reporter, train
from dsvnp.training import checkpoint as checkpoints

NUM_STEPS, NUM_KILLS = 150, 20


def validation(fleet: Fleet) -> torch.Tensor:
    return fleet.state["params"].square().sum(1)


def train_in(folder: Path) -> None:
    """Train from the newest checkpoint to the end, saving every step or every other."""
    fleet = make_fleet(
        seeds=(1, 2),
        source=curves(torch.float32, refresh_every=16),
        precision="float32",
        num_steps=NUM_STEPS,
        checkpoint_every=1 + len(checkpoints.list_checkpoints(folder)) % 2,
        validate_every=5,
        log_every=3,
    )
    reporter = Reporter("run", NUM_STEPS, log=folder / "log.jsonl", console=Console(file=io.StringIO()))
    train(fleet, folder, validation, reporter)


def fork(folder: Path) -> int:
    """Start a process that trains; returns its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        train_in(folder)
        code = 0
    finally:
        os._exit(code)


def in_flight(folder: Path) -> set[tuple[str, int]]:
    """Checkpoints that are being written or removed, or were when a process died."""
    found = set()
    for path in [*folder.glob(".writing-step-*"), *folder.glob(".removing-step-*")]:
        with suppress(FileNotFoundError):  # finished in this moment
            found.add((path.name, path.stat().st_mtime_ns))
    return found


def wait_for_a_write(folder: Path, before: set[tuple[str, int]]) -> None:
    deadline = time.monotonic() + 20
    while not in_flight(folder) - before and time.monotonic() < deadline:
        time.sleep(0.0005)  # a write takes a few milliseconds


def kill(folder: Path, delay: float, moment: str) -> tuple[str, bool]:
    """Start training and kill it; says how it ended, and whether that was inside a write.

    Args:
        folder: where it trains.
        delay: seconds to let it run.
        moment: count the delay from the "start" of the process, or from its first save, while it is "running"; or
            kill it in the "write" that comes next then.
    """
    before = in_flight(folder)
    child = fork(folder)
    if moment != "start":
        wait_for_a_write(folder, before)
    time.sleep(delay)
    if moment == "write":
        wait_for_a_write(folder, before)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    end = "killed" if os.WIFSIGNALED(status) else f"ended with {os.WEXITSTATUS(status)}"
    return end, bool(in_flight(folder) - before)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    run_steps(make_fleet(seeds=(1, 2)), 1)  # imports what a first step imports, once for all
    start = time.perf_counter()
    status = os.waitpid(fork(folder / "undisturbed"), 0)[1]
    if status:
        sys.exit("the undisturbed run failed")
    lasted = time.perf_counter() - start
    chance = random.Random()
    broken, ends, inside, steps = folder / "broken", [], 0, []
    for number in range(NUM_KILLS):
        # On average less than a share of the whole: all kills together fall short of the end.
        moment = ("start", "running", "write", "running")[number % 4]
        end, written = kill(broken, chance.uniform(0, lasted / NUM_KILLS), moment)
        ends.append(end)
        inside += written
        found = [checkpoints.load(path) for path in checkpoints.list_checkpoints(broken)]  # each is readable
        steps.append(max((checkpoint.step for checkpoint in found), default=0))
    status = os.waitpid(fork(broken), 0)[1]
    print(
        json.dumps(
            {"ends": ends, "inside_a_write": inside, "steps": steps, "last": status, "seconds": lasted}
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
