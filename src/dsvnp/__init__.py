"""Neural processes with uncertainty you can use: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsvnp.models import MODELS, Architecture, NeuralProcess, Transformer, make_model
from dsvnp.objectives import Bound, Objective
from dsvnp.predictive import Predictive
from dsvnp.task import Task

if TYPE_CHECKING:
    from dsvnp.tabular import NPClassifier, NPRegressor

__version__ = "0.1.0"

__all__ = [
    "MODELS",
    "Architecture",
    "Bound",
    "NPClassifier",
    "NPRegressor",
    "NeuralProcess",
    "Objective",
    "Predictive",
    "Task",
    "Transformer",
    "make_model",
]


def __getattr__(name: str) -> Any:
    """Import the estimators when they are asked for: scikit-learn takes a second that models alone do not need."""
    if name in ("NPClassifier", "NPRegressor"):
        from dsvnp import tabular

        return getattr(tabular, name)
    raise AttributeError(f"module 'dsvnp' has no attribute {name!r}")
