"""NPRegressor: what it answers, in whose units, and in which company."""

import warnings
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from fitted import QUICK, regressor, sines, table
from joblib import dump, load
from scipy.stats import norm
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dsvnp import MODELS, NPRegressor
from dsvnp.tabular.base import Evaluation
from dsvnp.tabular.trained.ensemble import Draws
from dsvnp.training import Fleet


def test_it_learns_what_a_line_cannot_and_says_how_sure_it_is():
    X, Y = table(rows=400)
    fitted = NPRegressor(**{**QUICK, "max_steps": 200}).fit(X[:300], Y[:300])
    line = LinearRegression().fit(X[:300], Y[:300])
    assert fitted.score(X[300:], Y[300:]) > max(0.75, line.score(X[300:], Y[300:]) + 0.1)
    low, high = fitted.predict_interval(X[300:], 0.9)
    assert 0.8 < np.mean((low < Y[300:]) & (Y[300:] < high)) < 0.98


def test_shapes_follow_the_shape_of_y():
    X, _ = table()
    many, one = regressor(2), regressor(1)
    assert many.predict(X[:7]).shape == (7, 2)
    assert one.predict(X[:7]).shape == (7,)
    assert [v.shape for v in many.predict(X[:7], return_std=True)] == [(7, 2), (7, 2)]
    assert one.predict(X[:7], return_cov=True)[1].shape == (7, 7)
    assert many.predict(X[:7], return_cov=True)[1].shape == (7, 7, 2)
    assert one.predict_quantiles(X[:7], [0.1, 0.9]).shape == (7, 2)
    assert many.predict_quantiles(X[:7], [0.1, 0.5, 0.9]).shape == (7, 2, 3)
    assert one.sample_y(X[:7], 5).shape == (7, 5)
    assert many.sample_y(X[:7], 5).shape == (7, 2, 5)
    with pytest.raises(ValueError, match="not for both"):
        one.predict(X, return_std=True, return_cov=True)


def test_a_row_is_answered_alike_in_any_company():
    X, _ = table(rows=30)
    fitted = regressor(2)
    together = fitted.predict(X, return_std=True)
    for row in (0, 13, 29):
        alone = fitted.predict(X[row : row + 1], return_std=True)
        np.testing.assert_allclose(alone[0][0], together[0][row], rtol=1e-12)
        np.testing.assert_allclose(alone[1][0], together[1][row], rtol=1e-12)


def test_a_large_table_is_answered_in_parts(monkeypatch):
    X, Y = table(rows=30)
    fitted = regressor(2)
    whole = fitted.predict(X), fitted.log_prob(X, Y)
    monkeypatch.setattr("dsvnp.tabular.row_distribution.CHUNK", 7)
    np.testing.assert_allclose(fitted.predict(X), whole[0], rtol=1e-12)
    np.testing.assert_allclose(fitted.log_prob(X, Y), whole[1], rtol=1e-12)


def test_the_context_is_rows_of_the_table_as_many_as_asked_for():
    X, Y = table(rows=40, outputs=1)
    fitted = NPRegressor(**{**QUICK, "max_steps": 2, "max_context": 7}).fit(X, Y)
    assert fitted.context_[0].shape == (7, 3)
    for x, y in zip(*(part.numpy() for part in fitted.context_), strict=True):
        row = int(np.flatnonzero((x == X).all(1))[0])
        assert Y[row] == y


