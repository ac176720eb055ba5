"""An exact Gaussian process for a table, one for each output, in float64: ARD Matérn-5/2 by marginal likelihood.

    −ln p(y | X, θ) = ½ yᵀα + ½ ln |K| + N/2 ln 2π,     K = s² k + σ² I,   α = K⁻¹ y
    k_ij = (1 + r + r²/3) exp(−r),                      r² = 5 Σ_d (x_id − x_jd)²/ℓ_d²

With G = ∂(−ln p)/∂K = ½ (K⁻¹ − ααᵀ) and W = −5/6 s² G ∘ (1 + r) exp(−r), its gradient is

    ∂ ln s: 2 s² Σ G ∘ k,    ∂ ln σ: 2 σ² tr G,    ∂ ln ℓ_d: −2 Σ_ij W_ij (x_id − x_jd)²/ℓ_d².

L-BFGS starts several times on a part of the rows; from the best of its ends it searches once more, on all rows. A
step on all rows of a large table is dear: there most of that search is on a larger part, and a few steps on all end it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from dsvnp.paper.multioutput.folds import Rows, Split
from dsvnp.paper.multioutput.measures import Moments, SplitScores, measure_gaussians

BOUNDS = {"length": (-3.0, 7.0), "signal": (-4.0, 4.0), "noise": (-7.0, 1.5)}  # of logarithms
REFUSED = 1e10  # the objective where K is singular in float64


@dataclass(frozen=True)
class ExactGP:
    """Settings of the search."""

    starts: tuple[float, ...] = (1.0, 3.0)  # lengths to start from, in units of √dim_x
    start_rows: int = 400  # random rows on which the starts are compared
    start_steps: int = 30  # iterations of L-BFGS from each
    num_steps: int = 40  # iterations on all rows, or on `middle_rows` of a larger table, from the best
    middle_rows: int = 1500  # random rows of a larger table
    last_steps: int = 10  # iterations on all rows of such a table, at the end

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", tuple(self.starts))  # a list, where it comes from JSON
        if not self.starts:
            raise ValueError("starts must hold at least one length, got none; (1.0,) is usual")


class Factors(NamedTuple):
    """What the objective and predictions share: kernel k, r and exp(−r), the Cholesky factor of K, and α."""

    kernel: Tensor
    r: Tensor
    decay: Tensor
    chol: Tensor
    alpha: Tensor


def measure_exact_gp(settings: ExactGP, splits: Sequence[Split]) -> list[SplitScores]:
    """Fit a GP to each output of each split, and measure."""
    return [_measure(settings, split) for split in splits]


def _measure(settings: ExactGP, split: Split) -> SplitScores:
    x = split.train.x.double()
    fitted = [(fit_exact_gp(settings, x, y), y) for y in split.train.y.double().unbind(1)]

    def predict(rows: Rows) -> Moments:
        found = [predict_exact_gp(theta, x, y, rows.x.double()) for theta, y in fitted]
        mean, scale = (torch.stack(each, 1).to(rows.x) for each in zip(*found, strict=True))
        return mean, scale

    return measure_gaussians(split, predict(split.test), predict(split.train))


def fit_exact_gp(settings: ExactGP, x: Tensor, y: Tensor) -> Tensor:
    """Find θ = (ln ℓ_1, …, ln ℓ_D, ln s, ln σ), [D + 2], of rows x [N, D] and one output y [N]."""
    dim = x.shape[1]
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(x.device)
    few, some = order[: settings.start_rows], order[: settings.middle_rows]
    ends = []
    for factor in settings.starts:
        start = np.array([math.log(factor * math.sqrt(dim))] * dim + [0.0, math.log(0.3)])
        ends.append(_search(start, x[few], y[few], settings.start_steps))
    best, num_steps = min(ends, key=lambda end: end[1])[0], settings.num_steps
    if len(x) > len(some):
        best, num_steps = _search(best, x[some], y[some], num_steps)[0], settings.last_steps
    return torch.from_numpy(_search(best, x, y, num_steps)[0]).to(x)


def _search(start: np.ndarray, x: Tensor, y: Tensor, num_steps: int) -> tuple[np.ndarray, float]:
    """L-BFGS from one θ; return where it ends, and the objective there."""

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = negative_log_evidence(torch.from_numpy(theta).to(x), x, y)
        return value, gradient.cpu().numpy()

    bounds = [BOUNDS["length"]] * x.shape[1] + [BOUNDS["signal"], BOUNDS["noise"]]
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": num_steps}
    )
    return found.x, float(found.fun)


def negative_log_evidence(theta: Tensor, x: Tensor, y: Tensor) -> tuple[float, Tensor]:
    """−ln p(y | X, θ) and its gradient, [D + 2]."""
    made = _factors(theta, x, y)
    if made is None:
        return REFUSED, torch.zeros_like(theta)
    signal, noise = (2 * theta[-2:]).exp()
    value = 0.5 * (y @ made.alpha) + made.chol.diagonal().log().sum() + 0.5 * len(y) * math.log(2 * math.pi)
    g = 0.5 * (torch.cholesky_inverse(made.chol) - torch.outer(made.alpha, made.alpha))  # [N, N]
    w = (-5 / 6 * signal) * g * (1 + made.r) * made.decay
    z = x / theta[:-2].exp()
    # W is symmetric: Σ_ij W_ij (z_id − z_jd)² = 2 Σ_i (Σ_j W_ij) z_id² − 2 Σ_ij z_id W_ij z_jd
    lengths = -4 * ((w.sum(1, keepdim=True) * z.square()).sum(0) - (z * (w @ z)).sum(0))  # [D]
    scales = torch.stack([2 * signal * (g * made.kernel).sum(), 2 * noise * g.diagonal().sum()])
    return float(value), torch.cat([lengths, scales])


def _factors(theta: Tensor, x: Tensor, y: Tensor) -> Factors | None:
    """The factors of K; None where it is not positive definite."""
    signal, noise = (2 * theta[-2:]).exp()
    kernel, r, decay = matern(theta, x, x)
    full = signal * kernel
    full.diagonal().add_(noise)
    chol, failed = torch.linalg.cholesky_ex(full)
    if bool(failed):
        return None
    return Factors(kernel, r, decay, chol, torch.cholesky_solve(y[:, None], chol)[:, 0])


def matern(theta: Tensor, x: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """k, r and exp(−r) of all pairs of rows, each [N, M]."""
    a, b = (rows / theta[:-2].exp() for rows in (x, other))
    squares = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T
    r = (5 * squares.clamp(min=0)).sqrt()
    decay = (-r).exp()
    return (1 + r + r.square() / 3) * decay, r, decay


def predict_exact_gp(
    theta: Tensor, x: Tensor, y: Tensor, asked: Tensor, chunk: int = 2000
) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of noisy outputs at other rows, each [M]."""
    made = _factors(theta, x, y)
    assert made is not None  # the search ended at a finite objective
    signal, noise = (2 * theta[-2:]).exp()
    means, variances = [], []
    for rows in asked.split(chunk):
        cross = signal * matern(theta, x, rows)[0]  # [N, m]
        means.append(made.alpha @ cross)
        explained = torch.linalg.solve_triangular(made.chol, cross, upper=False).square().sum(0)
        variances.append((signal + noise - explained).clamp(min=1e-12))
    return torch.cat(means), torch.cat(variances).sqrt()
