"""Neural processes with uncertainty you can use: the public names, each imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsvnp.estimation import LogLikelihood, log_likelihood
    from dsvnp.models import MODELS, Architecture, NeuralProcess, Transformer, make_model
    from dsvnp.objectives import Bound, Objective
    from dsvnp.predictive import Predictive
    from dsvnp.pretrained import load_pretrained
    from dsvnp.tabular import NPClassifier, NPRegressor
    from dsvnp.tabular.curves import CurveRegressor
    from dsvnp.task import Task

__version__ = "0.1.0"

__all__ = [
    "MODELS",
    "Architecture",
    "Bound",
    "CurveRegressor",
    "LogLikelihood",
    "NPClassifier",
    "NPRegressor",
    "NeuralProcess",
    "Objective",
    "Predictive",
    "Task",
    "Transformer",
    "load_pretrained",
    "log_likelihood",
    "make_model",
]

ROOMS = {  # where each public name lives
    "estimation": ("LogLikelihood", "log_likelihood"),
    "models": ("MODELS", "Architecture", "NeuralProcess", "Transformer", "make_model"),
    "objectives": ("Bound", "Objective"),
    "predictive": ("Predictive",),
    "pretrained": ("load_pretrained",),
    "tabular.curves": ("CurveRegressor",),
    "tabular": ("NPClassifier", "NPRegressor"),
    "task": ("Task",),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: torch and scikit-learn take seconds that `--help` does not need."""
    for room, names in ROOMS.items():
        if name in names:
            value = globals()[name] = getattr(import_module(f"dsvnp.{room}"), name)
            return value
    raise AttributeError(f"module 'dsvnp' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted([*globals(), *__all__])
