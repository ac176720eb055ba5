"""Cells of a selection: each is run once, and what came of it is a line of a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

Cell = Mapping[str, Any]
Entry = dict[str, Any]


def finish(cells: Iterable[Cell], out: Path, run: Callable[[Cell], Cell]) -> list[Entry]:
    """Run the cells that a file lacks and write a line for each as soon as it is finished; return all that it holds.

    Args:
        cells: what to run; an entry of the file that holds all of a cell is that cell's.
        out: the file, a line of JSON for each finished cell.
        run: runs a cell and returns what came of it, which is written beside the cell.
    """
    done = _read(out) if out.is_file() else []
    for cell in cells:
        plain = json.loads(json.dumps(cell))  # as the file gives it back: a tuple is a list there
        if any(plain.items() <= entry.items() for entry in done):
            continue
        done.append(plain | dict(run(cell)))
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[-1]) + "\n")
    return done


def _read(out: Path) -> list[Entry]:
    """The entries of a file, whose last line is made whole: one that a process left unfinished is taken out."""
    *lines, last = out.read_text(encoding="utf-8").split("\n")
    if last:
        with suppress(json.JSONDecodeError):
            json.loads(last)
            lines.append(last)
        whole = out.with_suffix(".tmp")
        whole.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        os.replace(whole, out)
    return [json.loads(line) for line in lines]
