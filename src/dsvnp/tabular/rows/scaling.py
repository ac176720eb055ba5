"""Scaling: between a user's units and what a network likes, fitted on training rows only.

Inputs are centred and scaled by a spread that outliers do not move; the network reads them squashed far out. Outputs
become what a linear model leaves over, in unit variance; it reads inputs as they are or squashed, whichever suits rows
that it was not fitted to. Both go back exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dsvnp.devices import one_thread
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, Predictive
from dsvnp.sources.own_units import squashed
from dsvnp.tabular.rows.logistic import fit_logistic

ALPHAS = np.logspace(-2, 5, 15)  # strengths that the linear part chooses from, for outputs in unit variance
ABSENT = 3.0  # log-odds by which a class that training rows lack is below the rarest


@dataclass(frozen=True)
class InputScaling:
    """x → z = (x − centre) / spread → squash(z), for each column."""

    centre: Tensor  # median of each column, [D]
    # interquartile range as a normal's standard deviation; the standard deviation where the middle half of a column
    # does not vary (flags, counts that are mostly zero), and 1 where nothing does, [D]
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

    def scaled(self, x: Tensor) -> Tensor:
        """Rows z [..., D], not squashed."""
        return ((x - self.centre) / self.spread).clamp(-1e6, 1e6)

    def transform(self, x: Tensor) -> Tensor:
        """Rows [..., D] as the network reads them."""
        return self.both(x)[..., : x.shape[-1]]

    def both(self, x: Tensor) -> Tensor:
        """Rows squashed and not, side by side, [..., 2 D]: what the linear part chooses from."""
        z = self.scaled(x)
        return torch.cat([squashed(z), z], dim=-1)


@dataclass(frozen=True)
class OutputScaling:
    """y = linear(x) + scale · residual, of which the network learns the residual.

    What the network says is corrected as rows that it has not seen suggest: its mean is damped and its σ becomes
    stretch · σ^power, where a power of 0 makes the noise the same everywhere.
    """

    # of the linear part, of `InputScaling.both`; for each output one half of it is zero, [2 D_x, D_y]
    weight: Tensor
    bias: Tensor  # of the linear part, [D_y]
    scale: Tensor  # standard deviation of what it leaves over, [D_y]
    damping: Tensor  # how much of a predicted residual is believed, 0 to 1, [D_y]
    stretch: Tensor  # see above, [D_y]
    power: Tensor  # see above, 0 to 1, [D_y]

    @classmethod
    def fit(cls, x: Tensor, y: Tensor, linear: bool = True) -> OutputScaling:
        """Fit to inputs [N, 2 D_x], see `InputScaling.both`, and outputs [N, D_y] in the user's units; NaN is missing.

        With `linear` False the linear part is the mean.
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
                coef, intercept = best_ridge(x[rows], target)
                weight[:, group] = coef * spread[group]
                bias[group] += intercept * spread[group]
        left = (y - bias - x @ weight).square().nanmean(0).sqrt()
        # Where nothing but rounding is left, a thousandth of the output's own spread is the unit.
        scale, one = torch.where(constant, 1.0, left.maximum(1e-3 * spread)), torch.ones_like(bias)
        return cls(weight, bias, scale, damping=one, stretch=one.clone(), power=one.clone())

    def linear(self, x: Tensor) -> Tensor:
        """The linear part for inputs [..., 2 D_x], in the user's units."""
        return x @ self.weight + self.bias

    def transform(self, x: Tensor, y: Tensor) -> Tensor:
        """Residuals of y in unit variance."""
        return (y - self.linear(x)) / self.scale

    def inverse(self, x: Tensor, predictive: Predictive) -> Predictive:
        """The predictive of y from that of the residual, corrected, [..., rows, D_y]."""
        assert isinstance(predictive, GaussianPredictive)
        factor = self.stretch * predictive.scale.pow(self.power - 1)
        return stretched(predictive, factor, self.damping).affine(self.linear(x), self.scale)


def stretched(
    predictive: GaussianPredictive, factor: Tensor, damping: Tensor | float = 1.0
) -> GaussianPredictive:
    """The predictive with each component's spread times a factor and its mean times a damping.

    Weights, and the dependence between outputs within a component, stay.
    """
    return predictive.affine((damping - factor) * predictive.loc, factor)


