"""Predictive: what every model returns, a mixture over latent draws (Eq. 17).

    p(y_t) = 1/K Σ_k Σ_s w_kst p(y_t | component k, s),      Σ_s w_kst = 1

Axes: K draws of z_G, S components for each of them, B tasks, T targets, D outputs or classes. The components keep K
and S apart, [K, S, B, T, D], because a joint likelihood shares z_G over a task's points and draws z_* for each of
them. An axis that a model has no draws for is of size 1. Weights are 1/S unless given. Where one draw of z_* yields
several components, as under a mixture head, they lie next to each other on the S axis: S = draws × components per draw.
"""

from dsvnp.predictive.base import Predictive as Predictive
from dsvnp.predictive.base import concatenate as concatenate
from dsvnp.predictive.base import log_mean_exp as log_mean_exp
from dsvnp.predictive.categorical import CategoricalPredictive as CategoricalPredictive
from dsvnp.predictive.categorical import entropy_of as entropy_of
from dsvnp.predictive.coherent import CoherentMixturePredictive as CoherentMixturePredictive
from dsvnp.predictive.coherent import CoherentPredictive as CoherentPredictive
from dsvnp.predictive.gaussian import GaussianPredictive as GaussianPredictive
from dsvnp.predictive.independent import IndependentPredictive as IndependentPredictive
from dsvnp.predictive.low_rank import LowRankPredictive as LowRankPredictive
