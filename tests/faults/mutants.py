"""Mutation testing: `python -m tests.faults.mutants --count 300 --jobs 6 --report FILE`.

A mutant is one file of the package with one small mistake in it: a comparison, an operator, a constant or a condition
is another one. Its tests should fail. Those that pass show a line that no test guards.

Mutants are sampled by a seed. Each runs in a forked process, which has imported torch and the like already but nothing
of dsvnp, and gets the mutant in place of the file.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.faults import shares
from tests.faults.equivalents import reason

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dsvnp"
PANEL = "tests/tabular/test_panel.py::test_a_folder_names_the_network_and_refuses_another"
TESTS = {  # patterns of files or folders, and the tests that mirror them, the quickest first
    "objectives*": ["tests/test_objectives.py", "tests/test_losses.py"],
    "predictive*": ["tests/test_predictive.py", "tests/predictive"],
    "aggregators*": ["tests/test_aggregators.py"],
    "likelihoods*": ["tests/test_likelihoods.py"],
    "training/checkpoint*": ["tests/training/test_checkpoint.py"],
    "tabular/saving*": ["tests/tabular/test_saving_faults.py", "tests/tabular/test_saving.py"],
    "tabular/content*": ["tests/tabular/test_saving_faults.py", "tests/tabular/test_saving.py", PANEL],
    "tabular/checking*": ["tests/tabular/test_checking.py", "tests/tabular/test_saving_faults.py"],
}
# What tests import besides dsvnp: imported once, for all mutants.
OTHERS = ["pytest", "pandas", "scipy.stats", "sklearn.linear_model", "rich.console", "typer", "narwhals"]
OTHERS += ["safetensors.torch", "torch.distributions", "torch.func", "torch.utils._python_dispatch"]
PYTEST = ["-q", "-x", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:xdist"]
# A mutant whose tests take so long counts as noticed: seconds of a processor, and by the clock of a busy machine.
HANG, HANG_BY_CLOCK = 120, 900
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    **{
        ast.Lt: ast.LtE,
        ast.LtE: ast.Lt,
        ast.Gt: ast.GtE,
        ast.GtE: ast.Gt,
        ast.Eq: ast.NotEq,
        ast.NotEq: ast.Eq,
    },
    **{
        ast.Is: ast.IsNot,
        ast.IsNot: ast.Is,
        ast.In: ast.NotIn,
        ast.NotIn: ast.In,
        ast.And: ast.Or,
        ast.Or: ast.And,
    },
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
}


class Mutant(NamedTuple):
    """A file with one mistake."""

    path: Path
    line: int
    before: str
    after: str
    source: str


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    text = path.read_text(encoding="utf-8")
    for index in range(sum(1 for _ in _places(ast.parse(text)))):
        tree = ast.parse(text)
        node = list(_places(tree))[index]
        line, before = node.lineno, ast.unparse(node)
        _mutate(node)
        yield Mutant(path, line, before, ast.unparse(node), ast.unparse(tree))


def _places(tree: ast.Module) -> Iterator[ast.AST]:
    """Where a mistake can be made: not in annotations, texts or the messages of errors."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        parts += [node] if isinstance(node, ast.Raise | ast.JoinedStr | ast.ImportFrom | ast.Import) else []
        left_out |= {id(inner) for part in parts if part is not None for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        swapped = isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OPERATORS
        compared = isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS
        number = isinstance(node, ast.Constant) and type(node.value) in (int, float, bool)
        if swapped or compared or number or isinstance(node, ast.If | ast.IfExp):
            yield node


def _mutate(node: ast.AST) -> None:
    if isinstance(node, ast.BinOp | ast.BoolOp):
        node.op = OPERATORS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Compare):
        node.ops[0] = OPERATORS[type(node.ops[0])]()  # type: ignore[assignment]
    elif isinstance(node, ast.If | ast.IfExp):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Constant):
        node.value = (not node.value) if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]


