"""Inputs for models that need plain numbers: nothing missing, categories as 0 and 1, each column standardised."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import skew, yeojohnson

SKEWED, FAR = 1.0, 10.0

Floats = NDArray[np.float64]


class Design(NamedTuple):
    """Columns made of a table: of training rows [N, P], of test rows [M, P], and which input each was made of, [P]."""

    train: Floats
    test: Floats
    inputs: NDArray[np.intp]


def design(x_train: Floats, x_test: Floats, categorical: NDArray[np.bool_], most_levels: int = 20) -> Design:
    """Numbers of both sets of rows; all that is learnt, medians, scales and categories, is the training rows'.

    A missing number becomes the median, with a column that flags it; a column with a skewness above 1 is made more
    symmetric by Yeo and Johnson's power, whose exponent maximises the training rows' likelihood. A category becomes one
    column per level, of the `most_levels` most frequent; missing is a level, and what is rarer or new is 0 in all. Two
    levels make one column.

    Args:
        x_train: rows to learn from, [N, D].
        x_test: rows to predict in, [M, D].
        categorical: which columns hold codes, [D].
        most_levels: columns that one category may become.

    Returns:
        The columns, without those that are constant in training.
    """
    parts: list[tuple[Floats, Floats]] = []
    for column, is_category in enumerate(categorical):
        train, test = x_train[:, column], x_test[:, column]
        parts.append(one_hot(train, test, most_levels) if is_category else filled(train, test))
    train, test = (np.concatenate(blocks, 1) for blocks in zip(*parts, strict=True))
    inputs = np.repeat(np.arange(len(parts)), [block.shape[1] for block, _ in parts])
    kept = train.std(0) > 1e-12
    train, test, inputs = train[:, kept], test[:, kept], inputs[kept]
    mean, std = train.mean(0), train.std(0)
    return Design((train - mean) / std, np.clip((test - mean) / std, -FAR, FAR), inputs)


def filled(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    """A column of numbers and, if any is missing in training, its flag; [N, 1 or 2] and [M, 1 or 2]."""
    median = np.nanmedian(train) if not np.isnan(train).all() else 0.0
    flagged = np.isnan(train).any()
    power = symmetric(train[~np.isnan(train)])

    def fill(values: Floats) -> Floats:
        missing = np.isnan(values)
        known = power(np.where(missing, median, values))
        return np.stack([known, missing.astype(float)], 1) if flagged else known[:, None]

    return fill(train), fill(test)


def symmetric(values: Floats) -> Callable[[Floats], Floats]:
    """The function that makes a column of known numbers more symmetric; it leaves those alone that are not skewed."""
    if len(values) < 3 or values.std() < 1e-12 or abs(skew(values)) <= SKEWED:
        return lambda column: column
    mean, std = values.mean(), values.std()
    _, exponent = yeojohnson((values - mean) / std)
    return lambda column: yeojohnson((column - mean) / std, exponent)


def one_hot(train: Floats, test: Floats, most_levels: int) -> tuple[Floats, Floats]:
    """Flags of the most frequent levels of a column of codes, [N, L] and [M, L]."""
    train, test = (np.where(np.isnan(values), -1.0, values) for values in (train, test))
    levels, counts = np.unique(train, return_counts=True)
    chosen = levels[np.argsort(-counts, kind="stable")][:most_levels]
    if len(levels) == 2:
        chosen = chosen[:1]
    return tuple((values[:, None] == chosen).astype(float) for values in (train, test))  # type: ignore[return-value]
