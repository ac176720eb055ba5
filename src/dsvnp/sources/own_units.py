"""Own units: a task is read relative to its own context, as sensors need that differ in offset and range.

With n rows of the context, their mean ȳ and deviation d, and what tables have in common,

    ln s = ln s₀ + w (ln d + b − ln s₀),  w = v / (v + c)        m = m₀ + u (ȳ − m₀),  u = a / (a + s²/n)

where s₀ is the deviation of a typical table about its own mean, v the variance of ln d from table to table, m₀ and a
the centre and the variance of the tables' means, b and c what chance does to ln d (the bias it has in n normal numbers,
and its variance): the fewer rows and the more alike the tables, the more common units count. Without any row m = 0 and
s = 1. A network reads (y − m) / s, and (x − m) / s₀ of inputs, which keep a common unit: a minute is as long for each
sensor. What is taken away, each m and ln s/s₀, becomes further inputs of each row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

# numbers that a network reads lie within ± this: far away its ramps are no better than a constant
LIMIT = 4.0
FAR = 4.0  # standard deviations of ln d beyond which it is not believed
# above which tables differ: a in units of s₀², and v
APART, VARY = 1.0, 0.5
LEAST = 1e-6  # of a variance, and of a deviation, in units of all tables


class Units(NamedTuple):
    """The units of tasks."""

    x_centre: Tensor  # m of each input, [..., 1, D_x]
    centre: Tensor  # m of each output, [..., 1, D_y]
    spread: Tensor  # s of each output, [..., 1, D_y]


@dataclass(frozen=True)
class OwnUnits:
    """What tables have in common, [D_x] of inputs and [D_y] of outputs, or [..., 1, D] for several kinds of tables."""

    x_centre: Tensor  # m₀ of inputs
    x_apart: Tensor  # a of inputs
    x_spread: Tensor  # s₀ of inputs; 1 where an input is the same for all rows of a table
    centre: Tensor  # m₀ of outputs
    apart: Tensor  # a of outputs
    log_spread: Tensor  # ln s₀ of outputs
    vary: Tensor  # v of outputs

    @classmethod
    def fit(cls, tables: Sequence[tuple[Tensor, Tensor]]) -> OwnUnits:
        """Look at tables, x [rows, D_x] and y [rows, D_y] with NaN where missing, all in unit variance or so."""
        xs, ys = zip(*tables, strict=True)
        x_centre, x_apart, x_log_spread, _ = _common(xs)
        x_spread = x_log_spread.exp()
        return cls(x_centre, x_apart, torch.where(x_spread > LEAST, x_spread, 1.0), *_common(ys))

    def of(self, x: Tensor, y: Tensor, seen: Tensor) -> Units:
        """The units of contexts x [..., N, D_x], y [..., N, D_y], of which the rows `seen` [..., N] count."""
        counted = seen.unsqueeze(-1)
        number, mean, _ = _moments(x, counted)
        x_centre = _shrunk(self.x_centre, self.x_apart, self.x_spread, number, mean)
        number, mean, log_deviation = _moments(y, counted & ~y.isnan())
        bias, chance = _chance(number)
        trust = self.vary / (self.vary + chance)
        most = FAR * self.vary.sqrt()
        beyond = trust * (log_deviation + bias - self.log_spread).clamp(-most, most)
        spread = (self.log_spread + torch.where(number > 1, beyond, 0.0)).exp()
        centre = _shrunk(self.centre, self.apart, spread, number, mean)
        some = number > 0  # without any row, all tables together are the unit
        return Units(x_centre, torch.where(some, centre, 0.0), torch.where(some, spread, 1.0))

    def inputs(self, x: Tensor, units: Units) -> Tensor:
        """Inputs x [..., T, D_x] as a network reads them, with what is taken away, [..., T, D_x + `more_inputs`]."""
        away = (units.x_centre - self.x_centre) / self.x_apart.sqrt()
        y_away = (units.centre - self.centre) / self.apart.sqrt()
        range_away = units.spread.log() - self.log_spread
        own = (x - units.x_centre) / self.x_spread
        # A sum, where `expand` would do, gives no rows for none in an exported graph too.
        parts = [own, *(part + torch.zeros_like(x[..., :1]) for part in (away, y_away, range_away))]
        return squashed(torch.cat(parts, dim=-1))

    def outputs(self, y: Tensor, units: Units) -> Tensor:
        """Outputs y [..., N, D_y] as a network reads them."""
        return (y - units.centre) / units.spread


def more_inputs(dim_x: int, dim_y: int) -> int:
    """Number of inputs that hold what is taken away: m of each input and output, ln s/s₀ of each output."""
    return dim_x + 2 * dim_y


def tables_differ(tables: Sequence[tuple[Tensor, Tensor]]) -> bool:
    """Whether tables, as for `OwnUnits.fit`, lie so far apart or differ so much in range that own units may matter."""
    found = []
    for columns, in_range in zip(zip(*tables, strict=True), (False, True), strict=True):
        _, apart, log_spread, vary = _common(columns)
        spread = log_spread.exp()
        differ = (apart > APART * spread.square()) | (in_range & (vary > VARY))
        found.append(differ & (spread > LEAST))  # not what is the same for all rows of a table
    return bool(torch.cat(found).any())


def squashed(z: Tensor) -> Tensor:
    """Numbers bent smoothly to within ± `LIMIT`."""
    return z / (1 + (z / LIMIT).square()).sqrt()


def _common(tables: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """m₀, a, ln s₀ and v of columns of tables, [D] each; by medians and quartiles, which outliers do not move."""
    moments = [_moments(values.double(), ~values.isnan()) for values in tables]
    number, mean, log_deviation = (torch.stack(column).squeeze(1) for column in zip(*moments, strict=True))
    some, several = number > 0, number > 2
    varies = several & (log_deviation > math.log(LEAST))
    # a table in which a column is constant has no range of its own to tell of
    ranged = torch.where(varies.any(0), varies, several)
    # what chance does to the median of ln d is about two thirds of what it does to the mean
    log_spread, vary = _middle(log_deviation + 1 / (3 * (number - 1).clamp(min=1)), ranged)
    centre, apart = _middle(mean, some)
    # What chance alone does to means and deviations of so many rows.
    to_means = _mean(log_spread.exp().square() / number, some)
    to_deviations = _mean(_chance(number)[1], ranged)
    return centre, (apart - to_means).clamp(min=LEAST), log_spread, (vary - to_deviations).clamp(min=LEAST)


def _moments(values: Tensor, counted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Number, mean and ln deviation of those values [..., N, D] that count, [..., 1, D] each."""
    there = _and_one(torch.where(counted, values, 0.0))
    counted = _and_one(counted)
    number = counted.sum(-2, keepdim=True).to(values.dtype)
    mean = there.sum(-2, keepdim=True) / number.clamp(min=1)
    squares = torch.where(counted, there - mean, 0.0).square().sum(-2, keepdim=True)
    return number, mean, 0.5 * (squares / (number - 1).clamp(min=1)).clamp(min=LEAST**4).log()


