"""Mutation testing: `python -m tests.faults.mutants --number 300 --minutes 30 --report FILE`.

A mutant is one file of the package with one small mistake in it: a comparison, an operator, a constant or a condition
is another one. Its tests should fail. Those that pass show a line that no test guards.

Mutants are sampled by a seed. Each runs in a forked process, which has imported torch and the like already but nothing
of dsvnp, and gets the mutant in place of the file.
"""

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.machinery
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dsvnp"
TESTS = {
    "objectives.py": ["tests/test_objectives.py", "tests/training/test_objective_kinds.py"],
    "predictive": ["tests/test_predictive.py", "tests/predictive"],
    "aggregators.py": ["tests/test_aggregators.py"],
    "likelihoods/numbers.py": ["tests/test_likelihoods.py"],
    "training/checkpoint.py": ["tests/training/test_checkpoint.py"],
    "tabular/saving.py": ["tests/tabular/test_saving.py", "tests/tabular/test_saving_faults.py"],
    "tabular/content.py": ["tests/tabular/test_saving.py", "tests/tabular/test_saving_faults.py"],
    "tabular/checking.py": ["tests/tabular/test_saving.py", "tests/tabular/test_saving_faults.py"],
}
HANG = 600  # seconds after which a mutant counts as noticed
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


def is_noticed(mutant: Mutant, tests: list[str]) -> bool:
    """Run the tests of a mutant in a process of its own; True if one fails."""
    child = os.fork()
    if not child:
        os.setpgrp()
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.meta_path.insert(0, _Instead(mutant))
        code = 1
        try:
            import pytest

            code = pytest.main(["-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests])
        finally:
            os._exit(int(code))
    end = time.monotonic() + HANG
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def main() -> int:
    """Try mutants until there are enough or the time is over, and write down the survivors."""
    parser = argparse.ArgumentParser("python -m tests.faults.mutants", description=__doc__)
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    import pandas  # noqa: F401
    import torch

    torch.set_num_threads(1)
    os.chdir(ROOT)
    found = [
        (mutant, tests)
        for name, tests in TESTS.items()
        for path in sorted([SOURCE / name] if name.endswith(".py") else (SOURCE / name).glob("*.py"))
        for mutant in mutants_of(path)
    ]
    random.Random(given.seed).shuffle(found)
    end, tried, survivors = time.monotonic() + 60 * given.minutes, 0, []
    sound: set[str] = set()
    for mutant, tests in found[: given.number]:
        if time.monotonic() > end:
            break
        if tests[0] not in sound:  # tests that fail anyway would notice every mutant
            whole = mutant._replace(source=mutant.path.read_text(encoding="utf-8"))
            if is_noticed(whole, tests):
                raise RuntimeError(f"{tests} fail without a mutant")
            sound.add(tests[0])
        tried += 1
        if not is_noticed(mutant, tests):
            place = f"{mutant.path.relative_to(SOURCE).as_posix()}:{mutant.line}"
            survivors.append({"place": place, "before": mutant.before[:200], "after": mutant.after[:200]})
            print(f"survived: {place}: {mutant.before[:100]!r} -> {mutant.after[:100]!r}", flush=True)
        if given.report is not None:
            report = {"seed": given.seed, "of": len(found), "tried": tried, "survivors": survivors}
            given.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{tried} of {len(found)} mutants, {len(survivors)} survived")
    return 0


if __name__ == "__main__":
    sys.exit(main())
