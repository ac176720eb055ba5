"""Imports point downwards only: a module may import from its own layer and from those below it.

The paper's wing is imported by nothing but itself and the command line.
"""

import ast
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "dsvnp"
APART = {"models", "sources", "metrics"}  # one layer, but these never import each other
LAYERS = [
    {
        "task",
        "predictive",
        "likelihoods",
        "networks",
        "aggregators",
        "objectives",
        "losses",
        "gaussian",
        "naming",
        "devices",
        "autoregression",
        "files",
        "locks",
        "schema",
    },
    APART,
    {"intervals", "streaming", "estimation"},
    {"training"},
    {"plotting", "pretrained", "playground"},
    {"tabular", "demo", "demo_training", "botorch", "export"},
    {"paper"},
    {"cli", "__main__"},
]
PAPER = {"paper", "cli"}  # the reproduction is a wing of its own: the door alone leads to it
LAYER = {module: height for height, modules in enumerate(LAYERS) for module in modules}


def imported(source: str, package: str) -> Iterator[str]:
    """Names of the top-level modules of dsvnp that a file imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            names = [f"{base}.{alias.name}" for alias in node.names]
        for name in names:
            parts = [*name.split("."), ""]
            if parts[0] == "dsvnp" and parts[1] != "__version__":
                yield parts[1]


def violations(root: Path) -> list[str]:
    """What is wrong, in words; the package's own __init__.py is exempt, it re-exports the public names."""
    wrong = []
    for path in sorted(root.rglob("*.py")):
        inner = path.relative_to(root).with_suffix("").parts
        module = inner[0]
        found = list(imported(path.read_text(encoding="utf-8"), ".".join(["dsvnp", *inner[:-1]])))
        if "paper" in found and module not in PAPER:
            wrong.append(
                f"{path.relative_to(root)} imports the paper's wing; move what it needs into the library"
            )
        if module == "__init__":
            continue
        if module not in LAYER:
            wrong.append(f"{module} is in no layer; decide where it belongs and add it to LAYERS")
            continue
        for other in found:
            # What is no module is a public name of the package, which sits on top with the command line.
            height = LAYER.get(other, LAYER["cli"])
            if height > LAYER[module] or (module != other and {module, other} <= APART):
                wrong.append(
                    f"{path.relative_to(root)} imports {other or 'the whole'} of dsvnp, which is not below "
                    f"{module}; import from a lower layer, from the module that defines the name"
                )
    return wrong


def test_imports_point_downwards() -> None:
    assert any(ROOT.rglob("*.py")), f"expected the package's source in {ROOT}, found none"
    assert not violations(ROOT), "\n".join(violations(ROOT))


@pytest.mark.parametrize(
    ("path", "source", "allowed"),
    [
        ("models/cnp.py", "from dsvnp.task import Task", True),
        ("models/cnp.py", "from dsvnp.models.base import NeuralProcess", True),
        ("models/cnp.py", "from .base import NeuralProcess", True),
        ("aggregators.py", "from dsvnp.networks import MLP", True),
        ("paper/report/page.py", "from dsvnp.paper import experiment", True),
        ("paper/report/page.py", "from dsvnp import __version__", True),
        ("__init__.py", "from dsvnp.cli import main", True),
        ("cli.py", "import dsvnp", True),
        ("cli.py", "from dsvnp import Task", True),
        ("metrics/scores.py", "from dsvnp.models import MODELS", False),
        ("metrics/scores.py", "from dsvnp import models", False),
        ("metrics/scores.py", "import dsvnp.sources.base", False),
        ("sources/gp.py", "def f():\n    from ..models.base import NeuralProcess", False),
        ("sources/gp.py", "from .. import metrics", False),
        ("task.py", "from dsvnp import Task", False),
        ("task.py", "import dsvnp", False),
        ("task.py", "from dsvnp.metrics import nll", False),
        ("models/__init__.py", "from dsvnp.training import fleet", False),
        ("training/fleet.py", "from dsvnp.paper import experiment", False),
        ("tabular/trained/fitting.py", "from dsvnp.paper import experiment", False),
        ("__init__.py", "from dsvnp.paper import EXPERIMENTS", False),
        ("paper/report/page.py", "import torch, dsvnp.cli", False),
        ("paper/report/page.py", "import dsvnp", False),
        ("novelty.py", "", False),
    ],
)
def test_the_check_itself(tmp_path: Path, path: str, source: str, allowed: bool) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(source)
    assert (violations(tmp_path) == []) is allowed
