"""PanelLogEI: expected improvement of a panel of surrogates, weighed by how well they predict points left out.

A view v is a surrogate of outputs as they are or stretched near the best one (`warping`). Surrogates are exact Gaussian
processes, with the kernel and priors of BoTorch's SingleTaskGP, and, if wanted, a pretrained network. The weights w_v
maximise the likelihood of the observations, each predicted from the other folds, by expectation maximisation:

    EI(x) = Σ_v w_v EI_v(x)                 in units of y: above the best value a warp is a straight line.

The best observation is in no fold: a warp has its largest slope there and would be rewarded for it.
Axes: V views, n observations, N points, F folds of f observations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import _log_ei_helper
from botorch.utils.transforms import t_batch_mode_transform
from scipy.optimize import minimize
from torch import Tensor

from dsvnp.botorch.acquisition import MixtureLogEI
from dsvnp.botorch.model import NeuralProcessModel
from dsvnp.botorch.warping import Warp

Make = Callable[[Tensor, Tensor], NeuralProcessModel]  # from x [..., n, d] and y [..., n, 1]
# of the views' warps; None is no warp. Strong warps, with small shares, keep to the first good place.
SHARES = (None, 3.0, 1.0)
FOLDS = 5
LEAST_NOISE = 1e-4  # variance, of standardised outputs
LEAST_WEIGHT = 0.05  # of a network's view that is asked: the others cost time and change little


class Member(Protocol):
    """Views of one kind; both answers are in units of the view."""

    def left_out(self, rows: list[Tensor]) -> Tensor:
        """ln p of the observations of each fold given all others, [V, F·f]."""

    def log_improvement(self, X: Tensor) -> Tensor:
        """ln EI on the best observation at X [N, 1, d], [V, N]."""


class PanelLogEI(AcquisitionFunction):
    """Logarithm of a panel's expected improvement, for one output, q = 1 and functions with little noise.

    Args:
        train_X: observed inputs, [n, d], of the unit cube.
        train_Y: observed outputs, [n, 1], to be maximised.
        network: makes a model of a network without a global latent; None leaves networks out.
        gaussian_processes: whether Gaussian processes are in the panel.
        shares: one view per entry, see `Warp.of`; None leaves outputs as they are.

    Attributes:
        weights: of the views, Gaussian processes first, [V].
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        network: Make | None = None,
        *,
        gaussian_processes: bool = True,
        shares: Sequence[float | None] = SHARES,
    ) -> None:
        super(AcquisitionFunction, self).__init__()  # there is no single model
        if train_X.ndim != 2 or train_Y.shape != (len(train_X), 1):
            raise ValueError(f"expected X [n, d] and Y [n, 1], got {train_X.shape} and {train_Y.shape}")
        if len(train_X) < 3:
            raise ValueError(
                f"expected at least 3 observations, got {len(train_X)}; start with random points"
            )
        warps = [None if share is None else Warp.of(train_Y.flatten(), share) for share in shares]
        y = torch.stack([train_Y if warp is None else warp(train_Y) for warp in warps])  # [V, n, 1]
        slopes = torch.stack(
            [torch.zeros_like(train_Y[:, 0]) if w is None else w.log_slope(train_Y[:, 0]) for w in warps]
        )  # [V, n]
        best = train_Y.argmax()
        rows = folds_of((torch.arange(len(train_Y), device=train_Y.device) != best).nonzero()[:, 0])
        members: list[Member] = []
        if gaussian_processes:
            members.append(GaussianProcesses(train_X, y))
        if network is not None:
            members.append(NetworkViews(network, train_X, y))
        likely = torch.cat([member.left_out(rows) + slopes[:, torch.cat(rows)] for member in members])
        self.weights = stacked(likely)
        self._members, kept = [], []
        for number, member in enumerate(members):
            views = torch.arange(len(y))
            if isinstance(member, NetworkViews):
                views = (self.weights[number * len(y) :][: len(y)] >= LEAST_WEIGHT).nonzero()[:, 0]
                member = NetworkViews(member.make, train_X, y[views])
            if len(views):
                self._members.append(member)
                kept.append(self.weights[number * len(y) + views].log() - slopes[views, best])
        self._log_weights = torch.cat(kept)

    @t_batch_mode_transform(expected_q=1)  # type: ignore[untyped-decorator]
    def forward(self, X: Tensor) -> Tensor:
        """ln EI at X [N, 1, d]."""
        each = torch.cat([member.log_improvement(X) for member in self._members])
        return (each + self._log_weights.unsqueeze(-1)).logsumexp(0)


