"""A sparse variational Gaussian process for a table (Hensman et al., 2013), one for each output, by GPyTorch.

The outputs are independent of each other; all outputs of all splits are trained as one batch of GPs, axes
[splits, dim_y, ...]: an ARD Matérn-5/2 kernel, inducing points that start at random training rows, Adam on the bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dsvnp.paper.multioutput.folds import Split
from dsvnp.paper.multioutput.measures import Moments, SplitScores, measure_gaussians
from dsvnp.paper.toy.gp import import_gpytorch


@dataclass(frozen=True)
class SparseGP:
    """Settings of the GP."""

    num_inducing: int = 256  # inducing points of each output
    num_steps: int = 2000  # of training
    batch_size: int = 512  # rows of a step
    learning_rate: float = 0.02  # of Adam, falling to a hundredth along a cosine


def measure_gp(settings: SparseGP, splits: Sequence[Split]) -> list[SplitScores]:
    """Train on all splits at once, then measure each."""
    gp, likelihood = fit_sparse_gps(settings, splits)
    test = _predict_gps(gp, likelihood, [split.test.x for split in splits])
    train = _predict_gps(gp, likelihood, [split.train.x for split in splits])
    return [measure_gaussians(*each) for each in zip(splits, test, train, strict=True)]


def fit_sparse_gps(settings: SparseGP, splits: Sequence[Split]) -> tuple[Any, Any]:
    """Train the GPs; return the model and its likelihood."""
    gpytorch = import_gpytorch()
    x = torch.stack([split.train.x for split in splits])  # [splits, N, dim_x]
    y = torch.stack([split.train.y for split in splits])
    generator = torch.Generator().manual_seed(0)
    gp, likelihood = _make(settings, x, y.shape[-1], generator)
    bound = gpytorch.mlls.VariationalELBO(likelihood, gp, num_data=x.shape[1])
    params = [*gp.parameters(), *likelihood.parameters()]
    adam = torch.optim.Adam(params, settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        adam, settings.num_steps, 0.01 * settings.learning_rate
    )
    size = min(settings.batch_size, x.shape[1])
    with gpytorch.settings.cholesky_jitter(float_value=1e-4):
        for _ in range(settings.num_steps):
            rows = torch.randperm(x.shape[1], generator=generator)[:size].to(x.device)
            adam.zero_grad()
            # [splits, 1, B, dim_x] against [splits, dim_y, B]: the kernels broadcast over outputs
            loss = -bound(gp(x[:, rows].unsqueeze(1)), y[:, rows].transpose(1, 2)).sum()
            loss.backward()
            adam.step()
            schedule.step()
    return gp.eval(), likelihood.eval()


def _make(settings: SparseGP, x: Tensor, dim_y: int, generator: torch.Generator) -> tuple[Any, Any]:
    """An untrained batch of GPs, [splits, dim_y], and their noise."""
    gpytorch = import_gpytorch()
    batch = torch.Size([len(x), dim_y])
    num_inducing = min(settings.num_inducing, x.shape[1])
    chosen = torch.randperm(x.shape[1], generator=generator)[:num_inducing].to(x.device)
    inducing = x[:, None, chosen].expand(-1, dim_y, -1, -1).clone()  # [splits, dim_y, M, dim_x]
    variational = gpytorch.variational

    class GP(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
        """The prior and the variational posterior at the inducing points."""

        def __init__(self) -> None:
            distribution = variational.CholeskyVariationalDistribution(num_inducing, batch_shape=batch)
            super().__init__(variational.VariationalStrategy(self, inducing, distribution))
            self.mean = gpytorch.means.ConstantMean(batch_shape=batch)
            kernel = gpytorch.kernels.MaternKernel(2.5, ard_num_dims=x.shape[-1], batch_shape=batch)
            # Rows in unit variance lie that far apart, but for a factor.
            kernel.lengthscale = x.shape[-1] ** 0.5
            self.kernel = gpytorch.kernels.ScaleKernel(kernel, batch_shape=batch)

        def forward(self, points: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(points), self.kernel(points))

    likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=batch)
    return GP().to(x), likelihood.to(x)


@torch.no_grad()
def _predict_gps(gp: Any, likelihood: Any, inputs: Sequence[Tensor]) -> list[Moments]:
    """Mean and standard deviation, each [N, dim_y], of rows [N, dim_x] of each split."""
    gpytorch = import_gpytorch()
    x = torch.nn.utils.rnn.pad_sequence(list(inputs), batch_first=True)  # halves may differ by a row
    parts = []
    with gpytorch.settings.cholesky_jitter(float_value=1e-4):
        for piece in x.split(500, dim=1):
            posterior = likelihood(gp(piece.unsqueeze(1)))
            parts.append(torch.stack([posterior.mean, posterior.variance.sqrt()]))  # [2, splits, dim_y, n]
    both = torch.cat(parts, dim=-1).transpose(-1, -2)
    return [(both[0, row, : len(each)], both[1, row, : len(each)]) for row, each in enumerate(inputs)]
