"""Members of an ensemble are answered together; what comes out is what each would say by itself."""

import dataclasses

import numpy as np
import pytest
import torch
from fitted import classifier, labels, regressor, table

from dsvnp.predictive import concatenate
from dsvnp.tabular.rows.scaling import ClassScaling
from dsvnp.tabular.trained.ensemble import dissent_of, fixed_noise, sharpened, stacked
from dsvnp.task import Task


def one_by_one(fitted, x):
    """The ensemble's mixture in double precision: a prediction of each model, scaled back, then sharpened."""
    x_context, y_context = fitted.context_
    draws = fitted.ensemble_.draws(fitted.n_draws, fitted.noise_seed_)
    parts = []
    for replica in fitted.ensemble_.replicas:
        scale = replica.inputs
        known = replica.outputs.transform(scale.both(x_context), y_context)
        task = Task.from_sets(scale.transform(x_context)[None], known[None], scale.transform(x)[None])
        noise = fixed_noise(replica.model, draws, scale.centre)
        parts.append(replica.outputs.inverse(scale.both(x), replica.model.predict(task, noise=noise)))
    dissent = dissent_of(parts)
    return concatenate([sharpened(part, dissent) for part in parts], dim=0)


@pytest.mark.parametrize("rows", [1, 7, 1100])  # more than 1,000 are computed in single precision
def test_an_ensemble_says_what_its_members_say_one_by_one(rows):
    X = table(rows, seed=3)[0]
    expected = one_by_one(regressor(2), torch.from_numpy(X))
    found = regressor(2).predict_dist(X)
    unit = expected.stddev[0].numpy()
    ends = np.stack(found.interval(0.9))
    within = 1e-5 if rows > 1000 else 1e-9
    assert (np.abs(found.mean - expected.mean[0].numpy()) < within * unit).all()
    assert (np.abs(found.std - unit) < within * unit).all()
    assert (np.abs(ends - expected.quantile([0.05, 0.95])[:, 0].numpy()) < within * unit).all()


def test_classes_of_an_ensemble_are_those_of_its_members():
    X = labels(9, seed=3)[0]
    expected = one_by_one(classifier(), torch.from_numpy(X))
    np.testing.assert_allclose(classifier().predict_proba(X), expected.mean[0].numpy(), atol=1e-12)


def test_a_member_without_logistic_regression_is_stacked_with_others():
    full = classifier().ensemble_.replicas[0].outputs
    bare = ClassScaling(full.temperature)
    both = stacked([full, bare])
    x = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(both.linear(x)[0], full.linear(x[0]))
    assert not both.linear(x)[1].any()
    assert both.trust.shape == (2, 1, 1)
    assert [field.name for field in dataclasses.fields(both)] == list(vars(both))
