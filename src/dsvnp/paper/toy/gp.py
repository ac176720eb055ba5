"""An exact Gaussian process for one small set of points, by GPyTorch (extra `gp`)."""

import warnings
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from dsvnp.paper.experiment import Workplace
from dsvnp.predictive import GaussianPredictive


def has_gpytorch() -> bool:
    """Whether the extra `gp` is installed."""
    return find_spec("gpytorch") is not None


def say_if_left_out(what: str, place: Workplace) -> None:
    """Say that a GP is left out where the extra `gp` is not installed."""
    if not has_gpytorch():
        place.console.print(f"{what} is left out: GPyTorch is not installed (pip install 'dsvnp\\[gp]').")


def import_gpytorch() -> Any:
    """Import GPyTorch, which does on import what newer versions of torch deprecate."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import gpytorch
    return gpytorch


def fit_toy_gp(x: Tensor, y: Tensor, x_target: Tensor, num_steps: int) -> GaussianPredictive:
    """Fit an exact GP (RBF, constant mean, noise) to [N, 1] by its marginal likelihood; predict [1, 1, 1, T, 1].

    In float64: the Gram matrix of close points is nearly singular.
    """
    gp = import_gpytorch()

    class ExactGP(gp.models.ExactGP):  # type: ignore[misc, name-defined, unused-ignore]
        """y ~ GP(c, s² RBF) + noise."""

        def __init__(self, likelihood: Any) -> None:
            super().__init__(x.double(), y.double().squeeze(-1), likelihood)
            self.mean = gp.means.ConstantMean()
            self.kernel = gp.kernels.ScaleKernel(gp.kernels.RBFKernel())

        def forward(self, inputs: Tensor) -> Any:
            return gp.distributions.MultivariateNormal(self.mean(inputs), self.kernel(inputs))

    likelihood = gp.likelihoods.GaussianLikelihood()
    model = ExactGP(likelihood).double()
    # From GPyTorch's 0.7, as wide as all of the data, it may end in noise alone.
    model.kernel.base_kernel.lengthscale = 0.2
    marginal = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model.train()
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = -marginal(model(model.train_inputs[0]), model.train_targets)
        loss.backward()
        optimizer.step()
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        predictive = likelihood(model(x_target.double()))
        mean, stddev = predictive.mean.float(), predictive.stddev.float()
    return GaussianPredictive(mean.reshape(1, 1, 1, -1, 1), stddev.reshape(1, 1, 1, -1, 1))
