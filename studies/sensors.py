"""Sensors: 200 sinusoids with 20 to 60 readings each to learn from; 100 new ones of which a few readings are known.

    y = A sin(x + φ) + σ ε,   A ~ U[0.5, 3],  φ ~ U[0, 2π],  σ ~ U[0.05, 0.3],  x ~ U[0, 10]

A control: noise is Gaussian with a σ of the sensor's own, which leaves a local latent nothing to explain.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from dsvnp.networks import Shape
from dsvnp.sources.base import TaskSource, Tensors, first_points
from dsvnp.task import Task

READINGS = (20, 60)
X_MEAN, X_STD, Y_STD = 5.0, 10 / math.sqrt(12), 1.33  # what inputs and outputs are scaled by


def draw_sensors(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Scaled inputs and outputs of sensors, each [count, 60, 1]."""

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        u = torch.rand(count, *shape, generator=generator, device=generator.device)
        return low + (high - low) * u

    amplitude, phase, sigma = uniform(0.5, 3, 1, 1), uniform(0, 2 * math.pi, 1, 1), uniform(0.05, 0.3, 1, 1)
    x = uniform(0, 10, READINGS[1], 1)
    noise = torch.randn(x.shape, generator=generator, device=generator.device)
    return (x - X_MEAN) / X_STD, (amplitude * torch.sin(x + phase) + sigma * noise) / Y_STD


class Sensors(TaskSource):
    """Batches of the same sensors, which the seed decides, readings in random order, 2 to 30 of them context."""

    refresh_every = 1000

    def __init__(self, seed: int, batch_size: int = 16, num_sensors: int = 200, device: str = "cpu") -> None:
        generator = torch.Generator().manual_seed(1000 + seed)
        x, y = draw_sensors(num_sensors, generator)
        sizes = torch.randint(READINGS[0], READINGS[1] + 1, (num_sensors, 1), generator=generator)
        self.tensors = {"x": x.to(device), "y": y.to(device)}
        self.tensors["mask"] = (torch.arange(READINGS[1]) < sizes).to(device)
        self.batch_size = batch_size
        self.num_sensors = num_sensors

    def static(self) -> Tensors:
        return self.tensors

    def uniform_shapes(self) -> Mapping[str, Shape]:
        """Numbers for the choice of sensors, the order of their readings and the size of the context."""
        return {
            "sensor": (self.batch_size,),
            "order": (self.batch_size, READINGS[1]),
            "context": (self.batch_size,),
        }

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        """Some sensors, their filled slots first and in random order."""
        rows = (uniforms["sensor"] * self.num_sensors).long()
        order = torch.where(tensors["mask"][rows], uniforms["order"], 2.0).argsort(-1)  # [B, 60]
        x, y = (torch.gather(tensors[name][rows], 1, order.unsqueeze(-1)) for name in ("x", "y"))
        mask = torch.gather(tensors["mask"][rows], 1, order)
        return Task.from_points(x, y, first_points(uniforms["context"], 2, 30, x), mask)


def new_sensors(known: int, generator: torch.Generator, num_sensors: int = 100) -> Task:
    """New sensors of which the first `known` readings are context."""
    x, y = draw_sensors(num_sensors, generator)
    in_context = (torch.arange(READINGS[1], device=x.device) < known).expand(num_sensors, -1)
    return Task.from_points(x, y, in_context)
