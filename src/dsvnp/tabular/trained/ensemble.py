"""Ensemble: replicas trained on different folds of the rows, and one predictive mixture of them all.

Each replica holds out a fold of its own, by which it is stopped. Together the held-out predictions cover the table:
they choose the size of a prediction's context and the stretch of the predicted spread, and estimate the error on new
rows.

A prediction has two parts: `condition` reads the context once, and what it returns answers any number of rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from dsvnp.models import NeuralProcess
from dsvnp.models.base import draw_noise, is_uniform
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, Predictive, concatenate
from dsvnp.sources.own_units import OwnUnits, Units
from dsvnp.sources.table import Pair
from dsvnp.tabular.rows.scaling import ClassScaling, InputScaling, Outputs, OutputScaling, stretched
from dsvnp.tabular.summary import blind, normal
from dsvnp.task import Task

ROWS = 4096  # that are predicted at once
DECODED = 500  # rows that a network decodes at once: its hidden layers stay in a processor's cache
Scaling = TypeVar("Scaling", InputScaling, OutputScaling, ClassScaling, Outputs, OwnUnits)
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
    own: OwnUnits | None = None  # units of each context, in which the network reads what is scaled

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.inputs.centre.device

    def to(self, device: torch.device) -> Replica:
        """The replica on another device."""
        inputs = {name: value.to(device) for name, value in vars(self.inputs).items()}
        outputs = {name: value.to(device) for name, value in vars(self.outputs).items()}
        own = self.own and OwnUnits(**{name: value.to(device) for name, value in vars(self.own).items()})
        return Replica(self.model.to(device), InputScaling(**inputs), type(self.outputs)(**outputs), own)

    def corrected(self, **corrections: Tensor) -> Replica:
        """The replica with some corrections of its outputs changed."""
        return replace(self, outputs=type(self.outputs)(**{**vars(self.outputs), **corrections}))

    def linear(self, x: Tensor) -> Tensor:
        """The linear part alone of rows in the user's units, [T, D]; log-odds of classes."""
        return self.outputs.linear(self.inputs.both(x.to(self.device)))

    def predict(self, context: Pair, x: Tensor, draws: Draws) -> Predictive:
        """Predict rows x [T, D] from context rows, all in the user's units."""
        return answered(condition_all([self], context, draws), x)


@dataclass(frozen=True)
class Ensemble:
    """Trained replicas and what is known of them."""

    replicas: list[Replica]  # the members
    num_context: int  # size of a prediction's context, at most
    prior: Tensor  # distribution of the outputs whatever the inputs, see `summary.prior_of`
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

    @property
    def draws_latents(self) -> bool:
        """Whether a prediction depends on how many draws it is made of."""
        return bool(self.replicas[0].model.noise_shapes(1, 1, 1, 1, shared=True))

    def draws(self, number: int, seed: int) -> Draws:
        """So many draws for each member: two of z_* for each z_G tell what z_* varies from what z_G does."""
        num_global, num_local = draws_of(self.replicas[0].model, number)
        return Draws(num_global, num_local, seed)

    def settled(self, draws: Draws) -> Draws:
        """The draws that matter."""
        return draws

    def condition(self, context: Pair, draws: Draws) -> Answering:
        """Read the context with all members; rows are answered by their equal-weight mixture, sharpened by accord.

        Where rows have a z_* of their own, shared ones measure how far members differ: few draws would blur it.
        """
        members = judges = condition_all(self.replicas, context, draws)
        if draws.own is not None:
            judges = condition_all(self.replicas, context, Draws(8, 2, draws.seed, single=draws.single))

        def answer(x: Tensor) -> Predictive:
            whole = members(x)  # [K, S, members, T, D]
            dissent = dissent_of([whole if judges is members else judges(x)])
            return sharpened(whole, dissent).map(lambda a: a.movedim(2, 0).flatten(0, 1).unsqueeze(2))

        return answer

    def predict(self, context: Pair, x: Tensor, draws: Draws) -> Predictive:
        """Predict rows x [T, D] from context rows."""
        return answered(self.condition(context, draws), x)

    def baselines(self, x: Tensor) -> dict[str, Predictive]:
        """Simple predictions of rows x to compare with: the mean predictor, and ridge or logistic regression."""
        out = {"mean predictor": blind(self.prior, len(x))}
        outputs = [replica.outputs for replica in self.replicas]
        linear = torch.stack([replica.linear(x) for replica in self.replicas]).mean(0)
        if isinstance(outputs[0], OutputScaling):
            scale = torch.stack([each.scale for each in outputs if isinstance(each, OutputScaling)]).mean(0)
            out["ridge"] = normal(linear, scale)
        elif linear.shape[-1]:
            out[linear_name(outputs[0])] = linear_guess(outputs[0], linear)
        return out


