"""Proposition 1: a GP's predictive statistics do not depend on the order of the context and follow that of the
targets. Neural processes inherit both; the same two tests hold for the exact GP and for every model.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dsvnp import MODELS, Architecture, Task, make_model

rng = np.random.default_rng(0)
X_CONTEXT, Y_CONTEXT, X_TARGET = rng.normal(size=(6, 1)), rng.normal(size=(6, 1)), rng.normal(size=(5, 1))
LOCAL = rng.normal(size=(50, 1, 1, 5, 8))


def gp(x_context, y_context, x_target, local):
    """Mean and covariance of an exact GP with an RBF kernel (Eq. 7)."""

    def kernel(a, b):
        return np.exp(-0.5 * (a - b.T) ** 2 / 0.4**2)

    noisy = kernel(x_context, x_context) + 0.01 * np.eye(len(x_context))
    gain = kernel(x_target, x_context) @ np.linalg.inv(noisy)
    return (gain @ y_context)[:, 0], kernel(x_target, x_target) - gain @ kernel(x_context, x_target)


def neural_process(name):
    torch.manual_seed(0)
    model = make_model(
        name, Architecture(1, 1, encoder=(16,), dim_lat=8, dim_local=8, decoder=(16,))
    ).double()

    def predict(x_context, y_context, x_target, local):
        """Mean and covariance over draws of the latents, those of each target given by `local`."""
        task = Task.from_sets(*(torch.as_tensor(v)[None] for v in (x_context, y_context, x_target)))
        noise = model.draw_noise(task, len(local), shared=True, generator=torch.Generator().manual_seed(0))
        if "local" in noise:
            noise["local"] = torch.as_tensor(local)
        draws = model.predict(task, noise=noise).loc[:, 0, 0, :, 0].numpy()  # [K, T]
        return draws.mean(0), np.cov(draws.T, bias=True)

    return predict


PREDICTORS = {"gp": lambda: gp} | {name: lambda name=name: neural_process(name) for name in MODELS}


@pytest.fixture(params=list(PREDICTORS))
def predict(request):
    return PREDICTORS[request.param]()


def test_statistics_do_not_depend_on_the_order_of_the_context(predict):
    order = [3, 5, 0, 2, 1, 4]
    straight = predict(X_CONTEXT, Y_CONTEXT, X_TARGET, LOCAL)
    shuffled = predict(X_CONTEXT[order], Y_CONTEXT[order], X_TARGET, LOCAL)
    for a, b in zip(straight, shuffled, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)


def test_statistics_follow_the_order_of_the_targets(predict):
    order = [3, 0, 2, 4, 1]
    mean, covariance = predict(X_CONTEXT, Y_CONTEXT, X_TARGET, LOCAL)
    mean_shuffled, covariance_shuffled = predict(X_CONTEXT, Y_CONTEXT, X_TARGET[order], LOCAL[..., order, :])
    np.testing.assert_allclose(mean_shuffled, mean[order], rtol=0, atol=1e-10)
    np.testing.assert_allclose(covariance_shuffled, covariance[np.ix_(order, order)], rtol=0, atol=1e-10)
    assert np.abs(mean - mean[order]).max() > 1e-3  # the order shows
