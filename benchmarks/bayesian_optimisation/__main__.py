"""Bayesian optimisation with neural processes against BoTorch's SingleTaskGP and random search.

    python -m benchmarks.bayesian_optimisation                         all that is missing, then table and figure
    python -m benchmarks.bayesian_optimisation --methods landscapes --again       these methods once more (new weights)
    python -m benchmarks.bayesian_optimisation --summary               table and figure only

A unit is one run of one method on one function; each is written at once, and a later call adds the missing ones.
Single functions get 5 + 25 evaluations, functions of a family 5 + 10; all methods of a seed share the first 5.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import torch

from benchmarks.bayesian_optimisation.family import Family, FamilySettings, learn
from benchmarks.bayesian_optimisation.methods import GaussianProcess, Method, Related, Search, random
from benchmarks.bayesian_optimisation.panel import Panel
from benchmarks.bayesian_optimisation.problems import FAMILIES, SINGLE, first_points, problem
from benchmarks.bayesian_optimisation.summary import summarise
from dsvnp.botorch.panel import SHARES
from dsvnp.files import gzipped, write_atomically
from dsvnp.pretrained.loading import SHIPPED

FOLDER = Path(__file__).parents[2] / "results" / "bayesian-optimisation"
ROWS = "rows.jsonl.gz"
FIRST, SINGLE_TOTAL, FAMILY_TOTAL = 5, 30, 15
NETWORKS = {"tables": 32, "curves": 3, "landscapes": 10}  # most inputs of each pretrained network
# On single functions: BoTorch searches a Gaussian process about as its tutorials do; a panel takes as many points, and
# one with a network, which costs a hundred times more per point, fewer.
THOROUGH = Search(raw_samples=512, num_restarts=8, max_steps=100, round_points=144)
LEAN = Search(raw_samples=128, num_restarts=2, max_steps=15)
ON_FAMILIES = ("random", "gp", "related")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", nargs="*", default=[*FAMILIES, *SINGLE])
    parser.add_argument(
        "--methods",
        nargs="*",
        help="random, gp, panel (panel:plain,0.3 for other warps), related, a network, both; all by default",
    )
    parser.add_argument("--network", default="landscapes", help="the pretrained network of the method both")
    parser.add_argument("--weights", type=Path, help="folder of pretrained weights in place of the package's")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--again", action="store_true", help="drop the results of these methods first")
    parser.add_argument("--summary", action="store_true", help="only table and figure")
    parser.add_argument("--out", type=Path, default=FOLDER)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if not args.summary:
        run(args)
    summarise(load(args.out), args.out)


def run(args: argparse.Namespace) -> None:
    """Measure what is missing, seed by seed."""
    search, learning = Search(), FamilySettings()
    rows = load(args.out)
    if args.again:
        rows = [row for row in rows if not _asked(row, args)]
        save(rows, args.out)
    done = {(row["problem"], row["method"], row["seed"]) for row in rows}
    settings = {"first": FIRST, "single": SINGLE_TOTAL, "family": FAMILY_TOTAL, "search": asdict(search)}
    settings |= {
        "related": learning.to_dict(),
        "network": args.network,
        "single_search": asdict(THOROUGH),
        "network_search": asdict(LEAN),
        "panel_shares": SHARES,
    }
    (args.out / "settings.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    for name, method, seed in units(args):
        if (name, method, seed) in done:
            continue
        start = time.process_time()
        regret = optimise(name, make(method, name, args, search, learning), seed)
        row = {"problem": name, "method": method, "seed": seed, "regret": regret}
        rows.append(row | {"cpu_seconds": round(time.process_time() - start, 2)})
        save(rows, args.out)
        print(name, method, seed, f"{regret[-1]:.4g}", rows[-1]["cpu_seconds"], flush=True)


def units(args: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """All runs that were asked for and that there are weights for."""
    for name in args.problems:
        there = networks(name, args.weights)
        own = (
            ON_FAMILIES
            if name in FAMILIES
            else ("random", "gp", "panel", *there, *["both"] * (args.network in there))
        )
        for seed in range(args.seeds):
            yield from (
                (name, method, seed) for method in args.methods or own if method.partition(":")[0] in own
            )


def networks(name: str, folder: Path | None) -> list[str]:
    """Pretrained networks that are there and read as many inputs as a function has."""
    there = SHIPPED if folder is None else folder
    dim = problem(name, 0).dim
    return [each for each, most in NETWORKS.items() if dim <= most and (there / f"{each}.json").is_file()]


@lru_cache
def family(name: str, settings: FamilySettings) -> Family:
    """The network of a family, trained once, in the CPU time of the first run that asks for it."""
    of_settings = f"{name}-{zlib.crc32(repr(settings).encode()):08x}"
    return learn(FAMILIES[name], settings, Path(gettempdir()) / "dsvnp-bayesian-optimisation" / of_settings)


def make(
    method: str, name: str, args: argparse.Namespace, search: Search, settings: FamilySettings
) -> Method:
    """The method for a problem."""
    search = search if name in FAMILIES else THOROUGH
    if method in ("random", "gp"):
        return random if method == "random" else GaussianProcess(search)
    if name in FAMILIES:
        return Related(family(name, settings), search)
    if method.startswith("panel"):
        own = method.removeprefix("panel").strip(":").split(",")
        return Panel(
            THOROUGH, shares=tuple(None if each == "plain" else float(each) for each in own if each) or SHARES
        )
    network = args.network if method == "both" else method
    return Panel(LEAN, network, method == "both", args.weights)


def optimise(name: str, method: Method, seed: int) -> list[float]:
    """Simple regret after each evaluation."""
    function = problem(name, seed)
    total = FAMILY_TOTAL if name in FAMILIES else SINGLE_TOTAL
    x = first_points(function.dim, seed, FIRST)
    y = function(x)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # BoTorch's advice on scaling and on ascents that end early
        while len(x) < total:
            new = method(x, y)
            x, y = torch.cat([x, new]), torch.cat([y, function(new)])
    return (function.best - y.flatten().cummax(0).values).clamp(min=0).tolist()


def _asked(row: dict[str, Any], args: argparse.Namespace) -> bool:
    return row["problem"] in args.problems and row["method"] in (args.methods or [row["method"]])


def load(folder: Path) -> list[dict[str, Any]]:
    path = folder / ROWS
    lines = gzip.decompress(path.read_bytes()).splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines]


def save(rows: list[dict[str, Any]], folder: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    write_atomically(folder / ROWS, gzipped(text))


if __name__ == "__main__":
    main()
