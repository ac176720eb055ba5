"""Node, where it is installed: it runs the page's modules without a browser."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dsvnp.playground import PAGE

NODE = shutil.which("node")
HERE = Path(__file__).parent
needs_node = pytest.mark.skipif(NODE is None, reason="no Node here (Debian: apt-get install nodejs)")


def run_node(script: Path | str, *arguments: str) -> Any:
    """Run a script with the page's folder as its first argument; return the JSON that it prints."""
    done = subprocess.run(
        [NODE, str(script), str(PAGE), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
