"""A long run in several processes: each takes its share of the numbered attacks and writes a line per attack.

The run itself only reads these lines. A process that writes none for too long is killed, and one that dies is noticed;
the attack at which it was is then what fell, and another process continues with the next one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import selectors
import signal
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

Attack = Callable[
    [int], tuple[str, str]
]  # its number -> its name, and what is wrong after it, "" for nothing
MOST_BYTES = 2**30
UNPREPARED = 4  # exit code


class Outcome(NamedTuple):
    """What became of one attack; the most memory that its process has taken so far, in bytes."""

    number: int
    name: str
    wrong: str
    memory: int = 0


def options(description: str | None, minutes: float = 30) -> argparse.ArgumentParser:
    """The options that all long runs have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--minutes", type=float, default=minutes, help="stop then, whatever is left")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--report", type=Path, help="file for a report in JSON")
    return parser


def summary(outcomes: Iterator[Outcome], given: argparse.Namespace) -> dict[str, Any]:
    """Count attacks by name, print what falls, and put both into a report."""
    start, made, fallen, memory = time.monotonic(), Counter[str](), [], 0
    for outcome in outcomes:
        made[outcome.name] += 1
        memory = max(memory, outcome.memory)
        if outcome.wrong:
            fallen.append({"number": outcome.number, "attack": outcome.name, "wrong": outcome.wrong})
            print(f"{outcome.number}, {outcome.name}: {outcome.wrong}", flush=True)
    minutes = round((time.monotonic() - start) / 60, 1)
    print(f"{made.total()} attacks in {minutes} minutes, {len(fallen)} fell, {memory / 2**30:.2f} GB at most")
    report: dict[str, Any] = {"seed": given.seed, "jobs": given.jobs, "minutes": minutes}
    report |= {
        "peak_gb": round(memory / 2**30, 2),
        "made": made.total(),
        "attacks": dict(sorted(made.items())),
    }
    return {**report, "fallen": fallen}


def write(report: dict[str, Any], path: Path | None) -> None:
    """Write a report, if it is asked for."""
    if path is not None:
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def spread(
    prepare: Callable[[], Attack], numbers: Sequence[int], jobs: int, end: float, patience: float = 60
) -> Iterator[Outcome]:
    """Make the attacks with these numbers in several processes until a time; yields what became of each.

    Args:
        prepare: called once in each process; returns the attack.
        numbers: of the attacks; process j takes every `jobs`-th, from the j-th.
        jobs: number of processes.
        end: by `time.monotonic`; attacks under way are then given up.
        patience: seconds without a line after which a process is killed.
    """
    shares = [_Share(prepare, deque(numbers[job::jobs])) for job in range(min(jobs, len(numbers)))]
    waiting = selectors.DefaultSelector()
    try:
        for share in shares:
            share.begin(waiting)
        while waiting.get_map() and time.monotonic() < end:
            for key, _ in waiting.select(timeout=0.5):
                yield from key.data.read(waiting)
            for share in shares:
                if share.child and time.monotonic() - share.heard > patience:
                    yield from share.stop(waiting, f"no answer in {patience:g} s")
    finally:
        for share in shares:
            share.kill()


class _Share:
    """One process after another, for the attacks that are left of a share."""

    def __init__(self, prepare: Callable[[], Attack], left: deque[int]) -> None:
        self.prepare, self.left = prepare, left
        self.child, self.pipe, self.rest, self.heard = 0, -1, b"", 0.0

    def begin(self, waiting: selectors.BaseSelector) -> None:
        self.pipe, into = os.pipe()
        self.child, self.rest, self.heard = os.fork(), b"", time.monotonic()
        if not self.child:
            os.close(self.pipe)
            _work(self.prepare, list(self.left), into)
        with suppress(OSError):  # the child does so as well, and may be the first
            os.setpgid(self.child, self.child)
        os.close(into)
        waiting.register(self.pipe, selectors.EVENT_READ, self)

    def read(self, waiting: selectors.BaseSelector) -> Iterator[Outcome]:
        data = os.read(self.pipe, 2**16)
        self.heard = time.monotonic()
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.left.popleft()
            yield Outcome(*json.loads(line))
        if not data:
            yield from self.stop(waiting, "")

    def stop(self, waiting: selectors.BaseSelector, why: str) -> Iterator[Outcome]:
        """End the process, and begin another where attacks are left."""
        waiting.unregister(self.pipe)
        os.close(self.pipe)
        code = self.kill(ends_itself=not why)
        if code == UNPREPARED:
            raise RuntimeError("an attack could not be prepared; the reason is printed above")
        if why or code:
            yield Outcome(self.left.popleft(), "the process", why or f"the process ended with {code}")
        if self.left:
            self.begin(waiting)

    def kill(self, ends_itself: bool = False) -> int:
        if not self.child:
            return 0
        child, self.child = self.child, 0
        if not ends_itself:
            os.killpg(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _work(prepare: Callable[[], Attack], numbers: list[int], into: int) -> None:
    """Make attacks and write a line about each; a process that has taken too much memory is followed by another."""
    os.setpgrp()
    code = UNPREPARED
    try:
        attack = prepare()
        code = 3
        for number in numbers:
            name, wrong = attack(number)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            if memory > MOST_BYTES and not wrong:
                wrong = f"{memory / 2**30:.2f} GB of memory"
            os.write(into, json.dumps([number, name, wrong[:500], memory]).encode() + b"\n")
            if memory > MOST_BYTES:
                break
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
