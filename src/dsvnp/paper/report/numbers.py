"""Numbers for a reader: as many digits as their spread supports, and which of two is better, in words."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

MINUS = "−"


def number(value: float | None, spread: float = 0.0) -> str:
    """Write a number with two digits of its spread, or three of its own; what JSON could not hold is ∞."""
    if value is None or not math.isfinite(value):
        return "∞"
    decimals = _decimals(value, spread)
    return _short(f"{value:.2e}" if decimals is None else f"{value:.{decimals}f}")


def printed(value: float) -> str:
    """Write a number of the paper as it prints it."""
    return _short(f"{value:g}")


def mean_and_spread(row: Mapping[str, Any]) -> str:
    """The mean ± the standard deviation of a row, to the same decimal; the mean alone where there is no spread.

    A spread that would read 0 there is written as a power of ten.
    """
    mean, std = row["mean"], row["std"]
    if mean is None or not std:
        return number(mean)
    decimals = _decimals(mean, std)
    spread = _short(f"{std:.1e}") if decimals is None else f"{std:.{decimals}f}"
    if float(spread.replace(MINUS, "-")) == 0:
        spread = _short(f"{std:.0e}")
    return f"{number(mean, std)} ± {spread}"


def needs_median(row: Mapping[str, Any]) -> bool:
    """Whether a few seeds may dominate the mean: it is far from the median, or its spread is half its size."""
    mean, std, median = row["mean"], row["std"], row["median"]
    if median is None or len(row["seeds"]) < 3 or set(row["seeds"]) <= {0, 1}:
        return False
    if mean is None or std is None:
        return True
    carried = abs(mean - median) > std / 2 or std > abs(mean) / 2
    return carried and number(mean, std) != number(median, std)


def distance(value: float, goal: str | float) -> float:
    """Distance of a value from its goal: `goal` is "lower", "higher", or a number to be close to."""
    if isinstance(goal, str):
        return value if goal == "lower" else -value
    return abs(value - goal)


def clear_best(rows: Sequence[Mapping[str, Any]], goal: str | float | None) -> Mapping[str, Any] | None:
    """The row that is clearly better than every other; None if none is.

    A row of one seed has no standard error. It is never the best, and prevents another from being so only by a better
    mean, or by one that it may have with more draws.
    """
    known = [row for row in rows if row["mean"] is not None]
    if goal is None or not known:
        return None
    best = min(known, key=lambda row: distance(row["mean"], goal))
    within_reach = (distance(row["mean"], goal) - _may_gain(row) for row in known if row is not best)
    if min(within_reach, default=math.inf) < distance(best["mean"], goal):
        return None
    others = [row for row in known if row is not best and len(row["seeds"]) > 1]
    return best if others and all(clearly_better(best, other, goal) for other in others) else None


def _may_gain(row: Mapping[str, Any]) -> float:
    """How far more draws may improve a likelihood, in nats: by ten times its last change, or a nat if none was kept.

    From draws it is too low on average: nothing is taken away from the best row.
    """
    return max((1.0 if change is None else 10 * change for change in moving(row)), default=0.0)


def moving(row: Mapping[str, Any]) -> list[float | None]:
    """The last changes of those estimates of a row that are not still or were not doubled; None where unknown."""
    stills = row.get("still", ())
    changes = row.get("change", [None] * len(stills))
    return [change for still, change in zip(stills, changes, strict=True) if not still]


def clearly_better(row: Mapping[str, Any], other: Mapping[str, Any], goal: str | float) -> bool:
    """Whether a row is better than another by more than two standard errors, paired over the seeds that both have.

    With fewer than two such seeds, or on other batches of tests, it cannot be shown.
    """
    if set(row.get("batches", ())) != set(other.get("batches", ())):
        return False
    mine, its = _by_seed(row), _by_seed(other)
    pairs = [(mine[seed], its[seed]) for seed in mine if seed in its]
    if len(pairs) < 2 or any(None in pair for pair in pairs):
        return False
    gains = [distance(b, goal) - distance(a, goal) for a, b in pairs]
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    # The files keep six digits: a smaller difference is rounding.
    least = 1e-6 * max(abs(row["mean"]), abs(other["mean"]))
    return statistics.fmean(gains) > max(2 * error, least)


def _by_seed(row: Mapping[str, Any]) -> dict[int, Any]:
    """The values of a row by the numbers of their seeds; without numbers these are 0, 1, 2, …"""
    values = row["seeds"]
    return dict(zip(row.get("seed_numbers", range(len(values))), values, strict=True))


def verdict(row: Mapping[str, Any], goal: str | float | None) -> str:
    """Ours against the paper's: "better", "worse", or "level" within one standard deviation of ours over seeds."""
    if row["paper"] is None or row["mean"] is None or goal is None:
        return ""
    gain = distance(row["paper"], goal) - distance(row["mean"], goal)
    if abs(gain) <= (row["std"] or 0.0):
        return "level"
    return "better" if gain > 0 else "worse"


def _decimals(value: float, spread: float) -> int | None:
    """Decimals to print; None asks for a power of ten."""
    size = max(abs(value), abs(spread))
    if size >= 1e4 or 0 < size < 1e-3:
        return None
    if spread > 0:
        return min(4, max(0, 1 - math.floor(math.log10(spread))))
    return 3 if size < 100 else 1


def _short(text: str) -> str:
    """A real minus, and exponents without padding: 2e-05 is 2e−5."""
    mantissa, e, exponent = text.partition("e")
    if e:
        text = f"{mantissa}e{int(exponent)}"
    return text.replace("-", MINUS)
