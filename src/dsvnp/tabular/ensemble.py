"""Ensemble: replicas trained on different folds of the rows, and one predictive mixture of them all.

Each replica holds out a fold of its own, by which it is stopped. Together the held-out predictions cover the table:
they say how large the context of a prediction should be, how the predicted spread is to be stretched, and what to
expect of new rows.

A prediction has two parts: `condition` reads the context once, and what it returns answers any number of rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dsvnp.models import NeuralProcess
from dsvnp.models.base import draw_noise, is_uniform
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, Predictive, concatenate
from dsvnp.sources.table import Pair
from dsvnp.tabular.scaling import ClassScaling, InputScaling, OutputScaling, stretched
from dsvnp.tabular.summary import blind, normal
from dsvnp.task import Task

ROWS = 4096  # that are predicted at once
Outputs = OutputScaling | ClassScaling
# rows x [T, D] in the user's units → their predictive, [K, S, 1, T, D]
Answering = Callable[[Tensor], Predictive]


@dataclass(frozen=True)
class Draws:
    """Which latent draws a prediction is made of."""

    num_global: int  # draws of z_G for each member
    num_local: int  # draws of z_* for each z_G
    seed: int  # decides them; the same for every row: a row's answer does not depend on its companions
    # seed of a z_* for each row of its own, as functions with their noise need; None has all rows share them
    own: int | None = None
    # draws of z_G in pairs of opposite sign, which cancel in a mean; False draws each by itself
    paired: bool = True
    # let the networks compute in single precision, which is several times faster for many rows
    single: bool = False


@dataclass(frozen=True)
class Replica:
    """A trained model with the scalings of its own training rows."""

    # the model, in float64: the answer to a few rows must not depend on their number even by rounding
    model: NeuralProcess
    inputs: InputScaling  # scaling of x
    outputs: Outputs  # scaling of y, with what held-out rows corrected

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
        """The linear part alone of rows in the user's units, [T, D]; log-odds of classes."""
        return self.outputs.linear(self.inputs.both(x.to(self.device)))

    @torch.no_grad()
    def condition(self, context: Pair, draws: Draws) -> Answering:
        """Read the context once, and answer rows by `decode` alone."""
        dtype = torch.float32 if draws.single else torch.float64
        model = copy.deepcopy(self.model).float() if draws.single else self.model
        x, y = (column.to(self.device) for column in context)
        y = self.outputs.transform(self.inputs.both(x), y)
        noise = {
            name: value.to(dtype) for name, value in fixed_noise(model, draws, self.inputs.centre).items()
        }
        seen = self.inputs.transform(x)[None].to(dtype), (y.to(dtype) if y.is_floating_point() else y)[None]
        summary = model.summarise(Task.from_sets(*seen, seen[0][:, :0]), noise)
        own = None if draws.own is None else torch.Generator(self.device).manual_seed(draws.own)

        @torch.no_grad()
        def answer(rows: Tensor) -> Predictive:
            here = rows.to(self.device)
            raw = model.decode(
                summary, self.inputs.transform(here)[None].to(dtype), _noise_of(noise, len(rows), own)
            )
            parts = model.likelihood.components(raw)
            predictive = model.likelihood.predictive(*(part.double() for part in parts))
            return self.outputs.inverse(self.inputs.both(here), predictive)

        return answer

    def predict(self, context: Pair, x: Tensor, draws: Draws) -> Predictive:
        """Predict rows x [T, D] from context rows, all in the user's units."""
        return answered(self.condition(context, draws), x)


