"""Targets: what a table's columns are taken for, said in words, and refused where nothing can be learned from them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dsvnp.naming import some
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.classifier import NPClassifier
from dsvnp.tabular.columns import Array, Columns, text_of
from dsvnp.tabular.rows.encoding import Encoding

ENDINGS = ("", "_std", "_low", "_high")  # of the columns that predict a number
STRANGENESS = "ood_score"
FEW = 10  # whole numbers that may be classes


def outputs_of(
    rows: Columns, targets: Sequence[str], kind: type[BaseNP], path: Path, learn: bool = True
) -> Array:
    """The target columns; with `learn`, refuse what nothing can be learned from."""
    columns = [rows[name] for name in targets]
    if kind is NPClassifier:
        return _labels(columns, targets, path)
    problems = []
    for name, values in zip(targets, columns, strict=True):
        if values.dtype.kind != "f":
            problems.append(
                f"{path}: target {name!r} holds texts ({values[0]!r} at {rows.place(0)}); predict "
                "it alone, as a class"
            )
            continue
        known = values[~np.isnan(values)]
        if learn and len(known) < 2:
            problems.append(
                f"{path}: target {name!r} is known in {len(known)} row(s); a fit needs at least 2"
            )
        elif learn and (known == known[0]).all():
            problems.append(
                f"{path}: target {name!r} is {known[0]:g} in every row; there is nothing to learn"
            )
    if problems:
        raise ValueError("\n".join(problems))
    return columns[0] if len(columns) == 1 else np.stack(columns, 1)


def _labels(columns: Sequence[Array], targets: Sequence[str], path: Path) -> Array:
    """One column of labels; an empty cell is a missing one."""
    if len(columns) > 1:
        raise ValueError(f"{path}: classes are predicted one column at a time, got {', '.join(targets)}")
    (values,) = columns
    if values.dtype.kind == "f" and not ((values == np.round(values)) | np.isnan(values)).all():
        raise ValueError(
            f"{path}: target {targets[0]!r} holds fractions, which are no classes; use --task regression"
        )
    return np.array([text_of(value) or None for value in values.tolist()], dtype=object)


def known_outputs(y: Array) -> int:
    """Number of rows of which at least one target is known."""
    if y.dtype.kind == "f":
        return int((~np.isnan(y.reshape(len(y), -1)).all(1)).sum())
    return sum(label is not None for label in y.tolist())


def left_out(y: Array, targets: Sequence[str]) -> str:
    """How many rows do not count, because no target is known of them."""
    count = len(y) - known_outputs(y)
    verb = "is" if len(targets) == 1 else "are"
    return f"{len(y)} rows, {count or 'none'} left out because {' and '.join(targets)} {verb} missing"


def prediction_names(targets: Sequence[str], classes: Sequence[Any] | None) -> list[str]:
    """Names of the columns of a prediction, all different; `classes` is None for numbers."""
    if classes is None:
        names = [name + ending for name in targets for ending in ENDINGS]
    else:
        names = [targets[0], *(f"p_{label}" for label in classes)]
    names.append(STRANGENESS)
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(
                f"two columns of the predictions would be called {name!r}; rename a target, or predict them apart"
            )
        seen.add(name)
    return names


def texts_for(estimator: BaseNP) -> set[str]:
    """Columns that a fitted estimator knows as texts, whatever a file makes them look like."""
    encoding = estimator.encoding_
    names = set()
    if encoding is not None:
        pairs = zip(encoding.names, encoding.categories, strict=True)
        names = {name for name, categories in pairs if categories is not None}
    if isinstance(estimator, NPClassifier) and not all(_is_whole(str(label)) for label in estimator.classes_):
        names.add(estimator.target_names_[0])
    return names


def understood(encoding: Encoding, targets: Sequence[str], classes: Sequence[Any] | None) -> str:
    """What a fit takes the columns for, in a line; `classes` is None for numbers."""
    kinds = list(zip(encoding.names, encoding.categories, encoding.cycles, strict=True))
    numbers = [name for name, categories, around in kinds if categories is None and around is None]
    dates = [name for name, _, around in kinds if around is not None]
    texts = [f"{name} ({len(categories)})" for name, categories, _ in kinds if categories is not None]
    task = "regression" if classes is None else f"classification ({len(classes)} classes)"
    parts = [f"{task} on {', '.join(targets)}"]
    parts += [f"numbers: {some(numbers)}"] if numbers else []
    parts += [f"dates: {some(dates)}"] if dates else []
    parts += [f"categories: {some(texts)}"] if texts else []
    return "; ".join(parts)


def hint_of_classes(name: str, values: Array) -> str | None:
    """What to say of a number that takes a few whole values only, as codes of classes do."""
    found = np.unique(values[~np.isnan(values)])
    if len(found) > FEW or 3 * len(found) > len(values) or (found != np.round(found)).any():
        return None
    return (
        f"{name} takes {len(found)} whole values only ({', '.join(map(text_of, found.tolist()))}); if they are "
        "classes, use --task classification"
    )


def _is_whole(label: str) -> bool:
    """Whether a label is a whole number as `text_of` writes it."""
    return label.removeprefix("-").isdecimal() and str(int(label)) == label
