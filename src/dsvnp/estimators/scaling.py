"""Scaling: between a user's units and what a network likes, fitted on training rows only.

Inputs are centred, scaled by a spread that outliers do not move, and squashed far out; outputs become what a linear
model leaves over, in unit variance. Both go back exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.linear_model import RidgeCV
from torch import Tensor

from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, Predictive

ALPHAS = np.logspace(-2, 5, 15)  # strengths that the linear part chooses from, for outputs in unit variance
LIMIT = 4.0  # scaled inputs lie within ± this: far away a network's ramps are no better than a constant


@dataclass(frozen=True)
class InputScaling:
    """x → squash((x − centre) / spread), for each column.

    Attributes:
        centre: median of each column, [D].
        spread: interquartile range as a normal's standard deviation; the standard deviation where the middle half of a
            column does not vary (flags, counts that are mostly zero), and 1 where nothing does, [D].
    """

    centre: Tensor
    spread: Tensor

    @classmethod
    def fit(cls, x: Tensor) -> InputScaling:
        """Measure rows [N, D], in float64."""
        # By NumPy: torch's quantile takes no more than 16 million numbers.
        low, centre, high = torch.from_numpy(np.quantile(x.numpy(), [0.25, 0.5, 0.75], axis=0))
        spread = (high - low) / 1.349
        deviation = x.std(0, correction=0)
        flat = spread <= 1e-12 * centre.abs()  # rounding alone
        centre, spread = torch.where(flat, x.mean(0), centre), torch.where(flat, deviation, spread)
        constant = spread <= 1e-12 * centre.abs()
        return cls(centre, torch.where(constant, 1.0, spread))

    def transform(self, x: Tensor) -> Tensor:
        """Rows [..., D] as the network reads them."""
        z = ((x - self.centre) / self.spread).clamp(-1e6, 1e6)
        return z / (1 + (z / LIMIT).square()).sqrt()


@dataclass(frozen=True)
class OutputScaling:
    """y = linear(x) + scale · residual, of which the network learns the residual.

    What the network says is corrected as rows that it has not seen suggest: its mean is damped and its σ becomes
    stretch · σ^power, where a power of 0 makes the noise the same everywhere.

    Attributes:
        weight: of the linear part, of scaled inputs, [D_x, D_y].
        bias: of the linear part, [D_y].
        scale: standard deviation of what it leaves over, [D_y].
        damping: how much of a predicted residual is believed, 0 to 1, [D_y].
        stretch: see above, [D_y].
        power: see above, 0 to 1, [D_y].
    """

    weight: Tensor
    bias: Tensor
    scale: Tensor
    damping: Tensor
    stretch: Tensor
    power: Tensor

    @classmethod
    def fit(cls, x: Tensor, y: Tensor, linear: bool = True) -> OutputScaling:
        """Fit to scaled inputs [N, D_x] and outputs [N, D_y]; NaN is missing. Strengths by leave-one-out.

        Args:
            x: scaled inputs.
            y: outputs in the user's units.
            linear: False leaves the inputs out: the linear part is the mean.
        """
        weight, bias = torch.zeros(x.shape[1], y.shape[1], dtype=x.dtype), torch.nanmean(y, 0)
        spread = (y - bias).square().nanmean(0).sqrt()
        constant = spread <= 1e-12 * bias.abs()
        known = ~torch.isnan(y)
        columns = range(y.shape[1])
        for group in [list(columns)] if bool(known.all()) else [[column] for column in columns]:
            rows = known[:, group].all(1)
            if linear and int(rows.sum()) > 3:
                target = (y[rows][:, group] - bias[group]) / torch.where(constant, 1.0, spread)[group]
                ridge = RidgeCV(ALPHAS, alpha_per_target=True).fit(x[rows].numpy(), target.numpy())
                coef = torch.from_numpy(ridge.coef_).reshape(len(group), -1)  # one target: [D_x] alone
                weight[:, group] = coef.T * spread[group]
                bias[group] += torch.as_tensor(ridge.intercept_) * spread[group]
        left = (y - bias - x @ weight).square().nanmean(0).sqrt()
        # Where nothing but rounding is left, a thousandth of the output's own spread is the unit.
        scale, one = torch.where(constant, 1.0, left.maximum(1e-3 * spread)), torch.ones_like(bias)
        return cls(weight, bias, scale, damping=one, stretch=one.clone(), power=one.clone())

    def linear(self, x: Tensor) -> Tensor:
        """The linear part for scaled inputs [..., D_x], in the user's units."""
        return x @ self.weight + self.bias

    def transform(self, x: Tensor, y: Tensor) -> Tensor:
        """Residuals of y in unit variance."""
        return (y - self.linear(x)) / self.scale

    def inverse(self, x: Tensor, predictive: Predictive) -> Predictive:
        """The predictive of y from that of the residual, corrected, [..., rows, D_y]."""
        assert isinstance(predictive, GaussianPredictive)
        sigma = self.stretch * predictive.scale.pow(self.power)
        return GaussianPredictive(predictive.loc * self.damping, sigma).affine(self.linear(x), self.scale)


@dataclass(frozen=True)
class ClassScaling:
    """Labels as they are; log-odds are divided by a temperature that suits rows not seen in training.

    Attributes:
        temperature: above 1 for a network that is too sure of itself, [1].
    """

    temperature: Tensor

    def linear(self, x: Tensor) -> Tensor:
        """Nothing: there is no linear part, [..., 0]."""
        return x[..., :0]

    def transform(self, x: Tensor, y: Tensor) -> Tensor:
        """The labels."""
        return y

    def inverse(self, x: Tensor, predictive: Predictive) -> Predictive:
        """The predictive with its temperature."""
        assert isinstance(predictive, CategoricalPredictive)
        return CategoricalPredictive((predictive.log_probs / self.temperature).log_softmax(-1))
