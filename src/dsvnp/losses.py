"""Losses: what training minimises, one formula for each `Objective.kind`.

With r(z) = p(z)/q(z) and, unless noted, z from the approximate posterior q, the value of a task is

    elbo   L_MC
    iw     ln 1/K Σ_k r(z_G)^β_global Π_t 1/S Σ_s p(y_t | z) r(z_t)^β_local     (Burda et al., 2016)
    npml   ln 1/K Σ_k Π_t 1/S Σ_s p(y_t | z), z_G from its prior, z_t too, or
           from q and weighted by r(z_t)^β_local                              (Foong et al., 2020)
    gsnn   mix · elbo + (1 − mix) · npml                                       (Sohn et al., 2015)
    si     Σ ŵ [ln p(y, z) + ln q(z)], ŵ the self-normalised weights of iw     (Wang et al., 2023)
"""

import torch
from torch import Tensor

from dsvnp.gaussian import DiagonalGaussian
from dsvnp.objectives import (
    Bound,
    Draws,
    Objective,
    Weights,
    importance_weighted,
    log_ratio_global,
    log_ratio_local,
    weighted_loss,
)
from dsvnp.predictive import log_mean_exp


def training_loss(
    objective: Objective,  # kind of objective, with its settings
    posterior: Draws | None,  # draws from the approximate posterior, where `uses_posterior`
    prior: Draws | None,  # draws from the priors, where `uses_prior`
    weights: Weights,  # β_local and β_global at this step
    num_points: Tensor | None = None,  # what to divide by, see `weighted_loss`
    num_tasks: Tensor | float | None = None,  # what to divide KL_G by, see `weighted_loss`
) -> tuple[Tensor, Bound]:
    """Compute what training minimises, per point, and the terms to report."""
    draws = posterior if objective.uses_posterior else prior
    if draws is None or (objective.uses_prior and prior is None):
        raise ValueError(
            f"{objective.kind!r} lacks draws; pass those that uses_posterior and uses_prior ask for"
        )
    bound = Bound.of(draws)
    points = bound.num_points.sum().clamp(min=1) if num_points is None else num_points
    if objective.kind in ("iw", "si"):
        value = (
            self_normalised(draws) if objective.kind == "si" else importance_weighted_bound(draws, weights)
        )
        return -value.sum() / points, bound
    if objective.kind == "npml":
        return -importance_weighted_bound(draws, weights).sum() / points, bound
    charged = (
        bound._replace(kl_local=floored_kl(draws, objective.free_bits)) if objective.free_bits else bound
    )
    loss = weighted_loss(charged, weights, points, num_tasks, objective.divide_global)
    if objective.kind == "gsnn" and prior is not None:
        loss = (
            objective.mix * loss
            - (1 - objective.mix) * importance_weighted_bound(prior, weights).sum() / points
        )
    return loss, bound


def importance_weighted_bound(draws: Draws, weights: Weights) -> Tensor:
    """`importance_weighted` as training maximises it, [B].

    With one draw of z_G its log-ratio is outside the logarithm, and the exact mean −KL_G replaces it. With one draw of
    each z_* too, −KL_L replaces their log-ratios, and the bound is the ELBO.
    """
    num_global, num_local = draws.log_likelihood.shape[:2]
    if num_global > 1:
        return importance_weighted(draws, weights)
    bound, sampled = Bound.of(draws), draws._replace(q_global=None)
    if num_local > 1:
        return importance_weighted(sampled, weights) - weights.beta_global * bound.kl_global
    kl = weights.beta_local * bound.kl_local + weights.beta_global * bound.kl_global
    return importance_weighted(sampled._replace(q_local=None), weights) - kl


def self_normalised(draws: Draws) -> Tensor:
    """The surrogate of SI-NP, [B]: Σ ŵ [ln p(y, z) + ln q(z)] with ŵ the normalised importance weights.

    The weights are constants (the E-step). The decoder and the prior learn from ln p(y, z), where z keeps its path as
    in the authors' code; the proposal learns from ln q(z) at fixed z. The weights of z_* are normalised given z_G.
    """
    local, glob = log_ratio_local(draws), log_ratio_global(draws)
    per_point = draws.log_likelihood + local  # [K, S, B, T]
    of_local = per_point.softmax(1).detach()
    per_draw = torch.where(draws.counted, log_mean_exp(per_point, 1), 0.0).sum(-1) + glob  # [K, B]
    of_global = per_draw.softmax(0).detach()
    learned_local = draws.log_likelihood + _log_joint(draws.p_local, draws.q_local, draws.z_local, 1)
    learned = torch.where(draws.counted, (of_local * learned_local).sum(1), 0.0).sum(-1)  # [K, B]
    return (of_global * (learned + _log_joint(draws.p_global, draws.q_global, draws.z_global, 0))).sum(0)


def floored_kl(draws: Draws, floor: float) -> Tensor:
    """The local KL of each task, [B], with its mean over the task's points at least `floor` in each dimension.

    Free bits (Kingma et al., 2016): a dimension below the floor has no gradient towards the prior.
    """
    if draws.q_local is None or draws.p_local is None:
        return torch.zeros_like(draws.log_likelihood[0, 0, :, 0])
    counted = draws.counted.unsqueeze(-1)  # [B, T, 1]
    total = torch.where(counted, draws.q_local.kl_each(draws.p_local).mean(0), 0.0).sum(1)  # [B, Z]
    return torch.maximum(total, floor * counted.sum(1)).sum(-1)


def _log_joint(
    p: DiagonalGaussian | None, q: DiagonalGaussian | None, z: Tensor | None, dim: int
) -> Tensor | float:
    """ln p(z) + ln q(z), the latter at a fixed z; 0 without that latent."""
    if p is None or q is None or z is None:
        return 0.0
    return p.unsqueeze(dim).log_prob(z) + q.unsqueeze(dim).log_prob(z.detach())
