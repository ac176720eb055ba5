"""The panel's Gaussian process: scikit-learn's likelihood and predictions, and what it finds in rows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fitted import table
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, DotProduct, Matern, WhiteKernel

from dsvnp import NPRegressor
from dsvnp.tabular.panel.consulting import GAUSSIAN, Member, PanelProblem, consult
from dsvnp.tabular.panel.gaussian_process import (
    JITTER,
    GaussianProcess,
    find_parameters,
    inverse_root,
    log_likelihood,
)
from dsvnp.tabular.panel.views import Layout

CPU = torch.device("cpu")
THETA = torch.tensor([0.3, -0.4, -1.1, -2.0, 0.2, 0.9, 1.4], dtype=torch.float64)


def rows(number=30, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(number, 3))
    return torch.from_numpy(x), torch.from_numpy(
        np.sin(2 * x[:, 0]) + x[:, 1] + 0.1 * rng.normal(size=number)
    )


def theirs(theta, x, y):
    """scikit-learn's process with the same kernel."""
    s, t, u, noise = theta[:4].exp().tolist()
    lengths = theta[4:].exp().numpy()
    line = u / len(lengths) * DotProduct(0.0, "fixed")
    kernel = s * RBF(lengths) + t * Matern(lengths, nu=2.5) + line + WhiteKernel(noise + JITTER)
    return GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(x.numpy(), y.numpy())


def test_the_marginal_likelihood_is_that_of_scikit_learn():
    x, y = rows()
    value, gradient = log_likelihood(THETA, x, y, torch.arange(3))
    assert value == pytest.approx(theirs(THETA, x, y).log_marginal_likelihood_value_, rel=1e-9)
    for groups in (torch.arange(3), torch.tensor([0, 1, 1])):  # two columns may share a length-scale
        theta = THETA[: 5 + int(groups.max())]
        _, gradient = log_likelihood(theta, x, y, groups)
        slope = approx_fprime(
            theta.numpy(),
            lambda at, groups=groups: log_likelihood(torch.from_numpy(at), x, y, groups)[0],
            1e-6,
        )
        np.testing.assert_allclose(gradient, slope, rtol=1e-3, atol=1e-3)


def test_predictions_are_those_of_scikit_learn():
    x, y = rows(40)
    fitted = GaussianProcess.fit(x, y, range(3))
    inputs = fitted.inputs.transform
    mean, std = fitted.unit
    reference = theirs(fitted.theta, inputs(x), (y - mean) / std)
    new, _ = rows(12, seed=1)
    expected, deviation = reference.predict(inputs(new).numpy(), return_std=True)
    found, function, noise = fitted(new)
    np.testing.assert_allclose(found, float(mean) + float(std) * expected, rtol=1e-7)
    np.testing.assert_allclose((function**2 + noise**2).sqrt(), float(std) * deviation, rtol=1e-7)


def test_the_search_finds_what_matters():
    x, y = rows(200)
    theta = find_parameters(x, (y - y.mean()) / y.std(), torch.arange(3))
    lengths = theta[4:].exp()
    assert lengths[0] < 2  # a wave
    assert lengths[1:].min() > 10  # a line, which has a kernel of its own, and nothing
    assert theta[2] > -1.5
    assert float((theta[3] / 2).exp() * y.std()) == pytest.approx(0.1, rel=0.25)


def test_rows_without_an_output_do_not_count_and_a_constant_is_predicted():
    x, y = rows(40)
    hidden = torch.where(torch.arange(40) < 9, torch.nan, y)
    for found, expected in zip(
        GaussianProcess.fit(x, hidden, range(3))(x),
        GaussianProcess.fit(x[9:], y[9:], range(3))(x),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)
    for number in (1, 5):
        mean, *_ = GaussianProcess.fit(x[:number], torch.full((number,), 7.0).double(), range(3))(x)
        torch.testing.assert_close(mean, torch.full_like(mean, 7.0))


def test_flags_share_the_length_scale_of_their_input():
    assert Layout(2, (3, 2), (1, 4)).sources == (0, 1, 2, 2, 2, 3, 3, 1, 2)


def test_a_pair_of_members_has_the_mean_and_the_variance_of_the_whole():
    x, y = rows(25)
    problem, new = PanelProblem(Layout(3, (), ()), 0, CPU), 3 * rows(9, seed=1)[0]
    members = [Member(GAUSSIAN, order) for order in range(3)]
    found = consult(members, [(x, y)] * 3, problem)([new] * 3)
    whole, pair = found.map(lambda array: array[:1]), found.map(lambda array: array[1:])
    torch.testing.assert_close(pair.mean, whole.mean)
    torch.testing.assert_close(pair.variance, whole.variance)
    _, function, noise = GaussianProcess.fit(x, y, range(3))(new)
    most = (function**2 + noise**2) / 2
    assert (function**2 > most).any()  # far away
    torch.testing.assert_close(pair.epistemic[0, :, 0], (function**2).minimum(most))


def test_a_smooth_function_gives_it_seats_which_a_folder_and_a_file_keep(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(70, 2))
    y = 50 * np.sin(9 * X[:, 0]) * X[:, 1] + rng.normal(size=70)
    estimator = NPRegressor(effort="fast", random_state=0).fit(X[:60], y[:60])
    assert GAUSSIAN in estimator.how_it_predicts
    again = NPRegressor.load(estimator.save(tmp_path / "model"), device="cpu")
    np.testing.assert_array_equal(again.predict(X[60:]), estimator.predict(X[60:]))
    pair = tuple(Member(GAUSSIAN, order) for order in (1, 2))
    estimator.ensemble_ = replace(estimator.ensemble_, members=(pair,))  # the network takes long to translate
    onnxruntime = pytest.importorskip("onnxruntime")
    path = estimator.to_onnx(tmp_path / "model.onnx")
    mean, std = estimator.predict(X[60:], return_std=True)
    found = dict(
        zip(
            ("mean", "std"),
            onnxruntime.InferenceSession(path).run(["mean", "std"], {"X": X[60:]}),
            strict=True,
        )
    )
    np.testing.assert_allclose(found["mean"][:, 0], mean, rtol=1e-5)
    np.testing.assert_allclose(found["std"][:, 0], std, rtol=1e-5)


def test_large_tables_are_read_in_part(monkeypatch):
    monkeypatch.setattr("dsvnp.tabular.panel.gaussian_process.MOST_ROWS", 50)
    X, Y = (torch.from_numpy(part) for part in table(200, 1))
    fitted = GaussianProcess.fit(X, Y[:, 0], range(3))
    assert fitted.x.shape == (50, 3)
    mean, *_ = fitted(X)
    assert float((mean - Y[:, 0]).square().mean().sqrt()) < 0.5 * float(Y.std())


@pytest.mark.parametrize("order", [-1, 3])
def test_a_member_has_one_of_three_orders(order):
    with pytest.raises(ValueError, match=f"has order 0, 1 or 2, got {order}"):
        Member(GAUSSIAN, order)


def test_the_inverse_root_is_that_of_the_matrix():
    a = torch.randn(40, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = a @ a.T + torch.eye(40, dtype=torch.float64)
    root = inverse_root(whole)
    assert torch.equal(root, root.tril())
    torch.testing.assert_close(root.T @ root, whole.inverse())
    torch.testing.assert_close(root @ whole @ root.T, torch.eye(40, dtype=torch.float64))
