"""Measure models on tables: one JSON line per table, fold and model; a later run adds the lines that are missing.

    python benchmarks/tables/run.py --kind regression --models ridge,hgb --out FILE.jsonl
    python benchmarks/tables/run.py --kind regression --part test --final --models … --out FILE.jsonl

Regression targets are standardised on the training fold before any model sees them, so RMSE, NLL and CRPS are in
units of the target's deviation there. `seconds` (by the clock) and `cpu_seconds` (of this process, which a busy machine
does not lengthen) are those of fit and prediction together, on as many threads as OMP_NUM_THREADS says. The test part
is for one look at the end and asks for `--final`. `--jobs` measures in several processes at a time; `--data` reads the
tables from a file of `export.py`, for a machine without the packages that ship them.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import baselines  # noqa: F401  it registers the rivals
import numpy as np
from catalogue import Kind, entries
from joblib import Parallel, delayed
from predictives import class_scores, regression_scores
from reading import Table, load
from registry import Model, import_adapters, model_of

from export import read_export

Line = dict[str, Any]


def measure(model: Model, table: Table, fold: int) -> Line:
    """Fit a model to four folds of a table and score it on the fifth."""
    train, test = table.folds != fold, table.folds == fold
    y, y_test = table.y[train], table.y[test]
    if table.kind == "regression":
        mean, std = y.mean(), y.std()
        y, y_test = (y - mean) / std, (y_test - mean) / std
    start, start_cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # networks and kernels that did not converge
        found = model.fit(table.x[train], y, table.x[test], table.categorical, seed=fold)
    times = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - start_cpu}
    scores = regression_scores(found, y_test) if table.kind == "regression" else class_scores(found, y_test)
    wrong = [name for name, value in scores.items() if name != "bins" and not np.isfinite(value)]
    if wrong:
        raise ValueError(
            f"{model.name} gave no finite {', '.join(wrong)} on {table.name}, fold {fold}; look at its prediction"
        )
    rounded = {name: value if name == "bins" else round(value, 6) for name, value in scores.items()}
    sizes = {"rows": int(train.sum()), "test_rows": int(test.sum()), "columns": table.x.shape[1]}
    spent = {name: round(value, 3) for name, value in times.items()}
    return {**sizes, **rounded, **spent, "notes": getattr(found, "notes", {})}


def read_lines(path: Path) -> list[Line]:
    """Lines of a file of results, compressed if its name ends in .gz; none where there is no file.

    A last line that was cut off is left out.
    """
    if not path.is_file():
        return []
    data = path.read_bytes()
    texts = (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines(keepends=True)
    return [json.loads(text) for text in texts if text.endswith("\n")]


def key_of(line: Line) -> tuple[str, int, str]:
    """What a line is the result of."""
    return line["table"], line["fold"], line["model"]


def run(
    tables: Iterable[str],
    models: list[Model],
    part: str,
    out: Path,
    folds: Iterable[int],
    jobs: int = 1,
    read: Callable[[str], Table] | None = None,
) -> None:
    """Measure what is missing in the file and append it, one line at a time.

    Args:
        tables: their names.
        models: those to measure.
        part: of the catalogue, for the lines.
        out: the file.
        folds: those to test on.
        jobs: processes; with several, lines are in the order in which they are done.
        read: reads a table by its name; from the packages by default.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = read_lines(out)
    done = {key_of(line) for line in lines}
    out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    cells = itertools.product(tables, list(folds), models)
    missing = [cell for cell in cells if (cell[0], cell[1], cell[2].name) not in done]
    read = cache(read or load)
    work = (delayed(measured)(model, read(name), fold, part) for name, fold, model in missing)
    for line in Parallel(jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")(work):
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(*list(line.values())[:5], {k: v for k, v in line.items() if isinstance(v, float)}, flush=True)


def measured(model: Model, table: Table, fold: int, part: str) -> Line:
    """The line of one table, fold and model."""
    about = {"table": table.name, "fold": fold, "model": model.name, "kind": table.kind, "part": part}
    machine = platform.processor() or platform.machine()
    found = measure(model, table, fold)
    threads = os.environ.get("OMP_NUM_THREADS")
    return {**about, **found, "settings": model.settings, "machine": machine, "threads": threads}


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=["regression", "classification"], required=True)
    parser.add_argument("--part", choices=["validation", "test"], default="validation")
    parser.add_argument("--models", required=True, help="names with commas; baselines.py lists them")
    parser.add_argument("--out", type=Path, required=True, help="a .jsonl file")
    parser.add_argument("--tables", default="", help="some tables of the part only, with commas")
    parser.add_argument("--folds", default="0,1,2,3,4", help="some folds only, with commas")
    parser.add_argument(
        "--adapters", type=Path, action="append", default=[], help="a file that registers models"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--data", type=Path, help="a file of export.py to read the tables from")
    parser.add_argument("--final", action="store_true", help="really look at the test part")
    args = parser.parse_args()
    if args.part == "test" and not args.final:
        parser.error("the test part is looked at once, at the end: add --final if this is the end")
    if args.out.suffix == ".gz":
        parser.error(
            "lines are added to a plain file; name a .jsonl file, and compress it when it is complete"
        )
    for path in args.adapters:
        import_adapters(path)
    kind: Kind = args.kind
    models = [model_of(name, kind) for name in args.models.split(",")]
    listed = [entry.name for entry in sorted(entries(kind, args.part), key=lambda entry: entry.rows)]
    exported = {table.name: table for table in read_export(args.data)} if args.data else {}
    if exported:  # of the catalogue this part only
        hidden = {entry.name for entry in entries()} - set(listed)
        listed = [name for name, table in exported.items() if table.kind == kind and name not in hidden]
    wanted = args.tables.split(",") if args.tables else listed
    if unknown := set(wanted) - set(listed):
        parser.error(
            f"{', '.join(sorted(unknown))}: not in the {args.part} part; there are {', '.join(listed)}"
        )
    read = exported.__getitem__ if exported else None
    folds = [int(fold) for fold in args.folds.split(",")]
    run(wanted, models, args.part, args.out, folds, args.jobs, read)


if __name__ == "__main__":
    main()
