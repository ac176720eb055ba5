"""Outputs of a file: moments of the predictive distribution, and the parts of the mixture that it is.

Axes: B tasks, T targets, M components (draws of z_G first, then of z_*, then those of a mixture head), D outputs.

    numbers   mean, std, aleatoric, epistemic [B, T, D];  weights [B, T, M], means and sigmas [B, T, M, D],
              and factors [B, T, M, D, R] of a covariance diag(σ²) + W Wᵀ; weights are [B, T, M, D] where each output
              has a mixture of its own
    classes   probabilities [B, T, classes], aleatoric and epistemic [B, T];  weights [B, T, M],
              component_probabilities [B, T, M, classes]
"""

from torch import Tensor

from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, LowRankPredictive, Predictive


def outputs_of(predictive: Predictive) -> dict[str, Tensor]:
    """What a file answers."""
    spread = {"aleatoric": predictive.aleatoric, "epistemic": predictive.epistemic}
    if isinstance(predictive, CategoricalPredictive):
        parts = {"component_probabilities": flat(predictive.log_probs.exp())}
        return {"probabilities": predictive.mean, **spread, "weights": weights_of(predictive), **parts}
    assert isinstance(predictive, GaussianPredictive)
    sigmas = predictive.noise if isinstance(predictive, LowRankPredictive) else predictive.scale
    parts = {"weights": weights_of(predictive), "means": flat(predictive.loc), "sigmas": flat(sigmas)}
    if isinstance(predictive, LowRankPredictive):
        parts["factors"] = flat(predictive.factor)
    return {"mean": predictive.mean, "std": predictive.stddev, **spread, **parts}


def weights_of(predictive: Predictive) -> Tensor:
    """Weights of all components, which sum to 1, [B, T, M], or [B, T, M, D] of outputs with a mixture each."""
    num_global, num_local, tasks, targets = predictive.shape[:4]
    if predictive.log_weights is not None:
        return flat(predictive.log_weights.exp() / num_global)
    count = num_global * num_local
    return predictive.mean.new_ones(tasks, targets, count) / count


def flat(part: Tensor) -> Tensor:
    """[K, S, B, T, ...] -> [B, T, K·S, ...]."""
    return part.flatten(0, 1).movedim(0, 2)
