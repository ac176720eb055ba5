"""Folds, corrections and the summary, each against a plain calculation."""

import warnings

import numpy as np
import pytest
import torch
from fitted import QUICK, classifier, labels, regressor, table
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, mean_squared_error

from dsvnp import NPClassifier, NPRegressor
from dsvnp.models import MODELS
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, LowRankPredictive, concatenate
from dsvnp.tabular.rows.folds import HoldOut, Question, parts_of_table, parts_of_tables
from dsvnp.tabular.rows.scaling import ClassScaling, stretched
from dsvnp.tabular.trained import fitting
from dsvnp.tabular.trained.correcting import Answer, fit_damping, fit_pool, fit_spread
from dsvnp.tabular.trained.ensemble import Draws, dissent_of, draws_of, fixed_noise, sharpened
from dsvnp.tabular.trained.fitting import error_of, is_clear
from dsvnp.tabular.trained.recipe import FitRecipe, recipe_for_table, recipes_for_tasks
from dsvnp.training import Fleet


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("num_rows", "replicas"), [(2, 5), (11, 1), (57, 3), (103, 5), (64, 7)])
def test_each_replica_holds_out_a_fold_of_its_own(num_rows, replicas):
    x = torch.arange(num_rows, dtype=torch.float64)[:, None]
    parts = parts_of_table(x, 2 * x, replicas, seed=0)
    assert len(parts) == replicas
    assert len({len(part.tables[0][0]) for part in parts}) == 1  # a fleet needs as many rows each
    held = []
    for part in parts:
        (trained, outputs), (question,) = part.tables[0], part.questions
        torch.testing.assert_close(outputs, 2 * trained)
        seen, asked = set(trained.flatten().tolist()), set(question.x.flatten().tolist())
        assert not seen & asked
        assert seen | asked == set(range(num_rows))
        assert set(question.context[0].flatten().tolist()) <= seen
        held += [asked]
    if num_rows >= replicas >= 5:
        assert set().union(*held) == set(range(num_rows))
        assert sum(map(len, held)) == num_rows


def test_groups_are_held_out_whole():
    groups = np.array([0] * 30 + [1] * 5 + [2] * 9 + [3] * 6)
    x = torch.from_numpy(np.stack([groups, np.arange(50)], 1)).double()
    parts = parts_of_table(x, x[:, :1], 5, seed=0, by=HoldOut(groups=groups))
    assert len({len(part.tables[0][0]) for part in parts}) == 1
    asked = [set(part.questions[0].y.flatten().tolist()) for part in parts]
    assert set().union(*asked) == {0, 1, 2, 3}
    for part, held in zip(parts, asked, strict=True):
        assert not held & set(part.tables[0][1].flatten().tolist())


@pytest.mark.parametrize("time", [np.arange(50.0) % 10, np.arange(50.0), np.repeat([0.0, 1.0], [2, 48])])
def test_the_latest_rows_are_held_out(time):
    x = torch.from_numpy(time)[:, None]
    for part in parts_of_table(x, x, 3, seed=0, by=HoldOut(time=time)):
        learned, asked = part.tables[0][0], part.questions[0].x
        assert learned.max() < asked.min()
        assert len(learned) + len(asked) == 50


def test_folds_of_labels_have_all_classes():
    y = torch.tensor([0] * 40 + [1] * 10)[:, None]
    for part in parts_of_table(torch.zeros(50, 1, dtype=torch.float64), y, 5, seed=0):
        assert part.questions[0].y.flatten().bincount().tolist() == [8, 2]


def test_tables_are_held_out_whole_and_answered_from_some_of_their_rows():
    tables = [(torch.full((40, 1), float(i)), torch.arange(40.0)[:, None] + 100 * i) for i in range(60)]
    parts = parts_of_tables(tables, 5, seed=0)
    held = [{float(q.x[0]) for q in part.questions} for part in parts]
    assert all(len(part.tables) == 48 for part in parts)
    assert set().union(*held) == set(range(60))
    for part, out in zip(parts, held, strict=True):
        assert not out & {float(x[0]) for x, _ in part.tables}
    sizes = []
    for question in [q for part in parts for q in part.questions]:
        context, asked = question.context[1].flatten().tolist(), question.y.flatten().tolist()
        assert sorted(context + asked) == (torch.arange(40.0) + 100 * question.x[0]).tolist()
        sizes.append(len(context))
    assert min(sizes) == 2
    assert max(sizes) <= 30
    assert 5 <= np.median(sizes) <= 12  # few rows are as well represented as many


def test_small_and_large_tables_are_asked_and_read():
    tables = [(torch.zeros(n, 1), torch.arange(float(n))[:, None]) for n in (2, 2, 3, 4, 700, 900)]
    for part in parts_of_tables(tables, 6, seed=0):
        assert all(len(q.context[0]) >= 1 and len(q.x) >= 1 for q in part.questions)
        assert max(len(x) for x, _ in part.tables) == 512


