"""Choosing: held-out rows choose the members of a panel, and measure it.

Every view predicts rows that it has not read. It gets members (seats) in proportion to its weight in the mixture under
which these rows are the most likely. Reading takes time in proportion to rows × columns; a budget of such cells limits
the number of held-out rows, and of orders in which the panel reads the columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsvnp.predictive import Predictive
from dsvnp.tabular.panel.asking import MOST_CLASSES
from dsvnp.tabular.panel.consulting import (
    GAUSSIAN,
    NEAR_ROWS,
    Member,
    PanelProblem,
    asked_together,
    consult,
    consult_near,
    families_of,
)
from dsvnp.tabular.panel.leaves import Leaves
from dsvnp.tabular.panel.panel import Panel, seated, side_by_side, stretch_all
from dsvnp.tabular.panel.seating import fit_stretch, give_seats
from dsvnp.tabular.panel.views import MOST_COLUMNS
from dsvnp.tabular.rows.folds import BY_CHANCE, HoldOut
from dsvnp.tabular.rows.reading import check_known
from dsvnp.tabular.rows.scaling import ClassScaling, InputScaling, OutputScaling
from dsvnp.tabular.rows.weights import ALIKE, Weights
from dsvnp.tabular.summary import Summary, blind, calibration_of, prior_of, summarise
from dsvnp.tabular.trained.correcting import Answer
from dsvnp.tabular.trained.ensemble import linear_name
from dsvnp.tabular.trained.fitting import is_clear

SEATS = 8
FEWEST_ROWS = 160  # that a split reads, and of which it holds out a part, even beyond the budget
ENOUGH_ROWS = 512  # that a member reads even beyond the budget
MANY_ROWS = 10_000  # that are kept of a large table
ENOUGH_HELD_OUT = 300  # rows of a large table
# Context of a box where views are compared: half of what it is later. Their weights are as good, in three quarters of
# the time; smaller contexts of an answer raise NLL (results/tables).
COMPARED_ROWS = 256
MOST_ROWS = 1024  # that a member reads: the network has learned from up to 896


@dataclass(frozen=True)
class Budget:
    """How much may be read."""

    held_out: int  # cells, rows × columns, that all views together read to be compared
    panel: int  # cells that the members of the panel read
    folds: int  # folds that a table is cut into, at most, for numbers
    label_folds: int  # and for classes
    passes: int  # orders of columns that a panel reads, at most
    leaves: int  # boxes that a large table is cut into, at most

    def most_folds(self, problem: PanelProblem) -> int:
        """Folds that a table is cut into, at most."""
        return self.label_folds if problem.num_classes else self.folds


BUDGETS = {
    "fast": Budget(5_000, 5_000, 2, 4, 2, 2),
    "balanced": Budget(16_000, 24_000, 3, 6, 4, 4),
    "thorough": Budget(200_000, 200_000, 5, 8, 8, 16),
}


class Chosen(NamedTuple):
    """A panel, its measures on held-out rows, and whether these are clearly better than the mean predictor's."""

    panel: Panel
    summary: Summary
    is_clear: bool


class Split(NamedTuple):
    """Folds of as many rows each: those that are read, [F, N], and those that are held out, [F, M]."""

    read: NDArray[np.intp]
    held: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.read)

    def repeated(self, weights: Weights, seed: int) -> Self:
        """The folds with each row as often as its weight says."""
        return type(self)(*(np.stack([weights.repeated(rows, seed) for rows in part]) for part in self))


