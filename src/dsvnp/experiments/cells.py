"""Cells of a selection: each is run once, and what came of it is a line of a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
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
    lines = out.read_text(encoding="utf-8").splitlines() if out.is_file() else []
    done: list[Entry] = [json.loads(line) for line in lines]
    for cell in cells:
        plain = json.loads(json.dumps(cell))  # as the file gives it back: a tuple is a list there
        if any(plain.items() <= entry.items() for entry in done):
            continue
        done.append(plain | dict(run(cell)))
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[-1]) + "\n")
    return done
