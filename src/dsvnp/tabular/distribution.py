"""Distribution: what an estimator expects of rows, whole, in the user's units; every answer is a reduction of it.

p(y_t) = mean over members and draws of z_G of Σ_s w_s p(y_t | z_G, z_*^s)
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dsvnp.predictive import CoherentPredictive, GaussianPredictive, Predictive, concatenate
from dsvnp.tabular.row_distribution import LOCALS_OF_A_FUNCTION, Array, RowDistribution, one_function


class NumberDistribution(RowDistribution):
    """The predictive distribution of numbers: answers are [rows] for one output, else [rows, outputs]."""

    @property
    def mean(self) -> Any:
        """The mean."""
        return self._form(self.reduce(lambda p, _: p.mean[0])[0])

    @property
    def variance(self) -> Any:
        """The variance, `aleatoric` + `epistemic`."""
        return self._form(self.reduce(lambda p, _: p.variance[0])[0])

    @property
    def std(self) -> Any:
        """The standard deviation."""
        return self._form(self.reduce(lambda p, _: p.stddev[0])[0])

    @property
    def aleatoric(self) -> Any:
        """The variance that is left when the function is known: noise, z_* included."""
        return self._form(self.reduce(lambda p, _: p.aleatoric[0])[0])

    @property
    def epistemic(self) -> Any:
        """The variance due to not knowing the function, which more data would reduce."""
        return self._form(self.reduce(lambda p, _: p.epistemic[0])[0])

    def quantile(self, quantiles: float | Sequence[float]) -> Any:
        """Quantiles, [rows, quantiles] or [rows, outputs, quantiles]; in a frame a column for each of them.

        A single number is one quantile, of the shape of the mean.
        """
        levels = np.atleast_1d(np.asarray(quantiles, dtype=float)).tolist()
        (values,) = self.reduce(lambda p, _: gaussian(p).quantile(levels)[:, 0].permute(1, 2, 0))
        if np.ndim(quantiles) == 0:
            return self._form(values[..., 0])
        if self._form.is_frame:
            names = [f"{name}_q{level:g}" for name in self._form.names for level in levels]
            return self._form.named(values.reshape(len(values), -1), names)
        return values[:, 0] if self._form.one else values

    def interval(self, coverage: float = 0.9) -> tuple[Any, Any]:
        """Lower and upper ends of the central interval that should hold that share of outputs."""
        low, high = np.moveaxis(self.reduce(ends_of(coverage))[0], -1, 0)
        return self._form(low), self._form(high)

    def cdf(self, y: Any) -> Any:
        """P(Y ≤ y) of each output; NaN for a missing one."""
        return self._form(self._against(y, lambda p, y: p.cdf(y)))

    def crps(self, y: Any) -> Any:
        """Continuous ranked probability score of each output, in its unit; NaN for a missing one."""
        return self._form(self._against(y, lambda p, y: p.crps(y)))

    def _against(self, y: Any, measure: Callable[[GaussianPredictive, Tensor], Tensor]) -> Array:
        """A measure of known outputs, [rows, outputs]."""
        outputs = self._read(y)
        return self.reduce(
            lambda p, rows: measure(gaussian(p), outputs[None, rows].to(gaussian(p).loc.device))[0]
        )[0]

    def sample(self, n_samples: int = 1, random_state: Any = 0, noise: bool = True) -> Array:
        """Draw functions, [rows, samples] or [rows, outputs, samples]; see `RowDistribution.sample`."""
        values = super().sample(n_samples, random_state, noise)
        return values[:, 0] if self._form.one else values

    def covariance(self) -> Array:
        """Covariance between rows, [rows, rows] or [rows, rows, outputs].

        Rows hang together by z_G, by a copula, and by which member is right. What is a row's own, its z_* and its
        noise, is in its variance alone.
        """
        ask = self._condition(replace(self._draws, num_local=LOCALS_OF_A_FUNCTION))
        whole = concatenate([ask(self._x[rows]) for rows in self._chunks()], 3)
        given = functions_of(whole).cpu().numpy()
        given = given - given.mean(0)  # [K, rows, outputs]
        cov = np.einsum("kad,kbd->abd", given, given) / len(given)
        if isinstance(whole, CoherentPredictive):
            factor = whole.factor[:, 0, 0].cpu().numpy()  # [K, rows, outputs, R]
            cov += np.einsum("kadr,kbdr->abd", factor, factor) / len(factor)
        diagonal = np.arange(len(self))
        (variance,) = self.reduce(lambda p, _: p.variance[0])
        cov[diagonal, diagonal] = np.maximum(cov[diagonal, diagonal], variance)
        return cov[..., 0] if self._form.one else cov


class ClassDistribution(RowDistribution):
    """The predictive distribution of labels; all arguments but the labels are those of `RowDistribution`."""

    def __init__(self, classes: Array, *settings: Any, **named: Any) -> None:
        super().__init__(*settings, **named)
        self.classes = classes

    @property
    def mean(self) -> Any:
        """Probability of each class, [rows, classes]."""
        (probs,) = self.reduce(lambda p, _: p.mean[0])
        return self._form.named(probs, [str(label) for label in self.classes])

    @property
    def mode(self) -> Any:
        """The most probable label of each row."""
        (best,) = self.reduce(lambda p, _: p.mean[0].argmax(-1))
        return self._form.named(self.classes[best], self._form.names)

    @property
    def entropy(self) -> Any:
        """Entropy of the label, in nats, [rows]; `aleatoric` + `epistemic`."""
        return self._form.named(self.reduce(lambda p, _: p.entropy()[0])[0], ["entropy"])

    @property
    def aleatoric(self) -> Any:
        """Expected entropy when the function is known, in nats, [rows]."""
        return self._form.named(self.reduce(lambda p, _: p.aleatoric[0])[0], ["aleatoric"])

    @property
    def epistemic(self) -> Any:
        """Mutual information between label and function, in nats, [rows]."""
        return self._form.named(self.reduce(lambda p, _: p.epistemic[0])[0], ["epistemic"])

    def sample(self, n_samples: int = 1, random_state: Any = 0, noise: bool = True) -> Array:
        """Draw labels of all rows together, [rows, samples]; without noise probabilities, [rows, classes, samples]."""
        values = super().sample(n_samples, random_state, noise)
        return self.classes[values[:, 0].astype(int)] if noise else values


def ends_of(coverage: float) -> Callable[[Predictive, slice], Tensor]:
    """The ends of central intervals as a reduction, [rows, outputs, 2]."""
    if not 0 < coverage < 1:
        raise ValueError(
            f"coverage must lie strictly between 0 and 1, got {coverage}; 0.9 is the 90 % interval"
        )
    ends = [(1 - coverage) / 2, (1 + coverage) / 2]
    return lambda predictive, _: gaussian(predictive).quantile(ends)[:, 0].permute(1, 2, 0)


def gaussian(predictive: Predictive) -> GaussianPredictive:
    """The predictive of numbers as such."""
    assert isinstance(predictive, GaussianPredictive)
    return predictive


def functions_of(predictive: Predictive) -> Tensor:
    """E[y | z_G, x] of each draw of z_G, z_* averaged by its weights, [K, T, D]; of classes their probabilities."""
    draws = range(predictive.shape[0])
    return torch.stack([one_function(predictive, k).mean[0] for k in draws])
