"""CurveRegressor: the network's predictions in the user's units, whatever these are."""

import datetime
import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from sklearn.base import clone
from sklearn.model_selection import cross_val_predict

import dsvnp
from dsvnp import CurveRegressor, Task
from dsvnp.devices import FEW_TOKENS
from dsvnp.models import Transformer, make_model
from dsvnp.models.architecture import Architecture
from dsvnp.models.tnp import TNP
from dsvnp.pretrained import Card, load_pretrained, save_pretrained
from dsvnp.pretrained.curves import boxes, predict_curve, predict_views
from dsvnp.pretrained.seasons import CurveView

ARCH = Architecture(
    6,
    1,
    likelihood="mixture",
    num_components=3,
    decoder=(8,),
    sigma_floor=1e-3,
    sigma_form="exp",
    coded_x=True,
    transformer=Transformer(8, 2, 2, 8, (8,), equivariant=True, rotary=20.0),
)
RNG = np.random.default_rng(0)
X, Y = RNG.uniform(3, 9, 40), RNG.normal(size=40)
ASKED = np.linspace(2, 10, 15)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A network that has learned nothing, in the folder of a pretrained one."""
    folder = tmp_path_factory.mktemp("weights")
    torch.manual_seed(0)
    model = make_model("tnp", ARCH)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    save_pretrained(model, Card("curves"), folder)
    return folder


@pytest.fixture
def curve(weights):
    return CurveRegressor(weights=weights, process=False)


# --- the numbers ---


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_predictions_are_the_networks_in_the_users_units(curve, weights, dims):
    x, asked = RNG.uniform(-1, 1, (40, dims)), RNG.uniform(-2, 2, (7, dims))
    seen = x.copy()
    for _ in range(2):  # beyond three standard deviations nothing lies here: scaling is plain
        mean, std = seen.mean(0), seen.std(0)
    channels = np.full((47, 6), 0.0)
    channels[:, :dims] = (np.concatenate([x, asked]) - mean) / std
    channels[:, 3 + dims :] = -1.0
    inputs = torch.tensor(channels, dtype=torch.float32)[None]
    y = torch.tensor((Y - Y.mean()) / Y.std(), dtype=torch.float32)[None, :, None]
    expected = load_pretrained("curves", weights).predict(Task.from_sets(inputs[:, :40], y, inputs[:, 40:]))
    found = curve.fit(x, Y).predict_dist(asked)
    np.testing.assert_allclose(found.mean[0, :, 0], Y.mean() + Y.std() * expected.mean[0, :, 0], rtol=1e-4)
    np.testing.assert_allclose(found.stddev[0, :, 0], Y.std() * expected.stddev[0, :, 0], rtol=1e-4)
    assert found.mean.dtype == torch.float64


def test_units_do_not_matter(curve):
    mean, std = curve.fit(X, Y).predict(ASKED, return_std=True)
    other, spread = curve.fit(1e6 * X + 1e9, 1e-3 * Y + 50).predict(1e6 * ASKED + 1e9, return_std=True)
    np.testing.assert_allclose(other, 1e-3 * mean + 50, rtol=1e-9, atol=1e-5)
    np.testing.assert_allclose(spread, 1e-3 * std, rtol=1e-2)


def test_intervals_quantiles_densities_and_samples_are_those_of_the_distribution(curve):
    curve.fit(X, Y)
    predictive = curve.predict_dist(ASKED)
    low, high = curve.predict_interval(ASKED, 0.8)
    cdf = [predictive.cdf(torch.from_numpy(end)[None, :, None])[0, :, 0] for end in (low, high)]
    np.testing.assert_allclose(cdf[0], 0.1, atol=1e-6)
    np.testing.assert_allclose(cdf[1], 0.9, atol=1e-6)
    np.testing.assert_allclose(curve.predict_quantiles(ASKED, [0.1, 0.9]).T, [low, high])
    y = np.linspace(-1, 1, 15)
    weights = predictive.log_weights.exp()[0, :, 0].numpy()
    loc, scale = predictive.loc[0, :, 0, :, 0].numpy(), predictive.scale[0, :, 0, :, 0].numpy()
    density = (weights * np.exp(-0.5 * ((y - loc) / scale) ** 2) / scale).sum(0) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(curve.log_prob(ASKED, y), np.log(density), rtol=1e-9)
    drawn = curve.sample_y(ASKED, 4000, random_state=1)
    assert drawn.shape == (15, 4000)
    np.testing.assert_allclose(drawn.mean(1), curve.predict(ASKED), atol=0.15)
    np.testing.assert_array_equal(drawn[:, :3], curve.sample_y(ASKED, 4000, random_state=1)[:, :3])


def test_an_untrained_curve_needs_no_y_beyond_the_fit(curve):
    before = curve.fit(X, Y).predict(ASKED)
    np.testing.assert_allclose(curve.predict(ASKED[3:5]), before[3:5], rtol=1e-5)  # asked together or apart
    order = RNG.permutation(40)
    np.testing.assert_allclose(curve.fit(X[order], Y[order]).predict(ASKED), before, rtol=1e-4, atol=1e-5)


def test_a_process_is_mixed_with_the_network(curve):
    both = clone(curve).set_params(process=True).fit(X, Y)
    alone = clone(curve).set_params(season=both.view_.period).fit(X, Y)
    assert alone.process_ is None
    assert 0 < both.share_ < 1
    other = both.process_.predict(X[:, None], Y, ASKED[:, None])[0]
    expected = (1 - both.share_) * alone.predict(ASKED) + both.share_ * other
    np.testing.assert_allclose(both.predict(ASKED), expected, rtol=1e-6, atol=1e-6)


def test_functions_are_of_the_network_or_of_the_process(curve):
    both = clone(curve).set_params(process=True).fit(X, Y)
    drawn = both.sample_functions(ASKED, 6, random_state=5)
    np.testing.assert_array_equal(drawn, both.sample_functions(ASKED, 6, random_state=5))
    both.share_ = 1.0
    functions = both.sample_functions(ASKED, 4000)
    expected = both.process_.predict(X[:, None], Y, ASKED[:, None])[0]
    np.testing.assert_allclose(functions.mean(1), expected, atol=0.1)
    both.share_ = 0.0
    alone = clone(curve).set_params(season=both.view_.period).fit(X, Y)
    np.testing.assert_array_equal(both.sample_functions(ASKED, 2), alone.sample_functions(ASKED, 2))


def test_a_season_is_continued_with_the_package_weights():
    t = np.arange(0, 12, 0.1)
    truth = 0.3 * t + np.sin(2 * np.pi * t)
    y = truth + 0.1 * np.random.default_rng(4).normal(size=len(t))
    found = CurveRegressor().fit(t[t < 10], y[t < 10])
    assert found.view_.period == pytest.approx(1.0, rel=0.01)
    mean, std = found.predict(t[t >= 10], return_std=True)
    assert np.sqrt(np.mean(np.square(mean - truth[t >= 10]))) < 0.1
    assert 0.15 < std.mean() < 0.4
    assert (
        0.1 < found.predict(t[20:80:3] + 0.05, return_std=True)[1].mean() < 0.2
    )  # between points it is mostly noise


@pytest.mark.parametrize("dims", [2, 3])
def test_a_surface_is_learned_with_the_package_weights(dims):
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 10, (120, dims))
    truth = lambda x: np.sin(x[:, 0]) + 0.2 * x[:, 1]  # noqa: E731
    found = CurveRegressor().fit(x, truth(x) + 0.1 * rng.normal(size=120))
    assert found.process_ is not None
    assert (found.view_, 0 < found.share_ < 1) == (CurveView(), True)
    asked = rng.uniform(1, 9, (200, dims))
    mean, std = found.predict(asked, return_std=True)
    alone = CurveRegressor(process=False).fit(x, found.y_).predict(asked)
    errors = [np.sqrt(np.mean(np.square(each - truth(asked)))) for each in (mean, alone)]
    assert errors[0] < 0.1
    assert errors[0] < errors[1]
    assert 0.09 < std.mean() < 0.25
    assert found.sample_functions(asked[:5], 3).shape == (5, 3)


@pytest.mark.parametrize("step", [np.timedelta64(10, "s"), np.timedelta64(1, "D"), np.timedelta64(300, "D")])
def test_dates_of_any_span_are_read(step):
    """Ten minutes are a ten-millionth of the time since 1970."""
    places = np.linspace(0, 6, 60)
    y = np.sin(places) + 0.05 * np.random.default_rng(2).normal(size=60)
    dates = np.datetime64("2026-03-01T12:00:00") + np.arange(60) * step
    shown, hidden = np.arange(60) % 4 > 0, np.arange(60) % 4 == 0
    mean = CurveRegressor(season=None).fit(dates[shown], y[shown]).predict(dates[hidden])
    assert np.sqrt(np.mean(np.square(mean - y[hidden]))) < 0.1


@pytest.mark.parametrize("number", [900, 3000])
def test_long_series_without_a_season_and_daily_ones_with_a_year_are_fitted(number):
    t = np.arange(number)
    wandering = np.cumsum(np.random.default_rng(5).normal(size=number))
    found = CurveRegressor().fit(t, wandering)
    assert np.abs(found.predict(t[50:60]) - wandering[50:60]).max() < 3
    yearly = np.sin(2 * np.pi * t / 365.2425) + 0.3 * np.random.default_rng(5).normal(size=number)
    dates = np.datetime64("2015-01-01") + t
    found = CurveRegressor().fit(dates, yearly)
    assert found.process_.period == pytest.approx(365.2425)
    after = number + np.arange(200)
    error = found.predict(np.datetime64("2015-01-01") + after) - np.sin(2 * np.pi * after / 365.2425)
    assert np.sqrt(np.mean(np.square(error))) < 0.25


def test_constant_outputs_have_a_small_spread_that_is_not_negative():
    for value in (0.0, 0.1, -7.1):
        mean, std = CurveRegressor().fit(X, np.full(40, value)).predict(ASKED, return_std=True)
        np.testing.assert_allclose(mean, value, atol=0.02)
        assert std.min() >= 0
        assert std.max() < 0.2


# --- what may be passed ---


def test_missing_outputs_are_left_out(curve):
    expected = curve.fit(X[5:], Y[5:]).predict(ASKED)
    np.testing.assert_array_equal(
        curve.fit(X, np.where(np.arange(40) < 5, np.nan, Y)).predict(ASKED), expected
    )


def test_dates_are_days(curve):
    days = np.arange(40) * 7 + 12_000
    asked = np.arange(5) * 3 + 12_050
    expected = curve.fit(days, Y).predict(asked)
    dates, ask = days.astype("datetime64[D]"), asked.astype("datetime64[D]")
    for kind in (
        lambda v: v,
        lambda v: v.astype("datetime64[s]").reshape(-1, 1),
        pd.DatetimeIndex,
        lambda v: pd.DataFrame({"when": v}),
        lambda v: [datetime.datetime.fromisoformat(str(each)) for each in v],
    ):
        np.testing.assert_allclose(curve.fit(kind(dates), Y).predict(kind(ask)), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="X holds numbers where the fit had dates"):
        curve.predict(asked)


def test_dates_have_seasons_of_the_calendar():
    dates = np.datetime64("2020-01-01") + 7 * np.arange(150)  # less than three years
    days = dates.astype("datetime64[D]").astype(float)
    y = np.sin(2 * np.pi * days / 365.2425) + 0.1 * RNG.normal(size=150)
    assert CurveRegressor().fit(dates, y).view_.period == pytest.approx(365.2425)
    assert CurveRegressor().fit(days, y).view_.period is None  # numbers: too few cycles


def test_it_is_a_regressor_of_scikit_learn(curve):
    copy = clone(curve.set_params(max_context=30))
    assert copy.max_context == 30
    assert not hasattr(copy, "X_")
    assert cross_val_predict(copy, X[:, None], Y, cv=4).shape == (40,)
    assert np.isfinite(copy.fit(X, Y).score(X, Y))
    assert dsvnp.CurveRegressor is CurveRegressor


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((40, 4)), Y, "a curve has one to 3 inputs, got 4"),
        (X, Y[:-1], "y must hold one output per point, (40,), got (39,)"),
        (X, np.stack([Y, Y], 1), "got (40, 2); fit one curve per output"),
        (np.where(X > 4, X, np.nan), Y, "X has missing or infinite values"),
        (X, np.full(40, np.nan), "at least 2 points with a known output, got 0"),
        (X, np.full(40, np.inf), "y has infinite values"),
    ],
)
def test_bad_input_is_refused(curve, x, y, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        curve.fit(x, y)


def test_a_season_of_two_inputs_and_densities_of_too_few_outputs_are_refused(curve):
    with pytest.raises(ValueError, match="a season needs one input, got 2; leave season=2 out"):
        clone(curve).set_params(season=2).fit(np.stack([X, Y], 1), Y)
    with pytest.raises(ValueError, match="one output per input of X, 15, got 1"):
        curve.fit(X, Y).log_prob(ASKED, [1.0])


def test_other_inputs_than_the_fits_are_refused(curve):
    with pytest.raises(ValueError, match="X has 2 features, but CurveRegressor is expecting 1"):
        curve.fit(X, Y).predict(np.zeros((3, 2)))


# --- long curves ---


def test_a_long_curve_is_predicted_from_the_points_near_each_box():
    x = torch.sort(torch.rand(1000, 1, dtype=torch.float64), dim=0).values
    asked = torch.rand(300, 1, dtype=torch.float64)
    covered = []
    for rows, near in boxes(x, asked, 100):
        low, high = asked[rows].min(), asked[rows].max()
        inside = ((x[:, 0] >= low) & (x[:, 0] <= high)).nonzero()[:, 0]
        assert len(near) == 100
        assert len(inside) <= 50
        assert set(inside.tolist()) <= set(near.tolist())
        chosen = near.sort().values
        assert int(chosen[-1] - chosen[0]) == 99  # without holes
        covered += rows.tolist()
    assert sorted(covered) == list(range(300))


def test_boxes_of_several_inputs_cover_all_targets_once_and_end_at_equal_targets():
    x = torch.zeros(500, 2, dtype=torch.float64)
    x[250:] = torch.rand(250, 2, dtype=torch.float64)
    asked = torch.cat([torch.zeros(60, 2, dtype=torch.float64), torch.rand(60, 2, dtype=torch.float64)])
    found = list(boxes(x, asked, 50))
    assert sorted(torch.cat([rows for rows, _ in found]).tolist()) == list(range(120))
    assert all(len(near) == 50 for _, near in found)


def test_pieces_of_a_long_curve_are_put_in_the_order_asked(curve):
    x, asked = RNG.uniform(0, 1, 500), RNG.uniform(0, 1, 90)
    y = np.sin(6 * x) + RNG.normal(size=500)  # no part has a trend
    curve.set_params(max_context=60, season=None).fit(x, y)
    together = curve.predict(asked)
    for places in boxes(torch.tensor(x)[:, None], torch.tensor(asked)[:, None], 60):
        rows, near = (part.numpy() for part in places)
        single = clone(curve).fit(x[near], y[near]).predict(asked[rows])
        np.testing.assert_allclose(together[rows], single, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("max_context", [100, 20])
def test_several_views_at_once_are_each_by_itself(curve, max_context):
    x, y, asked = torch.from_numpy(X)[:, None], torch.from_numpy(Y), torch.from_numpy(ASKED)[:, None]
    views = [CurveView(), CurveView(1.3, True, 2.0), CurveView(0.7, False, 5.0, (1.0, 2.0, 0.5, -0.5))]
    found = predict_views(curve._model(), x, y, asked, max_context, views)
    for each, view in zip(found, views, strict=True):
        expected = predict_curve(curve._model(), x, y, asked, max_context, view)
        torch.testing.assert_close(each.mean, expected.mean, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(each.stddev, expected.stddev, rtol=1e-4, atol=1e-6)


# --- functions and pictures ---


def test_a_trend_is_given_back(curve):
    line = 1e3 * X + 5
    functions = curve.fit(X, line + Y).sample_functions(ASKED, 3, random_state=5)
    rest = np.polyval(np.polyfit(X, line + Y, 1), ASKED)
    network = clone(curve).fit(X, line + Y - np.polyval(np.polyfit(X, line + Y, 1), X))
    assert (network.view_.weights, curve.view_.period) == ((), None)
    np.testing.assert_allclose(curve.predict(ASKED), network.predict(ASKED) + rest, rtol=1e-6)
    drawn = network.sample_functions(ASKED, 3, random_state=5) + rest[:, None]
    np.testing.assert_allclose(functions, drawn, rtol=1e-6)
    for season in (-1, math.inf):
        with pytest.raises(ValueError, match="season must be a finite period above 0"):
            CurveRegressor(season=season).fit(X, Y)
    assert CurveRegressor(season=np.int64(2), process=False).fit(X, Y).season == 2


@pytest.mark.parametrize("noise", [False, True])
def test_functions_are_the_networks_in_the_users_units(curve, noise):
    drawn = curve.fit(X, Y).sample_functions(ASKED, 3, noise=noise, random_state=5)
    assert drawn.shape == (15, 3)
    np.testing.assert_array_equal(drawn, curve.sample_functions(ASKED, 3, noise=noise, random_state=5))
    other = curve.fit(X, 10 * Y + 7).sample_functions(ASKED, 3, noise=noise, random_state=5)
    np.testing.assert_allclose(other, 10 * drawn + 7, rtol=1e-3, atol=1e-3)


def test_functions_of_a_network_with_a_copula_come_from_one_pass(curve, monkeypatch):
    """With the package's weights: draws vary as the prediction does, neighbours together; a block makes chains."""
    passes, predict = [], TNP._predict
    monkeypatch.setattr(TNP, "_predict", lambda self, *a, **k: passes.append(1) or predict(self, *a, **k))
    found = CurveRegressor(process=False).fit(X, Y)
    passes.clear()
    grid = np.linspace(X.min(), X.max(), 60)
    functions = found.sample_functions(grid, 500)
    assert len(passes) == 1
    mean, std = found.predict(grid, return_std=True)
    assert np.abs(functions.mean(1) - mean).max() < 0.5 * std.max()
    steps = np.diff(functions, axis=0).std(1).mean()
    assert steps < 0.5 * np.diff(found.sample_y(grid, 500), axis=0).std(1).mean()
    found.sample_functions(grid, 2, block=30)
    assert len(passes) > 3


