"""A panel of views that one pretrained network has of the same points, weighed by values that were left out.

A seat reads all points or those of a box around the best one, with outputs as they are or stretched near the best one
(`warping`). A network's errors are a share of the spread that it reads: in a small box they are small. The weights w_s
maximise the likelihood of points in the box, each predicted from other folds, and the panel's improvement is

    EI(x) = Σ_s w_s EI_s(x)                 in units of y: above the best value a warp is a straight line.

Outside the box the seats that read all points share the weights among themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.bayesian_optimisation.methods import (
    Search,
    around,
    by_rounds,
    fitted,
    improvement,
    left_out_by_gp,
    shipped,
    stacked,
)
from benchmarks.bayesian_optimisation.problems import DOUBLE
from benchmarks.bayesian_optimisation.warping import Warp
from dsvnp.botorch import MixtureLogEI, NeuralProcessModel

Make = Callable[
    [Tensor, Tensor], NeuralProcessModel
]  # from inputs of the unit cube [..., n, dim] and outputs
FOLDS = 5
LEAST_WEIGHT = 0.05  # of a seat that is asked: the others cost time and change little


@dataclass(frozen=True)
class Box:
    """A box in the unit cube: its lower corner and its sides, [dim] each."""

    low: Tensor
    sides: Tensor

    def unit(self, x: Tensor) -> Tensor:
        return (x - self.low) / self.sides

    def holds(self, x: Tensor) -> Tensor:
        return ((self.unit(x) >= 0) & (self.unit(x) <= 1)).all(-1)


def whole(dim: int) -> Box:
    return Box(torch.zeros(dim, dtype=DOUBLE), torch.ones(dim, dtype=DOUBLE))


def around_best(x: Tensor, y: Tensor, least: int) -> Box:
    """The smallest box around the best point, with sides of 1, 1/2, 1/4, …, 1/32, that has `least` points."""
    centre, box = x[y.flatten().argmax()], whole(x.shape[-1])
    for side in (0.5, 0.25, 0.125, 0.0625, 0.03125):
        low, high = (centre - side / 2).clamp(min=0), (centre + side / 2).clamp(max=1)
        smaller = Box(low, high - low)
        if int(smaller.holds(x).sum()) < least:
            break
        box = smaller
    return box


@dataclass(frozen=True)
class Seat:
    """A view of the points: those of a box, with warped outputs or, without a warp, plain ones."""

    make: Make
    box: Box
    warp: Warp | None

    def outputs(self, y: Tensor) -> Tensor:
        return y if self.warp is None else self.warp(y)

    def left_out(self, x: Tensor, y: Tensor, rows: list[Tensor]) -> Tensor:
        """ln p of the points of each fold given all others of the box, in the units of y: folds of one size, [F·f]."""
        inside = self.box.holds(x)
        u, v = self.box.unit(x), self.outputs(y)
        context = [inside.index_fill(0, fold, False).nonzero()[:, 0] for fold in rows]
        model = self.make(torch.stack([u[c] for c in context]), torch.stack([v[c] for c in context]))
        asked, truth = (torch.stack([part[fold] for fold in rows], dim=1) for part in (u, v))  # [f, F, ·]
        log_weights, mean, sigma = model.mixture(asked.unsqueeze(-2))  # [C, f, F, 1, 1]
        log_prob = torch.distributions.Normal(mean, sigma).log_prob(truth.unsqueeze(-2))
        out = (log_weights + log_prob).logsumexp(0)[..., 0, 0].T.flatten()  # [F, f] -> [F·f]
        slope = 0.0 if self.warp is None else self.warp.log_slope(y[torch.cat(rows), 0])
        return out + slope

    def log_improvement(self, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        """ln EI in the units of y at points [N, 1, dim]; −∞ outside the box."""
        inside, v = self.box.holds(x), self.outputs(y)
        own = MixtureLogEI(self.make(self.box.unit(x[inside]), v[inside]), v.max())
        top = 0.0 if self.warp is None else float(self.warp.log_slope(y.max()))

        def value(points: Tensor) -> Tensor:
            there = self.box.holds(points[:, 0])
            out = torch.full_like(points[:, 0, 0], -torch.inf)
            if there.any():
                out[there] = own(self.box.unit(points[there])) - top
            return out

        return value


class GPSeat:
    """BoTorch's SingleTaskGP of all points, with warped outputs."""

    def __init__(self, x: Tensor, y: Tensor, warp: Warp, search: Search) -> None:
        self.warp, self.search = warp, search
        with torch.enable_grad():
            self.model = fitted(x, warp(y))

    def left_out(self, x: Tensor, y: Tensor, rows: list[Tensor]) -> Tensor:
        return left_out_by_gp(self.model, rows) + self.warp.log_slope(y[torch.cat(rows), 0])

    def log_improvement(self, x: Tensor, y: Tensor) -> Callable[[Tensor], Tensor]:
        own, top = improvement(self.model, self.warp(y), self.search), float(self.warp.log_slope(y.max()))
        return lambda points: own(points) - top


