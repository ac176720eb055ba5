"""Folds: what each replica learns from and what it is asked: held-out rows or tables decide and judge."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from torch import Tensor

from dsvnp.sources.table import Pair
from dsvnp.tabular.rows.memory import check_rows
from dsvnp.tabular.rows.scaling import ClassScaling, InputScaling, Outputs, OutputScaling
from dsvnp.tabular.rows.weights import ALIKE, Weights

MANY = 500  # rows of which a tenth is enough to stop by; of fewer, a fifth
MANY_TABLES = 100  # the same of tables
MOST_CONTEXT = 1024  # rows of a context
MOST_TASK_ROWS = 512  # rows of a table among many that a replica reads: a random part of longer ones
MOST_OF_A_TASK = 0.75  # of a held-out table's rows that are its context, at most


class Question(NamedTuple):
    """Held-out rows to predict, and the context to predict them from."""

    context: Pair
    x: Tensor
    y: Tensor

    def context_of(self, size: int) -> Pair:
        """The first rows of the context."""
        return self.context[0][:size], self.context[1][:size]


@dataclass(frozen=True)
class Part:
    """What one replica learns from, and what it is asked: tables of rows in the user's units."""

    tables: list[Pair]
    questions: list[Question]

    def scalings(self, dim_y: int, linear: bool) -> tuple[InputScaling, Outputs]:
        """Scalings of the training rows, with so many outputs or classes."""
        x, y = (torch.cat(column) for column in zip(*self.tables, strict=True))
        inputs = InputScaling.fit(x)
        if not y.is_floating_point():
            return inputs, ClassScaling.fit(inputs.transform(x), y, dim_y, linear)
        return inputs, OutputScaling.fit(inputs.both(x), y, linear)


class HoldOut(NamedTuple):
    """What decides which rows of a table are held out together; chance alone if both are None."""

    # a number for each row; rows of one group are held out together, as they will be new together
    groups: NDArray[np.intp] | None = None
    # a number for each row; what is held out is later than all that is learned from
    time: NDArray[np.float64] | None = None

    @property
    def by_chance(self) -> bool:
        """Whether nothing but chance decides."""
        return self.groups is None and self.time is None

    def splits(self, y: Tensor, num_folds: int, seed: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Rows to learn from and rows held out, once for each fold; the last rows alone if time decides."""
        rows = np.zeros(len(y))
        if self.time is not None:
            edge = np.quantile(self.time, 1 - 1 / num_folds, method="higher")
            late = self.time >= edge if (self.time < edge).any() else self.time > edge
            return [(np.flatnonzero(~late), np.flatnonzero(late))]
        if self.groups is not None:
            num_folds = min(num_folds, int(self.groups.max()) + 1)
            grouped = GroupKFold(num_folds, shuffle=True, random_state=seed)
            return list(grouped.split(rows, groups=self.groups))
        labels = None if y.is_floating_point() else y[:, 0].numpy()
        stratify = labels is not None and np.bincount(labels).min() >= num_folds
        folds = (StratifiedKFold if stratify else KFold)(num_folds, shuffle=True, random_state=seed)
        return list(folds.split(rows, labels))


BY_CHANCE = HoldOut()


def parts_of_table(
    x: Tensor, y: Tensor, num: int, seed: int, by: HoldOut = BY_CHANCE, weights: Weights = ALIKE
) -> list[Part]:
    """Cut one table into folds, and give each replica all rows but a fold, each as often as its weight says."""
    check_rows(x, y, num)
    num_folds = min(len(x), max(num, 10 if len(x) >= MANY else 5))
    splits = [
        (weights.repeated(rows, seed), weights.repeated(held, seed))
        for rows, held in by.splits(y, num_folds, seed)
    ]
    most = max(len(rows) for rows, _ in splits)
    rng = np.random.default_rng(seed)
    parts = []
    for replica in range(num):
        rows, held = splits[replica % len(splits)]
        # Replicas of a fleet have as many rows each: where a fold is larger, some rows come twice.
        rows = rng.permutation(np.concatenate([rows, rng.choice(rows, most - len(rows))]))
        context = x[rows[:MOST_CONTEXT]], y[rows[:MOST_CONTEXT]]
        parts.append(Part([(x[rows], y[rows])], [Question(context, x[held], y[held])]))
    return parts


def parts_of_tables(tables: Sequence[Pair], num: int, seed: int) -> list[Part]:
    """Give each replica all tables but a fold; some rows of such a table are the context for the others.

    Few rows or many: the sizes of these contexts are spread evenly over their logarithms.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(tables))
    held = max(1, len(tables) // max(num, 10 if len(tables) >= MANY_TABLES else 5))
    parts = []
    for replica in range(num):
        chosen = {int(order[(replica * held + i) % len(tables)]) for i in range(held)}
        questions = [_question(tables[index], rng) for index in sorted(chosen)]
        learned = [_some_rows(table, rng) for i, table in enumerate(tables) if i not in chosen]
        parts.append(Part(learned, questions))
    return parts


def _question(table: Pair, rng: np.random.Generator) -> Question:
    """Ask for some rows of a table, given others; its rows may be in an order, as of time."""
    x, y = _shuffled(table, rng)
    most = max(1.0, MOST_OF_A_TASK * len(x))
    size = min(len(x) - 1, round(math.exp(rng.uniform(math.log(min(2.0, most)), math.log(most)))))
    return Question((x[:size], y[:size]), x[size:], y[size:])


def _some_rows(table: Pair, rng: np.random.Generator) -> Pair:
    """A table, or a random part of a long one."""
    if len(table[0]) <= MOST_TASK_ROWS:
        return table
    x, y = _shuffled(table, rng)
    return x[:MOST_TASK_ROWS], y[:MOST_TASK_ROWS]


def _shuffled(table: Pair, rng: np.random.Generator) -> Pair:
    order = rng.permutation(len(table[0]))
    return table[0][order], table[1][order]
