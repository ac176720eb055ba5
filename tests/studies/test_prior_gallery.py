"""The gallery of priors: the script runs, writes its pages, and prints what can be learned."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "studies" / "prior_gallery.py"


def test_the_gallery_writes_its_pages_and_prints_statistics(tmp_path):
    out = subprocess.run(
        [sys.executable, SCRIPT, tmp_path, "--tables", "12"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert {path.name for path in tmp_path.iterdir()} == {
        "prior_curves.png",
        "prior_tables.png",
        "prior_classes.png",
    }
    assert "numbers, R²" in out.stdout
    assert "best of the three" in out.stdout