def test_a_function_of_a_long_curve_is_drawn_from_the_nearest_points(curve):
    x = np.linspace(0, 1, 200)
    y = (x - 0.5) ** 2  # no trend, neither all of it nor the part
    curve.set_params(max_context=20).fit(x, y)
    near = np.abs(x - 0.5).argsort()[:20]
    drawn = curve.sample_functions([0.5], 2)
    expected = clone(curve).fit(x[near], y[near]).sample_functions([0.5], 2)
    np.testing.assert_allclose(drawn, expected, rtol=1e-5)


def test_a_plot_shows_points_mean_and_interval(curve):
    axes = curve.fit(X, Y).plot(coverage=0.5)
    assert isinstance(axes.figure, Figure)
    lines = {line.get_label(): line for line in axes.lines}
    np.testing.assert_array_equal(lines["observed"].get_ydata(), Y)
    grid = lines["mean"].get_xdata()
    assert grid[0] == pytest.approx(X.min() - 0.1 * np.ptp(X))
    np.testing.assert_allclose(lines["mean"].get_ydata(), curve.predict(grid))
    low, high = curve.predict_interval(grid, 0.5)
    corners = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert corners.min() == pytest.approx(low.min())
    assert corners.max() == pytest.approx(high.max())


def test_a_plot_of_dates_has_dates(curve):
    dates = np.datetime64("2001-01-01") + np.arange(40)
    given = Figure().add_subplot()
    assert curve.fit(dates, Y).plot(given) is given
    assert np.issubdtype(given.lines[0].get_xdata().dtype, np.datetime64)


