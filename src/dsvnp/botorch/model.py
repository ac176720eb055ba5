"""NeuralProcessModel: a trained neural process as a surrogate of BoTorch, conditioned on what was observed.

Nothing is fitted: the observations are the context. What a posterior holds is the function without its noise, since an
acquisition function would otherwise ask for the same points again.

    networks with z_G     K functions E[y | z_G^k, x] of fixed draws: `FunctionPosterior`
    networks without      a joint Gaussian (`dsvnp.botorch.joint`): BoTorch's own posterior, samplers and formulas
"""

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from botorch.models.deterministic import GenericDeterministicModel
from botorch.models.model import FantasizeMixin, Model
from botorch.posteriors import GPyTorchPosterior, Posterior
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from torch import Tensor, nn

from dsvnp.autoregression import functions_of
from dsvnp.botorch.joint import correlations
from dsvnp.botorch.posteriors import FunctionPosterior
from dsvnp.botorch.reading import SCALINGS, Context, Reader
from dsvnp.models.base import NeuralProcess
from dsvnp.naming import lookup
from dsvnp.predictive import GaussianPredictive
from dsvnp.pretrained.heads import for_numbers
from dsvnp.pretrained.loading import load_pretrained

LEAST_SHARE = 1e-3  # of the predictive variance that is the function's, however large the noise is


