"""Many small tables: that a fit learns to read a new one, whatever sizes the tables have."""

import os
import signal
import warnings

import numpy as np
import pytest
import torch
from fitted import QUICK, labels, offset_sines, sines, table

from dsvnp import NPClassifier, NPRegressor
from dsvnp.sources.own_units import OwnUnits
from dsvnp.tabular import row_distribution
from dsvnp.tabular.trained import fitting
from dsvnp.tabular.trained.recipe import EvenGaussian, WaveEmbedding
from dsvnp.training import Fleet


def sensors(count, seed, rows=None):
    """Readings y = A sin(x + φ) + noise of sensors with an amplitude, a phase and a noise of their own."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        x = rng.uniform(0, 10, (rows or rng.integers(20, 61), 1))
        amplitude, phase, noise = rng.uniform(0.5, 3), rng.uniform(0, 2 * np.pi), rng.uniform(0.05, 0.3)
        out.append((x, amplitude * np.sin(x[:, 0] + phase) + noise * rng.normal(size=len(x))))
    return out


def test_readings_of_new_sensors_are_predicted_from_a_few_of_them():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = NPRegressor(random_state=0, device="cpu", max_steps=300, n_replicas=1).fit_tasks(
            sensors(200, 0)
        )
    assert fitted.recipe_.model in ("tnp", "attnnp")
    errors = {5: [], 10: [], 20: []}
    for X, y in sensors(40, 1, rows=50):
        for known, squares in errors.items():
            mean = fitted.predict(X[20:], context=(X[:known], y[:known]))
            squares.append((mean - y[20:]) ** 2)
    rmse = {known: np.sqrt(np.mean(squares)) for known, squares in errors.items()}
    assert rmse[5] < 0.45  # a Gaussian process for each sensor: 1.2; the mean: 1.3
    assert rmse[10] < 0.33
    assert rmse[20] < 0.29
    assert fitted.validation_["neural process"]["nll"] < fitted.validation_["mean predictor"]["nll"] - 1


def test_functions_of_a_new_sensor_are_whole_and_differ(tmp_path):
    """A sine that was seen three times may go on in many ways: neighbours go together, and so do all readings."""
    fitted = NPRegressor(random_state=0, device="cpu", max_steps=300, n_replicas=1, model="tnp")
    fitted.fit_tasks(sensors(200, 0))
    assert fitted.recipe_.functions > 0
    grid, gains = np.linspace(0, 10, 50)[:, None], []
    for X, y in sensors(20, 1, rows=40):
        found = fitted.predict_dist(X[3:], context=(X[:3], y[:3]))
        outputs = torch.from_numpy(y[3:])[None, :, None]
        together = found.predictive.log_prob_joint(outputs)
        gains.append(float(together - found.predictive.log_prob(outputs).sum()) / len(y[3:]))
    assert np.mean(gains) > 0.05
    context = X[:3], y[:3]
    found = fitted.predict_dist(grid, context=context)
    functions = found.sample(400, 0, noise=False)
    assert len(np.unique(functions[0])) == 400
    np.testing.assert_allclose(functions.mean(1), found.mean, atol=0.15 * found.std.mean())
    spread = functions.std(1)
    np.testing.assert_allclose(
        spread**2, fitted.uncertainty(grid, context=context).epistemic, rtol=0.3, atol=0.01
    )
    steps = np.diff(functions, axis=0).std(1)
    assert steps.mean() < 0.5 * spread.mean()  # as independent draws they would be 1.4 times the spread
    expected = np.cov(found.sample(4000, 0))
    np.testing.assert_allclose(found.covariance(), expected, atol=0.15 * expected.max())
    fitted.save(tmp_path / "model")
    again = NPRegressor.load(tmp_path / "model").predict_dist(grid, context=context)
    np.testing.assert_array_equal(again.sample(3, 0), found.sample(3, 0))


def test_a_function_of_many_rows_is_one(monkeypatch):
    fitted = NPRegressor(**{**QUICK, "max_steps": 30, "model": "tnp", "n_replicas": 1}).fit_tasks(sines(24))
    X = np.linspace(-2, 2, 60)[:, None]
    whole = fitted.predict_dist(X, context=sines(1)[0])
    drawn = [whole.sample(5, 0, noise) for noise in (True, False)]
    covariance = whole.covariance()
    monkeypatch.setattr(row_distribution, "CHUNK", 7)
    parts = fitted.predict_dist(X, context=sines(1)[0])
    for noise, expected in zip((True, False), drawn, strict=True):
        np.testing.assert_allclose(parts.sample(5, 0, noise), expected, rtol=1e-9)
    np.testing.assert_allclose(parts.covariance(), covariance, rtol=1e-9)


def test_held_out_tables_choose_the_model(monkeypatch):
    errors, of_own_units = {"tnp": 2.0, "attnnp": 1.0, "np": 0.0}, [0.5]
    validate = fitting.Training._validate

    def told(self, fleet):
        own = of_own_units[0] if self.recipe.own_units else 0.0
        return validate(self, fleet) * 0 + errors[self.recipe.model] + own

    monkeypatch.setattr(fitting.Training, "_validate", told)
    quick = {**QUICK, "max_steps": 12, "model": "auto"}
    assert NPRegressor(**quick).fit_tasks(sines(6)).recipe_.model == "attnnp"
    errors["attnnp"] = 3.0
    fitted = NPRegressor(**quick).fit_tasks(sines(6))
    assert (fitted.recipe_.model, fitted.recipe_.num_steps) == ("tnp", 12)
    assert not fitted.recipe_.own_units
    of_own_units[0] = -0.5
    assert not NPRegressor(**{**quick, "model": "np"}).fit_tasks(sines(6)).recipe_.own_units  # nothing to try
    fitted = NPRegressor(**{**quick, "model": "np"}).fit_tasks(offset_sines(6))
    assert (fitted.recipe_.model, fitted.recipe_.own_units) == ("np", True)
    of_own_units[0] = 0.5
    assert not NPRegressor(**{**quick, "model": "np"}).fit_tasks(offset_sines(6)).recipe_.own_units


def test_sensors_with_offsets_and_ranges_of_their_own_are_read_in_their_units():
    fitted = NPRegressor(random_state=0, device="cpu", max_steps=300, n_replicas=1, model="tnp")
    fitted.fit_tasks(offset_sines(120, rows=40))
    assert fitted.recipe_.own_units
    shares = []
    for X, y in offset_sines(30, seed=9, rows=40):
        mean = fitted.predict(X[10:], context=(X[:10], y[:10]))
        shares.append(np.mean((mean - y[10:]) ** 2) / np.var(y))
    assert np.median(shares) < 0.1  # of the variance about the task's mean


def test_own_units_are_taken_from_all_digits(monkeypatch):
    seen, original = [], OwnUnits.fit

    def fit(tables):
        seen.extend(part.dtype for table in tables for part in table)
        return original(tables)

    monkeypatch.setattr(OwnUnits, "fit", fit)
    NPRegressor(**{**QUICK, "max_steps": 2, "model": "cnp"}).fit_tasks(offset_sines(6))
    assert set(seen) == {torch.float64}


def test_tables_may_differ_widely_in_size():
    rng = np.random.default_rng(0)
    tasks = [(x := rng.normal(size=(rows, 2)), x[:, 0]) for rows in (2, 3, 5, 40, 900)]
    fitted = NPRegressor(**{**QUICK, "max_steps": 6}).fit_tasks(tasks)
    assert np.isfinite(fitted.predict(tasks[0][0], context=tasks[-1])).all()


def test_classes_have_tasks_too():
    X, y = labels(rows=120)
    tasks = [(X[i : i + 12], y[i : i + 12]) for i in range(0, 120, 12)]
    fitted = NPClassifier(**{**QUICK, "max_steps": 60}).fit_tasks(tasks)
    assert np.mean(fitted.predict(X, context=tasks[0]) == y) > 0.9


def test_even_weights_leave_the_best_answer_and_missing_outputs_where_they_are():
    even = EvenGaussian(2, 0.02, 0.5)
    raw = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    y = torch.randn(7, 2, dtype=torch.float64)
    y[0, 1] = torch.nan
    mean, scale = even.components(raw)
    by_hand = torch.distributions.Normal(mean, scale).log_prob(y.nan_to_num()) * scale.detach()
    by_hand = torch.where(y.isnan(), 0.0, by_hand).sum(-1)
    torch.testing.assert_close(even.log_prob(raw, y), by_hand)
    (gradient,) = torch.autograd.grad(even.log_prob(raw, y).sum(), raw)
    assert gradient[0, 1] == gradient[0, 3] == 0
    expected = (y - mean) / scale  # of μ: (y − μ) / σ² times the weight σ
    torch.testing.assert_close(gradient[1:, :2], expected[1:])


def test_waves_are_sines_of_each_input():
    embedding = WaveEmbedding(2, 8, num_waves=6)
    assert embedding.frequencies.tolist() == pytest.approx([0.5, 1, 2, 4, 8, 16])
    x = torch.randn(3, 2)
    waves = [f(x[:, i] * w) for f in (torch.sin, torch.cos) for i in range(2) for w in embedding.frequencies]
    h = torch.nn.functional.silu(embedding.mix(torch.cat([x, torch.stack(waves, 1)], 1)))
    torch.testing.assert_close(embedding(x), h)


@pytest.mark.parametrize("tasks", [False, True])
def test_a_signal_keeps_what_was_learned(monkeypatch, tasks):
    original = Fleet.step

    def stopped(fleet):
        original(fleet)
        if fleet.num_steps_taken == 2:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Fleet, "step", stopped)
    quick = NPRegressor(**{**QUICK, "max_steps": 60, "model": "tnp" if tasks else "dsvnp"})
    with pytest.warns(
        RuntimeWarning, match=r"stopped by SIGINT after step 2 of \d+; the fit keeps"
    ) as caught:
        fitted = quick.fit_tasks(sines(6)) if tasks else quick.fit(*table(rows=40))
    assert {warning.filename for warning in caught} == {__file__}
    X = sines(1)[0][0] if tasks else table(rows=5)[0]
    context = sines(1)[0] if tasks else None
    assert np.isfinite(fitted.predict(X, context=context)).all()
    assert set(fitted.best_steps_) == {2}
    assert fitted.recipe_.functions == 0
