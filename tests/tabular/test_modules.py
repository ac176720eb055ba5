"""No module of the estimators imports, even inside a function, one that imports it; nor does a folder of them."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "src" / "dsvnp" / "tabular"
ROOMS = ["files", "rows", "trained", "panel", "saved"]  # each may import from those before it


def imported(path):
    """Names of the modules of this folder that a module imports anywhere but for its types."""
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
            is_module = last and last not in ROOMS
            prefix = f"{last}." if last else ""
            found |= {last} if is_module else {prefix + alias.name for alias in node.names}
    return found


def graph():
    """Each module of the estimators, and those that it imports."""
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
    return {name: imported(path) for name, path in paths.items() if not name.endswith("__init__")}


def test_there_is_no_import_cycle():
    needs_of = graph()
    assert {"regressor", "panel.choosing"} <= set(needs_of)
    done = set()
    while len(done) < len(needs_of):
        ready = {name for name, needs in needs_of.items() if name not in done and needs <= done}
        assert ready, f"these import each other in a circle: {sorted(set(needs_of) - done)}"
        done |= ready


def test_a_room_imports_from_earlier_ones_only():
    for name, needs in graph().items():
        room = name.partition(".")[0]
        rooms = {need.partition(".")[0] for need in needs} & set(ROOMS)
        later = ROOMS[ROOMS.index(room) + 1 :] if room in ROOMS else []
        assert not rooms & set(later), (
            f"{name} imports from {sorted(rooms & set(later))}, which is not below it"
        )
