"""Neural processes with uncertainty you can use: the public names."""

from dsvnp.models import MODELS, Architecture, NeuralProcess, make_model
from dsvnp.objectives import Bound, Objective
from dsvnp.predictive import Predictive
from dsvnp.task import Task

__version__ = "0.1.0"

__all__ = [
    "MODELS",
    "Architecture",
    "Bound",
    "NeuralProcess",
    "Objective",
    "Predictive",
    "Task",
    "make_model",
]
