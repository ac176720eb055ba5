"""Arms: both elbows reach the hand's place, markers lie on the arm, and the density is the integral it says."""

import math

import pytest
import torch
from scipy import stats

from dsvnp.paper.ambiguity.arms import (
    HiddenPose,
    InverseKinematics,
    elbow_solutions,
    markers,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def two_link_hand(angles: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    q1, q12 = angles[..., 0], angles.sum(-1)
    l1, l2 = lengths.unbind(-1)
    return torch.stack([l1 * q1.cos() + l2 * q12.cos(), l1 * q1.sin() + l2 * q12.sin()], -1)


def test_both_solutions_reach_the_place():
    x, _, parameters = InverseKinematics().draw(100, 20, generator())
    lengths = parameters["lengths"].expand(100, 20, 2)
    up, down = elbow_solutions(x, lengths)
    for angles in (up, down):
        assert torch.allclose(two_link_hand(angles, lengths), x, atol=1e-12)
    assert (up[..., 1] > 0).all()
    assert torch.equal(down[..., 1], -up[..., 1])


def test_places_keep_from_the_limits_of_reach():
    x, _, parameters = InverseKinematics().draw(300, 50, generator())
    l1, l2 = parameters["lengths"].unbind(-1)
    assert 0.3 <= l1.min() < 0.32 < 0.98 < l2.max() <= 1
    r = x.square().sum(-1).sqrt()
    share = (r - (l1 - l2).abs() - 0.1) / (l1 + l2 - 0.2 - (l1 - l2).abs())
    assert stats.kstest(share.flatten().numpy(), "uniform").pvalue > 1e-3
    angle = torch.atan2(x[..., 1], x[..., 0])
    assert stats.kstest(angle.flatten().numpy(), "uniform", (-math.pi / 2, math.pi)).pvalue > 1e-3


def test_elbows_are_up_or_down_and_noise_is_added():
    x, y, parameters = InverseKinematics().draw(200, 50, generator())
    up, down = elbow_solutions(x, parameters["lengths"])
    is_up = y[..., 1] > 0
    assert abs(float(is_up.double().mean()) - 0.5) < 4 * 0.5 / 100
    residual = (y - torch.where(is_up[..., None], up, down)).flatten()
    assert float(residual.std()) == pytest.approx(0.05, rel=0.05)


def test_markers_by_hand():
    quarter = torch.tensor(math.pi / 2)
    lengths = torch.tensor([1.0, 0.6, 0.5])
    # Shoulder straight ahead, elbow a quarter turn up, wrist a quarter turn back.
    found = markers(torch.tensor(0.0), quarter, -quarter, lengths)
    assert torch.allclose(found, torch.tensor([1.0, 0.0, 1.0, 0.3, 1.0, 0.6, 1.5, 0.6]), atol=1e-6)


def test_a_pose_lies_on_its_arm():
    _, y, parameters = HiddenPose(noise=0.0).draw(100, 20, generator())
    elbow, middle, wrist, hand = y.unflatten(-1, (4, 2)).unbind(-2)
    lengths = parameters["lengths"]
    for link, length in zip((elbow, wrist - elbow, hand - wrist), lengths.unbind(-1), strict=True):
        assert torch.allclose(link.norm(dim=-1), length.expand(100, 20))
    assert torch.allclose(middle, (elbow + wrist) / 2)


def test_angles_fill_their_range():
    x, y, _ = HiddenPose(noise=0.0).draw(200, 50, generator())
    elbow, _, wrist, hand = y.unflatten(-1, (4, 2)).unbind(-2)
    links = [torch.atan2(v[..., 1], v[..., 0]) for v in (elbow, wrist - elbow, hand - wrist)]
    bends = [links[0], links[1] - links[0], links[2] - links[1]]
    for bend in bends:
        bend = torch.remainder(bend + math.pi, 2 * math.pi) - math.pi
        assert stats.kstest(bend.flatten().numpy(), "uniform", (-2, 4)).pvalue > 1e-3
    assert torch.allclose(links[0], x[..., 0])


def dense(x: float, y: torch.Tensor, lengths: torch.Tensor, count: int = 400) -> float:
    """The density on a plain grid of midpoints over both hidden angles."""
    middles = (torch.arange(count, dtype=torch.float64) + 0.5) / count * 4 - 2
    clean = markers(torch.tensor(x, dtype=torch.float64), middles[:, None], middles, lengths)
    log_p = torch.distributions.Normal(clean, 0.05).log_prob(y).sum(-1)
    return float(log_p.flatten().logsumexp(0)) - 2 * math.log(count)


def test_the_density_of_a_pose_is_an_integral_over_hidden_angles():
    problem = HiddenPose()
    x, y, parameters = problem.draw(5, 2, generator())
    y[0] += 0.3  # far from any pose
    ours = problem.log_density(x, y, parameters)
    for task in range(5):
        for point in range(2):
            expected = dense(float(x[task, point, 0]), y[task, point], parameters["lengths"][task, 0])
            assert float(ours[task, point]) == pytest.approx(expected, abs=2e-3)


def test_angles_at_the_end_of_their_range_are_counted_to_there():
    x = torch.tensor([[[0.5]]], dtype=torch.float64)
    lengths = torch.tensor([[[0.4, 0.3, 0.9]]], dtype=torch.float64)
    ends = torch.tensor(2.0, dtype=torch.float64)
    y = markers(x[0, 0, 0], ends, -ends, lengths[0, 0])[None, None]
    ours = float(HiddenPose().log_density(x, y, {"lengths": lengths}))
    assert ours == pytest.approx(dense(0.5, y[0, 0], lengths[0, 0]), abs=2e-3)


def test_quadrature_has_converged():
    x, y, parameters = HiddenPose().draw(40, 5, generator(1))
    coarse, fine = (HiddenPose(num_nodes=count).log_density(x, y, parameters) for count in (24, 64))
    assert (coarse - fine).abs().max() < 1e-3


def test_a_density_of_two_angles_integrates_to_one():
    problem = InverseKinematics()
    x, _, parameters = problem.draw(1, 1, generator())
    span = torch.linspace(-0.3, 0.3, 61, dtype=torch.float64)
    mass = 0.0
    for centre in elbow_solutions(x, parameters["lengths"])[:, 0, 0]:
        q = centre + torch.cartesian_prod(span, span)  # [3721, 2]
        log_p = problem.log_density(x.expand(1, len(q), 2), q[None], parameters)
        mass += float(log_p.exp().sum()) * 0.01**2
    assert mass == pytest.approx(1, abs=1e-6)
