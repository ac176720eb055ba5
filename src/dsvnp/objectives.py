"""Objectives: the terms of the evidence lower bound, and every way to weight them.

A model turns a task into `Draws`; `Bound` reduces them to named sums and counts. The loss is a plain function of a
bound and of weights: sums and counts give the right mean over a masked batch, however the batch is split.

    L_MC = 1/K Σ_k [ 1/S Σ_s ln p(y_* | x_*, z_*^s, z_G^k) − β_local KL_L ] − β_global KL_G     (Eq. 15, 19)

`Objective.kind` selects another objective; `losses.py` has the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.gaussian import DiagonalGaussian
from dsvnp.naming import at_least_one, lookup
from dsvnp.predictive import log_mean_exp

KINDS = ("elbo", "iw", "npml", "gsnn", "si")


class Draws(NamedTuple):
    """Latents that a model drew for a task, from the approximate posterior unless noted, and their likelihoods."""

    log_likelihood: Tensor  # ln p(y_t | …) of each draw, [K, S, B, T]
    counted: Tensor  # True where a point counts, [B, T]
    q_global: DiagonalGaussian | None = None  # posterior of z_G, [B, Z]
    p_global: DiagonalGaussian | None = None  # its prior
    z_global: Tensor | None = None  # draws of z_G from the posterior, [K, B, Z]
    q_local: DiagonalGaussian | None = None  # posterior of each z_*, [K, B, T, Z]
    p_local: DiagonalGaussian | None = None  # its prior
    z_local: Tensor | None = None  # draws of z_* from the posterior, [K, S, B, T, Z]


class Bound(NamedTuple):
    """The terms of the lower bound, each a sum over the counted points of a task, [B]."""

    log_likelihood: Tensor  # Σ_t of the mean over draws of ln p(y_t | …)
    kl_local: Tensor  # Σ_t of the mean over z_G of KL[q(z_*) ‖ p(z_*)]; zero without a local latent
    kl_global: Tensor  # KL[q(z_G) ‖ p(z_G)], once per task; zero without a global latent
    num_points: Tensor  # number of counted points

    @classmethod
    def of(cls, draws: Draws) -> Bound:
        """Average over draws and sum over points."""
        per_point = draws.log_likelihood.mean((0, 1))  # [B, T]
        log_likelihood = torch.where(draws.counted, per_point, 0.0).sum(-1)
        kl_local = kl_global = torch.zeros_like(log_likelihood)
        if draws.q_local is not None and draws.p_local is not None:
            kl = draws.q_local.kl(draws.p_local).mean(0)  # [B, T]
            kl_local = torch.where(draws.counted, kl, 0.0).sum(-1)
        if draws.q_global is not None and draws.p_global is not None:
            kl_global = draws.q_global.kl(draws.p_global)
        return cls(log_likelihood, kl_local, kl_global, draws.counted.sum(-1))

    def elbo(self) -> Tensor:
        """The lower bound of each task's ln p(y_T | C), [B], a sum over its points."""
        return self.log_likelihood - self.kl_local - self.kl_global

    def per_point(self) -> dict[str, Tensor]:
        """Each term averaged over the points of the batch, for reports."""
        points = self.num_points.sum().clamp(min=1)
        return {
            "log_likelihood": self.log_likelihood.sum() / points,
            "kl_local": self.kl_local.sum() / points,
            "kl_global": self.kl_global.sum() / points,
        }


class Weights(NamedTuple):
    """Weights of the two divergences, numbers or tensors (one per replica, changing with the step)."""

    beta_local: Tensor | float = 1.0
    beta_global: Tensor | float = 1.0


def weighted_loss(
    bound: Bound,  # terms of a batch
    weights: Weights,  # β_local and β_global
    # divisor of the per-point terms, the batch's own count by default; the count of the joint batch where this one is
    # a part of it
    num_points: Tensor | None = None,
    # divisor of an undivided KL_G; by default the number of tasks in the batch
    num_tasks: Tensor | float | None = None,
    # divide KL_G by the number of points, as a bound on all points of a task implies. False counts it once per point
    # instead (the bound as printed, for a single y_*)
    divide_global: bool = True,
) -> Tensor:
    """The negative weighted bound per point (Eq. 19), which training minimises."""
    points = bound.num_points.sum().clamp(min=1) if num_points is None else num_points
    tasks = bound.num_points.shape[0] if num_tasks is None else num_tasks
    local = (bound.log_likelihood - weights.beta_local * bound.kl_local).sum() / points
    kl_global = bound.kl_global.sum() / (points if divide_global else tasks)
    return -(local - weights.beta_global * kl_global)