def choose_panel(
    x: Tensor,
    y: Tensor,
    problem: PanelProblem,
    effort: str,
    seed: int,
    most_rows: int | None,
    names: Sequence[str],
    by: HoldOut = BY_CHANCE,
    weights: Weights = ALIKE,
) -> Chosen:
    """Choose a panel for a table.

    Args:
        x: encoded rows, [N, D].
        y: outputs, [N, D_y], NaN where missing, or labels [N, 1].
        problem: what they are.
        effort: one of `BUDGETS`.
        seed: decides the folds.
        most_rows: rows that a member reads; None for as many as the network knows.
        names: of the outputs.
        by: what decides which rows are held out.
        weights: of the rows.
    """
    budget, width = BUDGETS[effort], problem.layout.width + 1
    most, passes, leaves = reading_of(len(x), width, most_rows or MOST_ROWS, budget)
    views = problem.views(many_rows=leaves > 1)
    costly = [Member(view).has_network for view in views]
    families = families_of(views) if problem.num_classes else None
    affordable = budget.held_out // (width * max(1, sum(costly)))
    if leaves > 1 or not by.by_chance:
        split = split_once(by, y, MANY_ROWS if leaves > 1 else most, seed)
    else:
        split = split_rows(y, most, affordable, budget.most_folds(problem), seed)
    split = split.repeated(weights, seed)
    check_known([[(x[rows], y[rows])] for rows in split.read], names)
    held = torch.from_numpy(split.held.reshape(-1))
    truth = y[held].to(problem.device)
    boards, mixtures, lines = [], [], []
    for column in range(y.shape[1]):
        found = held_out(views, x, y[:, column], split, problem, leaves, most)
        scores = torch.stack([p.log_prob(truth[None, :, column : column + 1])[0] for p in found])
        seats = give_seats(scores, SEATS, costly, passes, families)
        boards.append(_members([views[seat] for seat in seats], passes, 1 if problem.num_classes else passes))
        mixtures.append(seated([found[seat] for seat in seats]))
        lines += [p for view, p in zip(views, found, strict=True) if view == "linear"]
    mixture = side_by_side(mixtures)
    stretch = fit_stretch(mixture, truth)
    mixture = stretch_all(mixture, stretch)
    kept = MANY_ROWS if leaves > 1 else most * passes
    panel = Panel(
        tuple(boards),
        stretch,
        most,
        leaves,
        kept,
        problem,
        *_plain(x, y, problem, seed, weights),
        calibration_of(mixture, truth).cpu(),
    )
    predictions = {"neural process": mixture, "mean predictor": blind(panel.prior, len(truth))}
    predictions |= {linear_name(panel.outputs): side_by_side(lines)} if lines else {}
    clear = is_clear([Answer(mixture, panel.outputs, truth[:, :0], truth)], panel.prior)
    return Chosen(panel, summarise(predictions, truth, names), clear)


def outside(problem: PanelProblem) -> str:
    """What is done with a table that has more columns or classes than the network was trained on; empty for others."""
    said = []
    if (columns := problem.layout.numbers + len(problem.layout.groups)) > MOST_COLUMNS:
        said.append(
            f"X has {columns} columns and the pretrained network reads {MOST_COLUMNS}: those that correlate with y "
            "most, or principal components, whichever predict held-out rows better"
        )
    if problem.num_classes > MOST_CLASSES:
        said.append(
            f"y has {problem.num_classes} classes and the pretrained network tells {MOST_CLASSES} apart: it chooses a "
            "group of classes, then one of the group"
        )
    return "; ".join([*said, "refine=True also trains a network of your own"]) if said else ""


