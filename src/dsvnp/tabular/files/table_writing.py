"""Writing tables part by part, as CSV or Parquet: a file is there whole, or not at all."""

import csv
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from dsvnp import files
from dsvnp.tabular.columns import Array, is_number
from dsvnp.tabular.files.table_files import PARQUET, STANDARD, polars_package

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would compute


def check_suffix(path: Path) -> None:
    """Refuse a name that no table can be written to, before any work is done."""
    if str(path) == STANDARD:
        return
    if path.is_dir():
        raise ValueError(f"{path} is a folder; choose another name for the table")
    if path.suffix.lower() not in (".csv", *PARQUET):
        raise ValueError(f"{path}: expected a name that ends in .csv or .parquet, got {path.suffix!r}")
    if path.suffix.lower() in PARQUET:
        polars_package()


def write_table(path: Path, names: Sequence[str], columns: Sequence[Array]) -> None:
    """Write a table in one go."""
    with TableWriter(path, names) as writer:
        writer.add(columns)


class TableWriter:
    """A table that grows by parts under a temporary name, and has its own when all are written.

    An error, or a full disk, leaves what was there before. What a process that was killed left of the same file is
    removed first.

    Args:
        path: CSV or Parquet; "-" is CSV on the standard output.
        names: of the columns.
    """

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self.names = path, list(names)
        self._temporary = files.temporary_name(path)
        self._is_parquet = path.suffix.lower() in PARQUET
        self._descriptor = -1
        self._schema: dict[str, Any] = {}
        self._num_parts = 0

    def __enter__(self) -> Self:
        if str(self.path) == STANDARD:
            self._write_text(_text([self.names], self.names))
            return self
        self.path.parent.mkdir(parents=True, exist_ok=True)
        left = re.compile(rf"\.writing-{re.escape(self.path.name[:150])}-[0-9a-f]{{8}}")
        for file in self.path.parent.iterdir():
            if left.fullmatch(file.name):
                files.remove(file)
        if self._is_parquet:
            files.make_folder(self._temporary)
        else:
            self._descriptor = files.create(self._temporary)
            try:
                self._guarded(lambda: self._write_text(_text([self.names], self.names)))
            except BaseException as error:
                self.__exit__(type(error))
                raise
        return self

    def add(self, columns: Sequence[Array]) -> None:
        """Write further rows."""
        if self._is_parquet:
            self._guarded(lambda: self._add_parquet(columns))
        else:
            cells = [_cells(column) for column in columns]
            self._guarded(lambda: self._write_text(_text(list(zip(*cells, strict=True)), ())))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if str(self.path) == STANDARD:
            return
        if self._descriptor >= 0:
            os.close(self._descriptor)
        try:
            if kind is None:
                self._guarded(self._finish)
        finally:
            files.remove(self._temporary)

    def _guarded(self, work: Any) -> None:
        """Do something; an error of the disk names the file that was to be written."""
        try:
            work()
        except OSError as error:
            raise OSError(
                error.errno, f"cannot write it ({error.strerror or error})", str(self.path)
            ) from error

    def _write_text(self, text: str) -> None:
        if str(self.path) == STANDARD:
            sys.stdout.write(text)
        else:
            files.write(self._descriptor, text.encode())

    def _add_parquet(self, columns: Sequence[Array]) -> None:
        """Write a part as a file of its own; a column of nothing gets its kind in the end."""
        frame = polars_package().DataFrame(
            {name: column.tolist() for name, column in zip(self.names, columns, strict=True)},
            schema_overrides=self._schema,
        )
        self._schema |= {name: kind for name, kind in frame.schema.items() if str(kind) != "Null"}
        buffer = io.BytesIO()
        frame.write_parquet(buffer)
        files.write_new(self._temporary / f"{self._num_parts:06d}.parquet", buffer.getvalue())
        self._num_parts += 1

    def _finish(self) -> None:
        """Put the parts together, if there are several, and give the file its name."""
        whole = self._temporary
        if self._is_parquet:
            parts = sorted(self._temporary.iterdir())
            whole = parts[0]
            if len(parts) > 1:
                whole = self._temporary / "whole"
                polars = polars_package()
                scans = [polars.scan_parquet(part).cast(self._schema) for part in parts]
                polars.concat(scans).sink_parquet(whole)
        files.flush(whole)
        files.rename(whole, self.path)


def _text(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> str:
    """Rows as CSV; names of columns that a spreadsheet would compute begin with a quote."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([[inert(name) for name in header]] if header else rows)
    return buffer.getvalue()


def _cells(column: Array) -> list[Any]:
    """Cells of CSV; fractions have six significant digits."""
    return [f"{cell:.6g}" if isinstance(cell, float) else cell for cell in column.tolist()]


def without_formulas(column: Array) -> Array:
    """A column whose texts no spreadsheet takes for formulas."""
    return np.array(
        [inert(cell) if isinstance(cell, str) else cell for cell in column.tolist()], dtype=object
    )


def inert(text: str) -> str:
    """A text that no spreadsheet takes for a formula; numbers stay."""
    return f"'{text}" if text.startswith(FORMULA) and not is_number(text) else text