@torch.no_grad()
def condition_all(replicas: Sequence[Replica], context: Pair, draws: Draws) -> Answering:
    """Let replicas read the context once, and answer rows by `decode` alone, [K, S, replicas, T, D].

    Only the networks are asked one by one: what is done with their answers treats replicas as tasks, all at once.
    """
    dtype, device = torch.float32 if draws.single else torch.float64, replicas[0].device
    models = [copy.deepcopy(each.model).float() if draws.single else each.model for each in replicas]
    inputs, outputs = (
        stacked([each.inputs for each in replicas]),
        stacked([each.outputs for each in replicas]),
    )
    own = stacked([each.own for each in replicas if each.own is not None]) if replicas[0].own else None
    noise = fixed_noise(models[0], draws, replicas[0].inputs.centre)
    noise = {name: value.to(dtype) for name, value in noise.items()}
    seen, known, units = as_shown(inputs, outputs, own, context[0].to(device), context[1].to(device))
    seen, known = seen.to(dtype), known.to(dtype) if known.is_floating_point() else known
    known = known.expand(len(models), -1, -1)
    tasks = [Task.from_sets(a[None], b[None], a[None, :0]) for a, b in zip(seen, known, strict=True)]
    summaries = [model.summarise(task, noise) for model, task in zip(models, tasks, strict=True)]
    drawn = None if draws.own is None else torch.Generator(device).manual_seed(draws.own)

    def components(both: Tensor) -> tuple[Tensor, ...]:
        """Components of rows [replicas, T, 2 D]."""
        bent, plain = both.chunk(2, dim=-1)
        shown = bent if own is None or units is None else own.inputs(plain, units)
        here = _noise_of(noise, shown.shape[1], drawn)
        each = zip(models, summaries, shown.to(dtype)[:, None], strict=True)
        raw = torch.cat([model.decode(summary, rows, here) for model, summary, rows in each], dim=2)
        return models[0].likelihood.components(raw)

    @torch.no_grad()
    def answer(rows: Tensor) -> Predictive:
        both = inputs.both(rows.to(device))
        some = [components(part) for part in both.split(DECODED, dim=1)]
        whole = (torch.cat(parts, dim=-2).double() for parts in zip(*some, strict=True))
        found: Predictive = models[0].likelihood.predictive(*whole)
        if units is not None:
            assert isinstance(found, GaussianPredictive)
            found = found.affine(units.centre, units.spread)
        return outputs.inverse(both, found)

    return answer


def as_shown(
    inputs: InputScaling, outputs: Outputs, own: OwnUnits | None, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor, Units | None]:
    """A context as networks read it, [replicas, N, ·] each or of one replica [N, ·], and its own units, if any."""
    known = outputs.transform(inputs.both(x), y)
    if own is None:
        return inputs.transform(x), known, None
    plain = inputs.scaled(x)
    units = own.of(plain, known, torch.ones_like(known[..., 0], dtype=torch.bool))
    return own.inputs(plain, units), own.outputs(known, units), units


def stacked(scalings: Sequence[Scaling]) -> Scaling:
    """Scalings of several replicas as one, for rows [replicas, T, ·]; what one lacks, as classes do, is zero in it."""
    fields = {}
    for name, value in vars(scalings[0]).items():
        column = [getattr(each, name) for each in scalings]
        full = max(column, key=Tensor.numel)
        whole = torch.stack([each if each.numel() else torch.zeros_like(full) for each in column])
        fields[name] = whole if value.ndim == 2 else whole[:, None]  # a vector serves all rows of its replica
    return type(scalings[0])(**fields)


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
    """How far members differ: the variance of their means, [1, T, D]; members are parts, or tasks of a part."""
    return torch.cat([part.mean for part in parts]).var(0, correction=0, keepdim=True)


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