def reading_of(rows: int, width: int, most: int, budget: Budget) -> tuple[int, int, int]:
    """Rows that a member reads at most, the number of orders, and of boxes that the table is cut into.

    There are at least two orders: the difference between their predictions is a part of the uncertainty.
    """
    if rows > most:
        return most, 2, int(np.clip(-(-rows // min(most, NEAR_ROWS)), 2, budget.leaves))
    most = min(most, max(ENOUGH_ROWS, budget.panel // (2 * width)))
    return most, int(np.clip(budget.panel // (width * min(rows, most)), 2, budget.passes)), 1


def split_once(by: HoldOut, y: Tensor, most: int, seed: int) -> Split:
    """Hold out some rows of a table that is cut into boxes, or rows that are new together: groups, or the latest."""
    rng = np.random.default_rng(seed)
    if by.by_chance:
        order = rng.permutation(len(y))[:most]
        held = min(ENOUGH_HELD_OUT, len(order) // 4)
        return Split(order[None, held:], order[None, :held])
    read, kept = by.splits(y, 4, seed)[0]
    return Split(rng.permutation(read)[None, :most], rng.permutation(kept)[None, :ENOUGH_HELD_OUT])


def split_rows(y: Tensor, most: int, affordable: int, most_folds: int, seed: int) -> Split:
    """Cut a table into folds, or a part of a large one in two.

    Labels say less than numbers: both parts of these are held out, in turn.

    Args:
        y: outputs, or labels of which each fold has its share.
        most: rows that are read at once.
        affordable: rows that may be read in all.
        most_folds: how many folds there may be.
        seed: decides which go where.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    folds = int(np.clip(affordable // len(y), 1, min(most_folds, len(y))))
    if folds < 2:
        labels = not y.is_floating_point()
        order = order[: max(2 * affordable if labels else affordable, FEWEST_ROWS)]
        folds, parts = (2, 2) if labels else (4 if len(order) >= 8 else 2, 1)
    else:
        order, parts = order[: most * folds // (folds - 1)], folds
    if not y.is_floating_point():
        order = order[np.argsort(y[order, 0].numpy(), kind="stable")]
    size = len(order) // folds
    held = np.stack([order[k : size * folds : folds] for k in range(parts)])
    return Split(np.stack([np.setdiff1d(order, some, assume_unique=True) for some in held]), held)


def held_out(
    views: Sequence[str], x: Tensor, y: Tensor, split: Split, problem: PanelProblem, leaves: int, most: int
) -> list[Predictive]:
    """Predictions of held-out rows by each view, [1, S, 1, F·M, ·]; each fold has an order of columns of its own."""
    asked = [x[rows] for rows in split.held]
    told = [(x[rows], y[rows]) for rows in split.read]
    boxes = None
    if leaves > 1:  # a single fold of a large table
        known = told[0][1] >= 0 if problem.num_classes else ~told[0][1].isnan()
        told = [(told[0][0][known], told[0][1][known])]
        boxes = Leaves(*told[0], leaves, min(most, COMPARED_ROWS))
    found: dict[str, Predictive] = {}
    for group in asked_together([Member(view) for view in views]):
        names, read = [member.view for member in group], group[0].has_network
        if boxes is not None and read:
            whole = consult_near(group, told[0], problem, boxes, exact=False)(asked[0])
        else:
            members = [Member(view, fold if read else 0) for view in names for fold in range(len(split))]
            whole = consult(members, told * len(names), problem, exact=False)(asked * len(names))
        for index, view in enumerate(names):
            found[view] = whole.map(partial(_folds_as_rows, index, len(split)))
    return [found[view] for view in views]


def _folds_as_rows(index: int, folds: int, array: Tensor) -> Tensor:
    """The folds of a view as one set of rows, [views · F, S, 1, M, ·] -> [1, S, 1, F·M, ·]."""
    return array[index * folds : (index + 1) * folds].permute(2, 1, 0, 3, 4).flatten(2, 3).unsqueeze(2)


def _members(views: Sequence[str], passes: int, samples: int) -> tuple[Member, ...]:
    """A member for each seat.

    Those of one view read the columns in different orders, up to the number of passes, or so many samples of the rows.
    """
    reading = sum(Member(view).has_network for view in views)
    out = []
    for index, view in enumerate(views):
        place, count = views[:index].count(view), views.count(view)
        if view == GAUSSIAN:  # pairs, and one alone
            out.append(Member(view, 0 if place == count - 1 and count % 2 else 1 + place % 2))
        else:
            share = max(1, passes * count // reading) if Member(view).has_network else samples
            out.append(Member(view, place % share))
    return tuple(out)


def _plain(
    x: Tensor, y: Tensor, problem: PanelProblem, seed: int, weights: Weights
) -> tuple[InputScaling, OutputScaling | ClassScaling, Tensor]:
    """Simple references for a table: scaling of inputs, ridge or logistic regression, and the outputs' prior."""
    rows = weights.repeated(np.arange(len(x)), seed)
    x, y = x[rows], y[rows]
    inputs = InputScaling.fit(x)
    some = torch.from_numpy(np.random.default_rng(seed).permutation(len(x))[:MANY_ROWS])
    outputs: OutputScaling | ClassScaling
    if problem.num_classes:
        outputs = ClassScaling.fit(inputs.transform(x[some]), y[some], problem.num_classes)
    else:
        outputs = OutputScaling.fit(inputs.both(x[some]), y[some])
    return inputs, outputs, prior_of(y, problem.num_classes).to(problem.device)
