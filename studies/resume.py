"""Resuming a selection: each cell is run once, and what came of it is a line of a file."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dsvnp.files import write_atomically

Settings = Mapping[str, Any]
Entry = dict[str, Any]


def finish(
    fleets: Iterable[Sequence[Settings]], out: Path, run: Callable[[Sequence[Settings]], Iterable[Settings]]
) -> list[Entry]:
    """Run the cells that a file lacks, those of a fleet together, and write a line for each; return all that it holds.

    An entry of the file that holds all of a cell is that cell's. What `run` returns is written with the cells, as soon
    as their fleet is finished.
    """
    done = _read(out) if out.is_file() else []
    for cells in fleets:
        # as the file gives them back: tuples are lists
        plain = [json.loads(json.dumps(cell)) for cell in cells]
        missing = [cell for cell in plain if not any(cell.items() <= entry.items() for entry in done)]
        if missing:
            found = zip(missing, run(missing), strict=True)
            done += [cell | json.loads(json.dumps(what)) for cell, what in found]
            write_atomically(out, "".join(f"{json.dumps(entry)}\n" for entry in done))
    return done


def _read(out: Path) -> list[Entry]:
    """The entries of a file; a last line that a process left unfinished is not one."""
    *lines, last = out.read_text(encoding="utf-8").split("\n")
    with suppress(json.JSONDecodeError):
        json.loads(last)
        lines.append(last)
    return [json.loads(line) for line in lines]