def test_the_prediction_is_the_mixture_of_all_replicas():
    X, Y = table(rows=6)
    fitted = regressor(2)
    parts = [
        replica.predict(
            fitted.context_, torch.from_numpy(X), Draws(fitted.n_draws // 2, 2, fitted.noise_seed_)
        )
        for replica in fitted.ensemble_.replicas
    ]
    loc, scale = (np.concatenate([getattr(p, n)[:, :, 0].numpy() for p in parts]) for n in ("loc", "scale"))
    between = loc.reshape(2, -1, *loc.shape[1:]).mean((1, 2)).var(0)  # of the two replicas' means
    scale = np.sqrt(np.maximum(scale**2 - 2 * between, scale**2 / 4))
    within = loc.var(1, ddof=1).mean(0)  # of the two draws of z_* for each z_G
    loc, scale = (array.reshape(-1, *array.shape[2:]) for array in (loc, scale))
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_allclose(mean, loc.mean(0))
    np.testing.assert_allclose(std**2, (scale**2).mean(0) + loc.var(0))
    aleatoric, epistemic = fitted.uncertainty(X)
    np.testing.assert_allclose(aleatoric + epistemic, std**2)
    np.testing.assert_allclose(epistemic, np.maximum(loc.var(0) - within, 0))
    density = norm(loc, scale).pdf(Y).prod(-1).mean(0)
    np.testing.assert_allclose(fitted.log_prob(X, Y), np.log(density), rtol=1e-9)
    quantiles = fitted.predict_quantiles(X, [0.2, 0.7])
    for index, level in enumerate((0.2, 0.7)):
        np.testing.assert_allclose(norm(loc, scale).cdf(quantiles[..., index]).mean(0), level, atol=1e-6)
    low, high = fitted.predict_interval(X, 0.4)
    np.testing.assert_allclose(high, fitted.predict_quantiles(X, [0.7])[..., 0])
    assert (low < high).all()


def test_covariance_is_that_of_functions_with_the_variance_on_its_diagonal():
    X, _ = table(rows=12)
    fitted = regressor(1)
    _, std = fitted.predict(X, return_std=True)
    _, cov = fitted.predict(X, return_cov=True)
    np.testing.assert_allclose(np.diag(cov), std**2)
    np.testing.assert_allclose(cov, cov.T)
    assert np.linalg.eigvalsh(cov).min() > -1e-6 * cov.max()
    assert np.abs(cov[~np.eye(12, dtype=bool)]).max() > 0


def test_covariance_is_that_of_functions_without_noise():
    X, _ = table(rows=12)
    fitted = regressor(1)
    _, cov = fitted.predict(X, return_cov=True)
    draws = fitted.sample_y(X, 1500, noise=False)
    off = ~np.eye(12, dtype=bool)
    assert np.corrcoef(np.cov(draws)[off], cov[off])[0, 1] > 0.9


def test_functions_without_noise_are_smooth_and_average_to_the_mean():
    X, _ = table(rows=1)
    X = X + np.linspace(-1, 1, 41)[:, None] * [1, 0, 0]
    fitted = regressor(1)
    mean, std = fitted.predict(X, return_std=True)
    smooth, noisy = (fitted.sample_y(X, 200, random_state=1, noise=noise) for noise in (False, True))
    np.testing.assert_allclose(smooth.mean(1), mean, atol=0.3 * std.max())
    jumps = [np.abs(np.diff(draws, axis=0)).mean() for draws in (smooth, noisy)]
    assert jumps[0] < 0.2 * jumps[1]
    assert fitted.sample_y(X, 3, noise=False).std(1).min() > 0  # another function each


def test_drawn_functions_have_the_mean_and_spread_of_the_prediction():
    X, _ = table(rows=3)
    fitted = regressor(1)
    mean, std = fitted.predict(X, return_std=True)
    draws = fitted.sample_y(X, 800, random_state=1)
    np.testing.assert_allclose(draws.mean(1), mean, atol=0.25 * std.max())
    np.testing.assert_allclose(draws.std(1), std, rtol=0.25)
    np.testing.assert_array_equal(draws, fitted.sample_y(X, 800, random_state=1))


def test_functions_drawn_from_members_that_differ_have_the_spread_of_the_prediction():
    X, _ = table(rows=2)
    fitted = copy(regressor(1))
    one, other = fitted.ensemble_.replicas
    apart = 0.6 * fitted.predict(X, return_std=True)[1].mean()  # each way: a variance of 0.36 of their own
    moved = [r.corrected(bias=r.outputs.bias + way * apart) for r, way in ((one, 1), (other, -1))]
    fitted.ensemble_ = replace(fitted.ensemble_, replicas=moved)
    std = fitted.predict(X, return_std=True)[1]
    draws = fitted.sample_y(X, 4000, random_state=1)
    np.testing.assert_allclose(draws.std(1), std, rtol=0.05)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_of_the_outputs_and_inputs_are_the_users(unit):
    X, Y = table(rows=80, outputs=1)
    small = NPRegressor(**{**QUICK, "max_steps": 10}).fit(X, Y[:, 0])
    large = NPRegressor(**{**QUICK, "max_steps": 10}).fit(X * unit, Y[:, 0] * unit)
    np.testing.assert_allclose(large.predict(X * unit), unit * small.predict(X), rtol=1e-3)
    difference = large.log_prob(X * unit, Y[:, 0] * unit) - small.log_prob(X, Y[:, 0])
    np.testing.assert_allclose(difference, -np.log(unit), atol=0.02)


def test_random_state_decides_everything():
    X, Y = table(rows=60)
    quick = {**QUICK, "max_steps": 6}
    first, again = (NPRegressor(**quick).fit(X, Y).predict(X) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (NPRegressor(**{**quick, "random_state": 1}).fit(X, Y).predict(X) != first).any()


def test_missing_outputs_do_not_count():
    X, Y = table(rows=90)
    Y[:30, 0] = np.nan
    Y[:10] = np.nan
    quick = {**QUICK, "max_steps": 20}
    holes = NPRegressor(**quick).fit(X, Y)
    assert np.isfinite(holes.predict(X)).all()
    # A row of which nothing is known is as good as not there.
    np.testing.assert_array_equal(holes.predict(X), NPRegressor(**quick).fit(X[10:], Y[10:]).predict(X))
    assert np.isfinite(holes.score(X, Y))
    one = holes.log_prob(X[10:11], Y[10:11])
    aside = Y[10:11].copy()
    aside[0, 1] += 1e5
    assert holes.log_prob(X[10:11], aside) < one
    each = holes.log_prob(X, Y)
    assert np.isnan(each[:10]).all()
    assert np.isfinite(each[10:]).all()  # one known output is enough
    with pytest.raises(ValueError, match="output 1 has no known value"):
        NPRegressor(**quick).fit(X, np.stack([Y[:, 1], np.full(90, np.nan)], 1))


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_frames_in_frames_out(kind):
    X, Y = table(rows=40)
    inputs = kind({"a": X[:, 0], "town": ["Ely", "Bath"] * 20, "c": X[:, 2]})
    outputs = kind({"u": Y[:, 0], "v": Y[:, 1]})
    fitted = NPRegressor(**{**QUICK, "max_steps": 5}).fit(inputs, outputs)
    mean, std = fitted.predict(inputs, return_std=True)
    assert isinstance(mean, kind)
    assert list(mean.columns) == ["u", "v"]
    assert list(std.columns) == ["u", "v"]
    assert list(fitted.predict_quantiles(inputs, [0.1, 0.9]).columns) == [
        "u_q0.1",
        "u_q0.9",
        "v_q0.1",
        "v_q0.9",
    ]
    assert type(fitted.ood_score(inputs)).__name__ == "Series"
    assert list(fitted.feature_names_in_) == ["a", "town", "c"]
    single = NPRegressor(**{**QUICK, "max_steps": 5}).fit(inputs, outputs["u"])
    assert single.predict(inputs).name == "u"
    with pytest.raises(ValueError, match="pass a data frame with the columns a, town, c"):
        fitted.predict(inputs.to_numpy())


def test_it_works_in_scikit_learns_tools(tmp_path):
    X, Y = table(rows=60, outputs=1)
    y = Y[:, 0]
    quick = NPRegressor(**{**QUICK, "max_steps": 5, "n_replicas": 1})
    assert len(cross_val_score(make_pipeline(StandardScaler(), quick), X, y, cv=3)) == 3
    search = GridSearchCV(quick, {"width": [8, 16]}, cv=2).fit(X, y)
    assert search.best_params_["width"] in (8, 16)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    chosen = make_pipeline(make_column_transformer((StandardScaler(), ["a", "b"])), clone(quick)).fit(
        frame, y
    )
    assert chosen.predict(frame).shape == (60,)
    fitted = clone(quick).fit(X, y)
    dump(fitted, tmp_path / "fitted.joblib")
    np.testing.assert_array_equal(load(tmp_path / "fitted.joblib").predict(X), fitted.predict(X))


def test_many_small_tables_teach_it_to_read_a_new_one():
    fitted = NPRegressor(**{**QUICK, "model": "np", "max_steps": 250, "n_replicas": 1}).fit_tasks(sines(60))
    errors, blind = [], []
    with pytest.warns(UserWarning, match=r"there is no context.*context=\(X, y\).*condition\(X, y\)"):
        fitted.predict(sines(1)[0][0])  # said once: the loop below asks the same
    for X, y in sines(20, seed=1):
        mean = fitted.predict(X[6:], context=(X[:6], y[:6]))
        errors.append(np.mean((mean - y[6:]) ** 2))
        blind.append(np.mean((fitted.predict(X[6:]) - y[6:]) ** 2))
        np.testing.assert_array_equal(fitted.condition(X[:6], y[:6]).predict(X[6:]), mean)
    assert np.mean(errors) < 0.5 * np.mean(blind)
    assert len(fitted.context_[0]) == 0  # conditioning left the first one alone


def test_small_tables_may_have_any_length():
    tasks = [(X[: 2 + i], y[: 2 + i]) for i, (X, y) in enumerate(sines(8))]
    fitted = NPRegressor(**{**QUICK, "model": "np", "max_steps": 3, "n_replicas": 3}).fit_tasks(tasks)
    assert np.isfinite(fitted.predict(tasks[0][0], context=tasks[0])).all()


def test_small_tables_may_come_from_a_generator_and_lack_outputs():
    tasks = [(X, np.stack([y, 2 * y], 1)) for X, y in sines(8)]
    tasks[0][1][:, 1] = np.nan  # an output that the first table lacks, the others have
    quick = {**QUICK, "max_steps": 3}
    fitted = NPRegressor(**{**quick, "model": "np"}).fit_tasks(task for task in tasks)
    assert fitted.predict(tasks[0][0], context=tasks[1]).shape == (12, 2)
    assert np.isfinite(fitted.predict(tasks[0][0], context=tasks[0])).all()
    with pytest.warns(UserWarning, match="there is no context"):
        fitted.score(*tasks[1])
    for _, y in tasks[1:]:
        y[:, 1] = np.nan
    with pytest.raises(ValueError, match="output 1 has no known value"):
        NPRegressor(**{**quick, "model": "np"}).fit_tasks(tasks)
    for _, y in tasks[1:]:
        y[:] = np.nan
    tasks[0][1][:] = 1.0
    with pytest.raises(ValueError, match="2 rows whose output is known, got 1 of 8"):
        NPRegressor(**{**quick, "model": "np"}).fit_tasks(tasks)


def test_an_output_must_be_known_outside_of_every_fold():
    X, Y = table(rows=20)
    Y[1:, 1] = np.nan
    with pytest.raises(ValueError, match="is known in too few rows"):
        NPRegressor(**{**QUICK, "max_steps": 2, "n_replicas": 5}).fit(X, Y)


def test_a_single_quantile_has_the_shape_of_the_mean():
    X, _ = table(rows=5)
    for fitted in (regressor(1), regressor(2)):
        one = fitted.predict_quantiles(X, 0.3)
        assert one.shape == fitted.predict(X).shape
        np.testing.assert_array_equal(one, fitted.predict_quantiles(X, [0.3])[..., 0])
    assert fitted.predict_quantiles(pd.DataFrame(X), 0.3).shape == (5, 2)


def test_a_context_is_a_pair():
    X, Y = table(rows=2)
    for wrong, got in ((X, "ndarray"), ((X, Y, Y), "tuple of 3")):
        with pytest.raises(ValueError, match=rf"context must be a pair \(X, y\), got {got}"):
            regressor(2).predict(X, context=wrong)
    with pytest.raises(ValueError, match=r"task 0 must be a pair \(X, y\), got ndarray"):
        NPRegressor(**QUICK).fit_tasks([X, Y])
    with pytest.warns(UserWarning, match="there is no context"):
        copy(regressor(2)).predict(X, context=(X, np.full((2, 2), np.nan)))


def test_many_small_frames_share_their_categories():
    frames = [
        pd.DataFrame({"x": X[:, 0], "town": [town] * 12})
        for (X, _), town in zip(sines(6), "aabbcc", strict=True)
    ]
    tasks = [(frame, pd.Series(y, name="level")) for frame, (_, y) in zip(frames, sines(6), strict=True)]
    fitted = NPRegressor(**{**QUICK, "model": "cnp", "max_steps": 3}).fit_tasks(tasks)
    assert fitted.encoding_.categories == (None, ("a", "b", "c"))
    assert fitted.predict(frames[0], context=(frames[1], tasks[1][1])).name == "level"


def test_conditioning_replaces_the_context_and_trains_nothing():
    X, Y = table(rows=20, seed=3)
    fitted = regressor(2)
    before = fitted.predict(X)
    other = fitted.condition(X, Y + 1e4)
    assert other.ensemble_ is fitted.ensemble_
    assert (other.predict(X) != before).any()
    np.testing.assert_array_equal(fitted.predict(X), before)
    np.testing.assert_array_equal(fitted.predict(X, context=(X, Y + 1e4)), other.predict(X))


def test_the_unit_of_the_outputs_is_of_no_matter_to_how_far_out_rows_are():
    X, Y = table(rows=60)
    quick = {**QUICK, "max_steps": 8}
    scores = [NPRegressor(**quick).fit(X, unit * Y).ood_score(X) for unit in (1, 1024)]
    np.testing.assert_allclose(*scores, rtol=1e-6)


def test_far_away_rows_are_farther_out():
    X, _ = table(rows=100, seed=5)
    scores, far = regressor(2).ood_score(X), regressor(2).ood_score(X + 30)
    assert np.median(far) > np.quantile(scores, 0.9)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_fits_and_predicts(model):
    X, Y = table(rows=40)
    fitted = NPRegressor(**{**QUICK, "model": model, "max_steps": 3}).fit(X, Y)
    assert np.isfinite(fitted.predict(X, return_std=True)).all()
    assert np.isfinite(fitted.sample_y(X[:3], 3)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "dsvpn"}, "Did you mean 'dsvnp'"),
        ({"n_replicas": 0}, "n_replicas must be a whole number"),
        ({"max_steps": 1.5}, "max_steps must be a whole number"),
        ({"learning_rate": -1}, "learning_rate must be positive"),
        ({"device": "cuda:99"}, "device"),
    ],
)
def test_a_bad_setting_is_named_when_fitting(settings, message):
    if "device" in settings and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(ValueError, match=message):
        NPRegressor(**{**QUICK, "max_steps": 2, **settings}).fit(*table(rows=20))