@dataclass(frozen=True)
class Ensemble:
    """Trained replicas and what is known of them."""

    replicas: list[Replica]  # the members
    num_context: int  # size of a prediction's context, at most
    prior: Tensor  # what outputs are without a look at inputs, see `summary.prior_of`
    # what a calibration plot of the held-out rows is made of, see `summary.calibration_of`
    calibration: Tensor

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.replicas[0].device

    @property
    def inputs(self) -> InputScaling:
        """The scaling of inputs by which distances are measured."""
        return self.replicas[0].inputs

    def draws(self, number: int, seed: int) -> Draws:
        """So many draws for each member: two of z_* for each z_G tell what z_* varies from what z_G does."""
        num_global, num_local = draws_of(self.replicas[0].model, number)
        return Draws(num_global, num_local, seed)

    def settled(self, draws: Draws) -> Draws:
        """The draws that matter."""
        return draws

    def condition(self, context: Pair, draws: Draws) -> Answering:
        """Read the context with all members; rows are answered by their equal-weight mixture, sharpened by accord.

        Where rows have a z_* of their own, how far members differ is told by shared ones: few draws would blur it.
        """
        members = [replica.condition(context, draws) for replica in self.replicas]
        judges = members
        if draws.own is not None:
            shared = Draws(8, 2, draws.seed, single=draws.single)
            judges = [replica.condition(context, shared) for replica in self.replicas]

        def answer(x: Tensor) -> Predictive:
            parts = [member(x) for member in members]
            dissent = dissent_of(parts if judges is members else [judge(x) for judge in judges])
            return concatenate([sharpened(part, dissent) for part in parts], dim=0)

        return answer

    def predict(self, context: Pair, x: Tensor, draws: Draws) -> Predictive:
        """Predict rows x [T, D] from context rows."""
        return answered(self.condition(context, draws), x)

    def baselines(self, x: Tensor) -> dict[str, Predictive]:
        """What anybody could have said of rows x: the mean predictor, and ridge or logistic regression."""
        out = {"mean predictor": blind(self.prior, len(x))}
        outputs = [replica.outputs for replica in self.replicas]
        linear = torch.stack([replica.linear(x) for replica in self.replicas]).mean(0)
        if isinstance(outputs[0], OutputScaling):
            scale = torch.stack([each.scale for each in outputs if isinstance(each, OutputScaling)]).mean(0)
            out["ridge"] = normal(linear, scale)
        elif linear.shape[-1]:
            out[linear_name(outputs[0])] = linear_guess(outputs[0], linear)
        return out


def answered(ask: Answering, x: Tensor) -> Predictive:
    """Ask for rows some at a time: hidden layers of all draws of a hundred thousand rows take gigabytes."""
    parts = [ask(rows) for rows in x.split(ROWS)]
    return parts[0] if len(parts) == 1 else concatenate(parts, dim=3)


def linear_name(outputs: Outputs) -> str:
    """What the linear part is called."""
    return "ridge" if isinstance(outputs, OutputScaling) else "logistic regression"


def linear_guess(outputs: Outputs, linear: Tensor) -> Predictive:
    """What the linear part alone [T, D] predicts."""
    if isinstance(outputs, OutputScaling):
        return normal(linear, outputs.scale)
    return CategoricalPredictive(linear.log_softmax(-1)[None, None, None])


def _noise_of(noise: dict[str, Tensor], rows: int, own: torch.Generator | None) -> dict[str, Tensor]:
    """The noise of so many rows: the same for all, or with `own` a z_* for each of them."""
    if own is None or "local" not in noise:
        return noise
    *outer, _, size = noise["local"].shape
    return {**noise, **draw_noise({"local": (*outer, rows, size)}, noise["local"], own)}


def draws_of(model: NeuralProcess, num_draws: int) -> tuple[int, int]:
    """How many draws of z_G and of each z_* a number of draws is."""
    has_local = "local" in model.noise_shapes(1, 1, 1, 1, shared=True)
    return ((num_draws + 1) // 2, 2) if has_local and num_draws > 1 else (num_draws, 1)


def fixed_noise(model: NeuralProcess, draws: Draws, like: Tensor) -> dict[str, Tensor]:
    """Noise of a prediction, the same for every row.

    Drawn on the CPU: a saved estimator answers alike on every device.
    """
    generator = torch.Generator().manual_seed(draws.seed)
    number = draws.num_global
    shapes = model.noise_shapes(
        1, 1, (number + 1) // 2 if draws.paired else number, draws.num_local, shared=True
    )
    noise = draw_noise(shapes, torch.empty(0, dtype=like.dtype), generator)
    if draws.paired:
        noise = {
            name: torch.cat([value, 1 - value if is_uniform(name) else -value])[:number]
            for name, value in noise.items()
        }
    return {name: value.to(like.device) for name, value in noise.items()}


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
    return stretched(part, ((variance - 2 * dissent).clamp(min=variance / 4) / variance).sqrt())
