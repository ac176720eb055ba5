"""A Gaussian process of one output, whose parameters maximise the marginal likelihood times a weak prior.

    k(a, b) = s² exp(−r²/2) + t² (1 + √5 r + 5r²/3) exp(−√5 r) + u² a·b / D + n² [a = b],   r² = Σ_j (a_j − b_j)² / ℓ_j²

Columns that were made of one input, such as the flags of a category, share their ℓ. With α = K⁻¹ y and
W = ½ (α αᵀ − K⁻¹), the gradient of ln p(y) in a parameter θ is Σ W ∘ ∂K/∂θ; that in all ln ℓ_j takes two products:

    ∂k/∂ln ℓ_j = g(r) (a_j − b_j)² / ℓ_j²,   g(r) = s² exp(−r²/2) + t² (5/3) (1 + √5 r) exp(−√5 r)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri
from scipy.optimize import minimize
from torch import Tensor

from dsvnp.devices import one_thread
from dsvnp.tabular.rows.scaling import InputScaling

# Rows that the parameters are found with, and steps of the search: a rough search first, then a better one.
SEARCHES = ((128, 20), (512, 8))
MOST_ROWS = 2048  # that predictions are made from
JITTER = 1e-6  # added to n², for outputs in unit variance
# Means and deviations of ln s², ln t², ln u², ln n² and ln ℓ − ½ ln(number of inputs) beforehand
AMPLITUDES, NOISE, LENGTH = ((-0.5, -0.5, -2.0), 2.0), (-2.5, 2.0), (1.1, 1.5)
# The search begins with short lengths and little noise: from long ones it may end where all but a line is noise.
FIRST_NOISE, FIRST_LENGTH = -4.0, -0.5
REACH = 4  # deviations from its mean that a parameter may have


@dataclass(frozen=True)
class GaussianProcess:
    """A process that has read rows; it predicts the mean of others, the deviation of the function, and the noise's."""

    inputs: InputScaling
    theta: Tensor  # ln s², ln t², ln u², ln n², and ln ℓ of each input
    lengths: Tensor  # ℓ of each column, [D]
    x: Tensor  # scaled rows, [N, D]
    alpha: Tensor  # K⁻¹ y, [N]
    root: Tensor  # L⁻¹ with K = L Lᵀ, [N, N]
    unit: tuple[Tensor, Tensor]  # mean and deviation of y

    @classmethod
    def fit(
        cls, x: Tensor, y: Tensor, sources: Sequence[int], start: Tensor | None = None
    ) -> GaussianProcess:
        """Fit to rows x [N, D], y [N] in float64; NaN is missing.

        Args:
            x: encoded rows without gaps.
            y: their outputs.
            sources: the input that each column was made of.
            start: parameters of a process of similar rows, to begin the search with.
        """
        known = ~y.isnan()
        x, y = x[known], y[known]
        inputs, unit = InputScaling.fit(x), _unit(y)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:MOST_ROWS]
        x, y = inputs.transform(x[order]), (y[order] - unit[0]) / unit[1]
        groups = torch.tensor(np.unique(np.asarray(sources), return_inverse=True)[1])
        with one_thread():
            theta = find_parameters(x, y, groups, start)
        lengths = theta[4:].exp()[groups]
        root = inverse_root(covariance(theta, lengths, x))
        return cls(inputs, theta, lengths, x, root.T @ (root @ y), root, unit)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, deviation of the function and deviation of the noise of rows [T, D], [T] each, in units of y."""
        x = self.inputs.transform(x)
        s, t, u, noise = self.theta[:4].exp()
        smooth, rough, _ = kernels(x / self.lengths, self.x / self.lengths)
        cross = s * smooth + t * rough + u * (x @ self.x.T) / x.shape[1]
        prior = s + t + u * x.square().mean(1)
        left = (prior - (cross @ self.root.T).square().sum(1)).clamp(min=1e-10)
        mean, std = self.unit
        return (
            mean + std * (cross @ self.alpha),
            std * left.sqrt(),
            std * (noise + JITTER).sqrt().expand_as(left),
        )


def kernels(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The two kernels of r without their amplitudes, and the Matérn kernel's (1 + √5 r) exp(−√5 r), [N, M] each."""
    square = torch.addmm(a.square().sum(1)[:, None] + b.square().sum(1), a, b.T, alpha=-2).clamp(min=0)
    r = (5 * square).sqrt()
    decay = (-r).exp()
    slope = decay * (1 + r)
    return (-0.5 * square).exp(), torch.addcmul(slope, decay, square, value=5 / 3), slope