def test_bad_rows_are_named():
    X, Y = table(rows=20)
    fitted = regressor(2)
    with pytest.raises(ValueError, match="n_samples=1"):
        NPRegressor(**QUICK).fit(X[:1], Y[:1])
    with pytest.raises(ValueError, match="y has 19 rows but X has 20"):
        NPRegressor(**QUICK).fit(X, Y[:19])
    with pytest.raises(ValueError, match="3 outputs but the fit had 2"):
        fitted.log_prob(X, np.zeros((20, 3)))
    for rows in (1, 19):
        with pytest.raises(ValueError, match=f"y has {rows} rows but X has 20"):
            fitted.log_prob(X, Y[:rows])
        with pytest.raises(ValueError, match=f"y has {rows} rows but X has 20"):
            fitted.score(X, Y[:rows])
    with pytest.raises(NotFittedError):
        NPRegressor().log_prob(X, Y)
    with pytest.raises(ValueError, match="for a single one use fit"):
        NPRegressor(**QUICK).fit_tasks([(X, Y)])
    with pytest.raises(ValueError, match="task 1 has 1 rows"):
        NPRegressor(**QUICK).fit_tasks([(X, Y), (X[:1], Y[:1])])
    with pytest.raises(ValueError, match="coverage must lie"):
        fitted.predict_interval(X, 90)


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame])
def test_missing_inputs_are_taken_or_refused(kind):
    X, Y = table(rows=80, outputs=1)
    X[::7, 1] = np.nan
    quick = {**QUICK, "max_steps": 5}
    fitted = NPRegressor(**quick).fit(kind(X), Y[:, 0])
    assert fitted.ensemble_.replicas[0].inputs.centre.shape == (4,)  # three inputs and a flag
    filled = np.where(np.isnan(X), np.nanmedian(X, 0), X)
    flagged = np.column_stack([filled, np.isnan(X[:, 1])])
    expected = NPRegressor(**quick).fit(flagged, Y[:, 0]).predict(flagged)
    np.testing.assert_allclose(np.asarray(fitted.predict(kind(X))), expected)
    with pytest.raises(ValueError, match="contains NaN"):
        NPRegressor(**quick, missing="refuse").fit(kind(X), Y[:, 0])