class NeuralProcessModel(Model, FantasizeMixin):
    """A neural process conditioned on observations, behind BoTorch's `Model`.

    Samples are differentiable with respect to X and to the observations. The network is copied and frozen.

    Args:
        network: a trained network for numbers. One with a single output serves any number of outputs, each by itself.
        train_X: observed inputs, [..., n, d], in the units that `scaling` expects.
        train_Y: observed outputs, [..., n, m], to be maximised as BoTorch does.
        scaling: "plain" leaves inputs and outputs as they are; "tables", "curves" and "landscapes" scale them as the
            pretrained networks need it, the last one from inputs of the unit cube.
        num_draws: functions of a posterior, K, for networks with z_G.
        num_local: draws of each z_* that a function is averaged over.
        num_orders: orders of the columns that a prediction averages over; None is the scaling's own number, 4 for
            "tables" and 1 elsewhere. Time grows with it.
        noise: variance of the observations' noise, for networks without z_G: a number (0 for a deterministic
            function), or None to take the least variance that the network predicts at an observed point.
        seed: of all draws.
    """

    def __init__(
        self,
        network: NeuralProcess,
        train_X: Tensor,
        train_Y: Tensor,
        *,
        scaling: str = "plain",
        num_draws: int = 64,
        num_local: int = 16,
        num_orders: int | None = None,
        noise: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        chosen = lookup(scaling, SCALINGS, "scaling")
        if num_orders is not None:
            chosen = replace(chosen, orders=num_orders)
        if train_X.shape[-1] > chosen.max_dims > 0:
            raise ValueError(
                f"the scaling {scaling!r} takes up to {chosen.max_dims} inputs, got {train_X.shape[-1]}; "
                "use another network"
            )
        if getattr(network.likelihood, "dim_y", None) is None:
            raise ValueError(f"expected a network for numbers, got one with {network.arch.likelihood!r}")
        self.network = copy.deepcopy(network).eval().requires_grad_(False)
        self._reader = Reader(self.network, chosen, num_draws, num_local, seed)
        self._noise = noise
        self._condition(train_X, train_Y)

    @classmethod
    def pretrained(
        cls, name: str, train_X: Tensor, train_Y: Tensor, folder: Path | str | None = None, **settings: Any
    ) -> Self:
        """Make the model from a network that ships with the package.

        Args:
            name: "tables" (up to 32 inputs), "curves" (up to 3), or "landscapes" (up to 10, of the unit cube).
            train_X: observed inputs, in any units except for "landscapes".
            train_Y: observed outputs.
            folder: where the weights lie, if not in the package.
            settings: further arguments of the class.
        """
        network = load_pretrained(name, folder)
        network = for_numbers(network) if network.arch.likelihood == "number-or-class" else network
        return cls(network, train_X, train_Y, scaling=name, **settings)

    # --- what BoTorch asks of a model ---

    @property
    def num_outputs(self) -> int:
        """Number of outputs, m."""
        return self.train_targets.shape[-1]

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch of contexts."""
        return self.train_targets.shape[:-2]

    @property
    def likelihood(self) -> nn.Module:
        """The network's likelihood; BoTorch's `fantasize` looks at its kind."""
        return self.network.likelihood

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> Posterior:
        """Distribution of the function at q points together, for each of a batch: X [..., q, d].

        Args:
            X: inputs.
            output_indices: which outputs; all by default.
            observation_noise: whether to add the noise of an observation.
            posterior_transform: applied to the result.
        """
        if isinstance(observation_noise, Tensor):
            raise ValueError(
                "observation_noise must be True or False, got a tensor; the network predicts the noise itself"
            )
        shape = torch.broadcast_shapes(X.shape[:-2], self.batch_shape)
        X = X.expand(*shape, *X.shape[-2:])
        own = shape[len(shape) - len(self.batch_shape) :]
        if own != self.batch_shape:  # an axis of one context serves several elements of X
            parts = (
                part.expand(*own, *part.shape[-2:]) for part in (self.train_inputs[0], self.train_targets)
            )
            return self._conditioned(*parts).posterior(
                X, output_indices, observation_noise, posterior_transform
            )
        kind = self._functions if self._reader.has_functions else self._gaussian
        outputs = list(range(self.num_outputs)) if output_indices is None else output_indices
        made = kind(X, outputs, bool(observation_noise))
        return made if posterior_transform is None else posterior_transform(made)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> Self:
        """The model with further observations X [..., n', d], Y [..., n', m] in its context; nothing is trained."""
        shape = torch.broadcast_shapes(X.shape[:-2], Y.shape[:-2], self.batch_shape)
        x, y, x_new, y_new = (
            part.expand(*shape, *part.shape[-2:]) for part in (self.train_inputs[0], self.train_targets, X, Y)
        )
        return self._conditioned(torch.cat([x, x_new], dim=-2), torch.cat([y, y_new], dim=-2))

    def mixture(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """ln w, μ and σ of the network's mixture for an observation at each of X [..., q, d], [C, ..., q, m] each."""
        if self._reader.has_functions:
            raise ValueError(
                f"{self.network.name} draws whole functions, which its posterior holds; use qLogExpectedImprovement"
            )
        found = self._reader.ask(self._context(), self._targets(X))
        weights = found.loc.new_zeros(found.loc[..., :1].shape).log_softmax(1)
        if found.log_weights is not None:
            weights = found.log_weights.unsqueeze(-1)
        weights = weights - math.log(len(weights))  # orders of the columns count alike
        parts = (self._back(part, X).flatten(0, 1) for part in (weights, found.loc, found.scale))
        log_weights, mean, sigma = parts
        return log_weights, mean, sigma

    def draw_function(
        self, anchors: Tensor, generator: torch.Generator | None = None
    ) -> GenericDeterministicModel:
        """One function of the posterior as a model without uncertainty, for Thompson sampling.

        A draw of z_G where the network has one. Elsewhere the model samples the anchors one after the other, each given
        those before it, and the function is the mean that follows from them.

        Args:
            anchors: inputs that a function without z_G is sampled at, [M, d], in the order of their visit.
            generator: where the draw comes from.
        """
        if self._reader.has_functions:
            draw = int(torch.randint(self._reader.draws[0], (1,), generator=generator))
            return GenericDeterministicModel(
                lambda X: self.posterior(X).values[..., draw, :, :], self.num_outputs
            )
        model = self
        for anchor in anchors.unsqueeze(-2):  # [1, d]
            at = model.posterior(anchor)
            noise = torch.randn(at.mean.shape, generator=generator, dtype=anchor.dtype)
            model = model.condition_on_observations(anchor, (at.mean + at.variance.sqrt() * noise).detach())
        return GenericDeterministicModel(lambda X: model.posterior(X).mean, self.num_outputs)

    # --- inside ---

    def _condition(self, x: Tensor, y: Tensor) -> None:
        """Take on a context; it is read when it is first asked about."""
        if x.shape[:-1] != y.shape[:-1]:
            raise ValueError(f"expected one output row per input row, got X {x.shape} and Y {y.shape}")
        self.train_inputs, self.train_targets = (x,), y
        self._read: Context | None = None
        self._least: Tensor | None = None

    def _conditioned(self, x: Tensor, y: Tensor) -> Self:
        """The same network with another context."""
        made = copy.copy(self)
        made._condition(x, y)
        return made

    def _split(self, y: Tensor) -> bool:
        """Whether outputs are tasks of their own, since the network has one output only."""
        return y.shape[-1] > 1 and self._reader.network.arch.dim_y == 1

    def _context(self) -> Context:
        """What the network read of the contexts, [R', n, ·]; outputs are rows, too, where it has one output only."""
        if self._read is not None:
            return self._read
        x, y = _rows(self.train_inputs[0]), _rows(self.train_targets)
        if self._split(y):
            x, y = x.repeat_interleave(self.num_outputs, dim=0), _as_rows(y)
        read = self._reader.read(x, y)
        if not (x.requires_grad or y.requires_grad):  # a graph serves one backward pass only
            self._read = read
        return read

    def _targets(self, X: Tensor) -> Tensor:
        """Inputs [..., q, d] as targets of the contexts' rows, [R', T, d]: what a batch adds are further targets."""
        before = X.shape[: X.ndim - 2 - len(self.batch_shape)]
        x = X.reshape(before.numel(), self.batch_shape.numel(), *X.shape[-2:]).transpose(0, 1).flatten(1, 2)
        return x.repeat_interleave(self.num_outputs, 0) if self._split(self.train_targets) else x

    def _back(self, value: Tensor, X: Tensor) -> Tensor:
        """Answers [..., R', T, m'] as BoTorch has them, [..., *batch, q, m]."""
        front = value.shape[:-3]
        if self._split(self.train_targets):  # [..., R·m, T, 1] -> [..., R, T, m]
            value = value.unflatten(-3, (-1, self.num_outputs)).squeeze(-1).transpose(-1, -2)
        before = X.shape[: X.ndim - 2 - len(self.batch_shape)]
        value = value.unflatten(-2, (before.numel(), X.shape[-2])).transpose(-4, -3)
        return value.reshape(*front, *X.shape[:-1], value.shape[-1])

    def _functions(self, X: Tensor, outputs: list[int], noisy: bool) -> Posterior:
        """Values of the K functions."""
        predictive = self._reader.ask(self._context(), self._targets(X))
        values = functions_of(predictive, noise=False)  # [K, R', T, m']
        values = self._back(values, X)
        if noisy:  # fixed, too: the same for every batch
            generator = torch.Generator(values.device).manual_seed(self._reader.seed)
            shape = (len(values), *(1,) * (X.ndim - 2), X.shape[-2], self.num_outputs)
            unit = torch.randn(shape, generator=generator, dtype=values.dtype, device=values.device)
            values = values + self._back(_own_variance(predictive), X).sqrt() * unit
        return FunctionPosterior(values.movedim(0, -3)[..., outputs])

    def _gaussian(self, X: Tensor, outputs: list[int], noisy: bool) -> Posterior:
        """A joint Gaussian of the q points; several outputs are independent."""
        context = self._context()
        predictive = self._reader.ask(context, self._targets(X))
        mean, total = self._back(predictive.mean, X), self._back(predictive.variance, X)  # [..., q, m]
        own = torch.maximum(total - self._noise_variance(context, X), LEAST_SHARE * total)
        deviation = own.sqrt().transpose(-1, -2)  # [..., m, q]
        covariance = torch.diag_embed(deviation.square())
        if X.shape[-2] > 1:
            rho = self._correlations(X, mean, total.sqrt())
            covariance = rho * deviation.unsqueeze(-1) * deviation.unsqueeze(-2)
        if noisy:
            covariance = covariance + torch.diag_embed((total - own).transpose(-1, -2))
        mean, covariance = mean.transpose(-1, -2)[..., outputs, :], covariance[..., outputs, :, :]
        if len(outputs) == 1:
            return GPyTorchPosterior(MultivariateNormal(mean.squeeze(-2), covariance.squeeze(-3)))
        joint = MultivariateNormal(mean, covariance)
        return GPyTorchPosterior(MultitaskMultivariateNormal.from_batch_mvn(joint, task_dim=-1))

    def _noise_variance(self, context: Context, X: Tensor) -> Tensor | float:
        """Variance of the noise, one for all inputs: given, or the least that is left at an observed point."""
        if self._noise is not None:
            return self._noise
        if not context.x.shape[1]:
            return 0.0
        least = self._least
        if least is None:
            least = self._reader.ask(context, context.x).variance.amin(-2, keepdim=True)  # [R', 1, m']
            self._least = least if context is self._read else None
        return self._back(least.expand(-1, self._targets(X).shape[1], -1), X)

    def _correlations(self, X: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
        """Correlations of the q points, [..., m, q, q]: each element of the batch is a context of its own."""
        batch = X.shape[:-2]
        parts = (self.train_inputs[0], self.train_targets, X, mean, deviation)
        x, y, targets, centre, spread = (_rows(part.expand(*batch, *part.shape[-2:])) for part in parts)
        if self._split(y):
            x, targets = (part.repeat_interleave(self.num_outputs, dim=0) for part in (x, targets))
            y, centre, spread = (_as_rows(part) for part in (y, centre, spread))
        rho = correlations(self._reader, x, y, targets, centre, spread)  # [R', m', q, q]
        return rho.reshape(*batch, self.num_outputs, *rho.shape[-2:])


def _rows(value: Tensor) -> Tensor:
    """A batch of contexts, or of their outputs, as rows, [R, n, ·]."""
    return value.reshape(value.shape[:-2].numel(), *value.shape[-2:])


def _as_rows(y: Tensor) -> Tensor:
    """Outputs as rows, [R, n, m] -> [R·m, n, 1]."""
    return y.movedim(-1, 1).reshape(-1, y.shape[1], 1)


def _own_variance(predictive: GaussianPredictive) -> Tensor:
    """Variance of an observation given each function, [K, R, T, m]."""
    draws, _, rows = predictive.shape[:3]
    single = predictive.map(lambda array: array.transpose(0, 1).flatten(1, 2).unsqueeze(0))
    return single.variance.unflatten(0, (draws, rows))