def best_ridge(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Ridge of squashed inputs or of inputs as they are, whichever errs less when rows are left out, for each output.

    Both kinds lie side by side in x [N, 2 D_x]; outputs have unit variance. Returns coefficients [2 D_x, D_y], those of
    the other kind zero, and intercepts [D_y].
    """
    halves = x.chunk(2, dim=1)
    centres = [half.mean(0) for half in halves]
    coefs, errors = zip(
        *(ridge_by_leaving_out(*each, y) for each in zip(halves, centres, strict=True)), strict=True
    )
    plain = errors[1] <= errors[0]
    coef = torch.cat([torch.where(plain, 0.0, coefs[0]), torch.where(plain, coefs[1], 0.0)])
    return coef, y.mean(0) - torch.cat(centres) @ coef


def ridge_by_leaving_out(x: Tensor, centre: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Ridge with the strength that errs least when each row is left out, for each output.

    With XᵀX = V diag(s²) Vᵀ and Z = X V of rows less their `centre`, strength α fits ŷ = Z (s² + α)⁻¹ Zᵀy and errs by
    (y_i − ŷ_i) / (1 − h_i) on a row that is left out, where h_i = 1/N + Σ_j z_ij² / (s_j² + α). Returns coefficients
    [D_x, D_y], and the mean squared errors [D_y].
    """
    x, y = x - centre, y - y.mean(0)
    squares, axes = torch.linalg.eigh(x.T @ x)
    z = x @ axes
    products, best, coef = z.T @ y, torch.full_like(y[0], torch.inf), torch.zeros_like(x.T @ y)
    for alpha in ALPHAS.tolist():
        shrink = 1 / (squares.clamp(min=0) + alpha)
        inner = shrink[:, None] * products
        left = (1 - 1 / len(x) - z.square() @ shrink).clamp(min=1e-12)
        error = ((y - z @ inner) / left[:, None]).square().mean(0)
        better = error < best
        coef, best = torch.where(better, axes @ inner, coef), torch.where(better, error, best)
    return coef, best


@dataclass(frozen=True)
class ClassScaling:
    """Labels as they are; log-odds of the network and of a logistic regression, weighed as rows not seen suggest.

    ln p(class) = ln p_network / temperature + trust · linear(x) + constant
    """

    temperature: Tensor  # above 1 for a network that is too sure of itself, [1]
    # of the logistic regression on squashed inputs, [D_x, classes]; of no row without one
    weight: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    # of the logistic regression, [classes]
    bias: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    # how much of the logistic regression is added, [1]
    trust: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.float64))

    @classmethod
    def fit(
        cls, x: Tensor, y: Tensor, num_classes: int, linear: bool = True, strength: float = 1.0
    ) -> ClassScaling:
        """Fit a logistic regression to squashed inputs [N, D_x] and labels [N, 1]; the network alone counts at first.

        With `linear` False it is left out; `strength` is C, how far the coefficients may go.
        """
        present, labels = torch.unique(y[:, 0], return_inverse=True)
        if not linear or len(present) < 2:
            return cls(torch.ones(1, dtype=torch.float64))
        with one_thread():
            made = fit_logistic(x.double().numpy(), labels.numpy(), strength)
        coef, intercept = map(torch.from_numpy, made)
        if len(present) == 2:
            coef, intercept = torch.cat([-coef, coef]) / 2, torch.cat([-intercept, intercept]) / 2
        weight = torch.zeros(x.shape[1], num_classes, dtype=torch.float64)
        bias = torch.full((num_classes,), float(intercept.min()) - ABSENT, dtype=torch.float64)
        weight[:, present], bias[present] = coef.T, intercept
        return cls(torch.ones(1, dtype=torch.float64), weight, bias)

    def linear(self, x: Tensor) -> Tensor:
        """Log-odds of the logistic regression for inputs of `InputScaling.both`, [..., classes]; none without one."""
        return x[..., : self.weight.shape[-2]] @ self.weight + self.bias

    def transform(self, x: Tensor, y: Tensor) -> Tensor:
        """The labels."""
        return y

    def inverse(self, x: Tensor, predictive: Predictive) -> Predictive:
        """The predictive of the network with its temperature and the logistic regression."""
        return self.pooled(predictive, self.linear(x))

    def pooled(self, predictive: Predictive, linear: Tensor) -> Predictive:
        """The predictive, given the log-odds of the logistic regression [T, classes]."""
        assert isinstance(predictive, CategoricalPredictive)
        logits = predictive.log_probs / self.temperature
        if linear.shape[-1]:
            logits = logits + self.trust * linear
        return CategoricalPredictive(logits.log_softmax(-1), predictive.log_weights)


Outputs = OutputScaling | ClassScaling  # of numbers, or of classes
