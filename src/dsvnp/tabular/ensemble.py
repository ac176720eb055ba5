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

from dsvnp.models import NeuralProcess
from dsvnp.models.base import draw_noise, is_uniform
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, Predictive
from dsvnp.sources.table import Pair
from dsvnp.tabular.scaling import ClassScaling, InputScaling, OutputScaling
from dsvnp.tabular.summary import blind, normal
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
        return self.outputs.linear(self.inputs.both(x.to(self.device)))

    def predict(self, context: Pair, x: Tensor, draws: tuple[int, int], seed: int) -> Predictive:
        """Predict rows x [T, D] from context rows, all in the user's units; latent draws are the same for every row."""
        return self.answer(
            context, x, draws, noise=fixed_noise(self.model, draws, seed, like=self.inputs.centre)
        )

    def answer(self, context: Pair, x: Tensor, draws: tuple[int, int], **options: Any) -> Predictive:
        """Predict rows likewise, with so many draws of z_G and of each z_*, and options of the model's `predict`."""
        x_context, y_context = (column.to(self.device) for column in context)
        x = x.to(self.device)
        task = Task.from_sets(
            self.inputs.transform(x_context)[None],
            self.outputs.transform(self.inputs.both(x_context), y_context)[None],
            self.inputs.transform(x)[None],
        )
        predictive = self.model.predict(task, *draws, validate=False, **options)
        return self.outputs.inverse(self.inputs.both(x), predictive)


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
        """The equal-weight mixture of all members' predictions of rows x [T, D], each sharpened by their accord."""
        parts = self.parts(context, x, num_draws, seed)
        dissent = dissent_of(parts)
        return mixture([sharpened(part, dissent) for part in parts])

    def parts(self, context: Pair, x: Tensor, num_draws: int, seed: int) -> list[Predictive]:
        """What each member says of rows x by itself."""
        draws = draws_of(self.replicas[0].model, num_draws)
        return [replica.predict(context, x, draws, seed) for replica in self.replicas]

    def baselines(self, x: Tensor) -> dict[str, Predictive]:
        """What anybody could have said of rows x: the mean predictor, and ridge where outputs are numbers."""
        out = {"mean predictor": blind(self.prior, len(x))}
        scales = [r.outputs.scale for r in self.replicas if isinstance(r.outputs, OutputScaling)]
        if scales:
            linear = torch.stack([replica.linear(x) for replica in self.replicas]).mean(0)
            out["ridge"] = normal(linear, torch.stack(scales).mean(0))
        return out


def draws_of(model: NeuralProcess, num_draws: int) -> tuple[int, int]:
    """How many draws of z_G and of each z_* a number of draws is: two of z_* tell what it varies from what z_G does."""
    has_local = "local" in model.noise_shapes(1, 1, 1, 1, shared=True)
    return ((num_draws + 1) // 2, 2) if has_local and num_draws > 1 else (num_draws, 1)


def fixed_noise(model: NeuralProcess, draws: tuple[int, int], seed: int, like: Tensor) -> dict[str, Tensor]:
    """Noise of a prediction, the same for every row; draws of z_G in pairs of opposite sign, which cancel in a mean.

    Drawn on the CPU: a saved estimator answers alike on every device.
    """
    generator = torch.Generator().manual_seed(seed)
    shapes = model.noise_shapes(1, 1, (draws[0] + 1) // 2, draws[1], shared=True)
    half = draw_noise(shapes, torch.empty(0, dtype=like.dtype), generator)
    return {
        name: torch.cat([value, 1 - value if is_uniform(name) else -value])[: draws[0]].to(like.device)
        for name, value in half.items()
    }


def dissent_of(parts: Sequence[Predictive]) -> Tensor:
    """How far members differ: the variance of their means, [1, T, D]."""
    return torch.stack([part.mean for part in parts]).var(0, correction=0)


def sharpened(part: Predictive, dissent: Tensor) -> Predictive:
    """A member's prediction with the spread that it needs in the mixture.

    Held-out rows set a member's variance v to its own squared error. The mean of the members errs less, by just their
    dissent d, since y − f is (y − f̄) + (f̄ − f); but the mixture's variance is larger than theirs by d. With v − 2 d for
    each member the mixture has v − d. At most three quarters of v are taken away: far from the data d is large.
    """
    if not isinstance(part, GaussianPredictive):
        return part
    variance = part.scale.square()
    return GaussianPredictive(part.loc, (variance - 2 * dissent).clamp(min=variance / 4).sqrt())


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
