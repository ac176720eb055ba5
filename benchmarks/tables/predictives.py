"""Predictive distributions of one number, and the measures of how good they are.

Anything with `mean`, `log_prob(y)`, `cdf(y)` and `crps(y)`, each [N], is a `Predictive`. Ready-made:

- `Gaussian(mean, std)`.
- `Mixture(weights, means, stds)`: Gaussians with weights, [N, K].
- `Quantiles(levels, values)`: linear between the quantiles, exponential beyond the outermost.

Proper scores are in units of y: −log_prob, and CRPS = ∫ (F(z) − 1[z ≥ y])² dz (Gneiting and Raftery, 2007).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import binom, norm

Floats = NDArray[np.float64]
NUM_BINS = 15  # of the calibration error
LEAST_PROBABILITY = 1e-6  # of a class, in the log-loss


class Predictive(Protocol):
    """Predictions for N rows; `notes` says what a model chose, such as a number of iterations."""

    mean: Floats
    notes: dict[str, Any]

    def log_prob(self, y: Floats) -> Floats: ...

    def cdf(self, y: Floats) -> Floats: ...

    def crps(self, y: Floats) -> Floats: ...


@dataclass(frozen=True)
class Mixture:
    """Mixture of Gaussians: weights, means and standard deviations, each [N, K]; the weights of a row add up to 1."""

    weights: Floats
    means: Floats
    stds: Floats
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def mean(self) -> Floats:
        return (self.weights * self.means).sum(1)

    def log_prob(self, y: Floats) -> Floats:
        return logsumexp(norm.logpdf(y[:, None], self.means, self.stds), b=self.weights, axis=1)

    def cdf(self, y: Floats) -> Floats:
        return (self.weights * norm.cdf(y[:, None], self.means, self.stds)).sum(1)

    def crps(self, y: Floats) -> Floats:
        """E|Y − y| − E|Y − Y'| / 2, each a sum over components or pairs of them (Grimit et al., 2006)."""
        near = (self.weights * expected_distance(y[:, None] - self.means, self.stds)).sum(1)
        gaps = self.means[:, :, None] - self.means[:, None, :]  # [N, K, K]
        spread = np.hypot(self.stds[:, :, None], self.stds[:, None, :])
        pairs = self.weights[:, :, None] * self.weights[:, None, :]
        return near - 0.5 * (pairs * expected_distance(gaps, spread)).sum((1, 2))


def expected_distance(gap: Floats, std: Floats) -> Floats:
    """E|Z| for Z ~ N(gap, std²)."""
    scaled = gap / std
    return 2 * std * norm.pdf(scaled) + gap * (2 * norm.cdf(scaled) - 1)


def Gaussian(mean: Floats, std: Floats | float, notes: dict[str, Any] | None = None) -> Mixture:  # noqa: N802
    """One Gaussian per row; `std` is [N] or one number for all."""
    means = np.asarray(mean, float)[:, None]
    stds = np.broadcast_to(np.asarray(std, float).reshape(-1, 1), means.shape)
    return Mixture(np.ones_like(means), means, stds, notes or {})


