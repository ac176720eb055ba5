"""CategoricalPredictive: a mixture of categorical distributions for each target."""

from typing import Self

import torch
from torch import Tensor

from dsvnp.predictive.base import Predictive, choose


class CategoricalPredictive(Predictive):
    """A mixture of categorical distributions for each target.

    Args:
        log_probs: log-probabilities of the classes under each component, [K, S, B, T, classes].
        log_weights: ln of the components' weights, [K, S, B, T], normalised here over S; None for equal weights.
    """

    def __init__(self, log_probs: Tensor, log_weights: Tensor | None = None) -> None:
        self.log_probs = log_probs
        self._weigh(log_weights, 1)

    @property
    def shape(self) -> torch.Size:
        """Shape of the components, [K, S, B, T, classes]."""
        return self.log_probs.shape

    @property
    def mean(self) -> Tensor:
        """Class probabilities, [B, T, classes]."""
        return self._average(self.log_probs.exp())

    @property
    def variance(self) -> Tensor:
        """Variance p(1 − p) of each class indicator, [B, T, classes]."""
        return self.mean * (1 - self.mean)

    @property
    def aleatoric(self) -> Tensor:
        """Expected entropy given z_G, [B, T], in nats: z_* is averaged over before."""
        given = self.log_probs.exp()
        if self.log_weights is None:
            return entropy_of(given.mean(1)).mean(0)
        return entropy_of((self.log_weights.exp().unsqueeze(-1) * given).sum(1)).mean(0)

    @property
    def epistemic(self) -> Tensor:
        """Mutual information between the label and z_G, [B, T], in nats."""
        return self.entropy() - self.aleatoric

    def component_log_prob(self, y: Tensor) -> Tensor:
        """Log-probability of the labels y [B, T, 1] under each component, [K, S, B, T]."""
        self._check_width(y, 1)
        labels = y.long()
        if y.is_floating_point() and not torch.equal(labels.to(y.dtype), y):
            raise ValueError(
                f"labels must be whole numbers, got {float(y[labels != y][0])}; pass class indices"
            )
        index = labels.expand(*self.shape[:4], 1)
        try:
            return self.log_probs.gather(-1, index).squeeze(-1)
        except RuntimeError as error:  # asked afterwards: a look at the labels first would wait for a GPU
            raise ValueError(
                f"labels must be class indices below {self.shape[-1]} ({error}); count from 0"
            ) from None

    def log_prob_each(self, y: Tensor) -> Tensor:
        """Log-probability of the labels, [B, T, 1]: a label is the only output."""
        return self.log_prob(y).unsqueeze(-1)

    def arrays(self) -> tuple[Tensor, ...]:
        """Log-probabilities of the classes, and the log-weights if there are any."""
        return (self.log_probs, *self._weight_array())

    def like(self, *arrays: Tensor) -> Self:
        """Make a predictive of such arrays."""
        log_probs, *weights = arrays
        return type(self)(log_probs, weights[0].squeeze(-1) if weights else None)

    def entropy(self) -> Tensor:
        """Entropy of the predictive distribution, [B, T], in nats (Sec. 4.4)."""
        return entropy_of(self.mean)

    def _pick(self, k: Tensor, s: Tensor, generator: torch.Generator | None) -> Tensor:
        probs = choose(self.log_probs, k, s).exp()
        flat = torch.multinomial(probs.flatten(0, 1), 1, generator=generator)
        return flat.unflatten(0, probs.shape[:2])


def entropy_of(probs: Tensor) -> Tensor:
    """−Σ p ln p over the last axis, with 0 ln 0 = 0."""
    return torch.special.entr(probs).sum(-1)