def _and_one(rows: Tensor) -> Tensor:
    """Rows [..., N, D] and one of zeros: a graph that was exported cannot add up no rows at all."""
    return torch.cat([rows, rows.new_zeros(*rows.shape[:-2], 1, rows.shape[-1])], dim=-2)


def _chance(number: Tensor) -> tuple[Tensor, Tensor]:
    """b and c of so many rows: ½(ln x − ψ(x)) and ¼ψ′(x) with x = (n − 1)/2, by their expansions in 1/x."""
    degrees = (number - 1).clamp(min=1)
    bias = 1 / (2 * degrees) + 1 / (6 * degrees.square())
    return bias, 1 / (2 * degrees) + 1 / (2 * degrees.square()) + 1 / (3 * degrees**3)


def _shrunk(centre: Tensor, apart: Tensor, spread: Tensor, number: Tensor, mean: Tensor) -> Tensor:
    """m of so many rows with a mean, [..., 1, D]; m₀ of none."""
    believed = apart / (apart + spread.square() / number.clamp(min=1))
    return centre + torch.where(number > 0, believed * (mean - centre), 0.0)


def _middle(values: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Median, and variance by the interquartile range, of columns [M, D] of which some values count; 0 of none."""
    ends = torch.tensor([0.25, 0.5, 0.75], dtype=values.dtype)
    low, middle, high = torch.where(counted, values, torch.nan).nanquantile(ends, dim=0)
    return middle.nan_to_num(), ((high - low) / 1.349).square().nan_to_num()


def _mean(values: Tensor, counted: Tensor) -> Tensor:
    """Mean of columns [M, D] of which some values count; 0 of none."""
    return torch.where(counted, values, torch.nan).nanmean(0).nan_to_num()
