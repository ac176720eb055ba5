"""What both kinds of estimator share: members that break are left out, and answers that say nothing are said to."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fitted import QUICK, labels, regressor, table

from dsvnp import NPClassifier, NPRegressor
from dsvnp.tabular.base import BaseNP
from dsvnp.tabular.rows.folds import parts_of_table
from dsvnp.tabular.trained.fitting import _unbroken
from dsvnp.tabular.trained.recipe import FitRecipe


@pytest.mark.parametrize("steps", [1, 30])
@pytest.mark.parametrize("kind", [NPRegressor, NPClassifier])
def test_a_fit_that_broke_down_altogether_is_an_error(kind, steps):
    rows = table(rows=40) if kind is NPRegressor else labels(rows=40)
    broken = kind(**{**QUICK, "max_steps": steps, "learning_rate": 1e30})
    with pytest.raises(
        ValueError, match=r"in all 2 replicas: .* at a learning rate of 1e\+30; choose a lower"
    ):
        broken.fit(*rows)
    assert not hasattr(broken, "ensemble_")


@pytest.mark.parametrize("how", [{}, QUICK])
def test_a_fit_inside_autocast_is_refused(how):
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(RuntimeError, match=r"torch\.autocast is on"):
        NPRegressor(**how).fit(*table(rows=40))


def test_a_member_that_broke_is_left_out(monkeypatch):
    X, Y = table(rows=40)
    settings = FitRecipe.settings
    rates = {"learning_rate": (1e-2, 1e30, 1e-2)}

    def uneven(self, device):
        return settings(FitRecipe(**{**vars(self), **rates}), device)

    monkeypatch.setattr(FitRecipe, "settings", uneven)
    with pytest.warns(RuntimeWarning, match="1 of 3 replicas are left out") as caught:
        fitted = NPRegressor(**{**QUICK, "max_steps": 8, "n_replicas": 3}).fit(X, Y)
    assert {warning.filename for warning in caught} == {__file__}
    assert len(fitted.ensemble_.replicas) == 2
    assert np.isfinite(fitted.predict(X, return_std=True)).all()
    # The members that are left are those that learned with the rate of the others, each with its own fold.
    rates["learning_rate"] = 1e-2
    whole = NPRegressor(**{**QUICK, "max_steps": 8, "n_replicas": 3}).fit(X, Y)
    for left, row in zip(fitted.ensemble_.replicas, (0, 2), strict=True):
        for name, value in left.model.state_dict().items():
            assert torch.equal(value, whole.ensemble_.replicas[row].model.state_dict()[name])
    parts = parts_of_table(torch.from_numpy(X), torch.from_numpy(Y), 3, fitted.noise_seed_)
    assert len(fitted.ensemble_.calibration) == sum(parts[row].questions[0].y.numel() for row in (0, 2))


def test_a_member_without_a_finite_validation_is_left_out():
    state = {"stop_step": torch.tensor([-1, 5, -1]), "best_metric": torch.tensor([0.5, 0.5, float("inf")])}
    fleet = SimpleNamespace(state=state, settings=SimpleNamespace(learning_rate=1e-3))
    with pytest.warns(RuntimeWarning, match="2 of 3 replicas are left out"):
        assert _unbroken(fleet) == [0]


def test_the_context_of_a_table_are_rows_of_it_at_random():
    X, Y = table(rows=160)
    X = X[np.argsort(X[:, 0])]
    contexts = [
        NPRegressor(**{**QUICK, "max_steps": 3, "random_state": seed}).fit(X, Y).context_ for seed in (0, 1)
    ]
    rows = [[int(np.flatnonzero((row == X).all(1))[0]) for row in x.numpy()] for x, _ in contexts]
    for (_, y), found in zip(contexts, rows, strict=True):
        np.testing.assert_allclose(y.numpy(), Y[found])
        assert len(found) == len(set(found)) < 160
        assert min(found) < 40
        assert max(found) > 120
    assert set(rows[0]) != set(rows[1])


@pytest.mark.parametrize(("model", "draws"), [("cnp", 4), ("nn", 4), ("dsvnp", 1)])
def test_a_single_answer_has_no_score_of_strangeness(model, draws):
    X, Y = table(rows=40)
    quick = {**QUICK, "max_steps": 3, "n_draws": draws}
    one = NPRegressor(**{**quick, "model": model, "n_replicas": 1}).fit(X, Y)
    with pytest.warns(
        UserWarning, match="ood_score is the same for every row.*use more n_replicas"
    ) as caught:
        assert len(np.unique(one.ood_score(X))) == 1
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "rows that were held out")
        assert len(np.unique(NPRegressor(**{**quick, "model": model}).fit(X, Y).ood_score(X))) > 1


def test_rows_are_held_out_by_what_a_user_names(monkeypatch):
    X, Y = table(rows=40, outputs=1)
    Y[3] = np.nan  # such a row does not count, nor does its group
    held = []
    train = BaseNP._train
    monkeypatch.setattr(
        BaseNP, "_train", lambda self, parts, *rest: [held.append(parts), train(self, parts, *rest)]
    )
    quick = NPRegressor(**{**QUICK, "max_steps": 4})
    quick.fit(X, Y[:, 0], time=np.datetime64("2024-01-01") + np.arange(40)[::-1])
    np.testing.assert_array_equal(held[0][0].questions[0].x.numpy(), np.delete(X, 3, 0)[:8])  # a fifth of 39
    groups = ["a", "b", "c", "d"] * 10
    quick.fit(X, Y[:, 0], groups=groups)
    for part in held[1]:
        asked = {groups[int(np.flatnonzero((row == X).all(1))[0])] for row in part.questions[0].x.numpy()}
        seen = {groups[int(np.flatnonzero((row == X).all(1))[0])] for row in part.tables[0][0].numpy()}
        assert not asked & seen
    for wrong, message in (
        ({"groups": groups, "time": range(40)}, "by groups or by time, got both"),
        ({"groups": groups[1:]}, "groups has 39 values but X has 40 rows"),
        ({"groups": ["a"] * 40}, "groups has 1 group"),
        ({"time": [1.0] * 40}, "at least 2 different ones"),
    ):
        with pytest.raises(ValueError, match=message):
            quick.fit(X, Y[:, 0], **wrong)


def test_tasks_are_measured_together():
    fitted, (X, Y) = regressor(), table(rows=30, seed=5)
    contexts = [(X[:5], Y[:5]), (X[5:9], Y[5:9])]
    together = fitted.evaluate_tasks(
        [(X[10:14], Y[10:14], contexts[0]), (X[14:], Y[14:], contexts[1]), (X[:2], Y[:2] * np.nan, None)]
    )
    apart = [fitted.evaluate(X[10:14], Y[10:14], contexts[0]), fitted.evaluate(X[14:], Y[14:], contexts[1])]
    costs = [each.summary["neural process"]["nll"] for each in apart]
    assert together.summary["neural process"]["nll"] == pytest.approx((4 * costs[0] + 16 * costs[1]) / 20)