class _Instead(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Imports one module from another source."""

    def __init__(self, mutant: Mutant) -> None:
        name = ".".join(mutant.path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        )
        super().__init__(name, str(mutant.path))
        self.mutant = mutant

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.name:
            return None
        return importlib.machinery.ModuleSpec(
            fullname, self, origin=self.path, is_package=self.is_package(fullname)
        )

    def get_code(self, fullname):
        return compile(self.mutant.source, self.path, "exec", dont_inherit=True)


def is_noticed(mutant: Mutant, tests: list[str], folder: Path) -> bool:
    """Run the tests of a mutant in a process of its own; True if one fails, or if they take too long."""
    child = os.fork()
    if not child:
        os.setpgrp()
        resource.setrlimit(resource.RLIMIT_CPU, (HANG, HANG))
        signal.alarm(2 * HANG_BY_CLOCK)  # whatever becomes of the process that waits
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.meta_path.insert(0, _Instead(mutant))
        code = 1
        try:
            import pytest

            code = pytest.main([*PYTEST, "--basetemp", str(folder / "tests"), *tests])
        finally:
            os._exit(int(code))
    end = time.monotonic() + HANG_BY_CLOCK
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def all_mutants() -> list[tuple[Mutant, list[str]]]:
    """Every mutant of every module that is tried, with its tests."""
    out = []
    for pattern, tests in TESTS.items():
        found = list(SOURCE.glob(pattern))
        files = {path for place in found for path in ([place] if place.is_file() else place.rglob("*.py"))}
        out += [(mutant, tests) for path in sorted(files) for mutant in mutants_of(path)]
    return out


def prepare(root: Path, sampled: list[tuple[Mutant, list[str]]]) -> shares.Attack:
    """What one process does: it tries mutants in a folder of its own."""
    for name in OTHERS:
        with suppress(ImportError):
            importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=root))

    def numbered(number: int) -> tuple[str, str]:
        mutant, tests = sampled[number]
        place = mutant.path.relative_to(SOURCE).as_posix()
        if is_noticed(mutant, tests, folder):
            return place, ""
        return place, f"line {mutant.line}: {mutant.before[:150]!r} -> {mutant.after[:150]!r}"

    return numbered


def _explained(mutant: Mutant) -> dict[str, str]:
    """A survivor: where, what, and why nobody could have noticed, if that is known."""
    file = mutant.path.relative_to(SOURCE).as_posix()
    line = mutant.path.read_text(encoding="utf-8").splitlines()[mutant.line - 1]
    known = reason(file, line, mutant.before)
    return {
        "place": f"{file}:{mutant.line}",
        "before": mutant.before[:200],
        "after": mutant.after[:200],
        "reason": known,
    }


def main() -> int:
    """Try mutants until there are enough or the time is over, and write down the survivors."""
    parser = shares.options(__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--only", help="mutants of this file alone, by its path below src/dsvnp")
    given = parser.parse_args()
    os.chdir(ROOT)
    end = time.monotonic() + 60 * given.minutes
    found = all_mutants()
    random.Random(given.seed).shuffle(found)
    chosen = [each for each in found if given.only in (None, each[0].path.relative_to(SOURCE).as_posix())]
    sampled = chosen[: given.count]
    # First each module as it is: tests that fail anyway would notice every mutant.
    whole = {tests[0]: (mutant, tests) for mutant, tests in sampled}.values()
    sound = [(each._replace(source=each.path.read_text(encoding="utf-8")), tests) for each, tests in whole]
    with tempfile.TemporaryDirectory() as folder:

        def tried(some: list[tuple[Mutant, list[str]]]) -> Iterator[shares.Outcome]:
            begin = partial(prepare, Path(folder), some)
            return shares.spread(begin, range(len(some)), given.jobs, end, patience=2 * HANG_BY_CLOCK)

        failing = [sound[each.number][1] for each in tried(sound) if not each.wrong]
        if failing:
            raise RuntimeError(f"{failing} fail without a mutant")
        report = shares.summary(tried(sampled), given)
    survivors = [_explained(sampled[each["number"]][0]) for each in report.pop("fallen")]
    killed = round(1 - len(survivors) / report["made"], 3) if report["made"] else None
    shares.write({**report, "of": len(found), "killed": killed, "survivors": survivors}, given.report)
    print(f"{report['made'] - len(survivors)} of {report['made']} mutants were noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
