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

from dsvnp.naming import lookup

SIZES = {  # axes whose size a file leaves open, with a size for the example that is traced: none is 0 or 1
    "tasks": 3,
    "context": 5,
    "targets": 7,
    "rows": 7,
    "columns": 4,
    "inputs": 2,
    "draws": 0,  # those of the default
    "local_draws": 0,
}
LIMITS = {"columns": 64, "inputs": 3}
Axes = tuple[str | int, ...]


@dataclass(frozen=True)
class Graph:
    """What is written into a file.

    Attributes:
        module: takes the inputs by their names and returns a dictionary of outputs.
        axes: for each input the names of its axes, or the size of one that is fixed.
        dtypes: for each input the type of its numbers.
        defaults: values of inputs that may be left out.
        facts: what a user of the file wants to know, as JSON takes it.
    """

    module: nn.Module
    axes: dict[str, Axes]
    dtypes: dict[str, torch.dtype]
    defaults: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def requiring(self, names: Collection[str]) -> Graph:
        """The graph with some inputs that may not be left out."""
        for name in names:
            lookup(name, self.axes, "input of the graph")
        return replace(self, defaults={k: v for k, v in self.defaults.items() if k not in names})

    def inputs(self, sizes: dict[str, int], generator: torch.Generator) -> dict[str, Tensor]:
        """Random inputs without a default: normal numbers, labels 0 and 1, all slots filled."""
        out = {}
        for name in [name for name in self.axes if name not in self.defaults]:
            shape = [axis if isinstance(axis, int) else sizes[axis] for axis in self.axes[name]]
            if self.dtypes[name].is_floating_point:
                uniform = torch.rand(shape, generator=generator) if "dropout" in name else None
                value = torch.randn(shape, generator=generator) if uniform is None else uniform
                out[name] = value.to(self.dtypes[name])
            else:
                labels = torch.randint(2, shape, generator=generator)
                out[name] = (labels if self.dtypes[name] is torch.int64 else labels >= 0).to(
                    self.dtypes[name]
                )
        return out

    def program(self) -> ExportedProgram:
        """Trace the module for any size of its open axes."""
        draws = {"draws": 4, "local_draws": 2}
        examples = self.inputs(SIZES | draws, torch.Generator().manual_seed(0)) | self.defaults
        examples = {name: examples[name] for name in self.axes}
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
