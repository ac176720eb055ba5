"""Checks of what a user passes to an estimator, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sklearn.utils.validation import _num_samples

from dsvnp.sources.table import Pair
from dsvnp.tabular.fitting import Part


def pair_of(value: Any, what: str) -> tuple[Any, Any]:
    """Inputs and outputs of a table; an array of two rows is no such pair."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        size = f" of {len(value)}" if isinstance(value, tuple | list) else ""
        raise ValueError(
            f"{what} must be a pair (X, y), got {type(value).__name__}{size}; pass both in a tuple"
        )
    return value[0], value[1]


def pairs_of(tasks: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Tables of inputs and outputs, at least two of them and with at least two rows each."""
    pairs = [pair_of(task, f"task {index}") for index, task in enumerate(tasks)]
    if len(pairs) < 2:
        raise ValueError(
            f"expected at least 2 tables to learn from, got {len(pairs)}; for a single one use fit"
        )
    for index, (X, y) in enumerate(pairs):
        if len(X) < 2 or len(X) != len(y):
            raise ValueError(
                f"task {index} has {len(X)} rows of inputs, {len(y)} of outputs; pass as many of both, at least 2"
            )
    return pairs


def useful(tables: Sequence[Pair]) -> list[Pair]:
    """Those of the tables that have two rows left whose output is known; at least two tables."""
    kept = [table for table in tables if len(table[0]) > 1]
    if len(kept) < 2:
        raise ValueError(
            f"expected at least 2 tables with 2 rows whose output is known, got {len(kept)} of {len(tables)}; "
            "the others teach nothing"
        )
    return kept


def check_lengths(X: Any, y: Any) -> None:
    """Refuse outputs that are not one row for each row of inputs."""
    if _num_samples(y) != _num_samples(X):
        raise ValueError(
            f"y has {_num_samples(y)} rows but X has {_num_samples(X)}; pass one output row per input row"
        )


def check_known(parts: Sequence[Part], names: Sequence[str]) -> None:
    """Refuse an output that a replica would know from what it holds out alone: it could not learn it."""
    for part in parts:
        empty = torch.isnan(torch.cat([y for _, y in part.tables])).all(0)
        if bool(empty.any()):
            raise ValueError(
                f"output {names[int(empty.int().argmax())]} is known in too few rows or tables: a replica that holds "
                "those out has nothing to learn it from; leave it out of y"
            )
