"""A table as it comes through `dsvnp fit`, `predict` and `evaluate`, against gradient boosting on the same raw table.

    OMP_NUM_THREADS=1 python benchmarks/raw_table.py --seeds 3

Sales of a day in a shop: 1,100 rows to learn from and 1,100 new ones. Of the inputs three are numbers, two categories
(12 towns, 4 kinds of shop) and one a date; 4 % of their cells are empty. The truth has smooth parts (temperature,
season), thresholds (price, weekend), effects of categories, an interaction, and noise that grows with the mean.

HistGradientBoosting gets the same cells: missing numbers and categories as such, the date as day, month and weekday.
Its density is a normal around its prediction with the deviation of 5-fold residuals; its CRPS also comes from 19
boosted quantiles, and the better of the two counts. `results/raw-table.json` holds one row for each seed.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import cross_val_predict

from dsvnp import NPRegressor
from dsvnp.tabular.files.table_files import read_table

OUT = Path(__file__).parents[1] / "results" / "raw-table.json"
ROWS, GAPS, TARGET = 1100, 0.04, "sales"
LEVELS = np.arange(1, 20) / 20

Floats = NDArray[np.float64]
Cells = dict[str, NDArray[Any]]


def draw_table(seed: int, rows: int = ROWS) -> Cells:
    """Columns of a table; an empty cell is None. Effects of categories are the same for all seeds."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(123)
    towns, kinds = fixed.normal(0, 4, 12), np.array([0.0, 3.0, -2.0, 6.0])
    town, kind = rng.integers(12, size=rows), rng.integers(4, size=rows)
    day = np.datetime64("2022-01-01") + rng.integers(730, size=rows)
    warmth, price, distance = rng.normal(12, 7, rows), rng.gamma(4, 5, rows), rng.exponential(3, rows)
    season = np.cos(2 * np.pi * (day - np.datetime64("2022-01-01")).astype(int) / 365.25)
    weekend = (day.astype(int) + 3) % 7 >= 5
    mean = 30 + towns[town] + kinds[kind] + 5 * season + 6 * weekend + 8 * np.tanh((warmth - 14) / 6)
    mean += np.where(price > 25, -6, 0) - 2 * np.sqrt(distance) * (kind == 2)
    sales = mean + (1 + 0.06 * np.maximum(mean, 0)) * rng.normal(size=rows)
    cells: Cells = {
        "warmth": np.char.mod("%.1f", warmth).astype(object),
        "price": np.char.mod("%.2f", price).astype(object),
        "distance": np.char.mod("%.2f", distance).astype(object),
        "town": np.array([f"town {i}" for i in town], dtype=object),
        "kind": np.array(["kiosk", "market", "stall", "store"], dtype=object)[kind],
        "day": day.astype(str).astype(object),
    }
    for values in cells.values():
        values[rng.random(rows) < GAPS] = None
    return {**cells, TARGET: np.char.mod("%.2f", sales).astype(object)}


def write_csv(path: Path, cells: Cells) -> Path:
    """The table as a person would have it."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(cells)
        writer.writerows(zip(*cells.values(), strict=True))
    return path


# --- the two methods ---


def by_commands(old: Path, new: Path, folder: Path, options: list[str]) -> dict[str, float]:
    """NLL, CRPS and RMSE of new rows, by a model that the command line fitted; each command must succeed at once."""

    def command(*words: object) -> None:
        subprocess.run([sys.executable, "-m", "dsvnp", *map(str, words)], check=True, capture_output=True)

    command("fit", old, "--target", TARGET, "--out", folder / "model", "--device", "cpu", *options)
    command("predict", folder / "model", new, "--out", folder / "predictions.csv", "--keep", "day")
    command("evaluate", folder / "model", new)
    rows, estimator = read_table(new), NPRegressor.load(folder / "model", device="cpu")
    inputs = rows.select(list(estimator.feature_names_in_))
    found = estimator.evaluate(inputs, rows[TARGET]).summary["neural process"]
    return {name: round(found[name], 4) for name in ("nll", "crps", "rmse")}


def numbers_of(cells: Cells) -> tuple[Floats, Floats]:
    """The raw table as boosting reads it: NaN where missing; categories are the last two columns."""
    out = [
        np.array([np.nan if c is None else float(c) for c in cells[n]])
        for n in ("warmth", "price", "distance")
    ]
    days = cells["day"].astype("datetime64[D]")
    gone = np.isnat(days)
    month = days.astype("datetime64[M]").astype(int) % 12
    out += [
        np.where(gone, np.nan, part.astype(float)) for part in (days.astype(int), month, days.astype(int) % 7)
    ]
    for name in ("town", "kind"):
        names = sorted({cell for cell in cells[name] if cell is not None})
        out.append(np.array([np.nan if cell is None else names.index(cell) for cell in cells[name]]))
    return np.stack(out, 1), cells[TARGET].astype(float)


def by_boosting(old: Cells, new: Cells, seed: int) -> dict[str, float]:
    """The same measures of gradient boosting."""
    (X, y), (X_new, y_new) = numbers_of(old), numbers_of(new)

    def make(**settings: Any) -> HistGradientBoostingRegressor:
        return HistGradientBoostingRegressor(categorical_features=[6, 7], random_state=seed, **settings)

    deviation = np.std(y - cross_val_predict(make(), X, y, cv=5))
    mean = make().fit(X, y).predict(X_new)
    z = (y_new - mean) / deviation
    plain = deviation * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    quantiles = [make(loss="quantile", quantile=q).fit(X, y).predict(X_new) for q in LEVELS]
    pinball = [
        np.maximum(q * (y_new - v), (q - 1) * (y_new - v)) for q, v in zip(LEVELS, quantiles, strict=True)
    ]
    return {
        "nll": round(float(-norm.logpdf(y_new, mean, deviation).mean()), 4),
        "crps": round(float(min(plain.mean(), 2 * np.mean(pinball))), 4),
        "rmse": round(float(np.sqrt(np.mean((mean - y_new) ** 2))), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument(
        "--options", default="", help="further options of `dsvnp fit`, with spaces between them"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    rows = json.loads(args.out.read_text()) if args.out.is_file() else []
    for seed in sorted(set(range(args.seeds)) - {row["seed"] for row in rows}):
        old, new = draw_table(2 * seed, args.rows), draw_table(2 * seed + 1, args.rows)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            paths = [write_csv(folder / f"{part}.csv", cells) for part, cells in (("old", old), ("new", new))]
            ours = by_commands(paths[0], paths[1], folder, [*args.options.split(), "--seed", str(seed)])
        rows.append({"seed": seed, "rows": args.rows, "dsvnp": ours, "boosting": by_boosting(old, new, seed)})
        print(json.dumps(rows[-1]), flush=True)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