class GaussianProcesses:
    """Exact Gaussian processes of x [n, d] and y [V, n, 1]: kernel, priors and standardisation of SingleTaskGP.

    k(x, x') = exp(−½ Σ_i (x_i − x'_i)² / ℓ_i²), with ℓ, the noise σ² and the mean of each view at the mode of their
    posterior; all views are fitted at once.
    """

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self._x, self._best = x, y.amax(1)  # [V, 1]
        self._shift, self._scale = y.mean(1), y.std(1).clamp(min=1e-12)  # [V, 1]
        white = (y[..., 0] - self._shift) / self._scale  # [V, n]
        self._precision, noise, self._mean = fit(x, white)  # 1/ℓ² [V, d], [V, 1], [V, 1]
        gram = self._kernel(x) + torch.diag_embed(noise.expand_as(white))
        self._factor = torch.linalg.cholesky(gram)
        error = (white - self._mean).unsqueeze(-1)
        self._pull = torch.cholesky_solve(error, self._factor)  # K⁻¹ (y − m), [V, n, 1]

    def _kernel(self, x: Tensor) -> Tensor:
        """k between x [N, d] and the observations, [V, N, n]."""
        squares = (x.unsqueeze(1) - self._x).square() @ self._precision.T  # [N, n, V]
        return torch.exp(-0.5 * squares.movedim(-1, 0))

    def left_out(self, rows: list[Tensor]) -> Tensor:
        """With P = K⁻¹ a fold has the covariance (P_ff)⁻¹ and the error (P_ff)⁻¹ (P y)_f given all other points.

        For single points that is Eq. 5.12 of Rasmussen & Williams.
        """
        precision = torch.cholesky_inverse(self._factor)
        covariance = [torch.linalg.inv(precision[:, fold][..., fold]) for fold in rows]
        error = [each @ self._pull[:, fold] for each, fold in zip(covariance, rows, strict=True)]
        variance = torch.cat([each.diagonal(dim1=-2, dim2=-1) for each in covariance], dim=-1)
        squared = torch.cat(error, dim=1)[..., 0].square() / variance
        return -0.5 * (squared + variance.log() + math.log(2 * math.pi)) - self._scale.log()

    def log_improvement(self, X: Tensor) -> Tensor:
        cross = self._kernel(X[:, 0])
        known = torch.linalg.solve_triangular(self._factor, cross.transpose(-1, -2), upper=False)
        sigma = (1 - known.square().sum(1)).clamp(min=1e-10).sqrt() * self._scale  # [V, N]
        mean = self._shift + self._scale * (self._mean + (cross @ self._pull)[..., 0])
        return _log_ei_helper((mean - self._best) / sigma) + sigma.log()


