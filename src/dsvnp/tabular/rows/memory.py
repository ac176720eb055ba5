"""Memory: what a fit will take, compared with what is free, before any of it is taken.

The factors are measured (`benchmarks/large_tables.py`) and rounded up: a table of texts takes so many times its size on
disk until its columns are numbers, and each replica has its rows as they are, scaled, and in single precision.
"""

from pathlib import Path

from torch import Tensor

from dsvnp.tabular.files.table_files import PARQUET, STANDARD, polars_package

OF_TEXT, OF_NUMBERS = 32, 4  # bytes for each byte of a CSV file, and of numbers in a Parquet file
OF_A_REPLICA, OF_ALL = 4, 4  # copies of the rows for each replica, and in all
LITTLE = 2**30  # bytes that are never refused
GROUP = Path("/sys/fs/cgroup")


def free_memory() -> int | None:
    """Bytes that this process may still take; None where the system does not tell."""
    found = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        found += [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        limit, used = ((GROUP / f"memory.{name}").read_text(encoding="utf-8") for name in ("max", "current"))
        found += [int(limit) - int(used)] if limit.strip() != "max" else []
    except (OSError, ValueError):  # no Linux, or no such group
        pass
    return min(found, default=None)


def check_file(path: Path) -> None:
    """Refuse a table that would not fit into memory when it is read whole."""
    if str(path) == STANDARD or not path.is_file():
        return
    if path.suffix.lower() in PARQUET:
        polars = polars_package()
        try:
            table = polars.scan_parquet(path)
            count = int(table.select(polars.len()).collect().item()) * len(table.collect_schema())
        except Exception:  # whoever reads it says what is wrong with it
            return
        needed = 8 * OF_NUMBERS * count
    else:
        needed = OF_TEXT * path.stat().st_size
    _check(needed, f"{path}: to read it")


def check_rows(x: Tensor, y: Tensor, num_replicas: int) -> None:
    """Refuse a fit that would not fit into memory."""
    size = x.element_size() * x.numel() + y.element_size() * y.numel()
    _check(
        (OF_ALL + OF_A_REPLICA * num_replicas) * size, f"a fit of {num_replicas} replicas to {len(x)} rows"
    )


def _check(needed: int, what: str) -> None:
    free = free_memory()
    if free is not None and needed > max(free, LITTLE):
        raise ValueError(
            f"{what} would take about {needed / 2**30:.1f} GB of memory, of which {free / 2**30:.1f} GB are free; "
            "take a part of the rows (a million teach hardly less), or fewer replicas"
        )
