"""Graph: what a file is made of, a module from named tensors to named tensors, and what its axes are.

An input may have a default that is stored in the file. A default may have a single slot on an axis of tasks, context or
targets: it then serves any number of them, because every operation that reads it broadcasts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from dsvnp.models.tabtnp import NUM_CODES
from dsvnp.naming import lookup
from dsvnp.sources.priors.spectra import DIMENSIONS

SIZES = {  # axes whose size a file leaves open, with a size for the example that is traced: none is 0 or 1
    "tasks": 3,
    "context": 5,
    "targets": 7,
    "rows": 7,
    "columns": 4,
    "inputs": 2,
    "draws": 4,
    "local_draws": 2,
}
LIMITS = {"columns": NUM_CODES, "inputs": DIMENSIONS}
Axes = tuple[str | int, ...]


@dataclass(frozen=True)
class Graph:
    """What is written into a file."""

    module: nn.Module  # takes the inputs by their names and returns a dictionary of outputs
    axes: dict[str, Axes]  # for each input the names of its axes, or the size of one that is fixed
    dtypes: dict[str, torch.dtype]  # for each input the type of its numbers
    defaults: dict[str, Tensor] = field(default_factory=dict)  # values of inputs that may be left out
    # what a user of the file wants to know, as JSON takes it
    facts: dict[str, Any] = field(default_factory=dict)

    def requiring(self, names: Collection[str]) -> Graph:
        """The graph with some inputs that may not be left out."""
        for name in names:
            lookup(name, self.axes, "input of the graph")
        return replace(self, defaults={k: v for k, v in self.defaults.items() if k not in names})

    def program(self) -> ExportedProgram:
        """Trace the module for any size of its open axes."""
        examples = {name: self.defaults.get(name, self._example(name)) for name in self.axes}
        dims = {name: Dim(name, max=LIMITS.get(name)) for name in SIZES}
        shapes = {
            name: {
                place: dims[axis]
                for place, (axis, size) in enumerate(zip(self.axes[name], value.shape, strict=True))
                if isinstance(axis, str) and size > 1
            }
            for name, value in examples.items()
        }
        with torch.no_grad():
            return torch.export.export(self.module, (examples,), dynamic_shapes=(shapes,), strict=False)

    def _example(self, name: str) -> Tensor:
        """An input to trace with."""
        shape = [SIZES[axis] if isinstance(axis, str) else axis for axis in self.axes[name]]
        return torch.ones(shape, dtype=self.dtypes[name])