def test_a_plot_of_two_inputs_is_refused(curve):
    with pytest.raises(ValueError, match="a plot needs one input, got a curve of 2"):
        curve.fit(np.stack([X, Y], 1), Y).plot()


def test_few_points_are_predicted_by_one_thread_and_many_by_all(weights, monkeypatch):
    seen = []
    original = CurveRegressor._ask
    monkeypatch.setattr(
        CurveRegressor, "_ask", lambda *given: (seen.append(torch.get_num_threads()), original(*given))[1]
    )
    torch.set_num_threads(2)
    try:
        model = CurveRegressor(weights=weights).fit(X, Y)
        model.predict(ASKED)
        model.predict(np.linspace(2, 10, FEW_TOKENS))
        assert (seen, torch.get_num_threads()) == ([1, 1, 2], 2)
    finally:
        torch.set_num_threads(1)


def test_the_spread_of_clean_points_is_small_where_a_rare_outlier_is_not_excluded():
    t = np.linspace(0, 6, 40)
    curve = CurveRegressor().fit(t, np.sin(t))
    mean, spread = curve.predict(t[1:] - 0.05, return_std=True)
    low, high = curve.predict_interval(t[1:] - 0.05, coverage=0.68269)
    np.testing.assert_allclose(2 * spread, high - low, rtol=1e-4)
    assert np.abs(mean - np.sin(t[1:] - 0.05)).max() < 0.05
    assert spread.max() < 0.05
