"""Neural processes with uncertainty you can use: the public names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dsvnp.models import MODELS, Architecture, NeuralProcess, make_model
from dsvnp.objectives import Bound, Objective
from dsvnp.predictive import Predictive
from dsvnp.task import Task

if TYPE_CHECKING:
    from dsvnp.estimation import LogLikelihood, log_likelihood
    from dsvnp.estimators import NPClassifier, NPRegressor

__version__ = "0.1.0"

__all__ = [
    "MODELS",
    "Architecture",
    "Bound",
    "LogLikelihood",
    "NPClassifier",
    "NPRegressor",
    "NeuralProcess",
    "Objective",
    "Predictive",
    "Task",
    "log_likelihood",
    "make_model",
]


def __getattr__(name: str) -> Any:
    """Import what not everyone needs when it is asked for: scikit-learn alone takes a second."""
    if name in ("LogLikelihood", "log_likelihood"):
        from dsvnp import estimation

        return getattr(estimation, name)
    if name in ("NPClassifier", "NPRegressor"):
        from dsvnp import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'dsvnp' has no attribute {name!r}")
