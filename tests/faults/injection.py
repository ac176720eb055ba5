"""Faults in the file layer: the n-th operation of `dsvnp.files` fails, or the process ends there.

kill      SIGKILL before the operation; of a write, half of the data is on disk
full      the disk is full: the operation raises, after half of a write
signal    SIGTERM before the operation, which the process may handle
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dsvnp import files

KINDS = ("kill", "full", "signal")
GROWING = ("make_folder", "create", "write", "flush")  # what a full disk refuses; it renames and removes


@contextmanager
def fault(kind: str, number: int) -> Iterator[list[str]]:
    """Let the operation with that number (from 0) fail; yields a list of the operations so far."""
    real = {name: getattr(files, name) for name in files.OPERATIONS}
    done: list[str] = []

    def watched(name: str) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            done.append(name)
            if len(done) - 1 == number and kind in KINDS:
                _strike(kind, name, real[name], args)
            return real[name](*args)

        return call

    for name in real:
        setattr(files, name, watched(name))
    try:
        yield done
    finally:
        for name, function in real.items():
            setattr(files, name, function)


def _strike(kind: str, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    if kind == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
        return
    if name == "write":
        descriptor, data = args
        function(descriptor, data[: len(data) // 2])
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if name in GROWING:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def count(work: Callable[[], object]) -> int:
    """How many operations some work takes."""
    with fault("none", -1) as done:
        work()
    return len(done)


def in_child(work: Callable[[], object], number: int | None = None, after: float = 0.0) -> int:
    """Do some work in a process of its own; returns its exit code, negative for the signal that ended it.

    0 means that it was done, 1 that it raised an OSError or was interrupted in one line, 2 anything else.

    Args:
        work: what to do.
        number: a signal to send meanwhile.
        after: seconds to wait before.
    """
    child = os.fork()
    if child:
        if number is not None:
            time.sleep(after)
            os.kill(child, number)  # it has not been waited for: nobody else has its number
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 2
    try:
        code = _outcome(work)
    finally:
        os._exit(code)


def _outcome(work: Callable[[], object]) -> int:
    from dsvnp.training import Interrupted

    try:
        work()
    except (OSError, Interrupted) as error:
        return 1 if "\n" not in str(error) else 2
    except KeyboardInterrupt:
        return 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 2
    return 0