def covariance(theta: Tensor, lengths: Tensor, x: Tensor) -> Tensor:
    """K of scaled rows [N, D], noise included, [N, N]."""
    s, t, u, noise = theta[:4].exp()
    smooth, rough, _ = kernels(x / lengths, x / lengths)
    eye = torch.eye(len(x), dtype=x.dtype)
    return s * smooth + t * rough + u * (x @ x.T) / x.shape[1] + (noise + JITTER) * eye


def inverse_root(whole: Tensor) -> Tensor:
    """L⁻¹ of a matrix L Lᵀ, [N, N], in a third of the time that torch takes to solve for it."""
    return torch.from_numpy(dtrtri(torch.linalg.cholesky(whole).numpy(), lower=1)[0])


def find_parameters(x: Tensor, y: Tensor, groups: Tensor, start: Tensor | None = None) -> Tensor:
    """θ that maximises the marginal likelihood of rows in random order times the prior, by L-BFGS."""
    mean, deviation = prior_of(int(groups.max()) + 1)
    theta = mean.copy() if start is None else start.numpy()
    if start is None:
        theta[3], theta[4:] = FIRST_NOISE, mean[4:] + FIRST_LENGTH - LENGTH[0]
    limits = np.stack([mean - REACH * deviation, mean + REACH * deviation], 1)
    for rows, steps in SEARCHES[0 if start is None else -1 :]:

        def value(theta: NDArray[np.float64], rows: int = rows) -> tuple[float, NDArray[np.float64]]:
            found, gradient = log_likelihood(torch.from_numpy(theta), x[:rows], y[:rows], groups)
            away = (theta - mean) / deviation
            return float(0.5 * away @ away) - found, away / deviation - gradient.numpy()

        options = {"maxiter": steps, "maxfun": 2 * steps}
        theta = minimize(value, theta, jac=True, method="L-BFGS-B", bounds=limits, options=options).x
        if rows >= len(x):
            break
    return torch.from_numpy(theta)


def prior_of(num_inputs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and deviations of all parameters: the more inputs there are, the less each is expected to matter."""
    lengths = np.full(num_inputs, LENGTH[0] + 0.5 * math.log(num_inputs))
    mean = np.concatenate([AMPLITUDES[0], [NOISE[0]], lengths])
    return mean, np.array([AMPLITUDES[1]] * 3 + [NOISE[1]] + [LENGTH[1]] * num_inputs)


def log_likelihood(theta: Tensor, x: Tensor, y: Tensor, groups: Tensor) -> tuple[float, Tensor]:
    """ln p(y | x, θ) of scaled rows, and its gradient in θ; where K is not positive definite, one that none prefers."""
    amplitudes = theta[:4].exp()
    s, t, u, noise = amplitudes.tolist()
    scaled = x / theta[4:].exp()[groups]
    smooth, rough, slope = kernels(scaled, scaled)
    line = x @ x.T / x.shape[1]
    whole = (s * smooth).add_(rough, alpha=t).add_(line, alpha=u)
    whole.diagonal().add_(noise + JITTER)
    factor, failed = torch.linalg.cholesky_ex(whole)
    if failed:
        return -1e25, torch.zeros_like(theta)
    inverse = torch.cholesky_inverse(factor)
    alpha = inverse @ y
    found = -0.5 * (y @ alpha + len(x) * math.log(2 * math.pi)) - factor.diagonal().log().sum()
    by_covariance = torch.addr(inverse, alpha, alpha, beta=-0.5, alpha=0.5)
    sums = [by_covariance.flatten() @ part.flatten() for part in (smooth, rough, line)]
    by_amplitude = amplitudes * torch.stack([*sums, by_covariance.trace()])
    pull = smooth.mul_(s).add_(slope, alpha=5 / 3 * t).mul_(by_covariance)
    by_column = 2 * (pull.sum(1) @ scaled.square() - (scaled * (pull @ scaled)).sum(0))
    by_length = torch.zeros_like(theta[4:]).index_add_(0, groups, by_column)
    return float(found), torch.cat([by_amplitude, by_length])


def _unit(y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of y; 1 where it does not vary."""
    mean, std = y.mean(), y.std(correction=0)
    return mean, torch.where(std <= 1e-12 * mean.abs(), 1.0, std)
