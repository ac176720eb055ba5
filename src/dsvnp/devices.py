"""Devices: where to compute, by the name a user types, and with how many threads."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch

# cells of a table, or points of a curve, for which a second thread costs more than it gains
FEW_TOKENS = 1000

_lock = threading.Lock()
# how many are inside, and threads before the first of them
_one_thread: dict[str, Any] = {"inside": 0, "before": 0}
_here = threading.local()  # how many of those are in this thread


# The threads of torch do not live on in a process that was forked, and whoever waits for them waits for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def pick_device(name: str) -> torch.device:
    """The device a user asks for; "auto" is a GPU where there is one."""
    if known_device(name) == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError("no CUDA device can be used here; choose the device cpu")
    return torch.device(name)


def known_device(name: str) -> str:
    """The name of a device, after a check that it exists."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", name):
        raise ValueError(f"unknown device {name!r}; choose auto, cpu, cuda or cuda:1, cuda:2, …")
    count = torch.cuda.device_count()  # without any, `pick_device` raises the error
    if count and int(name.partition(":")[2] or 0) >= count:
        raise ValueError(f"there is no device {name}; the last is cuda:{count - 1}")
    return name


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with a single thread of torch and of NumPy's linear algebra inside.

    Steps of small networks gain nothing from a second thread, and lose much on a busy machine: threads that wait for
    each other spin. Several callers may be inside at once; each new thread inherits torch's current number of threads,
    and only the first caller knows the number from before.
    """
    with _lock:
        if not _one_thread["inside"]:
            _one_thread["before"] = torch.get_num_threads()
            _one_thread["blas"] = _blas().limit(limits=1)  # of the whole process, unlike torch's threads
        _one_thread["inside"] += 1
        torch.set_num_threads(1)
    _here.inside = getattr(_here, "inside", 0) + 1
    try:
        yield
    finally:
        _here.inside -= 1
        with _lock:
            _one_thread["inside"] -= 1
            if not _one_thread["inside"]:
                _one_thread["blas"].restore_original_limits()
            if not _here.inside:  # not while a caller of this thread's is still inside
                torch.set_num_threads(_one_thread["before"])


def threads_for(tokens: int) -> AbstractContextManager[None]:
    """One thread for so few tokens that a second would wait more than it works, or as many as there are."""
    return one_thread() if tokens <= FEW_TOKENS else nullcontext()


@cache
def _blas() -> Any:
    """The threads of NumPy's and SciPy's linear algebra."""
    import scipy.linalg  # noqa: F401  # it has a library of its own, which must be there to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
