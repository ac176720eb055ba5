"""Logistic regression on kernel features: the kernel itself, and what it tells apart."""

import numpy as np
import torch
from sklearn.metrics.pairwise import rbf_kernel

from dsvnp.predictive import CategoricalPredictive
from dsvnp.tabular.panel.kernels import KernelFeatures, Logistic
from dsvnp.tabular.panel.panel import stretch_all


def test_inner_products_of_centres_are_the_kernel():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(21, 3)))
    features = KernelFeatures.fit(x, gamma=0.6)
    assert features.centres.shape == (11, 3)
    shown = features(features.centres)
    expected = rbf_kernel(features.centres.numpy(), gamma=0.2)
    np.testing.assert_allclose((shown @ shown.T).numpy(), expected, atol=1e-7)


def test_kernel_features_tell_apart_what_no_line_does():
    x = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, size=(600, 2)))
    y = (x[:, 0] * x[:, 1] > 0).long()
    fits = [Logistic.fit(x[:300], y[:300], 2, 30.0, gamma) for gamma in (None, 0.5)]
    line, kernel = ((fit(x[300:]).argmax(1) == y[300:]).double().mean() for fit in fits)
    assert line < 0.75
    assert kernel > 0.95


def test_labels_of_one_class_tell_nothing():
    x = torch.zeros(5, 2, dtype=torch.float64)
    assert Logistic.fit(x, torch.ones(5, dtype=torch.long), 3, 1.0, 0.5)(x).tolist() == [[0.0] * 3] * 5


def test_the_mean_of_classes_is_sharpened_and_members_keep_their_differences():
    probs = torch.tensor([[0.9, 0.1], [0.6, 0.4]], dtype=torch.float64)[:, None, None, None]  # two members
    half = torch.tensor([0.5], dtype=torch.float64)
    sharp = stretch_all(CategoricalPredictive(probs.log()), half).log_probs[:, 0, 0, 0].exp()
    mean = probs.mean(0)[0, 0, 0]
    expected = probs[:, 0, 0, 0] * mean  # 1 / stretch − 1 = 1
    torch.testing.assert_close(sharp, expected / expected.sum(-1, keepdim=True))
    alone = stretch_all(CategoricalPredictive(probs[:1].log()), half).mean[0, 0]
    torch.testing.assert_close(alone, torch.tensor([0.81, 0.01], dtype=torch.float64) / 0.82)