@dataclass(frozen=True)
class Quantiles:
    """Density between quantiles: uniform in each gap, exponential tails whose density joins the outermost gap's.

    Crossing quantiles are sorted. A gap narrower than `least_gap` is widened around its middle, since the density of
    a gap of no width is infinite.

    Attributes:
        levels: probabilities, ascending, strictly between 0 and 1, [Q].
        values: quantiles, [N, Q].
        mean: mean of the prediction, from a model of its own, [N].
        least_gap: smallest distance of two quantiles that is believed.
    """

    levels: Floats
    values: Floats
    mean: Floats
    least_gap: float = 1e-3
    notes: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def knots(self) -> Floats:
        """Sorted quantiles with gaps of at least `least_gap`, [N, Q]; what widening adds is shared by both sides."""
        ordered = np.sort(self.values, axis=1)
        gaps = np.maximum(np.diff(ordered, axis=1), self.least_gap)
        spread = np.concatenate([np.zeros((len(ordered), 1)), gaps.cumsum(1)], 1)
        return spread + (ordered - spread).mean(1, keepdims=True)

    @cached_property
    def tails(self) -> tuple[Floats, Floats]:
        """Scales of the lower and upper exponential tail, [N] each: mass of the tail over density at its edge."""
        gaps, steps = np.diff(self.knots, axis=1), np.diff(self.levels)
        return self.levels[0] * gaps[:, 0] / steps[0], (1 - self.levels[-1]) * gaps[:, -1] / steps[-1]

    def log_prob(self, y: Floats) -> Floats:
        low, high = self.tails
        first, last = self.knots[:, 0], self.knots[:, -1]
        place = (y[:, None] >= self.knots[:, 1:-1]).sum(1)  # gap in which y lies, [N]
        rows = np.arange(len(y))
        inside = np.log(np.diff(self.levels)[place] / np.diff(self.knots, axis=1)[rows, place])
        below = np.log(self.levels[0] / low) - (first - y) / low
        above = np.log((1 - self.levels[-1]) / high) - (y - last) / high
        return np.select([y < first, y > last], [below, above], inside)

    def cdf(self, y: Floats) -> Floats:
        low, high = self.tails
        first, last = self.knots[:, 0], self.knots[:, -1]
        share = np.clip((y[:, None] - self.knots[:, :-1]) / np.diff(self.knots, axis=1), 0, 1)  # of each gap
        inside = self.levels[0] + share @ np.diff(self.levels)
        below = self.levels[0] * np.exp(np.minimum(y - first, 0) / low)
        above = 1 - (1 - self.levels[-1]) * np.exp(np.minimum(last - y, 0) / high)
        return np.select([y < first, y > last], [below, above], inside)

    def crps(self, y: Floats) -> Floats:
        """The integral over each gap, split at y, and over both tails; all in closed form."""
        left, right = self.knots[:, :-1], self.knots[:, 1:]
        start, end = self.levels[:-1], self.levels[1:]
        cut = np.clip(y[:, None], left, right)
        at_cut = start + (end - start) * (cut - left) / (right - left)
        squares = (cut - left) * (start**2 + start * at_cut + at_cut**2)
        rest = (right - cut) * ((1 - at_cut) ** 2 + (1 - at_cut) * (1 - end) + (1 - end) ** 2)
        low, high = self.tails
        below = tail_crps(self.knots[:, 0] - y, low, self.levels[0])
        above = tail_crps(y - self.knots[:, -1], high, 1 - self.levels[-1])
        return (squares + rest).sum(1) / 3 + below + above


def tail_crps(beyond: Floats, scale: Floats, mass: float) -> Floats:
    """Integral of the CRPS over an exponential tail; y lies `beyond` its edge, or inside where that is negative."""
    far = np.maximum(beyond, 0)
    left = mass * np.exp(-far / scale)  # mass that lies beyond y
    return scale * (mass**2 / 2 - 2 * (mass - left)) + far


# --- measures ---


def regression_scores(predictive: Predictive, y: Floats) -> dict[str, float]:
    """RMSE, NLL and CRPS, averaged over rows, and the share of rows in the central 90 % interval."""
    levels = predictive.cdf(y)
    return {
        "rmse": float(np.sqrt(np.mean((predictive.mean - y) ** 2))),
        "nll": float(-predictive.log_prob(y).mean()),
        "crps": float(predictive.crps(y).mean()),
        "coverage": float(((levels >= 0.05) & (levels <= 0.95)).mean()),
    }


def class_scores(probs: Floats, y: NDArray[np.int64]) -> dict[str, Any]:
    """Accuracy, log-loss and ECE, and the sums per bin of confidence from which the ECE of all folds is made."""
    bins = calibration_bins(probs, y)
    own = probs[np.arange(len(y)), y]
    return {
        "accuracy": float((probs.argmax(1) == y).mean()),
        "log_loss": float(-np.log(own.clip(LEAST_PROBABILITY)).mean()),
        "ece": calibration_error(bins),
        "bins": np.round(bins, 5).tolist(),
    }


def calibration_bins(probs: Floats, y: NDArray[np.int64]) -> Floats:
    """Rows, sum of confidence, and number right in each of 15 bins of confidence, [3, 15]."""
    confidence, right = probs.max(1), probs.argmax(1) == y
    place = np.minimum((confidence * NUM_BINS).astype(int), NUM_BINS - 1)
    return np.stack([np.bincount(place, weights, NUM_BINS) for weights in (None, confidence, right)]).astype(
        float
    )


def calibration_error(bins: Floats) -> float:
    """Expected calibration error: |accuracy − confidence| of each bin, weighted with its rows (Guo et al., 2017)."""
    rows, confidence, right = np.asarray(bins)
    return float(np.abs(right - confidence).sum() / rows.sum())


def overconfidence(bins: Floats) -> float:
    """Mean confidence minus accuracy: what chance adds has either sign, and becomes less with more rows."""
    rows, confidence, right = np.asarray(bins)
    return float((confidence - right).sum() / rows.sum())


def calibration_floor(bins: Floats) -> float:
    """The calibration error to expect of confidences that are right: chance alone moves the number right in a bin.

    A bin of n rows with confidence p has Binomial(n, p) right; their mean distance from n p is de Moivre's.
    """
    rows, confidence, _ = np.asarray(bins)[:, np.asarray(bins)[0] > 0]
    p = np.minimum(confidence / rows, 1.0)
    distance = 2 * rows * p * (1 - p) * binom.pmf(np.floor(rows * p), rows - 1, p)
    return float(distance.sum() / rows.sum())