def importance_weighted(draws: Draws, weights: Weights | None = None) -> Tensor:
    """Importance-weighted estimate of each task's ln p(y_T | C), [B], never below the bound on average.

    ln 1/K Σ_k [p(z_G)/q(z_G)] Π_t 1/S Σ_s p(y_t | …) [p(z_t)/q(z_t)] grows with K towards the exact value. Weights
    other than 1 are exponents of the ratios. Draws from the priors have no ratios and give the likelihood of NPML.
    """
    beta_local, beta_global = weights or Weights()
    per_point = draws.log_likelihood + beta_local * log_ratio_local(draws)  # [K, S, B, T]
    per_point = torch.where(draws.counted, log_mean_exp(per_point, 1), 0.0)  # [K, B, T]
    return log_mean_exp(per_point.sum(-1) + beta_global * log_ratio_global(draws), 0)


def log_ratio_local(draws: Draws) -> Tensor | float:
    """ln p(z_t) − ln q(z_t) of each draw, [K, S, B, T]; 0 for draws from the prior."""
    if draws.q_local is None or draws.p_local is None or draws.z_local is None:
        return 0.0
    prior, posterior = draws.p_local.unsqueeze(1), draws.q_local.unsqueeze(1)
    return prior.log_prob(draws.z_local) - posterior.log_prob(draws.z_local)


def log_ratio_global(draws: Draws) -> Tensor | float:
    """ln p(z_G) − ln q(z_G) of each draw, [K, B]; 0 for draws from the prior."""
    if draws.q_global is None or draws.p_global is None or draws.z_global is None:
        return 0.0
    return draws.p_global.log_prob(draws.z_global) - draws.q_global.log_prob(draws.z_global)


