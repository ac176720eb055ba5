"""A joint Gaussian of a conditional model's outputs, built from one step of autoregression.

A model without a latent gives each target by itself. How targets depend on each other shows when an output is fed back
as context. For a Gaussian process with posterior covariance k and noise s², an observation y_j at x_j moves the mean at
x_i by

    E[f_i | C, y_j] − E[f_i | C] = k_ij / (k_jj + s²) · (y_j − μ_j)

so with v_j = k_jj + s², the predictive variance, and outputs μ_j ± √v_j fed back

    k_ij = √v_j · (E[f_i | C, μ_j + √v_j] − E[f_i | C, μ_j − √v_j]) / 2.

For a network this is an estimate: it is made symmetric, and its correlations ρ_ij = k_ij / √(k_ii k_jj) are brought
towards 0 as far as a covariance needs. The variances on the diagonal are the caller's.
"""

import torch
from torch import Tensor

from dsvnp.botorch.reading import Reader

SMALLEST = 1e-4  # eigenvalue of a matrix of correlations


def correlations(
    reader: Reader, x: Tensor, y: Tensor, targets: Tensor, mean: Tensor, deviation: Tensor
) -> Tensor:
    """Correlations of the function's values at the targets [R, q, d] of each row, [R, m, q, q].

    Contexts are x [R, N, d] and y [R, N, m]; `mean` and `deviation` are the predictive μ and √v, [R, q, m].
    """
    rows, count, dims = targets.shape
    pushed = torch.stack([mean + deviation, mean - deviation])  # [2, R, q, m]
    # One context for each sign, row and target j that is fed back, [2, R, j, N + 1, ·].
    x_more = torch.cat([x[:, None].expand(-1, count, -1, -1), targets.unsqueeze(2)], dim=2)
    y_more = torch.cat([y[:, None].expand(2, -1, count, -1, -1), pushed.unsqueeze(3)], dim=3)
    read = reader.read(x_more.expand(2, -1, -1, -1, -1).flatten(0, 2), y_more.flatten(0, 2))
    asked = targets[:, None].expand(2, -1, count, -1, -1).reshape(-1, count, dims)
    after = reader.ask(read, asked).mean.unflatten(0, (2, rows, count))  # [2, R, j, i, m]
    covariance = 0.5 * ((after[0] - after[1]) * deviation.unsqueeze(2)).movedim(-1, 1)  # [R, m, j, i]
    own = covariance.diagonal(dim1=-2, dim2=-1).clamp(min=1e-12).sqrt()
    rho = covariance / (own.unsqueeze(-1) * own.unsqueeze(-2))
    return nearest_correlations(0.5 * (rho + rho.transpose(-1, -2)))


def nearest_correlations(rho: Tensor) -> Tensor:
    """Shrink symmetric matrices [..., q, q] towards 1 on the diagonal and 0 elsewhere until they are positive.

    The amount of shrinkage is a constant for gradients: an eigenvalue has none where two are equal.
    """
    eye = torch.eye(rho.shape[-1], dtype=rho.dtype, device=rho.device)
    off = rho.clamp(-1, 1) * (1 - eye)
    lowest = torch.linalg.eigvalsh((off + eye).detach())[..., 0]  # (1 − a)(lowest − 1) + 1 ≥ SMALLEST
    keep = torch.where(lowest < SMALLEST, (1 - SMALLEST) / (1 - lowest).clamp(min=1e-12), 1.0)
    return off * keep[..., None, None] + eye
