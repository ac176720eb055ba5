"""Drawing: whole functions from an ensemble, and how its answers for several rows hang together.

A prediction uses the same latent draws for every row, so that a row's answer does not depend on its companions. Drawn
functions must not: each row has a local latent of its own there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from dsvnp.predictive import GaussianPredictive
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.ensemble import dissent_of, draw_of, draws_of, fixed_noise, mixture, sharpened


def sample(estimator: BaseNP, X: Any, num_samples: int, random_state: Any, context: Any) -> NDArray[Any]:
    """Draw y for all rows together, [rows, outputs, samples]; a label is one output."""
    if num_samples < 1:
        raise ValueError(f"n_samples must be at least 1, got {num_samples}")
    x, rows = estimator._question(X, context)
    ensemble, rng = estimator.ensemble_, check_random_state(random_state)
    members = rng.randint(len(ensemble.replicas), size=num_samples)
    out = np.empty((num_samples, len(x), 1 if estimator.kind == "classifier" else estimator._dim_y))
    dissent = dissent_of(ensemble.parts(rows, x, estimator.n_draws, estimator.noise_seed_))
    for member, replica in enumerate(ensemble.replicas):
        wanted = np.flatnonzero(members == member)
        generator = torch.Generator(replica.device).manual_seed(int(rng.randint(2**31 - 1)))
        for start in range(0, len(wanted), 16):  # few at a time: each draw is as large as the table
            some = wanted[start : start + 16]
            predictive = sharpened(replica.answer(rows, x, (len(some), 1), generator=generator), dissent)
            for index, draw in enumerate(some):
                # A model without latents has one component, whatever number of draws is asked for.
                one = draw_of(predictive, index % predictive.shape[0])
                out[draw] = one.sample(1, generator)[0, 0].cpu().numpy()
    return out.transpose(1, 2, 0)


def covariance(estimator: BaseNP, X: Any, variance: NDArray[Any], context: Any) -> NDArray[Any]:
    """Covariance between rows, [rows, rows, outputs].

    Rows hang together by z_G and by which replica is right. What is a row's own, its local latent and its noise, is in
    its variance alone.
    """
    x, rows = estimator._question(X, context)
    parts = []
    for replica in estimator.ensemble_.replicas:
        draws = draws_of(replica.model, estimator.n_draws)
        noise = fixed_noise(replica.model, draws, estimator.noise_seed_, like=replica.inputs.centre)
        noise = {name: torch.zeros_like(value) if name == "local" else value for name, value in noise.items()}
        parts.append(replica.answer(rows, x, draws, noise=noise))
    joint = mixture(parts)
    assert isinstance(joint, GaussianPredictive)
    loc = joint.loc.flatten(0, 1)[:, 0].cpu().numpy()  # [I, rows, outputs]
    loc = loc - loc.mean(0)
    cov = np.einsum("iad,ibd->abd", loc, loc) / len(loc)
    diagonal = np.arange(len(x))
    cov[diagonal, diagonal] = np.maximum(cov[diagonal, diagonal], variance)
    return cov
