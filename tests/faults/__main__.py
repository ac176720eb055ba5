"""Attack at length: `python -m tests.faults --minutes 30 --jobs 6 --seed 1 --report FILE`.

First come all attacks in an order that follows from the seed: a fault of each kind at every file operation of each
work, and the others as often as `ATTACKS` says. Attack N makes its random choices by the seed and N: `--only N` makes
it again, where the works take as many operations.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.faults import shares
from tests.faults.attacks import ATTACKS, strike
from tests.faults.injection import KINDS
from tests.faults.works import WORK, fitted, undisturbed

Plan = list[tuple[str, str, int]]  # what is attacked, in which way, at which operation


def plan(seed: int, every: int) -> Plan:
    """All attacks, or every N-th of each kind."""
    operations = {work: undisturbed(work).operations for work in WORK}
    out = [
        (work, kind, number)
        for work in WORK
        for kind in KINDS
        for number in range(KINDS.index(kind) % every, operations[work], every)
    ]
    out += [(name, "", 0) for name, (_, times) in ATTACKS.items() for _ in range(max(1, times // every))]
    random.Random(seed).shuffle(out)
    return out


def prepare(root: Path, seed: int, planned: Plan) -> shares.Attack:
    """The attack of one process, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(dir=root))

    def numbered(number: int) -> tuple[str, str]:
        what, kind, operation = planned[number]
        if kind:
            return f"{kind} in {what}", strike(what, kind, operation, folder)
        return what, ATTACKS[what][0](folder, random.Random(f"{seed} {number}"))

    return numbered


def main() -> int:
    """Attack until all is done or the time is over, write the report, and return 1 if anything fell."""
    parser = shares.options(__doc__)
    parser.add_argument("--every", type=int, default=1, help="make every N-th attack of each kind only")
    parser.add_argument("--only", type=int, help="make one attack again, by its number")
    given = parser.parse_args()
    torch.set_num_threads(1)
    end = time.monotonic() + 60 * given.minutes
    for seed in range(12):
        fitted(seed)  # alone, before anything else happens; the processes inherit it
    planned = plan(given.seed, given.every)
    numbers = range(len(planned)) if given.only is None else range(given.only, given.only + 1)
    with tempfile.TemporaryDirectory() as folder:

        def begin() -> shares.Attack:
            return prepare(Path(folder), given.seed, planned)

        report = shares.summary(shares.spread(begin, numbers, given.jobs, end), given)
    shares.write({**report, "planned": len(numbers)}, given.report)
    return bool(report["fallen"])


if __name__ == "__main__":
    sys.exit(main())
