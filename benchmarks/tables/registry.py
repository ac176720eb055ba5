"""Models by name. A model is one function: rows to learn from and rows to predict in, a prediction out.

    @register("my-model", "regression", {"width": 64})
    def my_model(x_train, y_train, x_test, categorical, seed):
        ...
        return Gaussian(mean, std)          # anything with mean, log_prob, cdf and crps (see predictives.py)

x is [rows, columns] float with NaN where a value is missing; columns in which `categorical` is True hold codes
0, 1, …. For a regression y is standardised with the mean and deviation of the training fold, so the prediction is in
these units. For classes y is 0 … K−1, each is there at least once, and the function returns probabilities
[rows, K]. `python run.py --adapters FILE.py` imports a file that registers more models.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catalogue import Kind

Fit = Callable[..., Any]


@dataclass(frozen=True)
class Model:
    """A named model of one kind, with the settings that its lines in the results name."""

    name: str
    kind: Kind
    fit: Fit
    settings: dict[str, Any] = field(default_factory=dict)


MODELS: dict[tuple[Kind, str], Model] = {}


def register(name: str, kind: Kind, settings: dict[str, Any] | None = None) -> Callable[[Fit], Fit]:
    """Decorate a function to make it the model of that name and kind."""

    def add(fit: Fit) -> Fit:
        if (kind, name) in MODELS:
            raise ValueError(f"a {kind} model named {name!r} is registered already; choose another name")
        MODELS[kind, name] = Model(name, kind, fit, settings or {})
        return fit

    return add


def model_of(name: str, kind: Kind) -> Model:
    """The model of that name and kind."""
    if (kind, name) not in MODELS:
        known = ", ".join(sorted(model for its_kind, model in MODELS if its_kind == kind))
        raise KeyError(f"no {kind} model is named {name!r}; there are {known}")
    return MODELS[kind, name]


def import_adapters(path: Path) -> None:
    """Import a Python file that registers models."""
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None or not path.is_file():
        raise FileNotFoundError(f"{path} is not a Python file; --adapters names one that registers models")
    found.loader.exec_module(importlib.util.module_from_spec(found))
