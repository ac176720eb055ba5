"""A model as a graph: context, targets and noise in, the predictive distribution out.

x_context [tasks, context, D], y_context [tasks, context, outputs], x_target [tasks, targets, D]

and, with defaults, mask_context [tasks, context] (all slots are filled) and the noise of the model (seeded draws, the
same for all tasks and targets).
"""

import copy
import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsvnp.aggregators import average
from dsvnp.export.graph import Axes, Graph
from dsvnp.export.outputs import outputs_of
from dsvnp.likelihoods import Categorical
from dsvnp.models.base import NeuralProcess
from dsvnp.models.noise import draw_noise
from dsvnp.models.transformer import Layer, Relative, Slots
from dsvnp.predictive import Predictive
from dsvnp.task import Task

SETS = ("x_context", "y_context", "mask_context", "x_target")
EMPTY = -1e30  # score of a slot that is not filled: a softmax gives it no weight next to any other


class NetworkModule(nn.Module):
    """A model with a dictionary of outputs; see the file for its inputs."""

    def __init__(self, model: NeuralProcess) -> None:
        super().__init__()
        self.model = exportable(model)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        x, y, mask, x_target = (inputs[name] for name in SETS)
        return outputs_of(predictive_of(self.model, x, y, mask, x_target, noise_among(inputs)))


def network_graph(model: NeuralProcess, num_global: int = 16, num_local: int = 2, seed: int = 0) -> Graph:
    """Make the graph of a copy of a model; the file holds seeded draws, K of z_G and S of z_* for each of them."""
    dtype = next(model.parameters()).dtype
    noise = draw_noise(
        model.noise_shapes(1, 1, num_global, num_local, shared=True),
        torch.empty(0, dtype=dtype),
        torch.Generator().manual_seed(seed),
    )
    labels = isinstance(model.likelihood, Categorical)
    axes = network_axes(model.arch.dim_x, 1 if labels else model.arch.dim_y) | noise_axes(noise)
    dtypes = {"x_context": dtype, "y_context": torch.int64 if labels else dtype, "x_target": dtype}
    return Graph(
        NetworkModule(model),
        axes,
        dtypes | {"mask_context": torch.bool} | dict.fromkeys(noise_axes(noise), dtype),
        {"mask_context": torch.ones(1, 1, dtype=torch.bool)} | {noise_name(k): v for k, v in noise.items()},
        {"kind": "model", "model": model.name, "architecture": model.arch.to_dict()},
    )


def network_axes(dim_x: int | str, dim_y: int) -> dict[str, Axes]:
    """Axes of the inputs that are no noise."""
    return {
        "x_context": ("tasks", "context", dim_x),
        "y_context": ("tasks", "context", dim_y),
        "x_target": ("tasks", "targets", dim_x),
        "mask_context": ("tasks", "context"),
    }


def noise_name(name: str) -> str:
    """What a graph calls a model's noise."""
    return f"noise_{name.replace('.', '_')}"


def noise_among(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The noise among a graph's inputs, under the names that a model knows."""
    return {
        name.removeprefix("noise_").replace("_", "."): value
        for name, value in inputs.items()
        if name.startswith("noise_")
    }


def noise_axes(noise: Mapping[str, Tensor]) -> dict[str, Axes]:
    """Axes of the noise of a prediction: "global" [K, B, Z], "local" [K, S, B, T, Z], "dropout.i" [K, B, 1, …]."""
    out: dict[str, Axes] = {}
    for name, value in noise.items():
        local = name == "local"
        first: Axes = ("draws", "local_draws" if value.shape[1] > 1 else 1, "tasks", "targets")
        sizes: Axes = tuple(value.shape[4:] if local else value.shape[2:])
        out[noise_name(name)] = (*(first if local else ("draws", "tasks")), *sizes)
    return out


def predictive_of(
    model: NeuralProcess, x: Tensor, y: Tensor, mask: Tensor, x_target: Tensor, noise: Mapping[str, Tensor]
) -> Predictive:
    """Predict as `NeuralProcess.predict` does, in one piece and without checks.

    The context gets one more slot, which is empty: a context without any point then needs no branch of its own.
    """
    mask = F.pad(mask & torch.ones_like(x[..., 0], dtype=torch.bool), (0, 1))
    seen = (F.pad(x, (0, 0, 0, 1)), F.pad(y, (0, 0, 0, 1)))
    none = x_target[:, :0]
    task = Task(*seen, none, mask, torch.ones_like(none[..., 0], dtype=torch.bool))
    raw = model.decode(model.summarise(task, noise), x_target, noise)
    return model.likelihood.predictive(*model.likelihood.components(raw))


def exportable(model: NeuralProcess) -> NeuralProcess:
    """Copy a model, on the CPU and in evaluation mode, with attention that can be traced for any size."""
    made = copy.deepcopy(model).cpu().eval().requires_grad_(False)
    for layer in made.modules():
        if isinstance(layer, Layer):
            layer.attend, layer.fused = attend_plainly, False
    return made


def attend_plainly(
    queries: Tensor, x: Tensor, slots: Slots, relative: Relative | None, fused: bool = False
) -> Tensor:
    """Attention in two matrix products and a softmax, for sets with at least one slot; see `attend_to`.

    A feature that is 1 in every query and −1e30 in the keys of empty slots takes the place of a mask, which would cost
    a pass over all pairs of queries and slots.
    """
    if relative is not None:
        scores = queries @ slots.keys.transpose(-1, -2) / math.sqrt(queries.shape[-1])
        return average(relative(scores, x, slots.x), slots.values, slots.mask.unsqueeze(-2))
    mask = slots.mask[..., None, :, None]  # [..., 1, N, 1]
    closed = torch.where(mask, 0.0, EMPTY).to(queries.dtype).expand(*slots.keys.shape[:-1], 1)
    scaled = F.pad(queries / math.sqrt(queries.shape[-1]), (0, 1), value=1.0)  # [..., heads, T, d+1]
    scores = scaled @ torch.cat([slots.keys, closed], -1).transpose(-1, -2)  # [..., heads, T, N]
    return scores.softmax(-1) @ torch.where(mask, slots.values, 0.0)
