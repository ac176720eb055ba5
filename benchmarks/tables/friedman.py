"""Synthetic tables of 1,000 to 4,000 training rows in the format of `export.py`: where does training begin to pay?

    python benchmarks/tables/friedman.py --out FILE.npz
    python benchmarks/tables/run.py --kind regression --data FILE.npz --models np,np-trained --folds 0 …

friedman1 has ten inputs of which five matter, friedman2 four; noise is a fifth of the function's deviation. Labels of
the classification tables say in which third of its values the output of friedman1 lies.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from reading import Table, folds_of
from sklearn.datasets import make_friedman1, make_friedman2

from export import write_export

SIZES = (1250, 2500, 5000)  # rows, of which four fifths train
NOISE = 0.2


def made(name: str, rows: int) -> Table:
    """One table."""
    make = make_friedman2 if name == "friedman2" else make_friedman1
    x, y = make(rows, random_state=rows)
    y = y + NOISE * y.std() * np.random.default_rng(rows).normal(size=rows)
    kind = "classification" if name == "friedman1-thirds" else "regression"
    if kind == "classification":
        y = np.digitize(y, np.quantile(y, [1 / 3, 2 / 3])).astype(np.int64)
    columns = x.shape[1]
    names = tuple(f"x{column}" for column in range(columns))
    return Table(f"{name}-{rows}", kind, x, y, np.zeros(columns, bool), names, folds_of(y, kind, 0))


def main() -> None:
    """Write all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    names = ("friedman1", "friedman2", "friedman1-thirds")
    write_export([made(name, rows) for name in names for rows in SIZES], parser.parse_args().out)


if __name__ == "__main__":
    main()
