"""What every ambiguity problem must do: shapes, one generator, fresh tasks, and a truth that is a density."""

import math

import pytest
import torch

from dsvnp.paper.ambiguity.cartpole import KickedCartPole
from dsvnp.paper.ambiguity.curves import Contamination
from dsvnp.paper.ambiguity.problems import CONTROLS, PROBLEMS
from dsvnp.sources.gp import GPPrior

CPU = torch.device("cpu")
EACH = pytest.mark.parametrize("name", PROBLEMS)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def mean_and_error(values: torch.Tensor) -> tuple[float, float]:
    """Mean over tasks of values [B, T] and its standard error."""
    means = values.mean(1)
    return float(means.mean()), float(means.std()) / math.sqrt(len(means))


@EACH
def test_samples_have_the_moments_and_the_entropy_of_the_truth(name):
    problem, count = PROBLEMS[name], 4000
    x, _, parameters = problem.draw(1, 3, generator(1))
    x = x[:, :1].expand(1, count, -1)
    at = {key: value[:, :1].expand(1, count, -1) for key, value in parameters.items()}
    y = problem.sample(x, at, generator(2))
    mean, covariance = (each[0, 0] for each in problem.moments(x, at))
    error = covariance.diagonal().div(count).sqrt()
    assert ((y[0].mean(0) - mean).abs() < 5 * error).all()
    if name != "contamination":  # tails of 2.1 degrees of freedom: a sample's variance is no guide
        torch.testing.assert_close(
            y[0].T.cov(correction=0).reshape(covariance.shape), covariance, rtol=0.15, atol=2e-3
        )
    # E[p(y') / p(y)] is 1 for y from p and any density p': here p' is p, moved a little.
    moved = problem.log_density(x, y + 0.01, at) - problem.log_density(x, y, at)
    assert float(moved.exp().mean()) == pytest.approx(1.0, abs=0.1)


@EACH
def test_tasks_to_test_on(name):
    problem = PROBLEMS[name]
    batches = problem.tasks(25, generator(), batch_size=10, num_points=12, context=(3, 8))
    assert [known.task.num_tasks for known in batches] == [10, 10, 5]
    for known in batches:
        known.task.check()
        assert known.task.x_target.shape[1:] == (12, problem.dim_x)
        assert known.task.y_target.shape[1:] == (12, problem.dim_y)
        assert known.task.y_target.dtype == torch.float32
        assert all(len(value) == known.task.num_tasks for value in known.parameters.values())
        assert problem.truth(known).shape == problem.diagonal(known).shape == known.task.mask_target.shape
    sizes = torch.cat([known.task.mask_context.sum(1) for known in batches])
    assert 3 <= sizes.min() < sizes.max() <= 8
    again = problem.tasks(25, generator(), batch_size=10, num_points=12, context=(3, 8))
    assert torch.equal(batches[2].task.y_target, again[2].task.y_target)
    other = problem.tasks(5, generator(1), num_points=12, context=(3, 8))
    assert not torch.equal(batches[0].task.y_target[:5], other[0].task.y_target)


@EACH
def test_a_source_uses_each_task_once(name, monkeypatch):
    monkeypatch.setattr("dsvnp.paper.ambiguity.problem.CHUNK", 5)  # three draws for one pool
    problem = PROBLEMS[name]
    source = problem.source(batch_size=4, num_points=12, context=(3, 8), refresh_every=3)
    pool = source.pool(generator(), CPU)
    assert pool["x"].shape == (12, 12, problem.dim_x)
    assert pool["y"].shape == (12, 12, problem.dim_y)
    assert pool["y"][:, 0].unique(dim=0).shape[0] == 12
    tasks = [source.batch(pool, {"context": torch.rand(4)}, torch.tensor(step)) for step in range(3)]
    assert torch.equal(torch.cat([task.y_target for task in tasks]), pool["y"])
    assert torch.equal(pool["y"], source.pool(generator(), CPU)["y"])


@EACH
def test_moments_are_those_of_draws(name):
    problem = PROBLEMS[name]
    if name == "contamination":  # with 2.1 degrees of freedom a mean of squares does not settle
        problem = Contamination(GPPrior(contamination=0.15, degrees_of_freedom=9.0))
    x, y, parameters = problem.draw(400, 50, generator())
    mean, covariance = problem.moments(x, parameters)
    residual = (y - mean).flatten(0, 1)
    outer = residual[:, :, None] * residual[:, None, :]
    gap = outer - covariance.flatten(0, 1)
    error = gap.flatten(1).std(0) / math.sqrt(len(gap))
    assert (gap.mean(0).flatten().abs() < 5 * error).all()
    assert (residual.mean(0).abs() < 5 * residual.std(0) / math.sqrt(len(residual))).all()


@EACH
def test_no_gaussian_is_better_than_the_truth(name):
    problem = PROBLEMS[name]
    [known] = problem.tasks(50, generator(), num_points=20, context=(3, 8))
    truth, diagonal, full = (float(f(known).mean()) for f in (problem.truth, problem.diagonal, problem.full))
    assert truth >= full - 1e-9
    if name != "contamination":  # one output, heavy tails: few points decide a Gaussian's value
        assert full >= diagonal - 1e-9


@pytest.mark.parametrize(
    ("name", "truth", "diagonal", "full"),
    [
        ("branches", 2.47, 0.00, 0.99),
        ("inverse-kinematics", 2.46, -3.27, None),
        ("hidden-pose", 7.30, 0.5, None),
    ],
)
def test_the_protocols_figures(name, truth, diagonal, full):
    problem = PROBLEMS[name]
    [known] = problem.tasks(250, generator(3), batch_size=250, num_points=20, context=(3, 8))
    for function, figure in [
        (problem.truth, truth),
        (problem.diagonal, diagonal),
        (problem.full, full),
    ]:
        if figure is not None:
            value, error = mean_and_error(function(known))
            assert abs(value - figure) < 3.5 * error + 0.005


def test_tests_may_see_other_parameters_than_training():
    problem = PROBLEMS["kicked-cartpole"]
    assert isinstance(problem, KickedCartPole)
    [seen] = problem.tasks(60, generator(), num_points=5, context=(3, 4), unseen=False)
    [unseen] = problem.tasks(60, generator(), num_points=5, context=(3, 4))
    both = [
        {tuple(pair) for pair in known.parameters["environment"][:, 0].tolist()} for known in (seen, unseen)
    ]
    assert both[0] == set(problem.environments)
    assert not both[0] & both[1]


def test_controls_are_problems_with_one_output():
    assert set(CONTROLS) <= set(PROBLEMS)
    assert {problem.dim_y for problem in CONTROLS.values()} == {1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context": (3, 51)}, "context sizes must satisfy 0 ≤ min_context ≤ max_context ≤ 50"),
        ({"refresh_every": 0}, "refresh_every must be at least 1, got 0"),
    ],
)
def test_bad_sizes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        PROBLEMS["branches"].source(**change)
