"""Recipe: the sizes and rates that the estimators start from, chosen for a table's size and for nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsvnp.models import Architecture, NeuralProcess, make_model
from dsvnp.networks import MLP
from dsvnp.objectives import Objective
from dsvnp.training import Adam, Schedule, Settings

POWER = 4  # of the scale of an input


@dataclass(frozen=True)
class Recipe:
    """Everything that decides how replicas are made and trained.

    Attributes:
        model: name of the model.
        width: width of every hidden layer and of the embedded inputs.
        dim_lat: size of representations and latents.
        num_points: rows of a task, at most.
        batch_size: tasks of a batch, at most.
        num_steps: steps, at most.
        learning_rate: the largest; it falls to zero as a cosine.
        weight_decay: of AdamW.
        beta_local: weight of the local divergence.
        validate_every: steps between validations, at most.
        patience: validations without improvement after which a replica stops.
    """

    model: str = "dsvnp"
    width: int = 128
    dim_lat: int = 32
    num_points: int = 64
    batch_size: int = 4
    num_steps: int = 600
    learning_rate: float = 1e-2
    weight_decay: float = 0.1
    beta_local: float = 1.0
    validate_every: int = 50
    patience: int = 0

    def settings(self, device: torch.device) -> Settings:
        """Settings of the fleet; on a CPU its replicas are trained one after the other."""
        every = max(1, min(self.validate_every, self.num_steps // 4))
        return Settings(
            num_steps=self.num_steps,
            learning_rate=self.learning_rate,
            optimizer=Adam(kind="adamw", weight_decay=self.weight_decay, clip_norm=1.0),
            schedule=Schedule("cosine", warmup=min(50, self.num_steps // 10)),
            objective=Objective(beta_local=self.beta_local),
            compile=False,
            chunk_size=1 if device.type == "cpu" else None,
            validate_every=every,
            patience=self.patience,
            log_every=every,
        )

    def make(self, dim_x: int, dim_y: int, likelihood: str) -> NeuralProcess:
        """Make an untrained model."""
        arch = Architecture(
            dim_x=dim_x,
            dim_y=dim_y,
            likelihood=likelihood,
            dim_latx=self.width,
            encoder=(self.width,),
            dim_lat=self.dim_lat,
            decoder=(self.width,),
            sigma_floor=0.1,
        )
        model = make_model(self.model, arch, FeatureEmbedding(dim_x, self.width))
        decoder = getattr(model, "decoder", None)
        if isinstance(decoder, MLP):  # a model of one's own may be made otherwise, and stays as it is
            model.decoder = smooth = SmoothMLP.like(decoder)
            with torch.no_grad():  # start from the linear part, or from even odds
                for parameter in smooth.rest[-1].parameters():
                    parameter.mul_(0.1)
        return model


class SmoothMLP(MLP):
    """An MLP with smooth units: on tables of a thousand rows they err several per cent less than ReLUs."""

    @classmethod
    def like(cls, other: MLP) -> SmoothMLP:
        """One with the sizes of another."""
        dims_in = [weight.shape[1] for weight in other.first.weights]
        layers = [layer for layer in other.rest if isinstance(layer, nn.Linear)]
        *hidden, dim_out = [len(other.first.bias), *(layer.out_features for layer in layers)]
        return cls(dims_in, hidden, dim_out)

    def forward(self, *inputs: Tensor, dropout: Sequence[Tensor] = ()) -> Tensor:
        h: Tensor = self.first(*inputs)
        for layer in self.rest:
            h = layer(F.silu(h))
        return h


def recipe_for(num_rows: int, one_table: bool, changes: Mapping[str, Any]) -> Recipe:
    """The recipe for so many rows, of one table or of many; changes that are None leave a setting alone.

    Reading a function off a context takes longer to learn than one function.
    """
    num_steps = round(min(3000.0, max(400.0, 600 * math.sqrt(num_rows / 1000))))
    many = Recipe(num_steps=2000, learning_rate=3e-3, weight_decay=0.01, batch_size=16, dim_lat=64)
    recipe = Recipe(num_steps=num_steps) if one_table else many
    return replace(recipe, **{name: value for name, value in changes.items() if value is not None})


class FeatureEmbedding(nn.Module):
    """x → latx with a learned scale for each input, and smooth units.

    The scale is a power of its parameter, so that weight decay shrinks it several times as fast as any other weight:
    inputs of no use fade, as with a Gaussian process that has a length scale for each.

    Args:
        dim_x: number of inputs.
        width: size of the hidden layer and of the output.
    """

    def __init__(self, dim_x: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim_x))
        self.first = nn.Linear(dim_x, width)
        self.second = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.second(F.silu(self.first(x * self.scale.pow(POWER)))))

    def dropout_shapes(self) -> list[tuple[int, ...]]:
        """None: there is no dropout here."""
        return []
