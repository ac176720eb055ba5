"""What the README promises besides code and commands, which `test_docs.py` runs."""

import re
from pathlib import Path

from dsvnp import MODELS

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_every_registered_model_is_listed():
    for name in MODELS:
        assert f"| `{name}` |" in README


def test_the_test_command_is_where_the_ci_reads_it():
    (block,) = re.findall(r"<!-- the test command -->\n```sh\n(.*?)```", README, flags=re.DOTALL)
    for word in ("venv", "constraints.txt", "[dev]", "ruff check", "ruff format --check", "mypy", "pytest"):
        assert word in block
