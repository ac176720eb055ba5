"""SeriesProcess: a Gaussian process with a season, which `CurveRegressor` asks together with the network.

    k(d) = a² exp(−d²/2ℓ²)  +  c² exp(−d/r)  +  b² exp(−2 sin²(πd/p)/w² − d²/2s²),     noise σ² on top
             smooth trend        rough rest        season that changes slowly

d is a distance between inputs in units of their span, y is standardised. The logarithms of the hyper-parameters have
normal priors; their most probable values are found by L-BFGS with the gradient in closed form, from a long ℓ and from a
short one: from the long one the search may take a quickly varying trend for noise. Without a season the third term is
left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs
from scipy.optimize import minimize

Floats = NDArray[np.float64]

MOST_FITTED, RUN = (
    160,
    16,
)  # points that hyper-parameters are fitted to: runs of neighbours all over the series
ITERATIONS = 20
SHORT = 0.1  # where the second search starts, ℓ as a share of the span
# nats by which its end must be more probable: a rough function may look like a smooth one with a short ℓ
MARGIN = 2.0
WIDEST = 5.0  # standard deviations of the prior, where the search ends
DRIFT = 0.1  # standard deviation of the period, in periods over the whole span
JITTER = 1e-8
SIZES = (0, 2, 5)  # places of a, c and b
LENGTH, NOISE, PERIOD = 1, 4, 8


@dataclass(frozen=True)
class SeriesProcess:
    """A process with known hyper-parameters."""

    logs: Floats  # logarithms of a, ℓ, c, r, σ and, with a season, b, w, s, p
    span: float  # what distances are divided by
    mean: float  # of y
    std: float  # of y

    @classmethod
    def fit(cls, x: Floats, y: Floats, period: float | None, exact: bool = False) -> SeriesProcess:
        """Find the most probable hyper-parameters for points x, y [N]; inputs must not all be the same.

        The period of a season, None for none, is fitted too unless it is `exact`.
        """
        span = float(np.ptp(x))
        made = cls(np.empty(0), span, float(y.mean()), float(y.std()) or 1.0)
        rows = np.argsort(x, kind="stable")[_runs(len(x))]
        centres, widths = _prior(len(x), period and period / span)
        fitted = _most_probable(x[rows] / span, (y[rows] - made.mean) / made.std, centres, widths, exact)
        return cls(fitted, span, made.mean, made.std)

    @property
    def period(self) -> float | None:
        """Period of the season, in units of x."""
        return self.span * math.exp(self.logs[PERIOD]) if len(self.logs) > PERIOD else None

    def predict(self, x: Floats, y: Floats, x_target: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of observations at inputs [T], given points x, y [N]."""
        mean, root = self._given(x, y, x_target)
        noise = math.exp(2 * self.logs[NOISE])
        variance = covariance(self.logs, np.zeros(1)) - np.square(root).sum(0)
        return self.mean + self.std * mean, self.std * np.sqrt(np.maximum(variance, 0) + noise)

    def sample(
        self, x: Floats, y: Floats, x_target: Floats, num: int, noise: bool, rng: np.random.Generator
    ) -> Floats:
        """Whole functions at inputs [T], given points x, y [N], [T, num]."""
        mean, root = self._given(x, y, x_target)
        spread = covariance(self.logs, self._distances(x_target, x_target)) - root.T @ root
        size = np.abs(spread.diagonal()).max()
        factor = np.linalg.cholesky(spread + (JITTER + 1e-9 * size) * np.eye(len(spread)))
        drawn = mean[:, None] + factor @ rng.normal(size=(len(mean), num))
        if noise:
            drawn = drawn + math.exp(self.logs[NOISE]) * rng.normal(size=drawn.shape)
        return self.mean + self.std * drawn

    def _given(self, x: Floats, y: Floats, x_target: Floats) -> tuple[Floats, Floats]:
        """Standardised mean at targets [T], and R [N, T] with RᵀR what the points take off the variance."""
        prior = covariance(self.logs, self._distances(x, x))
        prior[np.diag_indices(len(x))] += math.exp(2 * self.logs[NOISE]) + JITTER
        factor = np.linalg.cholesky(prior)
        cross = covariance(self.logs, self._distances(x, x_target))
        root = solve_triangular(factor, cross, lower=True)
        return root.T @ solve_triangular(factor, (y - self.mean) / self.std, lower=True), root

    def _distances(self, x: Floats, other: Floats) -> Floats:
        return np.abs(x[:, None] - other) / self.span


