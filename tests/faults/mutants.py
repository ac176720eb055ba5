"""Mutation testing: `python -m tests.faults.mutants --count 300 --jobs 6 --report FILE`.

A mutant is one file of the package with one small mistake in it: a comparison, an operator, a constant or a condition
is another one. Its tests should fail. Those that pass show a line that no test guards.

Mutants are sampled by a seed. Each is first tried with the tests that reach its line, and those that survive with all
tests of its file (`noticing.py`).
"""

from __future__ import annotations

import ast
import importlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from tests.faults import noticing, shares
from tests.faults.equivalents import reason

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "dsvnp"
SAVED = "tests/tabular/saved/test_saving"
PANEL = "tests/tabular/panel/test_panel.py::test_a_folder_names_the_network_and_refuses_another"
TESTS = {  # patterns of files or folders, and the tests that mirror them, the quickest first
    "objectives*": ["tests/test_objectives.py", "tests/test_losses.py"],
    "predictive*": ["tests/test_predictive.py", "tests/predictive"],
    "aggregators*": ["tests/test_aggregators.py"],
    "likelihoods*": ["tests/test_likelihoods.py"],
    "training/checkpoint*": ["tests/training/test_checkpoint.py"],
    "tabular/saved/saving*": [f"{SAVED}_faults.py", f"{SAVED}.py"],
    "tabular/saved/content*": [f"{SAVED}_faults.py", f"{SAVED}.py", PANEL],
    "tabular/saved/checking*": ["tests/tabular/saved/test_checking.py", f"{SAVED}_faults.py"],
}
# What tests import besides dsvnp: imported once, for all mutants.
OTHERS = ["pytest", "pandas", "scipy.stats", "sklearn.linear_model", "rich.console", "typer", "narwhals"]
OTHERS += ["safetensors.torch", "torch.distributions", "torch.func", "torch.utils._python_dispatch"]
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
    """A file with one mistake: where in its syntax tree, and what is there before and after."""

    path: Path
    index: int
    line: int
    before: str
    after: str

    def code(self) -> CodeType:
        """The file with the mistake, on the lines that it had."""
        tree, node = _place(self.path, self.index)
        _mutate(node)
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)

    def file(self) -> str:
        return self.path.relative_to(SOURCE).as_posix()

    def module(self) -> str:
        return ".".join(self.path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file."""
    for index, node in enumerate(_places(ast.parse(path.read_text(encoding="utf-8")))):
        before = ast.unparse(node)
        yield Mutant(path, index, node.lineno, before, _after(path, index))


def _after(path: Path, index: int) -> str:
    _, node = _place(path, index)
    _mutate(node)
    return ast.unparse(node)


def _place(path: Path, index: int) -> tuple[ast.Module, ast.AST]:
    """The syntax tree of a file, and one of its places."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tree, list(_places(tree))[index]


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


def all_mutants() -> list[tuple[Mutant, list[str]]]:
    """Every mutant of every module that is tried, with its tests."""
    out = []
    for pattern, tests in TESTS.items():
        found = list(SOURCE.glob(pattern))
        files = {path for place in found for path in ([place] if place.is_file() else place.rglob("*.py"))}
        out += [(mutant, tests) for path in sorted(files) for mutant in mutants_of(path)]
    return out


Sample = list[tuple[Mutant, list[str]]]


def prepare(root: Path, sampled: Sample, all_tests: bool) -> shares.Attack:
    """What one process does: it tries mutants in a folder of its own, with the tests that reach them or with all."""
    for name in OTHERS:
        with suppress(ImportError):
            importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=root))
    watch = noticing.Watch({str(mutant.path) for mutant, _ in sampled})
    if not all_tests:
        for tests in {tuple(tests) for _, tests in sampled}:
            watch.run(list(tests), folder)

    def numbered(number: int) -> tuple[str, str]:
        mutant, tests = sampled[number]
        file, code = mutant.path, mutant.code()
        if all_tests:
            noticed = noticing.surely(mutant.module(), file, code, tests, folder)
        else:
            noticed = noticing.quickly(file, code, watch.reached(file, mutant.line), folder)
        what = f"line {mutant.line}: {mutant.before[:150]!r} -> {mutant.after[:150]!r}"
        return mutant.file(), "" if noticed else what

    return numbered


def _explained(mutant: Mutant) -> dict[str, str]:
    """A survivor: where, what, and why nobody could have noticed, if that is known."""
    line = mutant.path.read_text(encoding="utf-8").splitlines()[mutant.line - 1]
    return {
        "place": f"{mutant.file()}:{mutant.line}",
        "before": mutant.before[:200],
        "after": mutant.after[:200],
        "reason": reason(mutant.file(), line, mutant.before),
    }


def main() -> int:
    """Try mutants until there are enough or the time is over, and write down the survivors."""
    parser = shares.options(__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--only", help="mutants of this file alone, by its path below src/dsvnp")
    given = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(SOURCE.parent))
    end = time.monotonic() + 60 * given.minutes
    every = all_mutants()
    random.Random(given.seed).shuffle(every)
    sampled = [each for each in every if given.only in (None, each[0].file())][: given.count]
    with tempfile.TemporaryDirectory() as folder:

        def tried(some: Sample, all_tests: bool) -> tuple[dict[str, Any], dict[int, str]]:
            """A report on some mutants, and what became of each that there was time for."""
            begin, found = partial(prepare, Path(folder), some, all_tests), dict[int, str]()

            def outcomes() -> Iterator[shares.Outcome]:
                for each in shares.spread(begin, range(len(some)), given.jobs, end, noticing.PATIENCE):
                    found[each.number] = each.wrong
                    yield each

            return shares.summary(outcomes(), given), found

        report, found = tried(sampled, all_tests=False)
        passed = [sampled[number] for number, wrong in sorted(found.items()) if wrong]
        survivors = [each for mutant, _ in passed if (each := _explained(mutant))["reason"]]
        left = [each for each in passed if not _explained(each[0])["reason"]]
        again, found = tried(left, all_tests=True)
    report["minutes"] = round(report["minutes"] + again["minutes"], 1)
    survivors += [_explained(left[number][0]) for number in range(len(left)) if found.get(number, "no time")]
    killed = round(1 - len(survivors) / report["made"], 3) if report["made"] else None
    del report["fallen"]
    shares.write({**report, "of": len(every), "killed": killed, "survivors": survivors}, given.report)
    print(f"{report['made'] - len(survivors)} of {report['made']} mutants were noticed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
