"""MixtureLogEI: expected improvement under a network's own mixture of Gaussians, in closed form.

    EI(x) = Σ_c w_c σ_c h((μ_c − best) / σ_c),   h(u) = φ(u) + u Φ(u)

A mixture may be skewed or have two peaks, which the Gaussian posterior of `NeuralProcessModel` leaves out, and no
samples are needed. It is about an observation: for functions with little noise.
"""

from __future__ import annotations

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.analytic import _log_ei_helper
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from dsvnp.botorch.model import NeuralProcessModel


class MixtureLogEI(AcquisitionFunction):
    """Logarithm of the expected improvement on the best value, for one output, q = 1 and a network without z_G."""

    def __init__(self, model: NeuralProcessModel, best_f: float | Tensor) -> None:
        super().__init__(model=model)
        if model.num_outputs != 1:
            raise ValueError(f"expected a model of one output, got {model.num_outputs}")
        self.best_f = torch.as_tensor(best_f)

    @t_batch_mode_transform(expected_q=1)  # type: ignore[untyped-decorator]
    def forward(self, X: Tensor) -> Tensor:
        """ln EI at X [..., 1, d]."""
        log_weights, mean, sigma = self.model.mixture(X)  # [C, ..., 1, 1] each
        improvement = _log_ei_helper((mean - self.best_f.to(X)) / sigma) + sigma.log()
        return (log_weights + improvement).logsumexp(0)[..., 0, 0]
