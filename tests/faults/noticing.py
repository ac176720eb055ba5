"""Whether tests notice a mutant, in a forked process.

`quickly` is for a process in which the tests have run once: it gives the changed function its new code, and runs
the tests that reach the changed line. What they do not notice is for `surely`: a process that imports the mutant in
place of the file, and runs all of its tests. Constants of a module, fixtures and other processes count there.
"""

from __future__ import annotations

import gc
import importlib.abc
import importlib.machinery
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

PYTEST = ["-q", "-x", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:xdist"]
# A mutant whose tests take so long counts as noticed: seconds of a processor, and by the clock of a busy machine.
HANG, HANG_BY_CLOCK = 60, 900
PATIENCE = 2 * HANG_BY_CLOCK


class Watch:
    """A plugin of pytest that follows each test through the lines of some files."""

    def __init__(self, files: set[str]) -> None:
        self.files, self.seconds = files, Counter[str]()
        self.lines: dict[str, set[tuple[str, int]]] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        here = self.lines.setdefault(nodeid, set())

        def line(frame: Any, event: str = "", _: object = None) -> Any:
            here.add((frame.f_code.co_filename, frame.f_lineno))
            return line

        sys.settrace(lambda frame, *_: line(frame) if frame.f_code.co_filename in self.files else None)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_runtest_logfinish(self) -> None:
        sys.settrace(None)

    def run(self, tests: list[str], folder: Path) -> None:
        """Run tests in this process: what they import and cache serves all that follow."""
        if _silently(lambda: _pytest(tests, folder, [self])):
            raise RuntimeError(f"{tests} fail without a mutant")

    def reached(self, file: Path, line: int) -> list[str]:
        """The tests that run a line, the quickest first."""
        found = [test for test, lines in self.lines.items() if (str(file), line) in lines]
        return sorted(found, key=lambda test: self.seconds[test])


def quickly(file: Path, code: CodeType, tests: list[str], folder: Path) -> bool:
    """Whether one of some tests notices other code in the functions of a file that was imported."""

    def run() -> int:
        exchange(file, code)
        return _pytest(tests, folder)

    return bool(tests) and _ends_badly(run)


def surely(name: str, file: Path, code: CodeType, tests: list[str], folder: Path) -> bool:
    """Whether tests notice other code of a module that was not imported yet."""

    def run() -> int:
        sys.meta_path.insert(0, _Instead(name, str(file), code))
        return _pytest(tests, folder)

    return _ends_badly(run)


def exchange(file: Path, code: CodeType) -> None:
    """Give every function that was made from a file the code that it has in a changed file of the same lines."""
    names = Counter((each.co_qualname, each.co_firstlineno) for each in _inner(code))
    new = {key: each for each in _inner(code) if names[key := (each.co_qualname, each.co_firstlineno)] == 1}
    for made in gc.get_objects():
        if isinstance(made, FunctionType) and made.__code__.co_filename == str(file):
            old = made.__code__
            other = new.get((old.co_qualname, old.co_firstlineno))
            if other is not None and other.co_freevars == old.co_freevars:
                made.__code__ = other


def _inner(code: CodeType) -> Iterator[CodeType]:
    """The code of all functions in some code."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _inner(each)


class _Instead(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Imports one module from other code."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self.code = code

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.name:
            return None
        package = self.is_package(fullname)
        return importlib.machinery.ModuleSpec(fullname, self, origin=self.path, is_package=package)

    def get_code(self, fullname):
        return self.code


def _pytest(tests: list[str], folder: Path, plugins: list[object] | None = None) -> int:
    import pytest

    return int(pytest.main([*PYTEST, "--basetemp", str(folder / "tests"), *tests], plugins))


def _silently(work: Callable[[], int]) -> int:
    """Do some work whose words nobody reads."""
    kept = [os.dup(1), os.dup(2)]
    quiet = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in (1, 2):
            os.dup2(quiet, number)
        return work()
    finally:
        sys.stdout.flush()
        for number, before in zip((1, 2), kept, strict=True):
            os.dup2(before, number)
            os.close(before)
        os.close(quiet)


def _ends_badly(work: Callable[[], int]) -> bool:
    """Do some work in a process of its own; True if it returns anything but 0, or takes too long."""
    child = os.fork()
    if not child:
        os.setpgrp()
        resource.setrlimit(resource.RLIMIT_CPU, (HANG, HANG))
        signal.alarm(PATIENCE)  # whatever becomes of the process that waits
        code = 1
        try:
            code = _silently(work)
        finally:
            os._exit(code)
    end = time.monotonic() + HANG_BY_CLOCK
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True