def fit(x: Tensor, y: Tensor, max_steps: int = 200) -> tuple[Tensor, Tensor, Tensor]:
    """1/ℓ² [V, d], σ² [V, 1] and the mean [V, 1] of standardised outputs y [V, n] with the highest posterior density.

    The priors are BoTorch's: ℓ ~ LogNormal(√2 + ½ ln d, √3), σ² ~ LogNormal(−4, 1) and at least 1e-4.
    """
    views, (count, dims) = len(y), x.shape
    squares = (x.unsqueeze(1) - x).square().flatten(0, 1)  # [n·n, d]
    priors = [
        torch.distributions.LogNormal(loc, scale)
        for loc, scale in ((math.sqrt(2) + 0.5 * math.log(dims), math.sqrt(3)), (-4.0, 1.0))
    ]
    eye = torch.eye(count, dtype=x.dtype)

    def parts(flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_length, log_noise, mean = flat.reshape(views, dims + 2).split([dims, 1, 1], dim=-1)
        return log_length.exp(), LEAST_NOISE + log_noise.exp(), mean

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        given = torch.tensor(flat, requires_grad=True)
        length, noise, mean = parts(given)
        gram = torch.exp(-0.5 * (squares @ length.pow(-2).T)).T.unflatten(-1, (count, count))
        factor = torch.linalg.cholesky(gram + noise.unsqueeze(-1) * eye)
        white = torch.linalg.solve_triangular(factor, (y - mean).unsqueeze(-1), upper=False)
        evidence = -0.5 * white.square().sum() - factor.diagonal(dim1=-2, dim2=-1).log().sum()
        total = -evidence - priors[0].log_prob(length).sum() - priors[1].log_prob(noise).sum()
        (gradient,) = torch.autograd.grad(total, given)
        return float(total), gradient.numpy()

    start = torch.tensor([prior.mode.log().item() for prior in priors], dtype=torch.float64)
    first = torch.cat([start[0].expand(dims), start[1:], start.new_zeros(1)]).repeat(views)
    limits = ([(-7.0, 14.0)] * dims + [(-20.0, 5.0), (-10.0, 10.0)]) * views  # a first step may be very long
    with torch.enable_grad():
        found = minimize(loss, first.numpy(), jac=True, bounds=limits, options={"maxiter": max_steps})
    length, noise, mean = parts(torch.from_numpy(found.x))
    return length.pow(-2), noise, mean


class NetworkViews:
    """A network that reads x [n, d] and y [V, n, 1], all views as one batch."""

    def __init__(self, make: Make, x: Tensor, y: Tensor) -> None:
        self.make, self._x, self._y = make, x, y
        self._improvement: MixtureLogEI | None = None

    def left_out(self, rows: list[Tensor]) -> Tensor:
        """Ask for each fold with all other points as the context; folds of one size are one batch."""
        count, views = len(self._x), len(self._y)
        others = [torch.ones(count, dtype=torch.bool).index_fill(0, fold, False) for fold in rows]
        x = torch.stack([self._x[keep].expand(views, -1, -1) for keep in others])  # [F, V, n − f, d]
        asked = torch.stack([self._x[fold] for fold in rows], dim=1)[:, :, None, None]  # [f, F, 1, 1, d]
        truth = (
            torch.stack([self._y[:, fold] for fold in rows]).movedim(2, 0).unsqueeze(-1)
        )  # [f, F, V, 1, 1]
        with torch.no_grad():
            model = self.make(x, torch.stack([self._y[:, keep] for keep in others]))
            log_weights, mean, sigma = model.mixture(
                asked.expand(-1, -1, views, -1, -1)
            )  # [C, f, F, V, 1, 1]
        log_prob = torch.distributions.Normal(mean, sigma).log_prob(truth)
        return (log_weights + log_prob).logsumexp(0)[..., 0, 0].permute(2, 1, 0).flatten(1)

    def log_improvement(self, X: Tensor) -> Tensor:
        views = len(self._y)
        if self._improvement is None:  # the contexts are read once
            model = self.make(self._x.expand(views, -1, -1), self._y)
            self._improvement = MixtureLogEI(model, self._y.amax(1, keepdim=True))
        found: Tensor = self._improvement(X.unsqueeze(1).expand(-1, views, -1, -1))  # [N, V]
        return found.T


def folds_of(rows: Tensor) -> list[Tensor]:
    """Folds of one size, whose contexts one batch reads; a few points are in none."""
    size = max(1, len(rows) // FOLDS)
    return [rows[start::FOLDS][:size] for start in range(min(FOLDS, len(rows)))]


def stacked(log_likelihood: Tensor, rounds: int = 100) -> Tensor:
    """Weights [M] with the largest Σ_i ln Σ_m w_m p_m(y_i), from ln p_m(y_i) [M, n], by expectation maximisation."""
    weights = torch.full_like(log_likelihood[:, 0], 1 / len(log_likelihood))
    for _ in range(rounds):
        weights = (log_likelihood + weights.log().unsqueeze(1)).softmax(0).mean(1)
    return weights
