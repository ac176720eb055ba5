"""A new model passes the tests that take every model, with no edit but its file and its line."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_model_by_contributing_passes_the_contract():
    # In a process of its own: a registered model would join the other tests of this one.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.newcomer",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
    ]
    chosen = [
        "-k",
        "newcomer and (gaussian or tabular)",
        "tests/test_contract.py",
        "tests/tabular/trained/test_recipe.py",
    ]
    done = subprocess.run([*command, *chosen], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 30
