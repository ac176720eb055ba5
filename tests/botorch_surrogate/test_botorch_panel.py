"""PanelLogEI: its Gaussian processes are BoTorch's, its weights follow the better view, its units are those of y."""

import warnings

import pytest
import torch

with warnings.catch_warnings():  # linear_operator compiles with what torch calls deprecated
    warnings.simplefilter("ignore")
    pytest.importorskip("botorch", reason="needs the extra botorch: pip install 'dsvnp[botorch]'")
    from botorch.acquisition.analytic import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood
    from torch.quasirandom import SobolEngine

    from dsvnp.botorch import NeuralProcessModel, PanelLogEI
    from dsvnp.botorch.panel import GaussianProcesses, NetworkViews, folds_of, stacked
    from dsvnp.botorch.warping import Warp
    from dsvnp.models import Architecture, make_model

pytestmark = pytest.mark.filterwarnings("ignore")


def points(count, dim=3, seed=0):
    return SobolEngine(dim, scramble=True, seed=seed).draw(count, dtype=torch.float64)


def values(x):
    return torch.sin(4 * x[:, :1]) + x[:, 1:2].square() - x[:, 1:2] * x[:, 2:]


def make(x, y):
    torch.manual_seed(0)
    network = make_model("tnp", Architecture(3, 1, likelihood="mixture", num_components=3)).double()
    return NeuralProcessModel(network, x, y)


@pytest.fixture(scope="module")
def data():
    x = points(16)
    return x, values(x)


@pytest.fixture(scope="module")
def botorch_gp(data):
    model = SingleTaskGP(*data)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def test_a_gaussian_process_is_that_of_botorch(data, botorch_gp):
    asked = points(9, seed=1).unsqueeze(1)
    expected = LogExpectedImprovement(botorch_gp, data[1].max())(asked)
    found = GaussianProcesses(data[0], data[1].unsqueeze(0)).log_improvement(asked)[0]
    torch.testing.assert_close(found, expected.detach(), rtol=2e-3, atol=2e-3)


def test_views_are_fitted_apart_from_each_other(data):
    x, y = data
    asked = points(9, seed=1).unsqueeze(1)
    other = Warp.of(y.flatten(), 0.1)(y)
    both = GaussianProcesses(x, torch.stack([y, other])).log_improvement(asked)
    alone = GaussianProcesses(x, other.unsqueeze(0)).log_improvement(asked)
    torch.testing.assert_close(both[1], alone[0], rtol=2e-3, atol=2e-3)


def test_leaving_out_equals_a_gaussian_process_without_those_points(data, botorch_gp):
    x, y = data
    rows = folds_of(torch.arange(16))  # five folds of three points
    found = GaussianProcesses(x, y.unsqueeze(0)).left_out(rows)[0]
    scale, shift = botorch_gp.outcome_transform.stdvs, botorch_gp.outcome_transform.means
    for number, out in enumerate(rows):
        keep = [i for i in range(16) if i not in out.tolist()]
        other = SingleTaskGP(x[keep], y[keep])
        other.load_state_dict(botorch_gp.state_dict())
        other.set_train_data(x[keep], ((y[keep] - shift) / scale).flatten(), strict=False)
        left = other.eval().posterior(x[out].unsqueeze(1), observation_noise=True)
        expected = torch.distributions.Normal(left.mean, left.variance.sqrt()).log_prob(y[out].unsqueeze(1))
        torch.testing.assert_close(
            found[3 * number : 3 * number + 3], expected.flatten().detach(), rtol=1e-2, atol=1e-2
        )


def test_a_network_is_asked_for_what_it_has_not_read(data):
    x, y = data
    views = torch.stack([y, 2 * y - 1])
    rows = folds_of(torch.arange(16))
    found = NetworkViews(make, x, views).left_out(rows)
    keep = [i for i in range(16) if i not in rows[1].tolist()]
    for view, outputs in enumerate(views):
        log_weights, mean, sigma = make(x[keep], outputs[keep]).mixture(x[rows[1]].unsqueeze(1))
        each = torch.distributions.Normal(mean, sigma).log_prob(outputs[rows[1]].unsqueeze(1))
        torch.testing.assert_close(found[view, 3:6], (log_weights + each).logsumexp(0).flatten())


def test_stacking_prefers_the_better_and_shares_between_those_that_complement_each_other():
    one = torch.tensor([[-1.0, -1.0, -1.0, -1.0], [-3.0, -3.0, -3.0, -3.0]])
    assert stacked(one)[0] > 0.999
    each = torch.tensor([[0.0, 0.0, -9.0, -9.0], [-9.0, -9.0, 0.0, 0.0]])
    torch.testing.assert_close(stacked(each), torch.tensor([0.5, 0.5]))


def test_a_warped_view_answers_in_units_of_y(data):
    x, y = data
    asked = (x[y.argmax()] + 0.1 * points(4, seed=2) - 0.05).unsqueeze(1)
    found = PanelLogEI(x, y, shares=[0.1])(asked)
    warp = Warp.of(y.flatten(), 0.1)
    model = SingleTaskGP(x, warp(y))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    at = model.posterior(asked)
    t = 1e-4 * torch.arange(50_000, dtype=torch.float64)  # ∫ P(warp(y) > warp(top + t)) dt
    above = torch.special.ndtr((at.mean[:, 0] - warp(y.max() + t)) / at.variance[:, 0].sqrt())
    expected = torch.trapezoid(above, dx=1e-4, dim=-1).log()
    torch.testing.assert_close(found.detach(), expected.detach(), rtol=1e-2, atol=1e-2)


def test_a_warp_wins_where_outputs_are_skewed_and_not_where_they_are_smooth():
    x = points(30)
    distance = (x - 0.4).norm(dim=-1, keepdim=True)
    skewed = PanelLogEI(x, -torch.exp(8 * distance)).weights
    assert skewed[1:].sum() > 0.9
    plain = PanelLogEI(x, values(x)).weights
    assert plain[1:].sum() < 0.1
    torch.testing.assert_close(plain.sum(), torch.tensor(1.0, dtype=torch.float64))


def test_the_panel_is_maximised_by_botorch_with_gradients(data):
    x, y = data
    bounds = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)
    for network, processes in ((None, True), (make, True), (make, False)):
        panel = PanelLogEI(x, y, network, gaussian_processes=processes)
        assert len(panel.weights) == 3 * (processes + (network is not None))
        new, value = optimize_acqf(panel, bounds, q=1, num_restarts=2, raw_samples=16, options={"maxiter": 3})
        assert new.shape == (1, 3)
        assert value >= panel(points(4, seed=3).unsqueeze(1)).min()


def test_too_few_or_misshapen_observations_are_refused():
    with pytest.raises(ValueError, match="at least 3 observations, got 2"):
        PanelLogEI(points(2), values(points(2)))
    with pytest.raises(ValueError, match=r"expected X \[n, d\] and Y \[n, 1\]"):
        PanelLogEI(points(4), values(points(4))[:, 0])


def test_equal_outputs_and_repeated_points_are_no_error():
    x = torch.cat([points(4), points(4)])
    for y in (torch.ones(8, 1, dtype=torch.float64), values(x)):
        assert PanelLogEI(x, y)(points(3, seed=1).unsqueeze(1)).isfinite().all()