def test_dates_and_missing_cells_come_back_from_a_folder(tmp_path):
    X, Y = table(rows=60, outputs=1)
    frame = pd.DataFrame(
        {"a": X[:, 0], "day": pd.date_range("2024-01-01", periods=60), "town": ["Ely", "Bath"] * 30}
    )
    frame.loc[3, "a"], frame.loc[5, "day"] = np.nan, pd.NaT
    fitted = NPRegressor(**{**QUICK, "max_steps": 3}).fit(frame, Y[:, 0])
    again = NPRegressor.load(fitted.save(tmp_path / "m"), device="cpu")
    pd.testing.assert_series_equal(again.predict(frame), fitted.predict(frame))


def test_texts_are_for_the_classifier():
    X, _ = table(rows=20)
    with pytest.raises(ValueError, match=r"y holds texts \('ash'\).*use NPClassifier"):
        NPRegressor(**QUICK).fit(X, np.array(["1", "ash"] * 10))
    assert NPRegressor(**{**QUICK, "max_steps": 2}).fit(X, np.array(["1", "2"] * 10)).predict(X).shape == (
        20,
    )


def test_the_validation_names_the_outputs():
    X, Y = table(rows=40)
    fitted = NPRegressor(**{**QUICK, "max_steps": 2}).fit(X, pd.DataFrame(Y, columns=["flow", "depth"]))
    assert {"rmse_flow", "rmse_depth", "crps"} <= set(fitted.validation_["ridge"])


