"""The README's Python runs as it stands."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_there_is_code_to_check():
    assert len(BLOCKS) >= 2


@pytest.mark.parametrize("last", range(1, len(BLOCKS) + 1))
def test_code_runs_in_the_order_of_the_page(last):
    names: dict[str, object] = {}
    for block in BLOCKS[:last]:
        exec(block, names)
    assert names["predictive"].mean.shape == (1, 30, 1)


def test_every_registered_model_is_listed():
    from dsvnp import MODELS

    for name in MODELS:
        assert f"| `{name}` |" in README
