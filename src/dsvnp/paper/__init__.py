"""The paper's experiments: one folder each, with its settings, data, measures, figures and words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsvnp.paper.experiment import Experiment


class Registry(Mapping[str, "type[Experiment]"]):
    """Experiments by the name of their folder; `experiment.py` in it is imported when one is asked for."""

    def __init__(self, classes: Mapping[str, str]) -> None:
        self.classes = dict(classes)

    def __getitem__(self, name: str) -> type[Experiment]:
        module = import_module(f"dsvnp.paper.{name}.experiment") if name in self.classes else None
        kind: type[Experiment] = getattr(module, self.classes[name])
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(self.classes)

    def __len__(self) -> int:
        return len(self.classes)


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
