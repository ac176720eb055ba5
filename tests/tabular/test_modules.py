"""No module of the estimators imports, even inside a function, one that imports it."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "dsvnp" / "tabular"


def imported(path):
    """Names of the modules of this folder that a module imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dsvnp.tabular"):
            last = node.module.removeprefix("dsvnp.tabular").strip(".")
            found |= {last} if last else {alias.name for alias in node.names}
    return found


def test_there_is_no_import_cycle():
    graph = {path.stem: imported(path) for path in ROOT.glob("*.py") if path.stem != "__init__"}
    assert "regressor" in graph
    done = set()
    while len(done) < len(graph):
        ready = {name for name, needs in graph.items() if name not in done and needs <= done}
        assert ready, f"these import each other in a circle: {sorted(set(graph) - done)}"
        done |= ready