def test_known_rows_are_evaluated_as_a_naive_loop_would():
    X, Y = table(rows=30, seed=7)
    Y[3, 0] = np.nan
    fitted = regressor(2)
    found = fitted.evaluate(X, Y)
    expected = np.nanmean(fitted.predict_dist(X).crps(Y))
    assert found.summary["neural process"]["crps"] == pytest.approx(expected, rel=1e-6)
    assert len(found.calibration) == 59
    with pytest.raises(ValueError, match="y has no known output"):
        fitted.evaluate(X, np.full_like(Y, np.nan))


def test_evaluation_doubles_the_draws_until_the_likelihood_is_still():
    X, Y = table(rows=60)
    fitted = NPRegressor(**{**QUICK, "max_steps": 40, "n_draws": 2}).fit(X, Y)
    found = fitted.evaluate(X, Y)
    numbers, costs = zip(*found.nll_by_draws.items(), strict=True)
    assert numbers == tuple(2 * 2**k for k in range(len(numbers)))
    assert costs[0] == pytest.approx(found.summary["neural process"]["nll"], abs=1e-9)
    changes = np.abs(np.diff(costs))
    assert numbers[-1] == 512 or (changes[-2:] < 0.01).all()
    assert not any((changes[i : i + 2] < 0.01).all() for i in range(len(changes) - 2))
    more = copy(fitted)
    more.n_draws = numbers[-1]
    assert more.evaluate(X, Y).summary["neural process"]["nll"] == pytest.approx(costs[-1], abs=1e-9)


