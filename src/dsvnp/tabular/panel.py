"""Panel: members that predict a table without training, each in its way; together they are one predictive mixture.

A member is the pretrained network shown a view of the columns in some order (`views`), the network on what a linear
model leaves over, or that linear model alone. Rows that were held out choose who sits on the panel, each member for one
seat of equal weight, and how far to stretch what they say:

    numbers   y ← m + stretch · (y − m),  m the mixture's mean;        classes   p_k ← softmax(ln p_k / stretch)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from dsvnp.predictive import CategoricalPredictive, IndependentPredictive, Predictive, concatenate
from dsvnp.sources.table import Pair
from dsvnp.tabular.asking import read
from dsvnp.tabular.ensemble import Answering, Draws, Outputs, linear_guess, linear_name
from dsvnp.tabular.leaves import Leaves
from dsvnp.tabular.scaling import ClassScaling, InputScaling, OutputScaling
from dsvnp.tabular.summary import blind
from dsvnp.tabular.views import Layout, fit_view

# regularisation C of the logistic regression of each linear view
LINEAR_VIEWS = {"linear": 1.0, "tight linear": 0.03, "loose linear": 100.0}

NEAR_ROWS = 512  # of the context of a box

Told = tuple[Tensor, Tensor]  # encoded inputs [N, D] and one output [N]
Consulted = Callable[[Sequence[Tensor]], Predictive]  # rows [T, D] of each set → [B, S, 1, T, 1 or C]


@dataclass(frozen=True)
class Member:
    """Who sits on a panel: a view, and a seed.

    The seed decides the order of columns, and which rows are read where there are too many; a linear model reads a
    bootstrap sample. With 0 everything is as given.
    """

    view: str
    order: int = 0


@dataclass(frozen=True)
class Problem:
    """What members are asked about."""

    layout: Layout  # what the encoded columns are
    num_classes: int  # 0 for numbers
    device: torch.device  # where to compute

    def views(self) -> list[str]:
        """Views that are worth a try."""
        return ["columns", "components", *(LINEAR_VIEWS if self.num_classes else ["residuals", "linear"])]


def consult(
    view: str, sets: Sequence[Told], orders: Sequence[int], problem: Problem, exact: bool = True
) -> Consulted:
    """Let a view's network, or a linear model, read sets of rows; return what answers rows of each.

    Args:
        view: one of `Problem.views`.
        sets: encoded rows with one output, as many in each set.
        orders: a seed for each.
        problem: what they are.
        exact: answer few rows in double precision.
    """
    if view in LINEAR_VIEWS:
        return _linear(sets, problem, LINEAR_VIEWS[view])
    lines: list[Line] = []
    if view == "residuals":
        lines = [Line.fit(x, y) for x, y in sets]
        sets = [(x, y - line(x)) for (x, y), line in zip(sets, lines, strict=True)]
    views = [fit_view("columns" if lines else view, problem.layout, x, y) for x, y in sets]
    shown = [(show(x), y) for show, (x, y) in zip(views, sets, strict=True)]
    reading = read(shown, orders, problem.num_classes, problem.device, exact)

    def answer(rows: Sequence[Tensor]) -> Predictive:
        found = reading([show(x) for show, x in zip(views, rows, strict=True)])
        if not lines:
            return found
        assert isinstance(found, IndependentPredictive)
        shift = torch.stack([line(x) for line, x in zip(lines, rows, strict=True)])  # [B, T]
        one = torch.ones((), dtype=torch.float64, device=problem.device)
        return found.affine(shift[:, None, None, :, None].to(problem.device), one)

    return answer


def consult_near(
    view: str, told: Told, orders: Sequence[int], problem: Problem, boxes: Leaves, exact: bool = True
) -> Answering:
    """Let a view's network read the context of each box, when the first row in it is asked for."""
    x, y = told

    @cache
    def reader(box: int) -> Consulted:
        near = boxes.contexts[box]
        return consult(view, [(x[near], y[near])] * len(orders), orders, problem, exact)

    def ask(box: int, rows: Tensor) -> Predictive:
        return reader(box)([rows] * len(orders))

    return lambda rows: boxes.answer(ask, rows)


