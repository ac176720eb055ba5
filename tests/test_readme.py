"""What the README promises besides code and commands, which `test_docs.py` runs."""

import re
from pathlib import Path

from dsvnp import MODELS

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_table_of_models_lists_registered_ones():
    page = (Path(__file__).parent.parent / "docs" / "models.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z-]+)` \|", page, flags=re.MULTILINE)
    assert len(listed) >= 9
    assert set(listed) <= set(MODELS)


def test_the_readme_is_short():
    assert len(README.split()) <= 900


def test_the_test_command_is_where_the_ci_reads_it():
    (block,) = re.findall(r"<!-- the test command -->\n```sh\n(.*?)```", README, flags=re.DOTALL)
    for word in ("venv", "constraints.txt", "[dev]", "ruff check", "ruff format --check", "mypy", "pytest"):
        assert word in block
