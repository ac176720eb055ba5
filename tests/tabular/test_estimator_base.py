"""What both kinds of estimator share: members that break are left out, and answers that say nothing are said to."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fitted import QUICK, labels, table

from dsvnp import NPClassifier, NPRegressor
from dsvnp.tabular.fitting import _unbroken
from dsvnp.tabular.folds import parts_of_table
from dsvnp.tabular.recipe import Recipe


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


def test_a_member_that_broke_is_left_out(monkeypatch):
    X, Y = table(rows=40)
    settings = Recipe.settings
    rates = {"learning_rate": (1e-2, 1e30, 1e-2)}

    def uneven(self, device):
        return settings(Recipe(**{**vars(self), **rates}), device)

    monkeypatch.setattr(Recipe, "settings", uneven)
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
