"""The pretrained default: answers at once, chosen and corrected by rows that were held out."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from fitted import labels, table
from scipy.stats import norm

from dsvnp import NPClassifier, NPRegressor, files
from dsvnp.devices import FEW_TOKENS
from dsvnp.predictive import IndependentPredictive
from dsvnp.pretrained import for_numbers, load_pretrained
from dsvnp.pretrained.tables import TableUse, predict_numbers
from dsvnp.tabular.panel import choosing, panel
from dsvnp.tabular.panel.asking import Reading, read
from dsvnp.tabular.panel.choosing import split_once, split_rows
from dsvnp.tabular.panel.consulting import Member, PanelProblem, asked_together, consult, families_of
from dsvnp.tabular.panel.leaves import Leaves
from dsvnp.tabular.panel.seating import fit_stretch, give_seats, label_weights, mixture_weights
from dsvnp.tabular.panel.views import Layout, fit_view, relevance
from dsvnp.tabular.rows.folds import HoldOut

CPU = torch.device("cpu")


def fit(rows=60, outputs=2, **settings):
    X, Y = table(rows, outputs)
    return NPRegressor(effort="fast", random_state=0, device="cpu", **settings).fit(X, Y)


def test_a_reading_says_what_the_network_says():
    X, Y = (torch.from_numpy(part) for part in table(50, 1))
    X[3, 1] = torch.nan
    expected = predict_numbers(
        for_numbers(load_pretrained("tables")), X[:40], Y[:40, 0], X[40:], TableUse(num_orders=1)
    )
    found = read([(X[:40], Y[:40, 0])], [0], 0, CPU)([X[40:]])
    torch.testing.assert_close(found.mean, expected.mean, rtol=1e-4, atol=1.0)  # y is of the order of 5000
    hidden = Y[:40, 0].clone()
    hidden[:9] = torch.nan  # as good as not there
    some = [read([pair], [0], 0, CPU)([X[40:]]).mean for pair in ((X[:40], hidden), (X[9:40], hidden[9:]))]
    torch.testing.assert_close(*some, rtol=1e-4, atol=1.0)


def test_sets_and_orders_do_not_mix():
    X, Y = (torch.from_numpy(part) for part in table(60, 1))
    sets = [(X[:25], Y[:25, 0]), (X[25:50], 2 * Y[25:50, 0])]
    both = read(sets, [0, 3], 0, CPU)([X[50:], X[50:]])
    alone = [read([pair], [order], 0, CPU)([X[50:]]) for pair, order in zip(sets, [0, 3], strict=True)]
    torch.testing.assert_close(both.loc, torch.cat([one.loc for one in alone]), rtol=1e-4, atol=1.0)


def test_outputs_are_independent_given_the_member():
    torch.manual_seed(0)
    loc, scale, weights = (
        torch.randn(3, 4, 1, 5, 2),
        torch.rand(3, 4, 1, 5, 2) + 0.3,
        torch.randn(3, 4, 1, 5, 2),
    )
    found, y = IndependentPredictive(loc, scale, weights), torch.randn(1, 5, 2)
    w = weights.softmax(1)
    density = (w * torch.from_numpy(norm(loc, scale).pdf(y))).sum(1)  # [K, 1, T, D]
    torch.testing.assert_close(found.log_prob(y), density.prod(-1).mean(0).log().float())
    torch.testing.assert_close(found.log_prob_each(y), density.mean(0).log().float())
    torch.testing.assert_close(found.log_prob_joint(y), density.prod(-1).prod(-1).mean(0).log().float())
    mean = (w * loc).sum(1)
    torch.testing.assert_close(found.epistemic, mean.var(0, correction=0))
    draws = found.sample(4000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws.mean(0), mean.mean(0), atol=0.06, rtol=0)
    torch.testing.assert_close(draws.var(0), found.variance, atol=0.1, rtol=0.1)
    within = (draws > found.quantile(0.8)).float().mean(0)
    torch.testing.assert_close(within, torch.full_like(within, 0.2), atol=0.03, rtol=0)


def test_seats_go_to_whom_held_out_rows_prefer():
    # Rows are of two kinds, which the first two views tell; the best weights of these are the shares of the kinds.
    scores = torch.log(torch.tensor([[0.9, 1e-9, 0.9, 0.9], [1e-9, 0.9, 1e-9, 1e-9], [0.2, 0.2, 0.2, 0.2]]))
    scores = scores.repeat(1, 200)
    torch.testing.assert_close(mixture_weights(scores), torch.tensor([0.75, 0.25, 0.0]), atol=0.01, rtol=0)
    assert give_seats(scores, 8, [True] * 3, 3) == [0] * 6 + [1] * 2
    assert set(give_seats(scores, 8, [True, True, False], 1)) == {0, 2}  # a second network view is too dear


def test_few_labels_believe_the_better_view_and_many_a_mixture():
    # The second view is right where the first is wrong: once in ten rows.
    scores = torch.log(torch.tensor([[0.9] * 9 + [0.01], [0.5] * 9 + [0.99]], dtype=torch.float64))
    apart = [[0], [1]]
    few, many = (label_weights(scores.repeat(1, times), apart)[0] for times in (3, 60))
    stacked = mixture_weights(scores.repeat(1, 60))[0]
    shares = (scores.repeat(1, 3).sum(1) / 5).softmax(0)
    assert float(many) == pytest.approx(float(stacked), abs=0.05)
    assert abs(float(few - shares[0])) < abs(float(mixture_weights(scores.repeat(1, 3))[0] - shares[0]))


def test_settings_of_one_model_share_the_weight_of_one_view():
    # Two views are equally good; one of them comes with four settings.
    scores = torch.log(torch.tensor([[0.6, 0.8], [0.8, 0.6], [0.8, 0.6], [0.8, 0.6], [0.8, 0.6]])).repeat(
        1, 9
    )
    weights = label_weights(scores, [[0], [1, 2, 3, 4]])
    torch.testing.assert_close(weights, torch.tensor([0.5] + [0.125] * 4))
    views = ["columns", "components", "linear", "very loose linear", "kernel", "narrow kernel"]
    assert families_of(views) == [[0], [1], [2, 3], [4, 5]]


def test_the_stretch_is_that_of_the_noise():
    generator = torch.Generator().manual_seed(0)
    y = 3 * torch.randn(400, 1, generator=generator).double()
    shape = torch.zeros(1, 1, 1, 400, 1).double()
    assert float(fit_stretch(IndependentPredictive(shape, shape + 1, shape), y)) == pytest.approx(3, rel=0.15)


@pytest.mark.parametrize(("rows", "affordable", "folds"), [(2, 100, 2), (50, 1000, 3), (900, 300, 2)])
def test_folds_have_as_many_rows_each_and_share_the_classes(rows, affordable, folds):
    y = torch.arange(rows)[:, None] % 2
    split = split_rows(y, 1024, affordable, 3, seed=0)
    assert len(split.read) == folds
    for seen, held in zip(*split, strict=True):
        assert not set(seen) & set(held)
        assert rows < 4 or abs(float(y[held].double().mean()) - 0.5) < 0.1
    assert len(np.unique(split.held)) == split.held.size
    assert split.held.size >= min(rows, 2 * affordable) - folds  # labels are all held out, in turn
    if rows > affordable:
        assert len(split_rows(y.double(), 1024, affordable, 3, seed=0)) == 1


def test_a_large_table_with_many_outputs_is_trained_on_with_a_line():
    X = np.random.default_rng(0).normal(size=(1100, 2))
    Y = np.stack([np.sin(X[:, 0] + k) + X[:, 1] for k in range(5)], 1)
    quick = {"max_steps": 20, "n_replicas": 1, "width": 8, "random_state": 0, "device": "cpu"}
    with pytest.warns(UserWarning, match="y has 5 outputs and 1100 rows: networks are trained"):
        trained = NPRegressor(**quick).fit(X, Y)
    assert trained.recipe_ is not None
    assert np.isfinite(trained.predict(X[:3])).all()
    for rows, outputs in ((1100, 1), (90, 5)):
        asked = NPRegressor(random_state=0, device="cpu").fit(X[:rows], Y[:rows, :outputs])
        assert asked.recipe_ is None


def test_the_network_is_shown_gaps_and_codes():
    frame = pd.DataFrame({"a": [1.0, np.nan, 3.0, 4.0], "town": ["x", "y", "z", "x"]})
    est = NPRegressor()
    x = est._read_inputs(frame, reset=True)
    layout = Layout.of(est.encoding_, est.filling_)
    np.testing.assert_array_equal(layout.shown(x), [[1, 0], [np.nan, 1], [3, 2], [4, 0]])
    filled = fit_view("filled", layout, x, x[:, 0])(x)
    np.testing.assert_array_equal(
        filled, [[1, 0, 0], [3, 1, 1], [3, 2, 0], [4, 0, 0]]
    )  # the median, and a flag
    assert "filled" in PanelProblem(layout, 0, CPU).views()
    assert "filled" not in PanelProblem(Layout(1, (), ()), 0, CPU).views()
    with pytest.warns(UserWarning, match="was not there in training"):
        strange = est._read_inputs(pd.DataFrame({"a": [2.0], "town": ["q"]}), reset=False)
    np.testing.assert_array_equal(layout.shown(strange), [[2, np.nan]])


def test_of_many_columns_those_that_matter_are_shown():
    x = torch.randn(300, 50, generator=torch.Generator().manual_seed(0)).double()
    y = x[:, 41] + x[:, 7].square()
    assert set(relevance(x, y).topk(2).indices.tolist()) == {7, 41}
    shown = fit_view("columns", Layout(50, (), ()), x, y)(x)
    assert shown.shape == (300, 32)
    assert all(any(torch.equal(x[:, c], shown[:, i]) for i in range(32)) for c in (7, 41))


def test_what_lies_outside_of_the_training_is_said_and_served():
    X, _ = table(60)
    wide = np.concatenate([X, np.random.default_rng(0).normal(size=(60, 40))], 1)
    with pytest.warns(UserWarning, match="43 columns and the pretrained network reads 32"):
        fitted = NPRegressor(effort="fast", random_state=0).fit(wide, X[:, 0])
    assert fitted.score(wide, X[:, 0]) > 0.8
    many = np.arange(60) // 5
    with pytest.warns(UserWarning, match="12 classes and the pretrained network tells 10 apart"):
        groups = NPClassifier(effort="fast", random_state=0).fit(many[:, None] + 0.1 * X[:, :1], many)
    assert groups.score(many[:, None], many) > 0.8
    np.testing.assert_allclose(groups.predict_proba(X[:4, :1]).sum(1), 1)


@pytest.mark.parametrize("kind", ["regressor", "classifier"])
def test_a_folder_names_the_network_and_refuses_another(tmp_path, kind):
    X, y = labels(40) if kind == "classifier" else table(40)
    fitted = (NPClassifier if kind == "classifier" else NPRegressor)(effort="fast", random_state=0).fit(X, y)
    path = fitted.save(tmp_path / "model")
    assert sum(file.stat().st_size for file in path.iterdir()) < 100_000
    again = type(fitted).load(path, device="cpu")
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    np.testing.assert_array_equal(again.ood_score(X), fitted.ood_score(X))
    record = json.loads((path / "estimator.json").read_text())
    record["network"]["sha256"] = "0" * 64
    del record["sha256"]["estimator.json"]
    record["sha256"]["estimator.json"] = files.digest_of_record(record)
    (path / "estimator.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"weights are not those of dsvnp.*fit again"):
        type(fitted).load(path)


def test_answers_agree_with_each_other_and_do_not_depend_on_company():
    fitted = fit()
    X, Y = table(20, seed=1)
    found = fitted.predict_dist(X)
    low, high = found.interval(0.9)
    np.testing.assert_allclose(found.cdf(high) - found.cdf(low), 0.9, atol=1e-6)
    np.testing.assert_allclose(found.aleatoric + found.epistemic, found.variance)
    assert (found.epistemic > 0).any()
    for row in (0, 19):
        np.testing.assert_allclose(fitted.predict(X[row : row + 1])[0], found.mean[row], rtol=1e-9)
    np.testing.assert_allclose(fitted.condition(*table(60)).predict(X), found.mean, rtol=1e-5)
    assert fitted.sample_y(X, 9).shape == (20, 2, 9)
    assert set(fitted.validation_) == {"neural process", "mean predictor", "ridge"}
    assert (
        fitted.evaluate(X, Y).summary["neural process"]["nll"] < fitted.validation_["mean predictor"]["nll"]
    )
    with pytest.warns(UserWarning, match="there is no context"):
        nothing = fitted.predict(X[:2], context=(X[:1], np.full((1, 2), np.nan)))
    np.testing.assert_allclose(nothing, np.broadcast_to(table(60)[1].mean(0), (2, 2)))


def test_a_large_table_is_predicted_from_near_rows():
    fitted = fit(rows=400, outputs=1, max_context=64)
    assert fitted.ensemble_.leaves == 2
    X, Y = table(50, 1, seed=2)
    assert fitted.score(X, Y) > 0.5
    order = np.random.default_rng(0).permutation(50)
    np.testing.assert_allclose(fitted.predict(X[order]), fitted.predict(X)[order], rtol=1e-4)


def test_contexts_of_boxes_have_fewer_rows_where_views_are_compared(monkeypatch):
    read = []
    monkeypatch.setattr(choosing, "Leaves", lambda *given: read.append(given[-1]) or Leaves(*given))
    fitted = fit(rows=700, outputs=1, max_context=600)
    assert read == [256]
    boxes = []
    monkeypatch.setattr(panel, "Leaves", lambda *given: boxes.append(given[-1]) or Leaves(*given))
    fitted.predict(table(3, 1)[0])
    assert boxes == [512]


def test_boxes_are_cut_where_y_changes_and_hold_their_rows():
    x = torch.rand(1000, 6, generator=torch.Generator().manual_seed(0)).double()
    boxes = Leaves(x, (x[:, 4] > 0.5).double() + 0.1 * x[:, 2], number=4, most=400)
    assert len(boxes.contexts) == 4
    assert boxes.cuts[0][:2] == (0, 4)
    where = boxes.assign(x)
    assert where.bincount().tolist() == [250] * 4
    for box, context in enumerate(boxes.contexts):
        assert len(context) == 400
        assert set((where == box).nonzero()[:, 0].tolist()) <= set(context.tolist())
    assert Leaves(torch.ones(9, 2).double(), torch.arange(9.0), 4, 5).cuts == []  # nothing to cut at


def test_refining_keeps_what_held_out_rows_prefer():
    settings = {"refine": True, "n_replicas": 2, "max_steps": 5, "width": 16}
    fitted = fit(outputs=1, **settings)
    ours, other = fitted.validation_["neural process"]["nll"], fitted.validation_["trained"]["nll"]
    assert ours <= other
    assert fitted.recipe_ is None
    assert "without training" in fitted.how_it_predicts


def test_rows_that_are_new_together_are_held_out_together():
    y, groups, time = torch.zeros(60, 1), np.arange(60) % 6, np.random.default_rng(0).permutation(60) * 1.0
    by_group = split_once(HoldOut(groups=groups), y, 30, 0)
    assert by_group.read.shape == (1, 30)
    assert not set(groups[by_group.read[0]]) & set(groups[by_group.held[0]])
    by_time = split_once(HoldOut(time=time), y, 100, 0)
    assert time[by_time.read].max() < time[by_time.held].min()
    assert len(by_time.held[0]) == 15  # a quarter


def test_a_fit_judges_itself_by_new_groups_where_a_user_names_them():
    rng = np.random.default_rng(0)
    groups = np.arange(90) % 9
    X, y = groups[:, None] + 0.01 * rng.normal(size=(90, 1)), rng.permutation(9)[groups] * 1.0
    by_chance, by_group = (
        NPRegressor(effort="fast", random_state=0).fit(X, y, groups=named).validation_["neural process"]
        for named in (None, groups)
    )
    assert by_chance["rmse"] < 1 < by_group["rmse"]  # what a new group has, no other tells


def test_members_that_read_together_say_what_each_says_alone():
    X, Y = (torch.from_numpy(part) for part in table(40, 1))
    X = torch.cat(
        [X, (X[:, :1] > 0).double(), (X[:, :1] <= 0).double()], 1
    )  # a category, of which one column is shown
    problem = PanelProblem(Layout(3, (2,), ()), 0, CPU)
    members = [Member(*each) for each in (("columns", 1), ("residuals", 0), ("components", 2), ("linear", 0))]
    groups = asked_together([*members, members[0]])
    assert groups == [members[:3], members[3:]]
    told = [(X[:32], Y[:32, 0])] * 3
    together = consult(members[:3], told, problem)([X[32:]] * 3)
    for index, member in enumerate(members[:3]):
        alone = consult([member], told[:1], problem)([X[32:]])
        for found, expected in zip(together.arrays(), alone.arrays(), strict=True):
            torch.testing.assert_close(found[index : index + 1], expected, rtol=1e-4, atol=1e-3)


def test_few_cells_are_read_and_answered_by_one_thread_and_many_by_all(monkeypatch):
    seen = []
    for name in ("__init__", "__call__"):
        original = getattr(Reading, name)
        monkeypatch.setattr(
            Reading,
            name,
            lambda *given, original=original: (seen.append(torch.get_num_threads()), original(*given))[1],
        )
    X, y = table(60, 1)
    many = np.repeat(X, FEW_TOKENS // X.size + 1, axis=0)
    torch.set_num_threads(2)
    try:
        model = NPRegressor(random_state=0).fit(X, y)  # a Gaussian process among its views
        model.ensemble_ = replace(model.ensemble_, members=((Member("columns"),),))
        model.predict(X)
        assert set(seen) == {1}
        seen.clear()
        model.predict(many)
        model.condition(many, np.repeat(y, len(many) // len(y), axis=0)).predict(X[:1])
        assert (seen, torch.get_num_threads()) == ([2, 2, 1], 2)
    finally:
        torch.set_num_threads(1)
