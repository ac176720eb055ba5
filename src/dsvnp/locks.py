"""One process per output folder.

The lock belongs to the process: the system takes it back when the process ends, however it ends, and none is ever
stale. The file `.lock` only names the holder.
"""

import errno
import json
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import ModuleType

try:
    fcntl: ModuleType | None = import_module("fcntl")
except ImportError:  # Windows
    fcntl = None

NAME = ".lock"
LOOK_AGAIN = 0.2  # seconds
LACKING = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class FolderInUseError(OSError):
    """Another process writes into the folder; the message says which."""


@contextmanager
def folder_lock(folder: Path, wait: bool = False, say: Callable[[str], object] = print) -> Iterator[None]:
    """Hold a folder for this process and this caller alone; it is made if it is not there.

    Where another process holds it, `FolderInUseError` says so, or with `wait` this one says that it waits, and does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = _take(folder, wait, say)
    try:
        yield
    finally:
        if descriptor is not None:
            (folder / NAME).unlink(missing_ok=True)  # while it is held: whoever waits opens a new one
            os.close(descriptor)


def _take(folder: Path, wait: bool, say: Callable[[str], object]) -> int | None:
    """Open and lock the file; None where the system has no locks, which a warning says."""
    announced = False
    while True:
        descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            found = _try(descriptor, folder)
        except BaseException:
            os.close(descriptor)
            raise
        if found == "mine":
            _sign(descriptor)
            return descriptor
        holder = _holder(descriptor)
        os.close(descriptor)
        if found == "none":
            warnings.warn(
                f"{folder} lies where files cannot be locked; run one process at a time there", stacklevel=4
            )
            return None
        if found == "other":
            if not wait:
                raise FolderInUseError(
                    f"{folder} is in use by {holder}; wait for it (--wait does), or choose another --out"
                )
            if not announced:
                say(f"{folder} is in use by {holder}; waiting")
            announced = True
            time.sleep(LOOK_AGAIN)


def _try(descriptor: int, folder: Path) -> str:
    """Lock an open file: "mine", held by an "other" one, "gone" with its last holder; "none" if there are none."""
    if fcntl is None:
        return "none"
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "other"
    except OSError as error:
        if error.errno in LACKING:
            return "none"
        raise
    try:
        return "mine" if os.path.samestat(os.fstat(descriptor), os.lstat(folder / NAME)) else "gone"
    except FileNotFoundError:
        return "gone"


def _sign(descriptor: int) -> None:
    """Write down who holds it."""
    who = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200],
    }
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(who).encode(), 0)


def _holder(descriptor: int) -> str:
    """Who holds it, in words; another process may be about to sign."""
    try:
        who = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {int(who['pid'])} on {who['host']!s:.100} since {who['since']!s:.40}"
    except (ValueError, TypeError, KeyError):
        return "another process"
