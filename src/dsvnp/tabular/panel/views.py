"""Views: the columns that a network for tables is shown, of rows that were encoded as numbers.

    columns     numbers with their gaps, which the network masks, and each category as one column of codes
    filled      the same with gaps filled, and flags that say where; for tables that have gaps
    components  principal components of all encoded columns, gaps filled

A network knows at most `MOST_COLUMNS` columns. Of more, "columns" and "filled" show those whose values, or distances
from the middle, correlate with y the most, and "components" those with the most variance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dsvnp.tabular.rows.encoding import Encoding, Filling
from dsvnp.tabular.rows.scaling import InputScaling

MOST_COLUMNS = 32
LEAST_SHARE = 1e-6  # of the largest component's variance that a component must have

View = Callable[[Tensor], Tensor]  # encoded rows [T, D] → shown columns [T, d], NaN where missing


@dataclass(frozen=True)
class Layout:
    """What the encoded columns are: numbers, then flags of categories, then flags of gaps."""

    numbers: int  # how many columns are numbers
    groups: tuple[int, ...]  # for each category the number of its flags
    gaps: tuple[int, ...]  # columns of numbers whose gaps have a flag, in the order of these

    @classmethod
    def of(cls, encoding: Encoding | None, filling: Filling) -> Layout:
        """The layout of what an encoding and a filling make."""
        categories = () if encoding is None else encoding.categories
        groups = tuple(len(found) for found in categories if found is not None)
        gaps = tuple(index for index, gap in enumerate(filling.gaps) if gap)
        return cls(len(filling.medians) - sum(groups), groups, gaps)

    @property
    def width(self) -> int:
        """Columns that "columns" shows."""
        return min(MOST_COLUMNS, self.numbers + len(self.groups))

    @property
    def sources(self) -> tuple[int, ...]:
        """For each encoded column the input that it was made of: the flags of a category, or of a gap, share it."""
        flags = [self.numbers + place for place, size in enumerate(self.groups) for _ in range(size)]
        made = [*range(self.numbers), *flags]
        return (*made, *(made[column] for column in self.gaps))

    def shown(self, x: Tensor) -> Tensor:
        """Numbers with NaN in their gaps, and categories as codes; one never seen is missing."""
        numbers = x[:, : self.numbers].clone()
        for flag, column in enumerate(self.gaps, x.shape[1] - len(self.gaps)):
            if column < self.numbers:
                numbers[:, column] = torch.where(x[:, flag] > 0.5, torch.nan, numbers[:, column])
        parts, start = [numbers], self.numbers
        for size in self.groups:
            group = x[:, start : start + size]
            start += size
            code = group.argmax(1).to(x.dtype)
            parts.append(torch.where(group.sum(1) > 0.5, code, torch.nan)[:, None])
        return torch.cat(parts, 1)

    def filled(self, x: Tensor) -> Tensor:
        """Numbers with their gaps filled, categories as codes, and flags of gaps."""
        codes = self.shown(x)[:, self.numbers :]
        return torch.cat([x[:, : self.numbers], codes, x[:, x.shape[1] - len(self.gaps) :]], 1)


def fit_view(name: str, layout: Layout, x: Tensor, y: Tensor) -> View:
    """Make a view of known rows x [N, D], y [N] in float64, labels as numbers."""
    if name == "components":
        return _components(x)
    show = layout.filled if name == "filled" else layout.shown
    shown = show(x)
    if shown.shape[1] <= MOST_COLUMNS:
        return show
    kept = relevance(shown, y).topk(MOST_COLUMNS).indices.sort().values
    return lambda rows: show(rows)[:, kept]


def _components(x: Tensor) -> View:
    """Principal components of scaled columns; one of no variance is 0 everywhere."""
    scaling = InputScaling.fit(x)
    rows = scaling.transform(x)
    mean = rows.mean(0)
    variances, axes = torch.linalg.eigh((rows - mean).T @ (rows - mean))
    there = variances >= LEAST_SHARE * variances[-1].clamp(min=1e-30)
    kept = torch.where(there, axes, 0.0).flip(1)[:, :MOST_COLUMNS]
    return lambda rows: (scaling.transform(rows) - mean) @ kept


def relevance(x: Tensor, y: Tensor) -> Tensor:
    """Relevance of columns [N, D] with gaps for y [N]: the largest of two squared correlations, [D]."""
    mean = x.nanmean(0)
    z = (x - mean).nan_to_num(0.0)
    if y.is_floating_point():
        targets = torch.where(y.isnan(), y.nanmean(), y)[:, None]
    else:
        targets = one_hot(y.clamp(min=0)).double()
    both = [_correlation(part, targets).amax(1) for part in (z, z.abs())]
    return torch.stack(both).amax(0)


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    """Squared correlations of columns [N, D] and [N, C], [D, C]."""
    a, b = a - a.mean(0), b - b.mean(0)
    size = a.square().sum(0)[:, None] * b.square().sum(0)
    return (a.T @ b).square() / torch.where(size > 0, size, 1.0)