def answers(bend):
    """Held-out rows of a fitted regressor whose predictions were bent."""
    fitted = regressor(1)
    X = torch.from_numpy(table(rows=3000, seed=9)[0])
    replica = fitted.ensemble_.replicas[0]
    linear, unit = replica.linear(X), replica.outputs.scale
    noise = rows(3000, 1, seed=1)
    loc, sigma = linear + unit * rows(3000, 1, seed=2), 0.5 * unit * rows(3000, 1, seed=3).exp()
    predictive = GaussianPredictive(loc[None, None, None], sigma[None, None, None])
    return Answer(predictive, replica.outputs, linear, bend(linear, loc, sigma, unit, noise))


def test_the_damping_is_found():
    half = answers(lambda linear, loc, sigma, unit, noise: linear + 0.5 * (loc - linear) + 0.1 * unit * noise)
    assert float(fit_damping([half])["damping"]) == pytest.approx(0.5, abs=0.01)
    against = answers(lambda linear, loc, sigma, unit, noise: linear - (loc - linear))
    assert float(fit_damping([against])["damping"]) == 0
    more = answers(lambda linear, loc, sigma, unit, noise: linear + 2 * (loc - linear))
    assert float(fit_damping([more])["damping"]) == 1


@pytest.mark.parametrize(("power", "stretch"), [(1.0, 1.0), (0.5, 2.0), (0.0, 0.5)])
def test_the_stretch_and_power_are_found(power, stretch):
    true = answers(
        lambda lin, loc, sigma, unit, noise: loc + unit * stretch * (sigma / unit) ** power * noise
    )
    found = fit_spread([true])
    assert float(found["power"]) == pytest.approx(power, abs=0.26)
    typical = 0.5 ** float(found["power"]) * float(found["stretch"])
    assert typical == pytest.approx(stretch * 0.5**power, rel=0.15)


def test_the_temperature_is_that_of_a_logistic_regression_on_the_log_odds():
    logits = 6 * rows(2000, 1)
    y = (
        torch.rand(2000, generator=torch.Generator().manual_seed(1)) < torch.sigmoid(logits[:, 0] / 3)
    ).long()
    logs = torch.cat([torch.zeros(2000, 1), logits], 1).log_softmax(-1)
    outputs = classifier().ensemble_.replicas[0].outputs
    answer = Answer(CategoricalPredictive(logs[None, None, None]), outputs, logs[:, :0], y[:, None])
    slope = LogisticRegression(C=np.inf, fit_intercept=False).fit(logits.numpy(), y.numpy()).coef_[0, 0]
    assert float(fit_pool([answer])["temperature"]) == pytest.approx(1 / slope, rel=0.08)


def test_a_stretched_error_does_not_depend_on_the_stretch():
    y, loc, sigma = rows(500, 2), 0.3 * rows(1, 1, 1, 500, 2, seed=1), rows(1, 1, 1, 500, 2, seed=2).exp()
    first = error_of(GaussianPredictive(loc, sigma), y)
    torch.testing.assert_close(error_of(GaussianPredictive(loc, 7 * sigma), y), first)
    ratio = ((y - loc[0, 0, 0]) / sigma[0, 0, 0]).square().mean(0).sqrt()
    best = -torch.from_numpy(norm(loc[0, 0, 0], ratio * sigma[0, 0, 0]).logpdf(y)).mean()
    assert float(first) == pytest.approx(float(best))


def test_a_sharpened_mixture_has_the_variance_of_its_own_error():
    # Members err by a common and by an own part; v is what each errs by itself.
    generator = torch.Generator().manual_seed(0)
    common, own = 1.0, 0.4
    truth = torch.randn(1, 1, 4000, 1, generator=generator)
    means = common * torch.randn(1, 1, 4000, 1, generator=generator) + own * torch.randn(
        5, 1, 4000, 1, generator=generator
    )
    v = common**2 + own**2 + 1  # their errors, and the noise of y
    parts = [GaussianPredictive(mean[None, None], torch.full((1, 1, 1, 4000, 1), v**0.5)) for mean in means]
    dissent = dissent_of(parts)
    torch.testing.assert_close(dissent[0, :, 0], torch.from_numpy(means[:, 0, :, 0].numpy().var(0)))
    made = concatenate([sharpened(part, dissent) for part in parts], dim=0)
    error = (made.mean - truth[0]).square().mean()
    assert float(made.variance.mean()) == pytest.approx(float(error), rel=0.03)
    far = sharpened(parts[0], torch.full_like(dissent, 100.0))
    torch.testing.assert_close(far.scale.square(), parts[0].scale.square() / 4)


