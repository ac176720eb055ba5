"""Scripts in `benchmarks/tables` import each other by their plain names; so do their tests."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("pandas")
sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "tables"))