@dataclass(frozen=True)
class Line:
    """Ridge of one output, with the deviation of its errors."""

    inputs: InputScaling
    outputs: OutputScaling
    deviation: Tensor

    @classmethod
    def fit(cls, x: Tensor, y: Tensor) -> Line:
        """Fit to rows x [N, D], y [N]; NaN is missing."""
        inputs = InputScaling.fit(x)
        outputs = OutputScaling.fit(inputs.both(x), y[:, None])
        number = int((~y.isnan()).sum())
        free = max(number - min(x.shape[1], number // 2) - 1, 1)  # rows that the coefficients leave
        return cls(inputs, outputs, outputs.scale[0] * (number / free) ** 0.5)

    def __call__(self, x: Tensor) -> Tensor:
        """The mean of rows [T, D], [T]."""
        return self.outputs.linear(self.inputs.both(x))[:, 0]


def _linear(sets: Sequence[Told], problem: Problem, strength: float) -> Consulted:
    """Ridge or logistic regression of each set."""
    device = problem.device
    if problem.num_classes:
        scalings = [InputScaling.fit(x) for x, _ in sets]
        made = [
            ClassScaling.fit(scaling.transform(x), y[:, None], problem.num_classes, strength=strength)
            for (x, y), scaling in zip(sets, scalings, strict=True)
        ]

        def classes(rows: Sequence[Tensor]) -> Predictive:
            each = [
                one.linear(scaling.both(x)) if len(one.bias) else x.new_zeros(len(x), problem.num_classes)
                for one, scaling, x in zip(made, scalings, rows, strict=True)
            ]
            return CategoricalPredictive(torch.stack(each).log_softmax(-1)[:, None, None].to(device))

        return classes
    lines = [Line.fit(x, y) for x, y in sets]

    def numbers(rows: Sequence[Tensor]) -> Predictive:
        loc = torch.stack([line(x) for line, x in zip(lines, rows, strict=True)])[:, None, None, :, None]
        scale = torch.stack([line.deviation for line in lines])[:, None, None, None, None]
        return IndependentPredictive(loc.to(device), scale.to(device), torch.zeros_like(loc).to(device))

    return numbers


def one_of(sets: Predictive, index: int) -> Predictive:
    """What one of several sets says."""
    return sets.map(lambda array: array[index : index + 1])


def seated(parts: Sequence[Predictive]) -> Predictive:
    """Members with equal weights; a single normal counts as so many alike as the others have."""
    number = max(part.shape[1] for part in parts)
    return concatenate([part.map(lambda a: a.expand(-1, number, -1, -1, -1)) for part in parts], dim=0)


def side_by_side(parts: Sequence[Predictive]) -> Predictive:
    """Panels of single outputs as one of all outputs."""
    if len(parts) == 1:
        return parts[0]
    number = max(part.shape[1] for part in parts)
    arrays = zip(
        *(part.map(lambda a: a.expand(-1, number, -1, -1, -1)).arrays() for part in parts), strict=True
    )
    return parts[0].like(*(torch.cat(columns, -1) for columns in arrays))


def stretch_all(predictive: Predictive, factor: Tensor) -> Predictive:
    """Stretch a whole mixture, see above; factor is [D] for numbers, [1] for classes."""
    if isinstance(predictive, CategoricalPredictive):
        return CategoricalPredictive((predictive.log_probs / factor).log_softmax(-1))
    assert isinstance(predictive, IndependentPredictive)
    return predictive.affine((1 - factor) * predictive.mean, factor)


@dataclass(frozen=True)
class Panel:
    """Who predicts a table, and what is known of them."""

    members: tuple[tuple[Member, ...], ...]  # for each output its members, as many for each
    stretch: Tensor  # what held-out rows say of the spread, [D_y]; [1] for classes
    most_rows: int  # rows that a member reads at most
    # number of boxes that a context with more rows is cut into; 1 has members read random rows of it
    leaves: int
    num_context: int  # rows that are worth keeping as context
    problem: Problem  # what is asked
    inputs: InputScaling  # scaling of all rows of the fit
    outputs: Outputs  # its linear part, to compare with
    prior: Tensor  # what outputs are without a look at inputs, see `summary.prior_of`
    # what a calibration plot of the held-out rows is made of, see `summary.calibration_of`
    calibration: Tensor

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.problem.device

    def to(self, device: torch.device) -> Panel:
        """The panel on another device; what is linear stays on the CPU."""
        problem = replace(self.problem, device=device)
        return replace(self, problem=problem, stretch=self.stretch.to(device), prior=self.prior.to(device))

    def draws(self, number: int, seed: int) -> Draws:
        """Nothing is drawn: members are the functions that there are."""
        return Draws(1, 1, 0)

    def settled(self, draws: Draws) -> Draws:
        """The draws that matter: none."""
        return Draws(1, 1, 0)

    def condition(self, context: Pair, draws: Draws) -> Answering:
        """Let all members read the context; rows are answered by their equal-weight mixture."""
        x, y = (part.cpu() for part in context)
        boards = [self._board(column, x, y[:, column]) for column in range(len(self.members))]

        def answer(rows: Tensor) -> Predictive:
            return stretch_all(side_by_side([board(rows.cpu()) for board in boards]), self.stretch)

        return answer

    def predict(self, context: Pair, x: Tensor, draws: Draws) -> Predictive:
        """Predict rows x [T, D] from context rows."""
        answer = self.condition(context, draws)
        return concatenate([answer(rows) for rows in x.split(500)], dim=3)

    def baselines(self, x: Tensor) -> dict[str, Predictive]:
        """What anybody could have said of rows x: the mean predictor, and ridge or logistic regression."""
        out = {"mean predictor": blind(self.prior, len(x))}
        linear = self.outputs.linear(self.inputs.both(x.cpu()))
        if linear.shape[-1]:
            guess = linear_guess(self.outputs, linear)
            out[linear_name(self.outputs)] = guess.map(lambda array: array.to(self.device))
        return out

    def _board(self, column: int, x: Tensor, y: Tensor) -> Answering:
        """The members of one output, [K, S, 1, T, 1 or C] for rows."""
        members = self.members[column]
        known = y >= 0 if self.problem.num_classes else ~y.isnan()
        x, y = x[known], y[known]
        if not len(x):
            return lambda rows: self._blind(column, len(rows))
        boxes = None
        if self.leaves > 1 and len(x) > self.most_rows:
            boxes = Leaves(x, y, self.leaves, min(self.most_rows, NEAR_ROWS))
        asked = []
        for view in dict.fromkeys(member.view for member in members):
            orders = sorted({member.order for member in members if member.view == view})
            asked.append((view, orders, self._ask(view, orders, (x, y), boxes)))

        def answer(rows: Tensor) -> Predictive:
            found: dict[Member, tuple[Predictive, int]] = {}
            for view, orders, ask in asked:
                whole = ask(rows)
                found |= {Member(view, order): (whole, i) for i, order in enumerate(orders)}
            return seated([one_of(*found[member]) for member in members])

        return answer

    def _ask(self, view: str, orders: Sequence[int], told: Told, boxes: Leaves | None) -> Answering:
        """Members of one view, [orders, S, 1, T, 1 or C] for rows."""
        if boxes is not None and view not in LINEAR_VIEWS:
            return consult_near(view, told, orders, self.problem, boxes)
        sets = [self.some(*told, Member(view, order)) for order in orders]
        ask = consult(view, sets, orders, self.problem)
        return lambda rows: ask([rows] * len(orders))

    def some(self, x: Tensor, y: Tensor, member: Member) -> Told:
        """Rows that a member reads."""
        generator = np.random.default_rng(member.order)
        if member.view in LINEAR_VIEWS:
            rows = generator.integers(len(x), size=len(x)) if member.order else np.arange(len(x))
        elif len(x) <= self.most_rows:
            return x, y
        else:
            rows = generator.permutation(len(x))[: self.most_rows]
        return x[rows], y[rows]

    def _blind(self, column: int, rows: int) -> Predictive:
        """What a panel says that has read nothing: the outputs of the fit, whatever the inputs."""
        seats = len(self.members[column])
        if self.problem.num_classes:
            return blind(self.prior, rows).map(lambda array: array.expand(seats, *array.shape[1:]))
        mean, deviation = self.prior[:, column].clamp(min=self.prior.new_tensor([-torch.inf, 1e-12]))
        loc = mean.expand(seats, 1, 1, rows, 1)
        return IndependentPredictive(loc, deviation, torch.zeros_like(loc))
