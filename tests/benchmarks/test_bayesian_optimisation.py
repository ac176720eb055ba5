"""The benchmark of Bayesian optimisation: its functions, its methods, and runs that resume."""

import sys
import warnings

import pytest
import torch

with warnings.catch_warnings():  # linear_operator compiles with what torch calls deprecated
    warnings.simplefilter("ignore")
    pytest.importorskip("botorch", reason="needs the extra botorch: pip install 'dsvnp[botorch]'")
    from benchmarks.bayesian_optimisation.__main__ import load, main, make
    from benchmarks.bayesian_optimisation.family import FamilySettings, SeenFunctions, known_values
    from benchmarks.bayesian_optimisation.methods import Search
    from benchmarks.bayesian_optimisation.panel import Panel
    from benchmarks.bayesian_optimisation.problems import branins, first_points, hartmanns, problem
    from dsvnp.botorch import PanelLogEI
    from dsvnp.botorch.panel import SHARES
    from dsvnp.botorch.warping import Warp

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("make", [branins, hartmanns])
def test_the_maximum_of_a_family_s_function_is_one(make):
    function = make(3)
    points = torch.rand(2000, function.dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = function(points).flatten()
    assert values.max() <= function.best < values.max() + 5 * values.std()
    assert not torch.equal(make(4)(points), function(points))


def test_the_warp_keeps_the_order_and_stretches_what_is_near_the_best():
    y = torch.linspace(-100, 0, 50, dtype=torch.float64)
    warped = Warp.of(y)(torch.cat([y, torch.tensor([0.5, 1.0])]))  # beyond the best that was seen
    assert (warped.diff() > 0).all()
    assert warped[49] - warped[48] > 10 * (warped[1] - warped[0])
    places = torch.tensor([-50.0, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(Warp.of(y)(places).sum(), places)
    torch.testing.assert_close(Warp.of(y).log_slope(places).exp(), slope)


def test_a_panel_proposes_a_point_of_the_cube_where_its_improvement_is_large():
    x = first_points(2, 0, 9)
    y = problem("branin", 0)(x)
    torch.manual_seed(0)
    found = Panel(Search(raw_samples=64, num_restarts=2, max_steps=10))(x, y)
    assert found.shape == (1, 2)
    assert ((found >= 0) & (found <= 1)).all()
    others = PanelLogEI(x, y)(first_points(2, 5, 64).unsqueeze(1))
    assert PanelLogEI(x, y)(found.unsqueeze(1)) >= others.max()


def test_a_method_names_the_warps_of_its_panel():
    assert make("panel", "levy5", None, Search(), FamilySettings()).shares == SHARES
    assert make("panel:plain,0.3", "levy5", None, Search(), FamilySettings()).shares == (None, 0.3)


def test_a_pretrained_network_joins_the_panel():
    x = first_points(2, 0, 6)
    for processes in (False, True):
        method = Panel(Search(raw_samples=8, num_restarts=1, max_steps=1), "tables", processes)
        assert method(x, problem("branin", 0)(x)).shape == (1, 2)


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
    rows = load(tmp_path)
    assert [row["seed"] for row in rows] == [0, 1]
    assert len(rows[0]["regret"]) == 30
    assert rows[0]["regret"] == sorted(rows[0]["regret"], reverse=True)
    assert "| random search |" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "regret.svg").is_file()
