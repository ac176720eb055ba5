"""Leaves: a table with more rows than a network reads, cut into boxes; a row is predicted from those nearest its box.

The box with most rows is cut in two at the median of the column that correlates with y most in it, until there are
enough. Which box a row lies in depends on the row alone, and so its prediction does not depend on the
rows asked with it.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from dsvnp.predictive import Predictive, concatenate
from dsvnp.tabular.panel.views import relevance

LEAST_SHARE = 0.25  # of a box's rows that must lie on either side of a cut


class Leaves:
    """Boxes and their contexts.

    Args:
        x: filled inputs of known rows, [N, D].
        y: their outputs, or labels, [N].
        number: of boxes, at most.
        most: rows of a context.
    """

    def __init__(self, x: Tensor, y: Tensor, number: int, most: int) -> None:
        # box that is cut, column, value; what lies above is a new box
        self.cuts: list[tuple[int, int, float]] = []
        where = torch.zeros(len(x), dtype=torch.long)
        while len(self.cuts) + 1 < number:
            largest = int(where.bincount().argmax())
            inside = where == largest
            cut = _cut(x[inside], y[inside])
            if cut is None:
                break
            self.cuts.append((largest, *cut))
            where[inside & (x[:, cut[0]] > cut[1])] = len(self.cuts)
        self.contexts = [self._nearest(x, where == box, most) for box in range(len(self.cuts) + 1)]

    def assign(self, x: Tensor) -> Tensor:
        """The box of each row [T, D], [T]."""
        where = torch.zeros(len(x), dtype=torch.long)
        for new, (box, column, value) in enumerate(self.cuts, 1):
            where[(where == box) & (x[:, column] > value)] = new
        return where

    def answer(self, ask: Callable[[int, Tensor], Predictive], x: Tensor) -> Predictive:
        """Ask each box for its rows of x [T, D]; targets come back in the order of the rows."""
        where = self.assign(x)
        boxes = where.unique().tolist()
        whole = concatenate([ask(box, x[where == box]) for box in boxes], dim=3)
        order = torch.cat([(where == box).nonzero()[:, 0] for box in boxes]).argsort()
        return whole.map(lambda array: array[:, :, :, order.to(array.device)])

    def _nearest(self, x: Tensor, inside: Tensor, most: int) -> Tensor:
        """Rows nearest to a box, in units of each column that was cut; random ones of those inside."""
        columns = sorted({column for _, column, _ in self.cuts})
        z = x[:, columns] - x[:, columns].mean(0)
        z = z / z.square().mean(0).sqrt().clamp(min=1e-12)
        low, high = z[inside].amin(0), z[inside].amax(0)
        away = ((low - z).clamp(min=0) + (z - high).clamp(min=0)).norm(dim=1)
        random = torch.rand(len(x), generator=torch.Generator().manual_seed(0), dtype=x.dtype)
        return (away + 1e-9 * random).argsort()[:most]


def _cut(x: Tensor, y: Tensor) -> tuple[int, float] | None:
    """The column that correlates with y most, of those whose median cuts rows in two, and that median."""
    medians = x.median(0).values
    above = (x > medians).double().mean(0)
    fair = (above >= LEAST_SHARE) & (above <= 1 - LEAST_SHARE)
    if not bool(fair.any()):
        return None
    column = int(torch.where(fair, relevance(x, y), -1.0).argmax())
    return column, float(medians[column])
