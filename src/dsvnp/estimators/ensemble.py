"""Ensemble: replicas trained on different folds of the rows, and one predictive mixture of them all.

Each replica holds out a fold of its own, by which it is stopped. Together the held-out predictions cover the table:
they say how large the context of a prediction should be, how the predicted spread is to be stretched, and what to
expect of new rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dsvnp.data.table import Pair
from dsvnp.estimators.scaling import ClassScaling, InputScaling, OutputScaling
from dsvnp.estimators.summary import blind, normal
from dsvnp.models import NeuralProcess
from dsvnp.models.base import draw_noise, is_uniform
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, Predictive
from dsvnp.task import Task

Outputs = OutputScaling | ClassScaling


@dataclass(frozen=True)
class Replica:
    """A trained model with the scalings of its own training rows.

    Attributes:
        model: the model, in float64: a row's prediction must not depend on its companions even by rounding.
        inputs: scaling of x.
        outputs: scaling of y, with what held-out rows corrected.
    """

    model: NeuralProcess
    inputs: InputScaling
    outputs: Outputs

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.inputs.centre.device

    def to(self, device: torch.device) -> Replica:
        """The replica on another device."""
        inputs = {name: value.to(device) for name, value in vars(self.inputs).items()}
        outputs = {name: value.to(device) for name, value in vars(self.outputs).items()}
        return Replica(self.model.to(device), InputScaling(**inputs), type(self.outputs)(**outputs))

    def corrected(self, **corrections: Tensor) -> Replica:
        """The replica with some corrections of its outputs changed."""
        return replace(self, outputs=type(self.outputs)(**{**vars(self.outputs), **corrections}))

    def linear(self, x: Tensor) -> Tensor:
        """The linear part alone of rows in the user's units, [T, D]; of no column for classes."""
        return self.outputs.linear(self.inputs.transform(x.to(self.device)))

    def predict(self, context: Pair, x: Tensor, num_draws: int, seed: int) -> Predictive:
        """Predict rows x [T, D] from context rows, all in the user's units; latent draws are the same for every row."""
        task = self.task(context, x)
        noise = fixed_noise(self.model, num_draws, seed, task.x_target)
        return self.answer(task, num_draws, noise=noise)

    def task(self, context: Pair, x: Tensor) -> Task:
        """A task of one context and the rows asked for, as the model reads them."""
        x_context = self.inputs.transform(context[0].to(self.device))
        y_context = self.outputs.transform(x_context, context[1].to(self.device))
        x_target = self.inputs.transform(x.to(self.device))
        return Task.from_sets(x_context[None], y_context[None], x_target[None])

    def answer(self, task: Task, num_draws: int, **options: Any) -> Predictive:
        """The model's prediction of a task, in the user's units."""
        predictive = self.model.predict(task, num_draws, validate=False, **options)
        return self.outputs.inverse(task.x_target, predictive)


@dataclass(frozen=True)
class Ensemble:
    """Trained replicas and what is known of them.

    Attributes:
        replicas: the members.
        num_context: size of a prediction's context, at most.
        prior: what outputs are without a look at inputs, see `summary.prior_of`.
        calibration: what a calibration plot of the held-out rows is made of, see `summary.calibration_of`.
    """

    replicas: list[Replica]
    num_context: int
    prior: Tensor
    calibration: Tensor

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.replicas[0].device

    def predict(self, context: Pair, x: Tensor, num_draws: int, seed: int) -> Predictive:
        """The equal-weight mixture of all members' predictions of rows x [T, D]."""
        return mixture([replica.predict(context, x, num_draws, seed) for replica in self.replicas])

    def baselines(self, x: Tensor) -> dict[str, Predictive]:
        """What anybody could have said of rows x: the mean predictor, and ridge where outputs are numbers."""
        out = {"mean predictor": blind(self.prior, len(x))}
        scales = [r.outputs.scale for r in self.replicas if isinstance(r.outputs, OutputScaling)]
        if scales:
            linear = torch.stack([replica.linear(x) for replica in self.replicas]).mean(0)
            out["ridge"] = normal(linear, torch.stack(scales).mean(0))
        return out


def fixed_noise(model: NeuralProcess, num_draws: int, seed: int, like: Tensor) -> dict[str, Tensor]:
    """Noise of a prediction, the same for every row; draws in pairs of opposite sign, which cancel in a mean.

    Drawn on the CPU: a saved estimator answers alike on every device.
    """
    generator = torch.Generator().manual_seed(seed)
    shapes = model.noise_shapes(1, 1, (num_draws + 1) // 2, 1, shared=True)
    half = draw_noise(shapes, torch.empty(0, dtype=like.dtype), generator)
    return {
        name: torch.cat([value, 1 - value if is_uniform(name) else -value])[:num_draws].to(like.device)
        for name, value in half.items()
    }


def mixture(parts: Sequence[Predictive]) -> Predictive:
    """Equal-weight mixture of predictives with as many draws each."""
    return _joined(parts, dim=0)


def beside(parts: Sequence[Predictive]) -> Predictive:
    """Predictives of different rows as one."""
    return _joined(parts, dim=-2)


def draw_of(predictive: Predictive, index: int) -> Predictive:
    """The predictive of one draw of z_G."""
    if isinstance(predictive, GaussianPredictive):
        return GaussianPredictive(predictive.loc[[index]], predictive.scale[[index]])
    assert isinstance(predictive, CategoricalPredictive)
    return CategoricalPredictive(predictive.log_probs[[index]])


def _joined(parts: Sequence[Predictive], dim: int) -> Predictive:
    gaussian = [part for part in parts if isinstance(part, GaussianPredictive)]
    if gaussian:
        loc, scale = ([getattr(part, name) for part in gaussian] for name in ("loc", "scale"))
        return GaussianPredictive(torch.cat(loc, dim), torch.cat(scale, dim))
    return CategoricalPredictive(
        torch.cat([part.log_probs for part in parts if isinstance(part, CategoricalPredictive)], dim)
    )
