"""Functions stay short: half of them have a body of at most four lines, none of more than forty."""

import ast
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[1]


def body_lines(node: ast.FunctionDef) -> int:
    """Lines of a function below its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_functions_are_short():
    lengths = {}
    for folder in ("src", "studies"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    lengths[f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"] = body_lines(node)
    assert not {name: lines for name, lines in lengths.items() if lines > 40}
    assert statistics.median(lengths.values()) <= 4