@dataclass(frozen=True)
class Objective:
    """What training maximises, and the weights of its terms during training.

    Attributes:
        beta_local: weight of the local KL (β₁ of Eq. 19).
        beta_global: weight of the global KL (β₂ of Eq. 19).
        anneal: "none"; "linear", from 0 to the full weights over `anneal_steps`; "cyclic", the same again and
            again with that period, ramping for its first half.
        anneal_steps: length of the ramp or of the cycle.
        anneal_local: anneal β_local as well, or hold it from the start and anneal β_global alone.
        epsilon_local: bound on the local KL per point (ε_L of Eq. 18); its weight is then learned.
        epsilon_global: bound on the global KL per task (ε_G of Eq. 18); its weight is then learned.
        multiplier_rate: step size of the multipliers, in log space.
        divide_global: see `weighted_loss`.
        divide_by: "scored" divides the terms of a batch by the number of points that are scored; "all" by that of all
            points, which gives a point the same weight in each batch. It matters where the context is not scored and a
            batch is one task: by "scored", few targets of a large context have the weight of many of a small one.
        num_global: draws K of z_G in training.
        num_local: draws S of each z_* in training.
        kind: "elbo", "iw", "npml", "gsnn" or "si", see `dsvnp.losses`.
        mix: share of the ELBO in "gsnn".
        propose_local: "npml" and "gsnn" draw z_G from its prior and z_* from its posterior, weighted by p/q, an
            estimate of the same likelihood from fewer draws. False draws z_* from its prior as well.
        late_local: factor of β_local at the start; it falls to 1 by equal ratios over `late_steps`. A large one keeps
            z_* at its prior while z_G learns, and z_* does not explain what z_G should.
        late_steps: length of that fall; 0 for none.
        free_bits: nats per dimension of z_*, in the mean over a task's points, below which the local KL is free.
        common_steps: steps in which all outputs of a point have one σ under a Gaussian likelihood; over half as many
            more each gets its own. A σ of its own from the start may grow wide instead: the outputs with a narrow one
            then have by far the larger gradients, and z_* learns nothing of the wide one. It changes nothing where
            there is one output; 0 for none.
    """

    beta_local: float = 1.0
    beta_global: float = 1.0
    anneal: str = "none"
    anneal_steps: int = 0
    anneal_local: bool = True
    epsilon_local: float | None = None
    epsilon_global: float | None = None
    multiplier_rate: float = 1e-2
    divide_global: bool = True
    divide_by: str = "scored"
    num_global: int = 1
    num_local: int = 1
    kind: str = "elbo"
    mix: float = 0.5
    free_bits: float = 0.0
    propose_local: bool = True
    late_local: float = 100.0
    late_steps: int = 0
    common_steps: int = 0

    def __post_init__(self) -> None:
        for name in ("beta_local", "beta_global"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if not 0 <= self.multiplier_rate < math.inf:
            raise ValueError(f"multiplier_rate must be finite and not negative, got {self.multiplier_rate}")
        for name in ("epsilon_local", "epsilon_global"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}; leave it out for no constraint")
        if self.anneal not in ("none", "linear", "cyclic"):
            raise ValueError(f"anneal must be 'none', 'linear' or 'cyclic', got {self.anneal!r}")
        if self.divide_by not in ("scored", "all"):
            raise ValueError(f"divide_by must be 'scored' or 'all', got {self.divide_by!r}")
        if self.anneal != "none" and not self.anneal_steps >= 1:
            raise ValueError(f"annealing needs anneal_steps of at least 1, got {self.anneal_steps}")
        at_least_one(num_global=self.num_global, num_local=self.num_local)
        self._check_kind()

    def _check_kind(self) -> None:
        """Refuse settings that the kind cannot use."""
        lookup(self.kind, dict.fromkeys(KINDS), "kind of objective")
        if not 0 <= self.mix <= 1:
            raise ValueError(f"mix must lie between 0 and 1, got {self.mix}")
        if not self.free_bits >= 0:
            raise ValueError(
                f"free_bits must not be negative, got {self.free_bits}; 0 leaves the KL as it is"
            )
        if self.kind in ("iw", "npml", "si") and self.num_global * self.num_local < 2:
            raise ValueError(
                f"{self.kind!r} needs at least two draws, got one; raise num_global or num_local"
            )
        if self.late_steps < 0 or not self.late_local > 0:
            raise ValueError(
                f"late_steps must not be negative and late_local positive, got {self.late_steps} and {self.late_local}"
            )
        if self.late_steps and self.epsilon_local is not None:
            raise ValueError(
                "late_steps and epsilon_local both set the weight of the local KL; leave one out"
            )
        if self.common_steps < 0:
            raise ValueError(f"common_steps must not be negative, got {self.common_steps}; 0 is none")
        moving = self.anneal != "none" or self.late_steps > 0
        weighed = moving or (self.beta_local, self.beta_global) != (1, 1)
        if self.kind == "npml" and self.propose_local:  # z_* is weighted by r^β_local; z_G has no KL
            weighed = self.beta_global != 1
        refused = {
            "free_bits": self.free_bits > 0 and self.kind not in ("elbo", "gsnn"),
            "epsilon_local and epsilon_global": self.constrained and self.kind not in ("elbo", "gsnn"),
            "divide_global=False": not self.divide_global and self.kind not in ("elbo", "gsnn"),
            "annealing and weights of a KL": weighed and self.kind in ("npml", "si"),
        }
        for name, is_so in refused.items():
            if is_so:
                raise ValueError(f"{self.kind!r} has no term for {name}; leave it out, or use 'elbo'")

    @property
    def uses_posterior(self) -> bool:
        """Whether draws from the approximate posterior are needed."""
        return self.kind != "npml"

    @property
    def uses_prior(self) -> bool:
        """Whether draws from the priors are needed."""
        return self.kind in ("npml", "gsnn")

    @property
    def constrained(self) -> bool:
        """Whether a multiplier is learned (Eq. 18)."""
        return self.epsilon_local is not None or self.epsilon_global is not None

    def weights(self, base: Weights, step: Tensor, log_multipliers: Tensor) -> Weights:
        """Weights at a step: annealed β, or the multiplier where the term is constrained.

        `base` has the β of this replica; a captured graph sees changes of `step`; logarithms of λ_L and λ_G are [2].
        """
        ramp = annealing(self.anneal, self.anneal_steps, step)
        multipliers = log_multipliers.exp()
        local = base.beta_local * (ramp if self.anneal_local else 1)
        if self.late_steps:
            local = local * self.late_local ** (1 - (step / self.late_steps).clamp(max=1))
        local = local if self.epsilon_local is None else multipliers[0]
        glob = base.beta_global * ramp if self.epsilon_global is None else multipliers[1]
        return Weights(local, glob)

    def common_sigma(self, step: Tensor) -> Tensor | None:
        """How far the outputs of a point share one σ at a step, from 1 to 0; None where they never do."""
        return (3 - 2 * step / self.common_steps).clamp(0, 1) if self.common_steps else None

    def ascend(self, log_multipliers: Tensor, kl_local: Tensor, kl_global: Tensor) -> Tensor:
        """Raise a multiplier while its KL is above ε and lower it while below (dual ascent in log space).

        KL_L is per point, KL_G per task, the multipliers [2]. The step is relative to ε and bounded: a KL of thousands
        at the start cannot make a multiplier explode.
        """
        excess = torch.stack(
            [
                torch.zeros_like(kl) if epsilon is None else kl / epsilon - 1
                for kl, epsilon in ((kl_local, self.epsilon_local), (kl_global, self.epsilon_global))
            ]
        )
        return (log_multipliers + self.multiplier_rate * excess.clamp(-1, 1)).clamp(-12, 12)


def annealing(kind: str, steps: int, step: Tensor) -> Tensor:
    """The factor in [0, 1] by which KL weights are scaled at a step."""
    if kind == "linear":
        return (step / steps).clamp(max=1)
    if kind == "cyclic":
        return (step % steps / (0.5 * steps)).clamp(max=1)
    return torch.ones_like(step)
