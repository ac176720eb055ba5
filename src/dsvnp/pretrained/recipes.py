"""What each pretrained network is and how it was trained, in settings: the network, its prior, its schedule."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch

from dsvnp.models.architecture import Architecture
from dsvnp.models.tabtnp import TabTNP
from dsvnp.models.tnp import TNP
from dsvnp.models.transformer import Transformer
from dsvnp.sources.base import Rotation
from dsvnp.sources.priors.curves import CurvePrior, CurveSettings
from dsvnp.sources.priors.landscapes import LandscapePrior, LandscapeSettings
from dsvnp.sources.priors.tables import TablePrior, TableSettings
from dsvnp.training import Adam, Schedule, Settings

MAX_CLASSES, MAX_COLUMNS, MAX_INPUTS = 10, 32, 10
FASTEST_WAVE = 160.0  # radians per standard deviation of x: some ninety periods over evenly spread inputs


@dataclass(frozen=True)
class PretrainingRecipe:
    """A network, where its tasks come from, and how it is trained."""

    name: str  # of the weights
    make: partial[Any]  # makes the network: its class, to be called with its architecture
    source: Rotation  # the prior, in batches of several shapes that take turns
    limits: str = ""  # what the network is not made for, in words
    learning_rate: float = 3e-4  # of AdamW, reached after the warm-up and held until the decay
    warmup: int = 1000  # steps
    decay: int = 30_000  # steps over which the rate falls to 0 at the end

    def settings(self, num_steps: int, precision: str, device: torch.device | str) -> Settings:
        """How to train up to a step; more may follow as long as the decay has not begun."""
        return Settings(
            num_steps=num_steps,
            learning_rate=self.learning_rate,
            optimizer=Adam("adamw", beta2=0.98, weight_decay=0.01, clip_norm=1.0),
            schedule=Schedule("trapezoid", warmup=self.warmup, decay=self.decay),
            precision=precision,
            # As a whole, a step of these networks takes a compiler more than eight minutes.
            compile="regions" if torch.device(device).type == "cuda" else None,
            log_every=500,
            checkpoint_every=5000,
        )

    def widened(self, factor: float) -> Self:
        """The recipe of a network whose layers are wider by a factor; its weights grow with the square."""

        def wider(sizes: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(max(1, round(factor * size)) for size in sizes)

        def stack(layers: Transformer) -> Transformer:
            width, feedforward = wider((layers.width, layers.feedforward))
            return replace(layers, width=width, feedforward=feedforward, embedder=wider(layers.embedder))

        (arch,) = self.make.args
        layers = {"transformer": stack(arch.transformer), "cells": stack(arch.cells)}
        changed = replace(arch, decoder=wider(arch.decoder), **layers)
        return replace(self, make=partial(self.make.func, changed))


def tables() -> PretrainingRecipe:
    """Rows of a table: numbers and classes, up to 32 columns, missing values."""
    arch = Architecture(
        dim_x=2 * MAX_COLUMNS,
        dim_y=MAX_CLASSES,
        likelihood="number-or-class",
        num_components=16,
        background=1e-4,
        sigma_floor=3e-3,
        sigma_form="exp",
        decoder=(512,),
        cells=Transformer(width=128, num_layers=3, num_heads=4, feedforward=256, fused=True),
        transformer=Transformer(width=256, num_layers=6, num_heads=8, feedforward=512, fused=True),
        coded_x=True,
    )
    shapes = (  # tables per batch, rows, columns: few columns, many columns, many rows
        TableSettings(batch_size=48, num_rows=256, max_columns=10, refresh_every=32),
        TableSettings(batch_size=16, num_rows=256, min_columns=4, max_columns=MAX_COLUMNS, refresh_every=64),
        TableSettings(batch_size=10, num_rows=1024, max_columns=12, min_context=32, refresh_every=64),
    )
    limits = "1 to 32 columns, one output: a number or one of up to 10 classes; contexts of up to 896 rows"
    return PretrainingRecipe(
        "tables", partial(TabTNP, arch), Rotation(tuple(map(TablePrior, shapes))), limits
    )


def curves() -> PretrainingRecipe:
    """Functions of one to three inputs: 1.4 million weights that read differences of inputs only."""
    arch = Architecture(
        dim_x=6,
        dim_y=1,
        likelihood="mixture",
        num_components=12,
        background=1e-4,
        sigma_floor=1e-3,
        sigma_form="exp",
        decoder=(256,),
        transformer=Transformer(
            width=128,
            num_layers=8,
            num_heads=4,
            feedforward=384,
            embedder=(128,),
            equivariant=True,
            rotary=FASTEST_WAVE,
            fused=True,
        ),
        coded_x=True,
    )
    shapes = (  # curves per batch, points of each
        CurveSettings(batch_size=128, num_points=128, refresh_every=64),
        CurveSettings(batch_size=32, num_points=512, refresh_every=64),
        CurveSettings(batch_size=16, num_points=1024, min_context=16, refresh_every=64),
    )
    limits = "one to three inputs, one output; contexts of up to 896 points; at most some 70 periods over the context"
    source = Rotation(tuple(map(CurvePrior, shapes)))
    return PretrainingRecipe("curves", partial(TNP, arch), source, limits, learning_rate=5e-4)


def landscapes() -> PretrainingRecipe:
    """Functions of the unit cube with up to ten inputs and little noise, for Bayesian optimisation."""
    arch = Architecture(
        dim_x=2 * MAX_INPUTS,
        dim_y=1,
        likelihood="mixture",
        num_components=8,
        background=1e-6,  # more would add to the spread near an optimum
        sigma_floor=1e-3,
        sigma_form="exp",
        decoder=(160,),
        cells=Transformer(width=64, num_layers=3, num_heads=4, feedforward=128, fused=True),
        transformer=Transformer(width=128, num_layers=6, num_heads=4, feedforward=224, fused=True),
        coded_x=True,
    )
    shapes = (  # functions per batch; contexts up to 64 points, then small ones
        LandscapeSettings(batch_size=96),
        LandscapeSettings(batch_size=160, num_points=64, max_context=40, max_inputs=6),
    )
    limits = "inputs of a known box, up to ten; one output; contexts of up to 64 points; smooth functions, little noise"
    source = Rotation(tuple(map(LandscapePrior, shapes)))
    return PretrainingRecipe(
        "landscapes", partial(TabTNP, arch), source, limits, learning_rate=6e-4, decay=10_000
    )


RECIPES: dict[str, Callable[[], PretrainingRecipe]] = {
    "tables": tables,
    "curves": curves,
    "landscapes": landscapes,
}
