"""The benchmark of Bayesian optimisation: its functions, its weights of two surrogates, and runs that resume."""

import json
import sys
import warnings

import pytest
import torch

with warnings.catch_warnings():  # linear_operator compiles with what torch calls deprecated
    warnings.simplefilter("ignore")
    pytest.importorskip("botorch", reason="needs the extra botorch: pip install 'dsvnp[botorch]'")
    from botorch.models import SingleTaskGP

    from benchmarks.bayesian_optimisation.__main__ import main
    from benchmarks.bayesian_optimisation.family import FamilySettings, SeenFunctions, known_values
    from benchmarks.bayesian_optimisation.methods import Search, fitted, left_out_by_gp, stacked
    from benchmarks.bayesian_optimisation.panel import Panel, Seat, around_best, folds_of, whole
    from benchmarks.bayesian_optimisation.problems import branins, first_points, hartmanns, problem
    from benchmarks.bayesian_optimisation.warping import Warp
    from dsvnp.botorch import NeuralProcessModel
    from dsvnp.models import Architecture, make_model

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("make", [branins, hartmanns])
def test_the_maximum_of_a_family_s_function_is_one(make):
    function = make(3)
    points = torch.rand(2000, function.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = function(points).flatten()
    assert values.max() <= function.best < values.max() + 5 * values.std()
    assert not torch.equal(make(4)(points), function(points))


def test_leaving_out_equals_a_gaussian_process_without_those_points():
    function = problem("branin", 0)
    x = first_points(2, 0, 12)
    y = function(x)
    model = fitted(x, y)
    rows = folds_of(torch.arange(12))  # five folds of two points
    found = left_out_by_gp(model, rows)
    scale, shift = model.outcome_transform.stdvs, model.outcome_transform.means
    for number, out in enumerate(rows):
        keep = [i for i in range(12) if i not in out.tolist()]
        other = SingleTaskGP(x[keep], y[keep])
        other.load_state_dict(model.state_dict())
        other.set_train_data(x[keep], ((y[keep] - shift) / scale).flatten(), strict=False)
        left = other.eval().posterior(x[out].unsqueeze(1), observation_noise=True)
        expected = torch.distributions.Normal(left.mean, left.variance.sqrt()).log_prob(y[out].unsqueeze(1))
        torch.testing.assert_close(
            found[2 * number : 2 * number + 2], expected.flatten(), rtol=1e-4, atol=1e-4
        )


def test_stacking_prefers_the_better_and_shares_between_those_that_complement_each_other():
    one = torch.tensor([[-1.0, -1.0, -1.0, -1.0], [-3.0, -3.0, -3.0, -3.0]])
    assert stacked(one)[0] > 0.999
    each = torch.tensor([[0.0, 0.0, -9.0, -9.0], [-9.0, -9.0, 0.0, 0.0]])
    torch.testing.assert_close(stacked(each), torch.tensor([0.5, 0.5]))


def test_the_warp_keeps_the_order_and_stretches_what_is_near_the_best():
    y = torch.linspace(-100, 0, 50, dtype=torch.float64)
    warped = Warp.of(y)(torch.cat([y, torch.tensor([0.5, 1.0])]))  # beyond the best that was seen
    assert (warped.diff() > 0).all()
    assert warped[49] - warped[48] > 10 * (warped[1] - warped[0])
    places = torch.tensor([-50.0, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(Warp.of(y)(places).sum(), places)
    torch.testing.assert_close(Warp.of(y).log_slope(places).exp(), slope)


def make(x, y):
    torch.manual_seed(0)
    network = make_model("tnp", Architecture(2, 1, likelihood="mixture", num_components=3)).double()
    return NeuralProcessModel(network, x, y)


def test_a_seat_reads_its_box_and_answers_in_units_of_y():
    x = torch.cat([first_points(2, 0, 12), 0.3 + 0.02 * first_points(2, 1, 10)])
    y = -(x - 0.31).square().sum(-1, keepdim=True)
    box = around_best(x, y, least=10)
    assert float(box.sides.max()) == pytest.approx(0.03125)
    assert torch.equal(box.holds(x), torch.arange(22) >= 12)
    warp = Warp.of(y.flatten())
    seat, plain = Seat(make, box, warp), Seat(make, whole(2), None)
    rows = folds_of(torch.arange(12, 22))
    found, others = seat.left_out(x, y, rows), plain.left_out(x, y, rows)
    assert found.shape == others.shape == (10,)
    keep = [i for i in range(12, 22) if i not in rows[1].tolist()]
    model = make(box.unit(x[keep]), warp(y[keep]))
    log_weights, mean, sigma = model.mixture(box.unit(x[rows[1]]).unsqueeze(1))
    each = torch.distributions.Normal(mean, sigma).log_prob(warp(y[rows[1]]).unsqueeze(1))
    density = (log_weights + each).logsumexp(0).flatten() + warp.log_slope(y[rows[1]].flatten())
    torch.testing.assert_close(found[2:4], density)
    asked = torch.stack([x[20] + 0.001, x[0]]).unsqueeze(1)
    log_ei = seat.log_improvement(x, y)(asked)
    assert log_ei[1] == -torch.inf  # outside the box
    log_weights, mean, sigma = make(box.unit(x[12:]), warp(y[12:])).mixture(box.unit(asked[:1]))
    step = 1e-4  # ∫ P(warp(y) > warp(top + t)) dt
    t = step * torch.arange(200_000, dtype=torch.float64)
    above = 1 - torch.special.ndtr((warp(y.max() + t).reshape(-1, 1) - mean.flatten()) / sigma.flatten())
    expected = torch.trapezoid((above * log_weights.flatten().exp()).sum(-1), dx=step).log()
    torch.testing.assert_close(log_ei[0], expected, rtol=1e-3, atol=1e-3)


def test_a_panel_proposes_a_point_of_the_cube():
    x = first_points(2, 0, 9)
    for with_gp in (False, True):
        found = Panel(make, Search(round_points=24), with_gp=with_gp)(x, problem("branin", 0)(x))
        assert found.shape == (1, 2)
        assert ((found >= 0) & (found <= 1)).all()


def test_tasks_of_seen_functions_hold_points_of_one_function_each():
    settings = FamilySettings(
        num_functions=3, num_points=64, batch_size=5, task_points=32, shift=0, stretch=0
    )
    x, y = known_values(branins, settings)
    source = SeenFunctions(x, y, settings)
    generator = torch.Generator().manual_seed(0)
    uniforms = {
        name: torch.rand(shape, generator=generator) for name, shape in source.uniform_shapes().items()
    }
    task = source.batch(source.static(), uniforms, torch.tensor(0))
    for row, number in enumerate((uniforms["function"] * 3).long().tolist()):
        apart = (task.x_target[row].unsqueeze(1) - x[number].float()).norm(dim=-1)
        distance, nearest = apart.min(1)
        assert distance.max() < 1e-6
        torch.testing.assert_close(task.y_target[row, :, 0], y[number].float()[nearest])


def test_a_run_is_written_once_and_resumes(tmp_path, monkeypatch):
    command = ["bo", "--problems", "branin", "--methods", "random", "--out", str(tmp_path), "--seeds"]
    for seeds in ("1", "2", "2"):
        monkeypatch.setattr(sys, "argv", [*command, seeds])
        main()
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["seed"] for row in rows] == [0, 1]
    assert len(rows[0]["regret"]) == 30
    assert rows[0]["regret"] == sorted(rows[0]["regret"], reverse=True)
    assert "| random search |" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "regret.svg").is_file()
