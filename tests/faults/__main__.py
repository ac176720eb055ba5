"""Attack for some minutes: `python -m tests.faults --minutes 30 --seed 1 --report FILE`.

Every attack has a number, from which its random choices follow: `--only N` makes it again.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch

from tests.faults.attacks import ATTACKS, WORK, strike, undisturbed
from tests.faults.injection import KINDS


def each(folder: Path, every: int) -> Iterator[tuple[str, str]]:
    """Strike each operation of each work, or every N-th, in each way."""
    for work in WORK:
        for kind in KINDS:
            for number in range(KINDS.index(kind), undisturbed(work, folder)[1], every):
                yield f"{kind} in {work}", strike(work, kind, number, folder)


def main() -> int:
    """Attack until the time is over, write the report, and return 1 if anything fell."""
    parser = argparse.ArgumentParser("python -m tests.faults", description="Attack what is kept on disk.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=Path, help="file for a report in JSON")
    parser.add_argument(
        "--every", type=int, help="begin with a fault at every N-th file operation; 1 strikes all"
    )
    parser.add_argument("--only", type=int, help="make one attack again, by its number")
    given = parser.parse_args()
    torch.set_num_threads(1)
    end, made, fallen = time.monotonic() + 60 * given.minutes, Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, wrong) in enumerate(each(Path(folder), given.every) if given.every else ()):
            made[name] += 1
            if wrong:
                fallen.append({"number": number, "attack": name, "wrong": wrong})
                print(f"{name}: {wrong}", flush=True)
        number = given.only or 0
        while time.monotonic() < end:
            chance = random.Random(f"{given.seed} {number}")
            name = chance.choice(list(ATTACKS))
            made[name] += 1
            if wrong := ATTACKS[name](Path(folder), chance):
                fallen.append({"number": number, "attack": name, "wrong": wrong})
                print(f"{number}, {name}: {wrong}", flush=True)
            number += 1
            if given.only is not None:
                break
    report = {"seed": given.seed, "minutes": given.minutes, "attacks": dict(made), "fallen": fallen}
    if given.report is not None:
        given.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{sum(made.values())} attacks ({dict(made)}), {len(fallen)} fell")
    return bool(fallen)


if __name__ == "__main__":
    sys.exit(main())
