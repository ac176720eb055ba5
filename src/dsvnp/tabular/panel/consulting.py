"""Consulting: the pretrained network, or a simpler model, reads rows in several ways at once and predicts others.

A member is the network shown a view of the columns in some order (`views`), the network on the residuals of a linear
model, that linear model alone, for classes also a normal distribution of each (`discriminants`), or for numbers a
Gaussian process (`gaussian_process`). The network reads for all its members in one pass, one set for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from dsvnp.predictive import CategoricalPredictive, IndependentPredictive, Predictive, concatenate
from dsvnp.tabular.panel.asking import MOST_CLASSES, Told, read
from dsvnp.tabular.panel.discriminants import Discriminant
from dsvnp.tabular.panel.gaussian_process import GaussianProcess
from dsvnp.tabular.panel.kernels import Logistic
from dsvnp.tabular.panel.leaves import Leaves
from dsvnp.tabular.panel.views import MOST_COLUMNS, Layout, View, fit_view
from dsvnp.tabular.rows.scaling import InputScaling, OutputScaling
from dsvnp.tabular.trained.ensemble import Answering

# C of the logistic regression of each view that no network reads for, and γ of its kernel features; "linear" is ridge
# for numbers
LOGISTIC: dict[str, tuple[float, float | None]] = {
    "very tight linear": (0.01, None),
    "tight linear": (0.1, None),
    "linear": (1.0, None),
    "loose linear": (10.0, None),
    "very loose linear": (100.0, None),
    "kernel": (30.0, 0.5),
    "narrow kernel": (100.0, 1.0),
}
DISCRIMINANTS = {"discriminant": 16.0, "curved discriminant": 1.0}  # ν / D
MOST_INPUTS = 200  # encoded columns of a discriminant: it takes time in proportion to their cube

GAUSSIAN = "gaussian process"

NEAR_ROWS = 512  # of the context of a box

Made = TypeVar("Made")

Consulted = Callable[[Sequence[Tensor]], Predictive]  # rows [T, D] of each set → [B, S, 1, T, 1 or C]


@dataclass(frozen=True)
class Member:
    """A member of a panel: a view, and a seed.

    The seed decides the order of columns, and which rows are read where there are too many; a linear model reads a
    bootstrap sample. With 0 everything is as given. A Gaussian process predicts by its whole posterior with 0, and
    with 1 and 2 by functions above and below its mean, see `_gaussian`.
    """

    view: str
    order: int = 0

    def __post_init__(self) -> None:
        if self.view == GAUSSIAN and self.order not in (0, 1, 2):
            raise ValueError(f"a Gaussian process of a panel has order 0, 1 or 2, got {self.order}")

    @property
    def has_network(self) -> bool:
        """Whether the pretrained network reads for it."""
        return self.view not in LOGISTIC | DISCRIMINANTS and self.view != GAUSSIAN


@dataclass(frozen=True)
class PanelProblem:
    """What members predict."""

    layout: Layout  # what the encoded columns are
    num_classes: int  # 0 for numbers
    device: torch.device  # where to compute

    def views(self, many_rows: bool = False) -> list[str]:
        """Views that are worth a try; kernels are where the network reads a part of the rows or columns at a time."""
        filled = ["filled"] if self.layout.gaps else []
        if not self.num_classes:
            return ["columns", *filled, "components", "residuals", "linear", GAUSSIAN]
        few, width = self.num_classes <= MOST_CLASSES, len(self.layout.sources)
        kernels = few and (many_rows or width > MOST_COLUMNS)
        logistic = [view for view, (_, gamma) in LOGISTIC.items() if gamma is None or kernels]
        return [
            "columns",
            *filled,
            "components",
            *logistic,
            *(DISCRIMINANTS if few and width <= MOST_INPUTS else ()),
        ]


def families_of(views: Sequence[str]) -> list[list[int]]:
    """Views by place, those together that are one model with different settings."""
    made: dict[str, list[int]] = {}
    for place, view in enumerate(views):
        made.setdefault(view.split()[-1], []).append(place)
    return list(made.values())


def asked_together(members: Sequence[Member]) -> list[list[Member]]:
    """Different members in groups that `consult` takes: all that the network reads for, and each other view."""
    groups: dict[str, list[Member]] = {}
    for member in dict.fromkeys(members):
        groups.setdefault("network" if member.has_network else member.view, []).append(member)
    return list(groups.values())


def consult(
    members: Sequence[Member], sets: Sequence[Told], problem: PanelProblem, exact: bool = True
) -> Consulted:
    """Let the network, or a simpler model, read a set of rows for each member; return what predicts rows for each.

    Args:
        members: one of the groups that `asked_together` makes.
        sets: encoded rows with one output, as many in each set.
        problem: what they are.
        exact: answer few rows in double precision.
    """
    if members[0].view in LOGISTIC | DISCRIMINANTS:
        return _simple(members[0].view, sets, problem)
    if members[0].view == GAUSSIAN:
        return _gaussian([member.order for member in members], sets, problem)
    made = _Once()
    shown = [
        made(Shown.fit, member.view, x, y, problem) for member, (x, y) in zip(members, sets, strict=True)
    ]
    alike: dict[int, list[int]] = {}  # sets with as many columns are read together
    for index, each in enumerate(shown):
        alike.setdefault(each.told[0].shape[1], []).append(index)
    readings = []
    for some in alike.values():
        told, orders = [shown[i].told for i in some], [members[i].order for i in some]
        readings.append((some, read(told, orders, problem.num_classes, problem.device, exact)))
    places = torch.tensor(
        [index for some in alike.values() for index in some], device=problem.device
    ).argsort()

    def answer(rows: Sequence[Tensor]) -> Predictive:
        made = _Once()
        columns = [made(Shown.columns, each, x) for each, x in zip(shown, rows, strict=True)]
        found = concatenate([reading([columns[i] for i in some]) for some, reading in readings], dim=0)
        found = found if len(readings) == 1 else found.map(lambda array: array[places])
        if all(each.line is None for each in shown):
            return found
        assert isinstance(found, IndependentPredictive)
        shift = torch.stack(
            [made(Shown.linear, each, x) for each, x in zip(shown, rows, strict=True)]
        )  # [B, T]
        one = torch.ones((), dtype=torch.float64, device=problem.device)
        return found.affine(shift[:, None, None, :, None].to(problem.device), one)

    return answer


class _Once:
    """Calls functions, each once for the same objects: orders of columns share all that comes before them."""

    def __init__(self) -> None:
        self.made: dict[Any, Any] = {}

    def __call__(self, function: Callable[..., Made], *given: Any) -> Made:
        key = (function, *map(id, given))
        if key not in self.made:
            self.made[key] = function(*given), given  # kept, or another object might get its number
        made: Made = self.made[key][0]
        return made


def consult_near(
    members: Sequence[Member], told: Told, problem: PanelProblem, boxes: Leaves, exact: bool = True
) -> Answering:
    """Let the network read the context of each box, when the first row in it is predicted."""
    x, y = told

    @cache
    def reader(box: int) -> Consulted:
        near = boxes.contexts[box]
        return consult(members, [(x[near], y[near])] * len(members), problem, exact)

    def ask(box: int, rows: Tensor) -> Predictive:
        return reader(box)([rows] * len(members))

    return lambda rows: boxes.answer(ask, rows)


@dataclass(frozen=True)
class Ridge:
    """Ridge of one output, with the deviation of its errors."""

    inputs: InputScaling
    outputs: OutputScaling
    deviation: Tensor

    @classmethod
    def fit(cls, x: Tensor, y: Tensor) -> Ridge:
        """Fit to rows x [N, D], y [N]; NaN is missing."""
        inputs = InputScaling.fit(x)
        outputs = OutputScaling.fit(inputs.both(x), y[:, None])
        number = int((~y.isnan()).sum())
        free = max(number - min(x.shape[1], number // 2) - 1, 1)  # rows that the coefficients leave
        return cls(inputs, outputs, outputs.scale[0] * (number / free) ** 0.5)

    def __call__(self, x: Tensor) -> Tensor:
        """The mean of rows [T, D], [T]."""
        return self.outputs.linear(self.inputs.both(x))[:, 0]


@dataclass(frozen=True)
class Shown:
    """What the network is shown of rows by a view: some columns, and an output without its linear part."""

    show: View
    line: Ridge | None
    told: Told

    @classmethod
    def fit(cls, view: str, x: Tensor, y: Tensor, problem: PanelProblem) -> Shown:
        """Fit to rows x [N, D], y [N]."""
        line = Ridge.fit(x, y) if view == "residuals" else None
        y = y if line is None else y - line(x)
        show = fit_view("columns" if line else view, problem.layout, x, y)
        return cls(show, line, (show(x), y))

    def columns(self, x: Tensor) -> Tensor:
        """The columns of rows that the network is shown."""
        return self.show(x)

    def linear(self, x: Tensor) -> Tensor:
        """The linear part of rows, [T]."""
        return torch.zeros_like(x[:, 0]) if self.line is None else self.line(x)


def _simple(view: str, sets: Sequence[Told], problem: PanelProblem) -> Consulted:
    """Ridge, logistic regression or a discriminant of each set."""
    device = problem.device
    if problem.num_classes:
        made: list[Callable[[Tensor], Tensor]]
        if view in LOGISTIC:
            made = [Logistic.fit(x, y, problem.num_classes, *LOGISTIC[view]) for x, y in sets]
        else:
            made = [Discriminant.fit(x, y, problem.num_classes, DISCRIMINANTS[view]) for x, y in sets]

        def classes(rows: Sequence[Tensor]) -> Predictive:
            each = [one(x) for one, x in zip(made, rows, strict=True)]
            return CategoricalPredictive(torch.stack(each).log_softmax(-1)[:, None, None].to(device))

        return classes
    lines = [Ridge.fit(x, y) for x, y in sets]

    def numbers(rows: Sequence[Tensor]) -> Predictive:
        loc = torch.stack([line(x) for line, x in zip(lines, rows, strict=True)])[:, None, None, :, None]
        scale = torch.stack([line.deviation for line in lines])[:, None, None, None, None]
        return IndependentPredictive(loc.to(device), scale.to(device), torch.zeros_like(loc).to(device))

    return numbers


def _gaussian(orders: Sequence[int], sets: Sequence[Told], problem: PanelProblem) -> Consulted:
    """A Gaussian process of each set, one for all members that read the same rows.

    The whole posterior N(m, σ² + n²) has no part for not knowing the function. A pair of members, orders 1 and 2, has:
    N(m ± δ, σ² + n² − δ²) together have the same mean and variance, and differ by the function's deviation δ = σ, as
    long as they have one mode, δ² ≤ (σ² + n²) / 2.
    """
    processes: dict[int, GaussianProcess] = {}
    for x, y in sets:
        if id(y) not in processes:
            start = next(reversed(processes.values())).theta if processes else None
            processes[id(y)] = GaussianProcess.fit(x, y, problem.layout.sources, start)
    made = [processes[id(y)] for _, y in sets]
    sign = torch.tensor([(0.0, 1.0, -1.0)[order] for order in orders], dtype=torch.float64)[:, None]

    def numbers(rows: Sequence[Tensor]) -> Predictive:
        asked = _Once()
        found = [asked(GaussianProcess.__call__, each, x) for each, x in zip(made, rows, strict=True)]
        mean, function, noise = (torch.stack(part) for part in zip(*found, strict=True))  # [B, T]
        variance = function.square() + noise.square()
        shift = sign * function.minimum((variance / 2).sqrt())
        loc, scale = (
            part[:, None, None, :, None].to(problem.device)
            for part in (mean + shift, (variance - shift.square()).sqrt())
        )
        return IndependentPredictive(loc, scale, torch.zeros_like(loc))

    return numbers
