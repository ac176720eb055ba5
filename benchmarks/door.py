"""How long the door takes: imports and `--help`, as ratios to what they cannot do without. Run it on an idle machine.

python benchmarks/door.py [--rounds 5] [--out results/door.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {  # name → what is run; pairs are compared below
    "import torch, sklearn.base": [sys.executable, "-c", "import torch, sklearn.base"],
    "from dsvnp import NPRegressor": [sys.executable, "-c", "from dsvnp import NPRegressor"],
    "import typer, rich": [sys.executable, "-c", "import typer, rich"],
    "dsvnp --help": [sys.executable, "-m", "dsvnp", "--help"],
    "dsvnp --version": [sys.executable, "-m", "dsvnp", "--version"],
    "dsvnp models": [sys.executable, "-m", "dsvnp", "models"],
}
RATIOS = {  # what, to what, and at most
    "from dsvnp import NPRegressor": ("import torch, sklearn.base", 1.3),
    "dsvnp --help": ("import typer, rich", 5.0),
}


def seconds_of(command: list[str]) -> float:
    """Wall time of a command."""
    # With bytecode, which an installed package has: the first round writes it.
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=settings)
    return time.perf_counter() - start


def measure(rounds: int) -> dict[str, float]:
    """Median time of each command; all take turns, and a first round that fills caches does not count."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds + 1):
        for name, command in COMMANDS.items():
            times[name].append(seconds_of(command))
    return {name: statistics.median(values[1:]) for name, values in times.items()}


def main() -> None:
    """Measure, print and, if asked to, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    times = measure(given.rounds)
    for name, seconds in times.items():
        print(f"{seconds:7.3f} s  {name}")
    ratios = {name: times[name] / times[other] for name, (other, _) in RATIOS.items()}
    for name, (other, most) in RATIOS.items():
        print(f"{ratios[name]:7.2f}    {name} / {other} (at most {most})")
    if given.out is not None:
        record = {"machine": platform.machine(), "rounds": given.rounds, "seconds": times, "ratios": ratios}
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
