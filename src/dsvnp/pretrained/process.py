"""CurveProcess: a Gaussian process of one to three inputs, which `CurveRegressor` asks together with the network.

    k(d) = a² exp(−r²/2)  +  c² exp(−r ℓ̄/ρ)  [ + b² exp(−2 sin²(πd/p)/w² − d²/2s²) ],     noise σ² on top
           smooth trend     rough rest          season that changes slowly, of one input

with r² = Σ_j d_j²/ℓ_j² for D inputs, ℓ̄ the geometric mean of the lengths ℓ_j, and d_j a distance between inputs in
units of their span; y is standardised. With one input the rough term is c² exp(−d/ρ). The logarithms of the
hyper-parameters have normal priors; their most probable values are found by L-BFGS with the gradient in closed form,
from long ℓ and from short ones: from long ones the search may take a quickly varying trend for noise. Without a season
the last term is left out.
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

# points that hyper-parameters are fitted to: groups of neighbours all over the curve
MOST_FITTED, RUN = 160, 16
ITERATIONS = 20
SHORT = 0.1  # where the second search starts, ℓ as a share of the span
# nats by which its end must be more probable: a rough function may look like a smooth one with a short ℓ
MARGIN = 2.0
WIDEST = 5.0  # standard deviations of the prior, where the search ends
DRIFT = 0.1  # standard deviation of the period, in periods over the whole span
JITTER = 1e-8
SMOOTH, REST, ROUGH, NOISE, LENGTH = range(5)  # places of a, c, ρ, σ and the first ℓ
SEASON, WAVE, SLOW, PERIOD = range(5, 9)  # of b, w, s and p: a season is of one input


@dataclass(frozen=True)
class CurveProcess:
    """A process with known hyper-parameters."""

    logs: Floats  # logarithms of a, c, ρ, σ, ℓ of each input and, with a season, b, w, s, p
    spans: Floats  # what distances along each input are divided by, [D]
    mean: float  # of y
    std: float  # of y

    @classmethod
    def fit(cls, x: Floats, y: Floats, period: float | None = None, exact: bool = False) -> CurveProcess:
        """Find the most probable hyper-parameters for points x [N, D], y [N]; each input must vary.

        The period of a season of one input, None for none, is fitted too unless it is `exact`.
        """
        spans = np.ptp(x, axis=0)
        mean, std = float(y.mean()), float(y.std())
        made = cls(np.empty(0), spans, mean, std if std > 1e-13 * abs(mean) else 1.0)
        rows = _groups(x / spans)
        centres, widths = _prior(x.shape[0], x.shape[1], period and period / float(spans[0]))
        fitted = _most_probable(x[rows] / spans, (y[rows] - made.mean) / made.std, centres, widths, exact)
        return cls(fitted, spans, made.mean, made.std)

    @property
    def period(self) -> float | None:
        """Period of the season, in units of x."""
        return (
            float(self.spans[0]) * math.exp(self.logs[PERIOD])
            if _has_season(self.logs, len(self.spans))
            else None
        )

    def predict(self, x: Floats, y: Floats, x_target: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of observations at inputs [T, D], given points x [N, D], y [N]."""
        mean, root = self._given(x, y, x_target)
        noise = math.exp(2 * self.logs[NOISE])
        variance = covariance(self.logs, np.zeros((len(self.spans), 1))) - np.square(root).sum(0)
        return self.mean + self.std * mean, self.std * np.sqrt(np.maximum(variance, 0) + noise)

    def sample(
        self, x: Floats, y: Floats, x_target: Floats, num: int, noise: bool, rng: np.random.Generator
    ) -> Floats:
        """Whole functions at inputs [T, D], given points x [N, D], y [N], [T, num]."""
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
        """Between inputs [N, D] and [M, D], in spans, [D, N, M]."""
        return np.abs((x / self.spans).T[:, :, None] - (other / self.spans).T[:, None])


def covariance(logs: Floats, d: Floats) -> Floats:
    """The kernel at distances [D, ...], without noise, [...]."""
    smooth, rest, *_ = _plain(logs, d)
    if not _has_season(logs, len(d)):
        return smooth + rest
    wave, slow, period = np.exp(logs[WAVE:])
    turned = np.cos(2 * math.pi / period * d[0])  # 2 sin²(a) = 1 − cos(2a)
    exponent = 2 * logs[SEASON] - (1 - turned) / wave**2 - np.square(d[0]) / (2 * slow**2)
    return smooth + rest + np.exp(exponent)


