"""Panel: a mixture of members that predict a table without training.

Held-out rows choose the members (`consulting.Member`), which all have the same weight, and the factor that stretches
the spread of their mixture:

    numbers   y ← m + stretch · (y − m),                        m the mixture's mean
    classes   p_k ← softmax(ln p_k + (1 / stretch − 1) ln m_k),  which of a single member is softmax(ln p_k / stretch)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dsvnp.devices import threads_for
from dsvnp.predictive import CategoricalPredictive, IndependentPredictive, Predictive, concatenate
from dsvnp.sources.table import Pair
from dsvnp.tabular.panel.asking import Told
from dsvnp.tabular.panel.consulting import (
    GAUSSIAN,
    NEAR_ROWS,
    Member,
    PanelProblem,
    asked_together,
    consult,
    consult_near,
)
from dsvnp.tabular.panel.leaves import Leaves
from dsvnp.tabular.rows.scaling import InputScaling, Outputs
from dsvnp.tabular.summary import blind
from dsvnp.tabular.trained.ensemble import Answering, Draws, linear_guess, linear_name

ROWS = 500  # that the network answers at once


def one_of(sets: Predictive, index: int) -> Predictive:
    """The prediction of one of several sets."""
    return sets.map(lambda array: array[index : index + 1])


def seated(parts: Sequence[Predictive]) -> Predictive:
    """Members with equal weights; one with fewer components repeats them, as often as the others need."""
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
        mean = predictive.log_probs.logsumexp((0, 1), keepdim=True)  # up to a constant
        return CategoricalPredictive((predictive.log_probs + (1 / factor - 1) * mean).log_softmax(-1))
    assert isinstance(predictive, IndependentPredictive)
    return predictive.affine((1 - factor) * predictive.mean, factor)


@dataclass(frozen=True)
class Panel:
    """The members that predict a table, and what is known of them."""

    members: tuple[tuple[Member, ...], ...]  # for each output its members, as many for each
    stretch: Tensor  # factor of the spread that held-out rows chose, [D_y]; [1] for classes
    most_rows: int  # rows that a member reads at most
    # number of boxes that a context with more rows is cut into; 1 has members read random rows of it
    leaves: int
    num_context: int  # rows that are worth keeping as context
    problem: PanelProblem  # what is asked
    inputs: InputScaling  # scaling of all rows of the fit
    outputs: Outputs  # its linear part, to compare with
    prior: Tensor  # distribution of the outputs whatever the inputs, see `summary.prior_of`
    # what a calibration plot of the held-out rows is made of, see `summary.calibration_of`
    calibration: Tensor

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.problem.device

    def to(self, device: torch.device) -> Panel:
        """The panel on another device; what no network reads for stays on the CPU."""
        problem = replace(self.problem, device=device)
        return replace(self, problem=problem, stretch=self.stretch.to(device), prior=self.prior.to(device))

    draws_latents = False  # its networks have none

    def draws(self, number: int, seed: int) -> Draws:
        """Nothing is drawn: members are the functions that there are."""
        return Draws(1, 1, 0)

    def settled(self, draws: Draws) -> Draws:
        """The draws that matter: none."""
        return Draws(1, 1, 0)

    def condition(self, context: Pair, draws: Draws) -> Answering:
        """Let all members read the context; rows are answered by their equal-weight mixture."""
        x, y = (part.cpu() for part in context)
        with threads_for(x.numel()):
            boards = [self._board(column, x, y[:, column]) for column in range(len(self.members))]

        def answer(rows: Tensor) -> Predictive:
            with threads_for(rows.numel()):
                parts = [side_by_side([board(some) for board in boards]) for some in rows.cpu().split(ROWS)]
                return stretch_all(concatenate(parts, dim=3), self.stretch)

        return answer

    def predict(self, context: Pair, x: Tensor, draws: Draws) -> Predictive:
        """Predict rows x [T, D] from context rows."""
        return self.condition(context, draws)(x)

    def baselines(self, x: Tensor) -> dict[str, Predictive]:
        """Simple predictions of rows x to compare with: the mean predictor, and ridge or logistic regression."""
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
        asked = [(group, self._ask(group, (x, y), boxes)) for group in asked_together(members)]

        def answer(rows: Tensor) -> Predictive:
            found: dict[Member, tuple[Predictive, int]] = {}
            for group, ask in asked:
                whole = ask(rows)
                found |= {member: (whole, i) for i, member in enumerate(group)}
            return seated([one_of(*found[member]) for member in members])

        return answer

    def _ask(self, group: Sequence[Member], told: Told, boxes: Leaves | None) -> Answering:
        """Members of one group, [members, S, 1, T, 1 or C] for rows."""
        if boxes is not None and group[0].has_network:
            return consult_near(group, told, self.problem, boxes)
        ask = consult(group, [self.some(*told, member) for member in group], self.problem)
        return lambda rows: ask([rows] * len(group))

    def some(self, x: Tensor, y: Tensor, member: Member) -> Told:
        """Rows that a member reads."""
        generator = np.random.default_rng(member.order)
        if member.view == GAUSSIAN:
            return x, y  # of which it takes what it can
        if not member.has_network:
            rows = generator.integers(len(x), size=len(x)) if member.order else np.arange(len(x))
        elif len(x) <= self.most_rows:
            return x, y
        else:
            rows = generator.permutation(len(x))[: self.most_rows]
        return x[rows], y[rows]

    def _blind(self, column: int, rows: int) -> Predictive:
        """The prediction of a panel without known rows: the outputs of the fit, whatever the inputs."""
        seats = len(self.members[column])
        if self.problem.num_classes:
            return blind(self.prior, rows).map(lambda array: array.expand(seats, *array.shape[1:]))
        mean, deviation = self.prior[:, column].clamp(min=self.prior.new_tensor([-torch.inf, 1e-12]))
        loc = mean.expand(seats, 1, 1, rows, 1)
        return IndependentPredictive(loc, deviation, torch.zeros_like(loc))
