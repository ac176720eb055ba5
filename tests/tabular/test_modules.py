"""No module of the estimators imports, even inside a function, one that imports it."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "dsvnp" / "tabular"


def imported(path):
    """Dotted names of the modules at or below this folder that a module imports anywhere but for its types."""
    found, tree = set(), ast.parse(path.read_text(encoding="utf-8"))
    for_types = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    left_out = {id(inner) for node in for_types for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dsvnp.tabular"):
            last = node.module.removeprefix("dsvnp.tabular").strip(".")
            inner = {f"{last}.{alias.name}".strip(".") for alias in node.names}
            found |= inner if (ROOT / last.replace(".", "/")).is_dir() else {last}
    return found


def test_there_is_no_import_cycle():
    paths = [path for path in ROOT.rglob("*.py") if path.stem != "__init__"]
    graph = {".".join(path.relative_to(ROOT).with_suffix("").parts): imported(path) for path in paths}
    assert "regressor" in graph
    done = set()
    while len(done) < len(graph):
        ready = {name for name, needs in graph.items() if name not in done and needs <= done}
        assert ready, f"these import each other in a circle: {sorted(set(graph) - done)}"
        done |= ready
