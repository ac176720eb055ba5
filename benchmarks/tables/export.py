"""Write tables as plain arrays, for a machine that has NumPy but not the packages that ship them.

    python benchmarks/tables/export.py --part validation --out FILE.npz

    from export import read_export
    for table in read_export(path):   # each is a reading.Table: x, y, categorical, names, folds, kind
        ...

Without this module, `numpy.load(path)` has `tables`, a JSON text that lists name, kind, names and key of each, and
`KEY.x` (float32), `KEY.y`, `KEY.categorical` and `KEY.folds`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from catalogue import entries
from reading import Table, load


def write_export(tables: list[Table], path: Path) -> None:
    """Write tables to one compressed file; inputs in single precision."""
    arrays: dict[str, np.ndarray] = {}
    listed = []
    for place, table in enumerate(tables):
        key = f"t{place:02d}"
        listed.append({"key": key, "name": table.name, "kind": table.kind, "names": table.names})
        arrays[f"{key}.x"] = table.x.astype(np.float32)
        arrays[f"{key}.y"] = table.y
        arrays[f"{key}.categorical"] = table.categorical
        arrays[f"{key}.folds"] = table.folds
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:  # a file, lest NumPy should add an ending to the name
        np.savez_compressed(file, tables=json.dumps(listed), **arrays)


def read_export(path: Path) -> list[Table]:
    """Read the tables of such a file."""
    with np.load(path) as file:
        return [
            Table(
                row["name"],
                row["kind"],
                file[f"{row['key']}.x"].astype(np.float64),
                file[f"{row['key']}.y"],
                file[f"{row['key']}.categorical"],
                tuple(row["names"]),
                file[f"{row['key']}.folds"],
            )
            for row in json.loads(str(file["tables"]))
        ]


def main() -> None:
    """Export one part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=["validation", "test"], default="validation")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    tables = [load(entry.name) for entry in entries(part=args.part)]
    write_export(tables, args.out)
    print(f"{len(tables)} tables, {args.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
