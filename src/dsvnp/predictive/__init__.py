"""Predictive: what every model returns, a mixture over latent draws (Eq. 17).

    p(y_t) = 1/K Σ_k Σ_s w_kst p(y_t | component k, s),      Σ_s w_kst = 1

Axes: K draws of z_G, S components for each of them, B tasks, T targets, D outputs or classes. The components keep K
and S apart, [K, S, B, T, D], because a joint likelihood shares z_G over a task's points and draws z_* for each of
them. An axis that a model has no draws for is of size 1. Weights are 1/S unless given. Where one draw of z_* yields
several components, as under a mixture head, they lie next to each other on the S axis: S = draws × components per draw.
"""

from dsvnp.predictive.base import Predictive, concatenate, log_mean_exp
from dsvnp.predictive.categorical import CategoricalPredictive, entropy_of
from dsvnp.predictive.gaussian import GaussianPredictive
from dsvnp.predictive.independent import IndependentPredictive
from dsvnp.predictive.low_rank import LowRankPredictive

__all__ = [
    "CategoricalPredictive",
    "GaussianPredictive",
    "IndependentPredictive",
    "LowRankPredictive",
    "Predictive",
    "concatenate",
    "entropy_of",
    "log_mean_exp",
]