def covariance(logs: Floats, d: Floats) -> Floats:
    """The kernel at distances, without noise."""
    values = np.exp(logs)
    squared = np.square(d)
    found = np.exp(2 * logs[0] - squared / (2 * values[1] ** 2))
    found += np.exp(2 * logs[2] - d / values[3])
    if len(logs) > PERIOD:
        turned = np.cos(2 * math.pi / values[PERIOD] * d)  # 2 sin²(a) = 1 − cos(2a)
        found += np.exp(2 * logs[5] - (1 - turned) / values[6] ** 2 - squared / (2 * values[7] ** 2))
    return found


def slopes(logs: Floats, d: Floats) -> tuple[Floats, dict[int, Floats]]:
    """The same, and its derivatives by the logarithms that it depends on, by place."""
    a, length, c, rough = np.exp(logs[:4])
    squared = np.square(d / length)
    smooth = a**2 * np.exp(-0.5 * squared)
    steps = d / rough
    rest = c**2 * np.exp(-steps)
    found = {0: 2 * smooth, 1: smooth * squared, 2: 2 * rest, 3: rest * steps}
    if len(logs) <= PERIOD:
        return smooth + rest, found
    b, wave, slow, period = np.exp(logs[5:])
    angle = math.pi / period * d
    sine = np.sin(angle)
    phase, squared = 2 * np.square(sine / wave), np.square(d / slow)
    season = b**2 * np.exp(-phase - 0.5 * squared)
    turned = 4 / wave**2 * season * sine * np.cos(angle) * angle
    return smooth + rest + season, found | {
        5: 2 * season,
        6: 2 * season * phase,
        7: season * squared,
        8: turned,
    }


def _prior(num: int, period: float | None) -> tuple[Floats, Floats]:
    """Means and standard deviations of the logarithms; a period in units of the span."""
    centres, widths = [1.0, 0.5, 0.3, 6 / num, 0.15], [1.0, 1.0, 1.0, 1.5, 1.2]
    if period is not None:
        centres += [0.7, 1.0, 1.0, period]
        widths += [1.0, 0.7, 1.0, DRIFT * period]
    return np.log(centres), np.array(widths)


def _most_probable(x: Floats, y: Floats, centres: Floats, widths: Floats, exact: bool) -> Floats:
    """Logarithms with the highest posterior density, given standardised points [N]; the prior's means if none is."""
    rows, columns = np.tril_indices(len(x), -1)
    d = np.abs(x[rows] - x[columns])
    matrix, diagonal = np.zeros((len(x), len(x)), order="F"), np.diag_indices(len(x))
    sizes = [place for place in SIZES if place < len(centres)]

    def loss(z: Floats) -> tuple[float, Floats]:
        logs = centres + widths * z
        matrix[rows, columns], by_log = slopes(logs, d)
        noise, inside = math.exp(2 * logs[NOISE]), np.exp(2 * logs[sizes])
        matrix[diagonal] = inside.sum() + noise + JITTER
        factor, failed = dpotrf(matrix, lower=1)
        if failed:
            return 1e25, np.zeros_like(z)
        solved, inverse = dpotrs(factor, y, lower=1)[0], dpotri(factor, lower=1)[0]
        weight = solved[rows] * solved[columns] - inverse[rows, columns]  # each pair once
        trace = float(solved @ solved - inverse[diagonal].sum())
        gradient = np.zeros_like(z)
        for place, slope in by_log.items():
            gradient[place] -= weight @ slope
        gradient[sizes] -= inside * trace
        gradient[NOISE] -= noise * trace
        value = 0.5 * y @ solved + np.log(factor[diagonal]).sum() + 0.5 * z @ z
        return float(value), gradient * widths + z

    reach = [WIDEST] * len(centres)
    if exact and len(centres) > PERIOD:
        reach[PERIOD] = 0.0
    bounds = [(-far, far) for far in reach]
    options = {"maxiter": ITERATIONS, "maxcor": 20}
    starts = np.zeros((2, len(centres)))
    starts[1, LENGTH] = (math.log(SHORT) - centres[LENGTH]) / widths[LENGTH]
    first, second = (
        minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options) for start in starts
    )
    found = second if second.fun < first.fun - MARGIN else first
    return centres + widths * np.asarray(found.x)


def _runs(num: int) -> NDArray[np.intp]:
    """Places of points to fit to, amid `num` sorted ones: short and long distances are both among them."""
    if num <= MOST_FITTED:
        return np.arange(num)
    starts = np.linspace(0, num - RUN, MOST_FITTED // RUN).astype(np.intp)
    return np.unique(starts[:, None] + np.arange(RUN))