def test_corrections_keep_weights_and_the_dependence_between_outputs():
    shape = (2, 3, 1, 4, 2)
    loc, noise, factor = rows(*shape), rows(*shape, seed=1).exp(), rows(*shape, 1, seed=2)
    part = LowRankPredictive(loc, noise, factor, rows(*shape[:4], seed=3))
    factors = rows(*shape, seed=4).exp()
    made = stretched(part, factors, 0.5)
    torch.testing.assert_close(made.log_weights, part.log_weights)
    torch.testing.assert_close(made.loc, 0.5 * loc)
    torch.testing.assert_close(made.noise, factors * noise)
    torch.testing.assert_close(made.factor, factors[..., None] * factor)
    assert isinstance(sharpened(part, dissent_of([part, part])), LowRankPredictive)


@pytest.mark.parametrize("model", MODELS)
def test_draws_of_a_prediction_come_in_pairs_of_opposite_sign(model):
    made = FitRecipe(model=model, width=8, dim_lat=4).make(2, 1, "gaussian")
    noise = fixed_noise(made, Draws(6, 2, 0), torch.zeros(1))
    for name, value in noise.items():
        assert value.shape[0] == 6
        torch.testing.assert_close(value[3:], 1 - value[:3] if name.startswith("dropout") else -value[:3])
    assert all(
        value.shape[1] == 2 and value.shape[-2] == 1 for name, value in noise.items() if name == "local"
    )
    assert draws_of(made, 7) == ((4, 2) if "local" in noise else (7, 1))
    assert draws_of(made, 1) == (1, 1)


def test_the_summary_measures_each_row_by_the_replica_that_had_not_seen_it():
    fitted = regressor(2)
    X, Y = (torch.from_numpy(array) for array in table())
    summary = fitted.validation_
    assert list(summary) == ["neural process", "mean predictor", "ridge"]
    parts = parts_of_table(X, Y, 2, fitted.noise_seed_)
    mean = [
        replica.predict(
            q.context_of(fitted.ensemble_.num_context), q.x, Draws(16, 1, fitted.noise_seed_)
        ).mean[0]
        for replica, part in zip(fitted.ensemble_.replicas, parts, strict=True)
        for q in part.questions
    ]
    y = torch.cat([part.questions[0].y for part in parts])
    assert summary["neural process"]["mse"] == pytest.approx(mean_squared_error(y, torch.cat(mean)), rel=1e-9)
    assert summary["neural process"]["mse"] < summary["ridge"]["mse"] < summary["mean predictor"]["mse"]
    assert summary["mean predictor"]["mse"] == pytest.approx(float(Y.var()), rel=0.5)
    assert len(fitted.ensemble_.calibration) == y.numel()
    inside = np.mean(np.abs(2 * fitted.ensemble_.calibration.numpy() - 1) <= 0.9)
    assert summary["neural process"]["coverage_90"] == pytest.approx(inside)


def test_baselines_are_the_mean_and_the_average_of_the_replicas_ridges():
    fitted = regressor(2)
    X, Y = (torch.from_numpy(array) for array in table())
    found = fitted.ensemble_.baselines(X)
    ridge = np.mean([replica.linear(X).numpy() for replica in fitted.ensemble_.replicas], axis=0)
    np.testing.assert_allclose(found["ridge"].mean[0], ridge)
    np.testing.assert_allclose(found["mean predictor"].mean[0], Y.mean(0).expand(len(Y), 2), rtol=0.02)
    np.testing.assert_allclose(found["mean predictor"].stddev[0, 0], Y.std(0), rtol=0.05)
    assert list(classifier().ensemble_.baselines(X[:, :2])) == ["mean predictor", "logistic regression"]


def test_the_summary_of_classes():
    summary = classifier().validation_
    _, y = labels()
    assert summary["neural process"]["accuracy"] > 0.9
    shares = np.unique(y, return_counts=True)[1] / len(y)
    expected = log_loss(y, np.tile(shares, (len(y), 1)))
    assert summary["mean predictor"]["nll"] == pytest.approx(expected, rel=0.02)


def test_a_recipe_grows_with_the_table_and_takes_changes():
    sizes = [recipe_for_table(n, "balanced", {}).num_steps for n in (10, 1000, 10_000, 10**7)]
    assert sizes == sorted(sizes)
    assert sizes[-1] <= 3000
    assert recipe_for_table(10, "balanced", {"width": 16, "model": "np", "num_steps": None}).width == 16
    recipes = recipes_for_tasks(40, "fast", {"model": "auto"})
    assert [(recipe.model, recipe.rotary > 0) for recipe in recipes] == [
        ("tnp", True),
        ("tnp", False),
        ("attnnp", False),
    ]
    (asked,) = recipes_for_tasks(40, "fast", {"model": "np", "width": 16})
    assert (asked.model, asked.width, asked.num_points) == ("np", 16, 32)
    assert isinstance(classifier().ensemble_.replicas[0].outputs, ClassScaling)


