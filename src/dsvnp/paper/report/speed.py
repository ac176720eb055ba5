"""The table of speed, from what `benchmarks/speed.py` wrote."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsvnp.paper.report.tables import Cell, Table

PEER = "neuralprocesses"
MODELS = ("np", "cnp", "attnnp", "dsvnp", "tnp")
SIZES = {
    "peer's size": "three layers of width 128 on either side",
    "width 128": "width 128",
    "field's size": "six attention layers of width 64, 50 points",
}
CAPTION = (
    "A training step of 16 functions with 50 + 50 points (TNP: 50 in all), in milliseconds per model, by what is the "
    "default on each machine: on a GPU compiled and captured as one graph, in TF32 unless it says float32; on a CPU "
    "neither. “Plain loop” is one model with autograd and torch's Adam. The figures of a line come from one run."
)
Row = Mapping[str, Any]


def speed_table(files: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each model and machine: a plain loop, our step alone and ten at once, and the peer's."""
    lines = tuple(line for file in files for line in _lines(file))
    columns = ("model", "machine", "layers", "plain loop", "one model", "per model, 10 at once", PEER)
    return Table("Speed", CAPTION, columns, lines)


def _lines(file: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Cell | None, ...]]]:
    """The lines of one machine."""
    machine = file["machine"]["device"].removeprefix("NVIDIA ")
    rows = [row for row in file["rows"] if row["what"] == "train" and not row.get("clip_norm")]
    for model in MODELS:
        ours = [row for row in rows if (row["library"], row["model"]) == ("dsvnp", model)]
        peer = [row for row in rows if (row["library"], row["model"]) == (PEER, model)]
        for precision in dict.fromkeys(row["precision"] for row in ours if row.get("precision")):
            same = [row for row in ours if row.get("precision") == precision]
            cells = [_time(same, replicas) for replicas in (1, 10)]
            odd = precision == "float32" and same[0]["device"] == "cuda"
            plain = [row for row in ours if row["how"] == "eager"]
            loop, other = (Cell(_digits(found[0])) if found and not odd else None for found in (plain, peer))
            label = f"{model}-float32" if odd else model
            given = str(same[0].get("size", ""))  # rows of predictions have none
            size = SIZES.get(given, given)
            yield label, (Cell(machine), Cell(size), loop, *cells, other)


def _time(rows: Sequence[Row], replicas: int) -> Cell | None:
    """The default way's time; on a CPU, the compiled step's below it where it was measured."""
    times = {row["how"]: row for row in rows if row["replicas"] == replicas}
    if "compiled and captured" in times:
        return Cell(_digits(times["compiled and captured"]))
    if "fleet step" not in times:
        return None
    notes = (f"compiled {_digits(times['compiled'])}",) if "compiled" in times else ()
    return Cell(_digits(times["fleet step"]), notes)


def _digits(row: Row) -> str:
    """Milliseconds with three digits."""
    return f"{row['ms_per_model_step']:.3g}"
