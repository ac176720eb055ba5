"""Predictive: weights, log-densities and samples of a mixture, whatever its components are."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor


class Predictive(ABC):
    """A mixture of K × S components for each target; see the kinds."""

    log_weights: Tensor | None = None  # ln w, [K, S, B, T], normalised over S; None means equal weights
    components_per_draw: int = 1  # how many neighbours on the S axis belong to one draw of z_*

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """Predictive mean [B, T, D]; class probabilities for a classifier."""

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Predictive variance [B, T, D], of each output or of each class indicator."""

    @property
    @abstractmethod
    def aleatoric(self) -> Tensor:
        """The part of the uncertainty that is left when the latents are known."""

    @property
    @abstractmethod
    def epistemic(self) -> Tensor:
        """The part of the uncertainty that is due to not knowing the latents."""

    @abstractmethod
    def component_log_prob(self, y: Tensor) -> Tensor:
        """Log-probability of y under each component, summed over outputs, [K, S, B, T]."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """Entropy of the mixture; see the kinds for its shape."""

    @abstractmethod
    def log_prob_each(self, y: Tensor) -> Tensor:
        """Log-density of each output by itself, [B, T, D]; [B, T, 1] for labels."""

    @abstractmethod
    def arrays(self) -> tuple[Tensor, ...]:
        """Every array it is made of, each [K, S, B, T, ·]; the log-weights, if there are any, come last."""

    @abstractmethod
    def like(self, *arrays: Tensor) -> Self:
        """Make a predictive of the same kind from arrays in the order of `arrays`."""

    @abstractmethod
    def _pick(self, k: Tensor, s: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw y from the components with indices k, s of shape [B, T]."""

    @property
    @abstractmethod
    def shape(self) -> torch.Size:
        """Shape of the components, [K, S, B, T, D]."""

    @property
    def stddev(self) -> Tensor:
        """Predictive standard deviation, [B, T, D]."""
        return self.variance.sqrt()

    def log_prob(self, y: Tensor) -> Tensor:
        """Log-density of each target by itself, [B, T]: log-mean-exp over all K·S draws (Eq. 17)."""
        return self._log_mix(self.component_log_prob(y))

    def log_prob_joint(self, y: Tensor, mask: Tensor | None = None) -> Tensor:
        """Log-density of all targets of a task together, [B]: ln mean_k Π_t Σ_s w_s p(y_t | z_G^k, z_t^s).

        With a mask [B, T], only targets where it is True count.
        """
        per_point = self._log_mix_local(self.component_log_prob(y))  # [K, B, T]
        if mask is not None:
            per_point = torch.where(mask, per_point, 0.0)
        return log_mean_exp(per_point.sum(-1), 0)

    def without_noise(self, sigma: float) -> Self:
        """Return the predictive of y less noise N(0, σ²) of each output; a component no wider than that is a point."""
        if sigma < 0:
            raise ValueError(f"the noise to leave out must not be negative, got {sigma}; 0 leaves out none")
        return self._without_noise(sigma) if sigma else self

    def _without_noise(self, sigma: float) -> Self:
        raise ValueError(f"{type(self).__name__} has no noise of a size; leave the noise of labels as it is")

    def sample(self, num_samples: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw functions with their noise, [num_samples, B, T, D or 1]; a draw keeps one z_G per task."""
        num_global, num_local, tasks, targets = self.shape[:4]
        device = self.mean.device
        out = []
        for _ in range(num_samples):
            k = torch.randint(num_global, (tasks, 1), generator=generator, device=device)
            if self.log_weights is None:
                s = torch.randint(num_local, (tasks, targets), generator=generator, device=device)
            else:
                s = _draw(self.log_weights, k, generator)
            out.append(self._pick(k.expand_as(s), s, generator))
        return torch.stack(out)

    def function_mean(self, generator: torch.Generator | None = None) -> Tensor:
        """The mean of one function, [B, T, D], given one draw of z_G; most kinds draw nothing further."""
        return self.mean

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """Apply a function to every array [K, S, B, T, ·]: take some draws or targets, or move them to a device."""
        return self.like(*(function(array) for array in self.arrays()))

    def _check_width(self, y: Tensor, width: int) -> None:
        """Refuse outputs of another number than the components have: torch would repeat a single one for all."""
        tasks, targets = self.shape[2:4]
        sizes = zip(y.shape[-3:-1][::-1], (targets, tasks), strict=False)
        if y.shape[-1:] != (width,) or any(got != size and 1 not in (got, size) for got, size in sizes):
            raise ValueError(
                f"y must have {width} output{'s' * (width > 1)} per target, [tasks, targets, {width}] "
                f"= [{tasks}, {targets}, {width}], got {tuple(y.shape)}"
            )

    def _weigh(self, log_weights: Tensor | None, components_per_draw: int) -> None:
        """Take on weights; without any, the attributes of the class stay."""
        if components_per_draw != 1:
            self.components_per_draw = components_per_draw
        if self.shape[1] % components_per_draw:
            raise ValueError(
                f"{self.shape[1]} components for each z_G cannot be {components_per_draw} per draw of z_*; "
                "pass a divisor as components_per_draw"
            )
        if log_weights is None:
            return
        if log_weights.shape != self.shape[:4]:
            raise ValueError(
                f"log_weights must have one number per component and target, {tuple(self.shape[:4])}, "
                f"got {tuple(log_weights.shape)}"
            )
        self.log_weights = log_weights.log_softmax(1)

    def _average(self, value: Tensor) -> Tensor:
        """Mean over all components, [..., K, S, B, T, D] → [..., B, T, D]."""
        if self.log_weights is None:
            return value.mean((-5, -4))
        return (self.log_weights.exp().unsqueeze(-1) * value).sum(-4).mean(-4)

    def _log_mix_local(self, value: Tensor) -> Tensor:
        """ln of the mean of exp over the S axis, [K, S, B, T, ...] → [K, B, T, ...]."""
        if self.log_weights is None:
            return log_mean_exp(value, 1)
        weights = self.log_weights.reshape(*self.log_weights.shape, *(1,) * (value.ndim - 4))
        return (value + weights).logsumexp(1)

    def _log_mix(self, value: Tensor) -> Tensor:
        """ln of the mean of exp over all components, [K, S, B, T, ...] → [B, T, ...]."""
        if self.log_weights is None:
            return log_mean_exp(value, (0, 1))
        return log_mean_exp(self._log_mix_local(value), 0)

    def _weight_array(self) -> tuple[Tensor, ...]:
        """The log-weights with a features axis behind, [K, S, B, T, 1], or nothing."""
        return () if self.log_weights is None else (self.log_weights.unsqueeze(-1),)


def log_mean_exp(value: Tensor, dim: int | tuple[int, ...]) -> Tensor:
    """ln mean exp over `dim`."""
    dims = (dim,) if isinstance(dim, int) else dim
    # A list, not a generator, which torch.compile cannot trace here.
    return value.logsumexp(dims) - math.log(math.prod([value.shape[d] for d in dims]))


def concatenate(predictives: Sequence[Predictive], dim: int) -> Predictive:
    """Join predictives of one kind, either all with weights or all without, along an axis of [K, S, B, T, ·].

    It is 0 for draws of z_G, as of an ensemble's members, 2 for tasks, 3 for targets. Along 1 (z_*) weights are
    normalised once more, over all parts.
    """
    arrays = zip(*(each.arrays() for each in predictives), strict=True)
    return predictives[0].like(*(torch.cat(parts, dim) for parts in arrays))


def choose(components: Tensor, k: Tensor, s: Tensor) -> Tensor:
    """Take component (k[b, t], s[b, t]) of [K, S, B, T, ...] for each b and t, giving [B, T, ...]."""
    tasks, targets = _places(k)
    return components[k, s, tasks, targets]


def _draw(log_weights: Tensor, k: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw a component for each target, [B, T], by the weights [K, S, B, T] of draw k [B, 1] of z_G."""
    k = k.expand(log_weights.shape[2:])
    edges = log_weights.movedim(1, -1)[k, *_places(k)].exp().cumsum(-1)  # [B, T, S]
    u = torch.rand(*k.shape, 1, generator=generator, dtype=edges.dtype, device=edges.device)
    return (edges <= u).sum(-1).clamp(max=edges.shape[-1] - 1)  # the last edge may be rounded to below 1


def _places(like: Tensor) -> tuple[Tensor, ...]:
    """Indices of task and target, each [B, T]."""
    ranges = [torch.arange(size, device=like.device) for size in like.shape]
    return torch.meshgrid(*ranges, indexing="ij")