def test_an_evaluation_advises_more_draws_only_where_they_lower_the_likelihood():
    def advice(by_draws):
        return Evaluation({}, torch.zeros(0), None, by_draws).advice

    assert (
        advice({8: 1.25, 16: 1.2, 32: 1.195})
        == "With n_draws=32 in place of 8 the NLL would be 1.195, not 1.25"
    )
    assert advice({8: 1.25, 16: 1.249, 32: 1.247}) == advice({1024: 1.0}) == advice({}) == ""
    X, Y = table(rows=30)
    assert NPRegressor(random_state=0).fit(X, Y).evaluate(X, Y).nll_by_draws == {}
    assert NPRegressor(**{**QUICK, "model": "cnp"}).fit(X, Y).evaluate(X, Y).nll_by_draws == {}


def test_few_rows_are_said_to_be_few():
    X, y = np.linspace(0, 1, 12)[:, None], np.sin(np.arange(12.0))
    quick = {"n_replicas": 2, "max_steps": 2, "random_state": 0}
    with pytest.warns(UserWarning, match="9 rows are few to learn from"):
        NPRegressor(**{**quick, "model": "cnp"}).fit(X[:9], y[:9])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "rows that were held out")
        NPRegressor(**{**quick, "model": "cnp"}).fit(X, y)


def test_a_fit_computes_with_one_thread_and_leaves_them_as_they_were(monkeypatch):
    seen = []
    original = Fleet.step
    monkeypatch.setattr(Fleet, "step", lambda fleet: (seen.append(torch.get_num_threads()), original(fleet)))
    X = np.linspace(0, 1, 12)[:, None]
    torch.set_num_threads(2)
    try:
        NPRegressor("cnp", n_replicas=1, max_steps=2, random_state=0).fit(X, X[:, 0])
        assert (set(seen), torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(1)
