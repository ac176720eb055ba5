"""Rows of results: one per quantity, with what seeds, splits or folds gave. No torch: reports make rows too."""

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Items by a key, in the order in which they come."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def make_row(
    dataset: str,
    model: str,
    metric: str,
    split: str,
    unit: str,
    values: Sequence[float],
    paper: tuple[float | None, float | None] = (None, None),
) -> dict[str, Any]:
    """A row of `results.json`: mean, standard deviation and median of the values, and the paper's figure."""
    what = {"dataset": dataset, "model": model, "metric": metric, "split": split, "unit": unit}
    ours = {"mean": statistics.fmean(values), "std": _spread(values), "median": statistics.median(values)}
    return what | ours | {"seeds": list(values), "paper": paper[0], "paper_spread": paper[1]}


def _spread(values: Sequence[float]) -> float:
    """Standard deviation of a sample; NaN where a value is not a number, which `statistics` does not take."""
    if not all(map(math.isfinite, values)):
        return math.nan
    return statistics.stdev(values) if len(values) > 1 else 0.0
