"""The paper's experiments: one folder each, with its settings, data, measures, figures and words."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsvnp.paper.experiment import Experiment


class Registry(UserDict[str, Any]):
    """Experiments by the name of their folder; `experiment.py` in it is imported when one is asked for."""

    def __getitem__(self, name: str) -> type[Experiment]:
        called = self.data[name]  # first: what is not listed is not looked for
        kind: type[Experiment] = getattr(import_module(f"dsvnp.paper.{name}.experiment"), called)
        return kind


# In the paper's order; reports show runs in this order.
EXPERIMENTS = Registry(
    {
        "toy": "ToyExperiment",
        "curves": "CurvesExperiment",
        "cartpole": "CartPoleExperiment",
        "multioutput": "MultiOutputExperiment",
        "images": "ImagesExperiment",
        "ablations": "AblationsExperiment",
        "ambiguity": "AmbiguityExperiment",
        "field": "FieldExperiment",
        "completion": "CompletionExperiment",
    }
)
