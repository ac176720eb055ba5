"""A network that has seen 20 related functions: where its tasks come from, and its training on a CPU.

Of each function 512 values are known, as earlier optimisations would leave them: half at Sobol points, half near the
best of these. In a task the inputs are shifted and stretched a little, which makes more functions out of 20.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from benchmarks.bayesian_optimisation.problems import DOUBLE, Problem
from dsvnp.botorch.warping import Warp
from dsvnp.models import Architecture, NeuralProcess, make_model
from dsvnp.models.transformer import Transformer
from dsvnp.networks import Shape
from dsvnp.sources.base import TaskSource, Tensors
from dsvnp.task import Task
from dsvnp.training import Adam, Fleet, Schedule, Settings, train

WIDTH = 4.0  # of the unit cube as the network reads it


@dataclass(frozen=True)
class FamilySettings:
    """How a network learns from related functions.

    Attributes:
        num_functions: functions seen before.
        num_points: values known of each.
        near: distance of the points near the best ones, as a standard deviation.
        batch_size: tasks of a step.
        task_points: points of a task.
        max_context: largest context; sizes are uniform from 1 on.
        shift: standard deviation of a task's shift of its inputs.
        stretch: standard deviation of the logarithm of its stretch.
        steps: training steps.
        learning_rate: the highest one.
        model: which network.
        arch: its sizes.
    """

    num_functions: int = 20
    num_points: int = 512
    near: float = 0.08
    batch_size: int = 16
    task_points: int = 64
    max_context: int = 20
    shift: float = 0.04
    stretch: float = 0.1
    steps: int = 3000
    learning_rate: float = 1e-3
    model: str = "tnp"
    arch: dict[str, Any] = field(  # not compared, a dictionary has no hash
        hash=False,
        default_factory=lambda: {
            "likelihood": "gaussian",
            "sigma_floor": 0.01,
            "sigma_form": "exp",
            "embed_x": "fourier",
            "num_waves": 4,
            "dim_latx": 64,
            "decoder": (64,),
            "transformer": Transformer(width=64, num_layers=4, num_heads=4, feedforward=128, embedder=(64,)),
        },
    )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def known_values(make: Callable[[int], Problem], settings: FamilySettings) -> tuple[Tensor, Tensor]:
    """Inputs [F, N, dim] and outputs [F, N] of the functions seen before."""
    points, values = [], []
    for number in range(1, settings.num_functions + 1):
        problem = make(-number)
        half = settings.num_points // 2
        x = SobolEngine(problem.dim, scramble=True, seed=number).draw(half, dtype=DOUBLE)
        top = x[problem(x)[:, 0].topk(half // 16).indices].repeat(16, 1)
        generator = torch.Generator().manual_seed(number)
        local = top + settings.near * torch.randn(top.shape, generator=generator, dtype=DOUBLE)
        x = torch.cat([x, local.clamp(0, 1)])
        points.append(x)
        values.append(problem(x)[:, 0])
    return torch.stack(points), torch.stack(values)


def inputs(x: Tensor) -> Tensor:
    """Inputs of the unit cube as the network reads them, from −2 to 2, which its waves are made for."""
    return WIDTH * (x - 0.5)


class SeenFunctions(TaskSource):
    """Tasks from the values of some functions; each task takes points of one function at random.

    Args:
        x: inputs, [F, N, dim].
        y: outputs, [F, N].
        settings: sizes of tasks and how inputs move.
    """

    refresh_every = 1000

    def __init__(self, x: Tensor, y: Tensor, settings: FamilySettings) -> None:
        self.x, self.y, self.settings = x.float(), y.float().unsqueeze(-1), settings

    def static(self) -> Tensors:
        return {"x": self.x, "y": self.y}

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        return {}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        """One number per task and choice."""
        batch, dims = self.settings.batch_size, self.x.shape[-1]
        return {
            "function": (batch,),
            "near": (batch, 1),
            "order": (batch, self.x.shape[1]),
            "shuffle": (batch, self.settings.task_points),
            "context": (batch,),
            "move": (2, batch, 1, dims),
        }

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        """Random points of random functions."""
        settings = self.settings
        function = (uniforms["function"] * len(tensors["x"])).long()
        # Between few and most points are near the best: late in an optimisation nearly all of them are.
        near = torch.arange(self.x.shape[1]) >= self.x.shape[1] // 2
        order = uniforms["order"] + (1.4 * uniforms["near"] - 0.7) * near
        chosen = order.argsort(-1)[:, : settings.task_points, None]  # [B, T, 1]
        chosen = chosen.take_along_dim(uniforms["shuffle"].argsort(-1).unsqueeze(-1), 1)
        x, y = (tensors[name][function].take_along_dim(chosen, 1) for name in ("x", "y"))
        shift, stretch = torch.special.ndtri(uniforms["move"].clamp(1e-4, 1 - 1e-4))
        x = x * torch.exp(settings.stretch * stretch) + WIDTH * settings.shift * shift
        size = 1 + (uniforms["context"] * settings.max_context).long()
        return Task.from_points(x, y, torch.arange(settings.task_points) < size.unsqueeze(1))


class Family(NamedTuple):
    """A network that has seen related functions, and the warp of outputs that it was trained with."""

    network: NeuralProcess
    warp: Warp


def learn(make: Callable[[int], Problem], settings: FamilySettings, folder: Path) -> Family:
    """Train a network on functions seen before; a folder of checkpoints resumes, or ends, an earlier training."""
    x, y = known_values(make, settings)
    warp = Warp.of(y.flatten())
    arch = Architecture(dim_x=x.shape[-1], dim_y=1, **settings.arch)
    how = Settings(
        num_steps=settings.steps,
        learning_rate=settings.learning_rate,
        optimizer=Adam("adamw", weight_decay=0.01, clip_norm=1.0),
        schedule=Schedule("cosine", warmup=100),
        checkpoint_every=500,
    )
    source = SeenFunctions(inputs(x), warp(y), settings)
    fleet = Fleet(lambda: make_model(settings.model, arch), source, seeds=[0], settings=how)
    return Family(train(fleet, folder).replica(0), warp)
