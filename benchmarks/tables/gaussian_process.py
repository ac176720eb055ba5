"""A Gaussian process with an ARD Matérn-5/2 kernel, its parameters found by maximum marginal likelihood.

k(a, b) = s² (1 + √5 r + 5r²/3) exp(−√5 r) + n² [a = b],   r² = Σ_j (a_j − b_j)² / ℓ_j²

Columns made of one input, such as the flags of a category, share their ℓ: with one each, the marginal likelihood of a
few dozen rows is overfitted. The gradient in ln ℓ_j needs no n × n array per input, as scikit-learn's does: with
g(r) = s² · 5/3 · (1 + √5 r) exp(−√5 r),  ∂k/∂ln ℓ_j = g(r) (a_j − b_j)² / ℓ_j².
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, lapack
from scipy.optimize import minimize

Floats = NDArray[np.float64]
JITTER = 1e-8
# of ln s², ln ℓ and ln n²; y and x are standardised
AMPLITUDES, LENGTHS, NOISES = (1e-2, 1e2), (5e-2, 1e3), (1e-5, 1e1)


@dataclass(frozen=True)
class FittedGP:
    """Parameters and the training rows; `predict` gives mean and standard deviation of new observations."""

    amplitude: float
    lengths: Floats
    noise: float
    x: Floats
    weights: Floats
    factor: tuple[Floats, bool]
    log_likelihood: float

    def predict(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation, noise included, [M] each."""
        cross, _ = matern(x / self.lengths, self.x / self.lengths, self.amplitude)
        variance = self.amplitude + self.noise - (cross * cho_solve(self.factor, cross.T).T).sum(1)
        return cross @ self.weights, np.sqrt(np.maximum(variance, 1e-10))


def matern(a: Floats, b: Floats, amplitude: float) -> tuple[Floats, Floats]:
    """Kernel and g(r) of scaled inputs, [N, M] each."""
    square = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T
    r = np.sqrt(5 * np.maximum(square, 0))
    decay = amplitude * np.exp(-r)
    return decay * (1 + r + r**2 / 3), decay * (1 + r) * (5 / 3)


def negative_log_likelihood(
    theta: Floats, x: Floats, y: Floats, groups: NDArray[np.intp]
) -> tuple[float, Floats]:
    """−ln p(y | x) and its gradient in theta = (ln s², ln ℓ_1 …, ln n²); `groups` says which ℓ a column has, [D]."""
    amplitude, lengths, noise = np.exp(theta[0]), np.exp(theta[1:-1]), np.exp(theta[-1])
    scaled = x / lengths[groups]
    smooth, slope = matern(scaled, scaled, amplitude)
    try:
        factor = cho_factor(smooth + (noise + JITTER) * np.eye(len(x)), lower=True)
    except np.linalg.LinAlgError:
        return 1e25, np.zeros_like(theta)
    weights = cho_solve(factor, y)
    value = 0.5 * y @ weights + np.log(np.diag(factor[0])).sum() + 0.5 * len(x) * np.log(2 * np.pi)
    half = np.tril(lapack.dpotri(factor[0], lower=1)[0])
    inverse = half + np.tril(half, -1).T
    by_kernel = 0.5 * (np.outer(weights, weights) - inverse)  # of ln p, [N, N]
    pull = by_kernel * slope
    by_length = 2 * (pull.sum(1) @ scaled**2 - (scaled * (pull @ scaled)).sum(0))
    by_group = np.bincount(groups, by_length)
    gradient = np.concatenate([[(by_kernel * smooth).sum()], by_group, [noise * np.trace(by_kernel)]])
    return float(value), -gradient


def fit_gp(
    x: Floats, y: Floats, inputs: NDArray[np.intp], num_starts: int, max_steps: int, seed: int
) -> FittedGP:
    """Maximise the marginal likelihood from several starts by L-BFGS; the best is kept.

    The first start is ℓ = √D, s² = 1, n² = 0.1; the others are drawn around it.

    Args:
        x: standardised columns, [N, D].
        y: standardised target, [N].
        inputs: the input that each column was made of, [D].
        num_starts: starts of the search.
        max_steps: steps of each.
        seed: of the starts.
    """
    groups = np.unique(inputs, return_inverse=True)[1]
    rng, dim = np.random.default_rng(seed), groups.max() + 1
    first = np.concatenate([[0.0], np.full(dim, 0.5 * np.log(dim)), [np.log(0.1)]])
    bounds = [AMPLITUDES, *[LENGTHS] * dim, NOISES]
    limits = np.log(np.array(bounds))
    best = None
    for start in range(num_starts):
        theta = np.clip(first + (start > 0) * rng.normal(size=len(first)), *limits.T)
        found = minimize(
            negative_log_likelihood,
            theta,
            args=(x, y, groups),
            jac=True,
            method="L-BFGS-B",
            bounds=limits,
            options={"maxiter": max_steps},
        )
        best = found if best is None or found.fun < best.fun else best
    amplitude, lengths, noise = np.exp(best.x[0]), np.exp(best.x[1:-1])[groups], np.exp(best.x[-1])
    smooth, _ = matern(x / lengths, x / lengths, amplitude)
    factor = cho_factor(smooth + (noise + JITTER) * np.eye(len(x)), lower=True)
    return FittedGP(amplitude, lengths, noise, x, cho_solve(factor, y), factor, -float(best.fun))