# --- what a fit takes from the rows it held out ---


@pytest.mark.parametrize("sign", [1, -1])
def test_the_context_has_the_size_that_suits_held_out_rows_best(monkeypatch, sign):
    seen = [0]

    def context_of(self, size):
        seen[0] = size
        return self.context[0][:size], self.context[1][:size]

    monkeypatch.setattr(Question, "context_of", context_of)
    monkeypatch.setattr(fitting, "error_of", lambda *_: torch.tensor(float(sign * seen[0])))
    monkeypatch.setattr(fitting, "CONTEXTS", (8, 16, 32))
    fitted = NPRegressor(**{**QUICK, "model": "cnp", "max_steps": 2}).fit(*table(outputs=1, rows=100))
    assert fitted.ensemble_.num_context == (8 if sign == 1 else 32)


def test_the_weights_are_those_of_the_best_validation(monkeypatch):
    asked = []
    replica = Fleet.replica

    def spy(self, row, best=False):
        asked.append(best)
        return replica(self, row, best)

    monkeypatch.setattr(Fleet, "replica", spy)
    NPRegressor(**{**QUICK, "model": "cnp", "max_steps": 4}).fit(*table(outputs=1))
    assert asked[-2:] == [True, True]
    assert not any(asked[:-2])


def test_a_fit_that_learned_nothing_says_so_and_one_that_did_does_not():
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(80, 3)), rng.normal(size=80)
    quick = {**QUICK, "max_steps": 4, "model": "cnp"}
    with pytest.warns(
        UserWarning, match=r"rows .* not predicted clearly better than by the mean of y \(NLL"
    ) as caught:
        NPRegressor(**quick).fit(X, noise)
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(UserWarning, match="than by the shares of the classes .* more rows or other columns"):
        NPClassifier(**quick).fit(X, noise > 0)
    tasks = [(X[i : i + 8], noise[i : i + 8]) for i in range(0, 80, 8)]
    with pytest.warns(UserWarning, match="tables that were held out .* or more tables") as caught:
        NPRegressor(**quick).fit_tasks(tasks)
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NPRegressor(**quick).fit(X, X[:, 0] + 0.5 * noise)


def test_a_gain_is_clear_beyond_two_standard_errors():
    y, noise = rows(400, 1), rows(400, 1, seed=1)
    prior = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    outputs = regressor(1).ensemble_.replicas[0].outputs

    def clear(share, groups=None):
        loc = (share * y + (1 - share) * noise)[None, None, None]
        answer = Answer(GaussianPredictive(loc, torch.ones_like(loc)), outputs, y, y)
        return is_clear([answer], prior, groups)

    assert clear(1.0)
    assert clear(0.6)
    assert not clear(0.3)
    assert clear(1.0, [200, 200])
    assert not clear(1.0, [400])  # a single table tells nothing of others


def test_training_stops_when_held_out_rows_gain_nothing_and_the_best_step_is_kept(monkeypatch):
    errors = iter([3.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    validate = fitting._held_out_error
    monkeypatch.setattr(fitting, "_held_out_error", lambda *args: validate(*args) * 0 + next(errors))
    quick = {**QUICK, "max_steps": 1000, "n_replicas": 1, "width": 8}
    fitted = NPRegressor(**{**quick, "model": "cnp"}).fit(*table(rows=40, outputs=1))
    assert fitted.best_steps_ == [50]
    assert next(errors, None) is None  # five validations after the best one, then it stops


def test_effort_decides_steps_and_members():
    X, Y = table(rows=40, outputs=1)
    quick = {name: value for name, value in QUICK.items() if name not in ("n_replicas", "max_steps")}
    fast = NPRegressor(**{**quick, "model": "cnp"}, effort="fast").fit(X, Y)
    assert (fast.recipe_.num_steps, len(fast.ensemble_.replicas)) == (160, 3)
    with pytest.raises(ValueError, match=r"unknown effort 'fats'\. Did you mean 'fast'"):
        NPRegressor(effort="fats").fit(X, Y)


def test_what_is_learned_of_noise_is_not_believed():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), rng.normal(size=80)
    fitted = NPRegressor(**{**QUICK, "model": "cnp", "max_steps": 400}).fit(X, y)
    assert all(float(replica.outputs.damping.max()) < 0.5 for replica in fitted.ensemble_.replicas)


def test_a_classifier_of_noise_is_made_unsure():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), rng.integers(0, 2, size=80)
    fitted = NPClassifier(**{**QUICK, "model": "cnp", "max_steps": 400}).fit(X, y)
    assert all(float(replica.outputs.temperature.max()) != 1 for replica in fitted.ensemble_.replicas)
    assert np.abs(fitted.predict_proba(X) - 0.5).mean() < 0.3
