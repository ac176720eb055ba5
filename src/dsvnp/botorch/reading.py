"""A network's answers in the user's units: contexts are read once, targets are asked for with gradients.

    plain        inputs and outputs as the network was trained on them
    tables       scaled by the context, with codes, in several orders of the columns (`dsvnp.pretrained.tables`)
    landscapes   inputs of the unit cube, outputs scaled by the context
    curves       scaled by the context, padded to three inputs, with codes (`dsvnp.pretrained.curves`)

Axes: R contexts (rows), N points each, T targets, d inputs, m outputs, V orders of the columns, K draws.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dsvnp.models.base import NeuralProcess, draw_noise
from dsvnp.predictive import GaussianPredictive, concatenate
from dsvnp.sources.priors.curves import CLIP_INPUT
from dsvnp.sources.priors.landscapes import HALF_WIDTH
from dsvnp.sources.priors.scaling import OBSERVED, output_scale, standardise
from dsvnp.sources.priors.spectra import DIMENSIONS
from dsvnp.task import Task

# context's x [R, N, d], all x [R, N + T, d] -> what a network reads of all
Inputs = Callable[[Tensor, Tensor], Tensor]


def _as_they_are(x: Tensor, points: Tensor) -> Tensor:
    return points


def _coded(x: Tensor, points: Tensor, clip: float = 4.0, columns: int = 0) -> Tensor:
    """Scale by the context and add codes, [R, N + T, 2·d]; missing columns are unused ones."""
    dims = points.shape[-1]
    wanted = max(columns, dims)
    padded = torch.nn.functional.pad(points, (0, wanted - dims))
    seen = torch.arange(points.shape[1], device=points.device) < x.shape[1]
    seen = seen.expand(points.shape[:2])
    used = (torch.arange(wanted, device=points.device) < dims).expand(len(points), -1)
    return standardise(padded, used, seen, torch.ones_like(seen), clip)


def _in_the_cube(x: Tensor, points: Tensor) -> Tensor:
    """Inputs of the unit cube as `LandscapePrior` has them, with the code of an input that is there."""
    return torch.cat([HALF_WIDTH * (2 * points - 1), torch.full_like(points, OBSERVED)], dim=-1)


@dataclass(frozen=True)
class Scaling:
    """How points of a user become inputs and outputs of a network."""

    inputs: Inputs = _as_they_are  # scales x
    scales_y: bool = False  # whether outputs are standardised by their context
    orders: int = 1  # orders of the columns that a prediction is a mixture over
    max_dims: int = 0  # most inputs that the network reads; 0 leaves that to the network


SCALINGS = {
    "plain": Scaling(),
    "tables": Scaling(_coded, scales_y=True, orders=4, max_dims=32),
    "landscapes": Scaling(_in_the_cube, scales_y=True, max_dims=10),
    "curves": Scaling(
        lambda x, points: _coded(x, points, CLIP_INPUT, DIMENSIONS), scales_y=True, max_dims=DIMENSIONS
    ),
}


@dataclass(frozen=True)
class Context:
    """Contexts that a network has read."""

    x: Tensor  # inputs, [R, N, d]
    shift: Tensor  # of the outputs, [R, 1, m]
    scale: Tensor  # of the outputs, [R, 1, m]
    summaries: list[Any]  # what the network made of them, one per order of the columns
    noise: dict[str, Tensor]  # the fixed draws of the latents


class Reader:
    """A frozen network with fixed draws: K of z_G, and `num_local` of z_* that each function is averaged over."""

    def __init__(
        self, network: NeuralProcess, scaling: Scaling, num_draws: int, num_local: int, seed: int
    ) -> None:
        self.network, self.scaling = network, scaling
        self.draws = (num_draws, num_local)
        parameter = next(network.parameters())
        self.dtype, self.device = parameter.dtype, parameter.device
        shapes = network.noise_shapes(1, 1, *self.draws, shared=True)
        generator = torch.Generator(self.device).manual_seed(seed)
        self.noise = draw_noise(shapes, parameter, generator)
        self.has_functions = bool(set(shapes) - {"local"})  # draws of z_G or dropout masks: whole functions
        self.seed = seed

    def read(self, x: Tensor, y: Tensor) -> Context:
        """Read contexts x [R, N, d], y [R, N, m]."""
        size = (len(y), 1, y.shape[-1])
        shift, scale = y.new_zeros(size), y.new_ones(size)
        if self.scaling.scales_y:
            parts = [output_scale(each, torch.ones_like(each, dtype=torch.bool)) for each in y.unbind(-1)]
            shift, scale = (torch.stack(part, dim=-1) for part in zip(*parts, strict=True))
        shapes = self.network.noise_shapes(len(x), 1, *self.draws, shared=True)
        noise = {name: value.expand(shapes[name]) for name, value in self.noise.items()}
        known = self._cast((y - shift) / scale)
        summaries = []
        for order in self._orders(x.shape[-1]):
            own = x[..., order]
            inputs = self._cast(self.scaling.inputs(own, own))
            task = Task.from_sets(inputs, known, inputs[:, :0])
            summaries.append(self.network.summarise(task, noise))
        return Context(x, shift, scale, summaries, noise)

    def ask(self, context: Context, x: Tensor) -> GaussianPredictive:
        """Predict targets x [R, T, d], [V·K, S, R, T, m], in the user's units and type, with gradients."""
        answers = []
        for order, summary in zip(self._orders(x.shape[-1]), context.summaries, strict=True):
            own = context.x[..., order]
            inputs = self.scaling.inputs(own, torch.cat([own, x[..., order]], dim=1))[:, own.shape[1] :]
            raw = self.network.decode(summary, self._cast(inputs), context.noise)
            likelihood = self.network.likelihood
            predictive = likelihood.predictive(*likelihood.components(raw))
            assert isinstance(predictive, GaussianPredictive)
            answers.append(predictive.map(lambda array: array.to(x)))
        whole = concatenate(answers, 0)
        assert isinstance(whole, GaussianPredictive)
        return whole.affine(context.shift, context.scale)

    def _orders(self, dims: int) -> list[Tensor]:
        """Orders of the columns, the given one first."""
        generator = torch.Generator().manual_seed(self.seed)
        count = self.scaling.orders if dims > 1 else 1
        return [torch.arange(dims), *(torch.randperm(dims, generator=generator) for _ in range(count - 1))]

    def _cast(self, value: Tensor) -> Tensor:
        return value.to(self.device, self.dtype)