@dataclass(frozen=True)
class Panel:
    """A pretrained network in several seats.

    Attributes:
        make: makes the model.
        search: how the improvement is maximised.
        share: of the warp.
        zoom: whether some seats read a box around the best point only.
        with_gp: whether a Gaussian process has a seat.
    """

    make: Make
    search: Search
    share: float = 0.1
    zoom: bool = True
    with_gp: bool = False

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            dim = x.shape[-1]
            box = around_best(x, y, least=2 * dim + 4) if self.zoom else whole(dim)
            seats, everywhere = self.seats(x, y, box)
            rows = folds_of(box.holds(x).nonzero()[:, 0])
            likely = torch.stack([seat.left_out(x, y, rows) for seat in seats])
            inside, outside = stacked(likely), torch.zeros(len(seats), dtype=y.dtype)
            outside[everywhere] = stacked(likely[everywhere])  # seats of the box know nothing there
            asked = (torch.maximum(inside, outside) >= LEAST_WEIGHT).nonzero()[:, 0].tolist()
            values = [seats[n].log_improvement(x, y) for n in asked]

            def average(points: Tensor) -> Tensor:
                there = box.holds(points[:, 0])
                weights = torch.where(there, inside[asked, None], outside[asked, None])  # [S, N]
                return (torch.stack([value(points) for value in values]) + weights.log()).logsumexp(0)

            near = around(x[y.argmax()].unsqueeze(0), self.search.round_points // 6, 0.25 * box.sides)
            return by_rounds(average, x, y, self.search, near)

    def seats(self, x: Tensor, y: Tensor, box: Box) -> tuple[list[Seat | GPSeat], list[int]]:
        """All seats, and which of them read all points."""
        warp = Warp.of(y.flatten(), self.share)
        found: list[Seat | GPSeat] = [Seat(self.make, whole(x.shape[-1]), how) for how in (None, warp)]
        if self.with_gp:
            found.append(GPSeat(x, y, warp, self.search))
        everywhere = list(range(len(found)))
        if bool((box.sides < 1).any()):
            found += [Seat(self.make, box, how) for how in (None, warp)]
        return found, everywhere


def panel(network: str, search: Search, folder: Path | None = None, with_gp: bool = False) -> Panel:
    """The panel of a network that ships with the package."""

    def make(x: Tensor, y: Tensor) -> NeuralProcessModel:
        return NeuralProcessModel(shipped(network, folder), x, y, scaling=network, num_orders=1)

    return Panel(make, search, with_gp=with_gp)


def folds_of(rows: Tensor) -> list[Tensor]:
    """Folds of one size, whose contexts one batch reads; a few points are in none."""
    size = max(1, len(rows) // FOLDS)
    return [rows[start::FOLDS][:size] for start in range(min(FOLDS, len(rows)))]
