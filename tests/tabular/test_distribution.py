"""The whole predictive distribution of rows, against SciPy on its components and against the other answers."""

import numpy as np
import pandas as pd
import pytest
import torch
from fitted import QUICK, classifier, labels, regressor, table
from scipy.stats import entropy, norm

from dsvnp import NPRegressor
from dsvnp.models import Architecture, make_model
from dsvnp.predictive import LowRankPredictive
from dsvnp.tabular.trained import ensemble
from dsvnp.tabular.trained.ensemble import Ensemble, Replica


@pytest.mark.parametrize("outputs", [1, 2])
def test_every_answer_is_a_reduction_of_the_mixture(outputs):
    X, Y = table(rows=9, seed=4)
    y = Y if outputs == 2 else Y[:, 0]
    fitted = regressor(outputs)
    found = fitted.predict_dist(X)
    parts = found.predictive
    loc, scale = (array.flatten(0, 1)[:, 0].numpy() for array in (parts.loc, parts.scale))  # [I, rows, D]
    expected = norm(loc, scale)
    full = Y[:, :outputs]
    shaped = (lambda values: values) if outputs == 2 else (lambda values: values[:, 0])
    np.testing.assert_allclose(found.mean, shaped(loc.mean(0)))
    np.testing.assert_allclose(found.cdf(y), shaped(expected.cdf(full).mean(0)), atol=1e-9)
    np.testing.assert_allclose(found.log_prob(y), np.log(expected.pdf(full).prod(-1).mean(0)), rtol=1e-6)
    np.testing.assert_allclose(found.std**2, found.variance)
    np.testing.assert_allclose(found.aleatoric + found.epistemic, found.variance)
    low, high = found.interval(0.8)
    np.testing.assert_allclose(found.cdf(low), 0.1, atol=1e-5)
    np.testing.assert_allclose(found.quantile(0.9), high)
    draws = norm(loc[:, None], scale[:, None]).rvs((len(loc), 4000, 9, outputs), random_state=0)
    draws = draws.reshape(-1, 9, outputs)
    other = np.random.default_rng(0).permutation(draws)
    crps = np.abs(draws - full).mean(0) - 0.5 * np.abs(draws - other).mean(0)
    np.testing.assert_allclose(found.crps(y), shaped(crps), rtol=0.03)
    np.testing.assert_array_equal(found.ood_score, fitted.ood_score(X))
    np.testing.assert_array_equal(found.sample(4), fitted.sample_y(X, 4))
    np.testing.assert_array_equal(found.mean, fitted.predict(X))


def test_classes():
    X, y = labels(rows=9, seed=4)
    found = classifier().predict_dist(X)
    np.testing.assert_array_equal(found.mean, classifier().predict_proba(X))
    np.testing.assert_array_equal(found.mode, classifier().predict(X))
    np.testing.assert_allclose(found.entropy, entropy(found.mean, axis=1), atol=1e-9)
    np.testing.assert_allclose(found.aleatoric + found.epistemic, found.entropy)
    np.testing.assert_array_equal(found.log_prob(y), classifier().log_prob(X, y))
    smooth = found.sample(300, noise=False)
    assert smooth.shape == (9, 3, 300)
    np.testing.assert_allclose(smooth.sum(1), 1)
    np.testing.assert_allclose(smooth.mean(-1), found.mean, atol=0.05)


def test_questions_about_the_same_rows_ask_the_ensemble_once(monkeypatch):
    asked = []
    condition = Ensemble.condition

    def spy(self, *settings):
        answering = condition(self, *settings)
        return lambda x: (asked.append(len(x)), answering(x))[1]

    monkeypatch.setattr(Ensemble, "condition", spy)
    monkeypatch.setattr("dsvnp.tabular.row_distribution.CHUNK", 4)
    X, Y = table(rows=9)
    fitted = regressor(2).condition(*table())
    found = fitted.predict_dist(X)
    found.mean, found.interval(), found.crps(Y), found.ood_score
    assert asked == [4, 4, 1]
    monkeypatch.setattr("dsvnp.tabular.row_distribution.MOST_KEPT", 1)
    large = fitted.predict_dist(X)
    del asked[:]
    both = large.reduce(lambda p, _: p.mean[0], lambda p, _: p.variance[0])
    assert asked == [4, 4, 1]
    np.testing.assert_allclose(both[0], found.mean)
    np.testing.assert_allclose(large.variance, both[1])  # asked again
    assert len(asked) == 6


def test_frames_have_the_names_of_the_outputs():
    X, Y = table(rows=40)
    frame = pd.DataFrame(X, columns=list("abc"))
    fitted = NPRegressor(**{**QUICK, "max_steps": 2}).fit(frame, pd.DataFrame(Y, columns=["u", "v"]))
    found = fitted.predict_dist(frame)
    assert list(found.crps(Y).columns) == ["u", "v"]
    assert list(found.quantile([0.1]).columns) == ["u_q0.1", "v_q0.1"]
    assert found.ood_score.name == "ood_score"


def test_weights_and_dependence_of_outputs_reach_the_user():
    X, Y = table(rows=8)
    fitted = regressor(2)
    torch.manual_seed(0)
    arch = Architecture(dim_x=3, dim_y=2, likelihood="low-rank", dim_latx=32)
    members = [
        Replica(make_model("cnp", arch).double().eval(), one.inputs, one.outputs)
        for one in fitted.ensemble_.replicas
    ]
    other = fitted.condition(X, Y)
    other.ensemble_ = Ensemble(members, 8, fitted.ensemble_.prior, fitted.ensemble_.calibration)
    found = other.predict_dist(X)
    assert isinstance(found.predictive, LowRankPredictive)
    each = found.predictive.log_prob_each(torch.from_numpy(Y)[None])[0].sum(-1)
    assert np.abs(found.log_prob(Y) - each.numpy()).max() > 1e-3  # together is not the sum of alone
    draws = found.sample(3000)
    cov = np.cov(draws[0])
    factor, noise = found.predictive.factor[:, 0, 0, 0], found.predictive.noise[:, 0, 0, 0]
    loc = found.predictive.loc[:, 0, 0, 0]
    inside = (factor @ factor.mT + torch.diag_embed(noise.square())).mean(0)
    expected = inside + torch.cov(loc.T, correction=0)
    np.testing.assert_allclose(cov, expected.numpy(), rtol=0.2, atol=0.05 * float(expected.max()))


def test_rows_are_answered_some_at_a_time(monkeypatch):
    fitted, x = regressor(2), torch.from_numpy(table(rows=30)[0])
    asked = fitted.ensemble_.draws(4, 0)
    whole = fitted.ensemble_.predict(fitted.context_, x, asked)
    monkeypatch.setattr(ensemble, "ROWS", 7)
    sizes = []
    ask = fitted.ensemble_.condition(fitted.context_, asked)
    found = ensemble.answered(lambda rows: sizes.append(len(rows)) or ask(rows), x)
    assert sizes == [7, 7, 7, 7, 2]
    torch.testing.assert_close(found.mean, whole.mean)
    torch.testing.assert_close(found.scale, whole.scale)
