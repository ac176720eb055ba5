"""Memory of `dsvnp fit` and `dsvnp predict` on large tables: `python -m benchmarks.large_tables --out FILE`.

With `--only estimators` it is that of `NPRegressor()` and `NPClassifier()`, which train nothing. Each command runs in a
process of its own and reads its largest resident memory from /proc when it ends: what `getrusage` tells includes the
memory of the process that started it, which holds whole tables. Prediction is measured at several numbers of rows:
memory that does not grow with them is constant.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars

PART = 100_000
INPUTS = [f"x{i}" for i in range(20)]


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.large_tables", description=__doc__)
    parser.add_argument("--fit", type=int, default=1_000_000, help="rows of the fit")
    parser.add_argument(
        "--predict", type=int, nargs="+", default=[100_000, 1_000_000], help="rows of each prediction"
    )
    parser.add_argument(
        "--steps", type=int, default=40, help="training steps, which memory does not depend on"
    )
    parser.add_argument("--files", nargs="+", choices=["csv", "parquet"], default=["parquet", "csv"])
    parser.add_argument("--only", choices=["commands", "estimators"], default="commands")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the estimators' fits")
    parser.add_argument("--asked", type=int, default=20_000, help="rows that the estimators predict")
    parser.add_argument("--out", type=Path, help="file for the measurements, in JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for row in measure(Path(folder), given) if given.only == "commands" else estimators(given):
            print(row, flush=True)
            rows.append(row)
            if given.out is not None:
                given.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def measure(folder: Path, given: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Fit from each kind of file, then predict tables of several sizes."""
    for ending in given.files:
        table = write_rows(folder / f"fit.{ending}", given.fit)
        words = ["fit", table, "--target", "y", "--out", folder / "model", "--model", "dsvnp"]
        words += ["--steps", given.steps, "--device", "cpu"]
        yield {"what": "fit", "file": ending, "rows": given.fit, **run(words)}
    for size in given.predict:
        for ending in given.files:
            table = write_rows(folder / f"new.{ending}", size)
            words = ["predict", folder / "model", table, "--out", folder / f"out.{ending}"]
            yield {"what": "predict", "file": ending, "rows": size, **run([*words, "--device", "cpu"])}


def estimators(given: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Fit the estimators as they are by default, and predict."""
    for name in ("NPRegressor", "NPClassifier"):
        what = f"{name}(), fit and {given.asked} predictions"
        yield {"what": what, "rows": given.rows, **peak(ESTIMATOR, [name, given.rows, given.asked])}


def write_rows(path: Path, count: int) -> Path:
    """Write a table of 20 inputs and an output, itself part by part."""
    rng = np.random.default_rng(count)
    if path.suffix == ".csv":
        with path.open("wb") as file:
            file.write((",".join([*INPUTS, "y"]) + "\n").encode())
            for start in range(0, count, PART):
                some(rng, min(PART, count - start)).write_csv(file, include_header=False, float_precision=4)
        return path
    whole = polars.concat([some(rng, min(PART, count - start)) for start in range(0, count, PART)])
    whole.write_parquet(path)
    return path


def some(rng: np.random.Generator, count: int) -> polars.DataFrame:
    """Rows of a smooth function with noise."""
    x = rng.normal(size=(count, len(INPUTS)))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + 0.2 * rng.normal(size=count)
    return polars.DataFrame({**dict(zip(INPUTS, x.T, strict=True)), "y": y})


COMMAND = "import sys; from dsvnp.cli import app; app(sys.argv[1:], standalone_mode=False)"
ESTIMATOR = """
import sys
import numpy as np
import dsvnp
from benchmarks.large_tables import INPUTS, some
rows, asked = map(int, sys.argv[2:])
table = some(np.random.default_rng(0), rows + asked)
X, y = table[INPUTS].to_numpy(), table["y"].to_numpy()
if sys.argv[1] == "NPClassifier":
    y = np.digitize(y, [-1.0, 1.0])
getattr(dsvnp, sys.argv[1])(random_state=0, device="cpu").fit(X[:rows], y[:rows]).predict(X[rows:])
"""
PEAK = "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"


def run(words: list[object]) -> dict[str, float]:
    """Run a command; its seconds and its largest memory in GB."""
    return peak(COMMAND, words)


def peak(script: str, words: list[object]) -> dict[str, float]:
    """Run a script with arguments; its seconds and its largest memory in GB."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\n{PEAK}", *map(str, words)],
        env=os.environ,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    kilobytes = int(done.stdout.split()[-1])
    return {"seconds": round(time.perf_counter() - start, 1), "peak_gb": round(kilobytes / 2**20, 2)}


if __name__ == "__main__":
    main()