def slopes(logs: Floats, d: Floats) -> tuple[Floats, dict[int, Floats]]:
    """The same, and its derivatives by the logarithms that it depends on, by place."""
    smooth, rest, steps, parts = _plain(logs, d)
    pull = rest * steps
    found = {SMOOTH: 2 * smooth, REST: 2 * rest, ROUGH: pull}
    for place, part in enumerate(parts, LENGTH):
        found[place] = smooth * part
        if len(d) > 1:  # a longer ℓ_j shortens r, but stretches ℓ̄
            found[place] += pull * (part / np.maximum(parts.sum(0), 1e-300) - 1 / len(d))
    if not _has_season(logs, len(d)):
        return smooth + rest, found
    b, wave, slow, period = np.exp(logs[SEASON:])
    angle = math.pi / period * d[0]
    sine = np.sin(angle)
    phase, squared = 2 * np.square(sine / wave), np.square(d[0] / slow)
    season = b**2 * np.exp(-phase - 0.5 * squared)
    turned = 4 / wave**2 * season * sine * np.cos(angle) * angle
    by_season = {SEASON: 2 * season, WAVE: 2 * season * phase, SLOW: season * squared, PERIOD: turned}
    return smooth + rest + season, found | by_season


def _plain(logs: Floats, d: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """The first two terms at distances [D, ...], r ℓ̄/ρ, and d_j²/ℓ_j² of each input, [D, ...]."""
    lengths = logs[LENGTH : LENGTH + len(d)]
    parts = np.square(d / np.exp(lengths).reshape(-1, *[1] * (d.ndim - 1)))
    squared = parts.sum(0)
    steps = np.sqrt(squared) * math.exp(lengths.mean() - logs[ROUGH])
    return np.exp(2 * logs[SMOOTH] - 0.5 * squared), np.exp(2 * logs[REST] - steps), steps, parts


def _has_season(logs: Floats, dims: int) -> bool:
    return len(logs) > LENGTH + dims


def _prior(num: int, dims: int, period: float | None) -> tuple[Floats, Floats]:
    """Means and standard deviations of the logarithms; a period in units of the span."""
    rough, length = (6 / num, 0.5) if dims == 1 else (0.3, 0.6)
    centres, widths = [1.0, 0.3, rough, 0.15], [1.0, 1.0, 1.5 if dims == 1 else 1.2, 1.2]
    centres, widths = centres + [length] * dims, widths + [1.0] * dims
    if period is not None:
        centres += [0.7, 1.0, 1.0, period]
        widths += [1.0, 0.7, 1.0, DRIFT * period]
    return np.log(centres), np.array(widths)


def _most_probable(x: Floats, y: Floats, centres: Floats, widths: Floats, exact: bool) -> Floats:
    """Logarithms with the highest posterior density, given standardised points [N, D]; the prior's means if none is."""
    rows, columns = np.tril_indices(len(x), -1)
    d = np.abs(x[rows] - x[columns]).T.copy()  # [D, pairs]
    matrix, diagonal = np.zeros((len(x), len(x)), order="F"), np.diag_indices(len(x))
    season = _has_season(centres, len(d))
    sizes = [SMOOTH, REST, SEASON] if season else [SMOOTH, REST]

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

    reach = np.full(len(centres), WIDEST)
    if exact and season:
        reach[PERIOD] = 0.0
    bounds = list(zip(-reach, reach, strict=True))
    options = {"maxiter": ITERATIONS, "maxcor": 20}
    short = slice(LENGTH, LENGTH + len(d))
    starts = np.zeros((2, len(centres)))
    starts[1, short] = (math.log(SHORT) - centres[short]) / widths[short]
    first, second = (
        minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options) for start in starts
    )
    found = second if second.fun < first.fun - MARGIN else first
    return centres + widths * np.asarray(found.x)


def _groups(x: Floats) -> NDArray[np.intp]:
    """Places of points to fit to, amid points [N, D]: short and long distances are both among them."""
    num, dims = x.shape
    if dims == 1:
        return np.argsort(x[:, 0], kind="stable")[_runs(num)]
    if num <= MOST_FITTED:
        return np.arange(num)
    centres = np.random.default_rng(0).choice(num, MOST_FITTED // RUN, replace=False)
    away = np.square(x - x[centres][:, None]).sum(-1)  # [groups, N]
    return np.unique(np.argpartition(away, RUN - 1, axis=1)[:, :RUN])


def _runs(num: int) -> NDArray[np.intp]:
    """Places of points to fit to, amid `num` sorted ones."""
    if num <= MOST_FITTED:
        return np.arange(num)
    starts = np.linspace(0, num - RUN, MOST_FITTED // RUN).astype(np.intp)
    return np.unique(starts[:, None] + np.arange(RUN))
