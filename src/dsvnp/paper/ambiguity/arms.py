"""Problems on planar arms with links of unknown lengths, l ~ U[0.3, 1] each per task.

Inverse kinematics: the hand's place → both joint angles. With the hand at radius r and angle φ,

    q₂ = ± arccos((r² − l₁² − l₂²) / 2 l₁ l₂),    q₁ = φ − atan2(l₂ sin q₂, l₁ + l₂ cos q₂):

elbow up or elbow down, with equal chance; angles are not wrapped, and have noise of 0.05 rad.

Hidden pose: the shoulder's angle x → four markers (elbow, middle of the second link, wrist, hand), with noise of 0.05.
With d(α) = (cos α, sin α) and hidden θ₂, θ₃ ~ U[−2, 2] per point,

    elbow = l₁ d(x),    wrist = elbow + l₂ d(x + θ₂),    hand = wrist + l₃ d(x + θ₂ + θ₃).

Its density is an integral over θ₂ and θ₃. A marker at distance l from a joint, seen at s from there, has a likelihood
∝ exp(l s·d(α)/σ²) of the link's direction α: we integrate by Gauss-Legendre over a window around its peak.

Axes: N tasks, T points; places are [..., 2].
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from dsvnp.gaussian import gaussian_log_prob
from dsvnp.paper.ambiguity.densities import equal_mixture, gauss_legendre, in_chunks
from dsvnp.paper.ambiguity.problem import Points, Problem
from dsvnp.sources.base import Tensors
from dsvnp.sources.gp import Range, uniform_inputs


def direction(angle: Tensor) -> Tensor:
    """(cos α, sin α), [..., 2]."""
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def uniform(shape: tuple[int, ...], limits: Range, generator: torch.Generator) -> Tensor:
    """Uniform numbers between two limits, in float64."""
    low, high = limits
    unit = torch.rand(*shape, generator=generator, dtype=torch.float64, device=generator.device)
    return low + (high - low) * unit


def elbow_solutions(place: Tensor, lengths: Tensor) -> Tensor:
    """Both joint angles that bring the hand to a place [..., 2]: [2, ..., 2], q₂ ≥ 0 first."""
    l1, l2 = lengths.unbind(-1)
    cos = (place.square().sum(-1) - l1.square() - l2.square()) / (2 * l1 * l2)
    bend = torch.acos(cos.clamp(-1, 1))
    phi = torch.atan2(place[..., 1], place[..., 0])
    solutions = []
    for q2 in (bend, -bend):
        q1 = phi - torch.atan2(l2 * q2.sin(), l1 + l2 * q2.cos())
        solutions.append(torch.stack([q1, q2], dim=-1))
    return torch.stack(solutions)


@dataclass(frozen=True)
class InverseKinematics(Problem):
    """The hand's place, in Cartesian coordinates → the joint angles of a two-link arm, elbow up or down."""

    dim_x = 2
    dim_y = 2
    lengths: Range = (0.3, 1.0)  # range of the links' lengths
    margin: float = 0.1  # how far the hand keeps from the arm's smallest and largest reach
    noise: float = 0.05  # standard deviation of the angles, in rad

    def draw(self, count: int, num_points: int, generator: torch.Generator) -> Points:
        """Draw arms, then places of the hand and a bend of the elbow for each."""
        lengths = uniform((count, 1, 2), self.lengths, generator)
        l1, l2 = lengths.unbind(-1)  # [N, 1]
        r, phi, coin = uniform((3, count, num_points), (0.0, 1.0), generator)
        low, high = (l1 - l2).abs() + self.margin, l1 + l2 - self.margin
        x = (low + (high - low) * r).unsqueeze(-1) * direction(math.pi * (phi - 0.5))
        up, down = elbow_solutions(x, lengths)
        angles = torch.where((coin < 0.5).unsqueeze(-1), up, down)
        y = angles + self.noise * torch.empty_like(angles).normal_(generator=generator)
        return Points(x, y, {"lengths": lengths})

    def log_density(self, x: Tensor, y: Tensor, parameters: Tensors) -> Tensor:
        """A mixture of two equal Gaussians."""
        return equal_mixture(y, elbow_solutions(x, parameters["lengths"]), self.noise)

    def sample(self, x: Tensor, parameters: Tensors, generator: torch.Generator) -> Tensor:
        """One solution or the other, with noise."""
        up, down = elbow_solutions(x, parameters["lengths"])
        coin = torch.empty_like(x[..., :1]).uniform_(generator=generator)
        angles = torch.where(coin < 0.5, up, down)
        return angles + self.noise * torch.empty_like(angles).normal_(generator=generator)

    def moments(self, x: Tensor, parameters: Tensors) -> tuple[Tensor, Tensor]:
        """The mean of both solutions, and a covariance along their difference."""
        up, down = elbow_solutions(x, parameters["lengths"])
        gap = (up - down) / 2
        eye = torch.eye(2, dtype=x.dtype, device=x.device)
        return (up + down) / 2, gap[..., :, None] * gap[..., None, :] + self.noise**2 * eye


def markers(shoulder: Tensor, elbow: Tensor, wrist: Tensor, lengths: Tensor) -> Tensor:
    """Elbow, middle of the second link, wrist and hand of an arm, [..., 8], as x₁, y₁, x₂, y₂, …

    Each angle [...] is relative to the link before; the lengths of the links are [..., 3].
    """
    first, second, third = (
        length.unsqueeze(-1) * direction(angle)
        for length, angle in zip(
            lengths.unbind(-1), (shoulder, shoulder + elbow, shoulder + elbow + wrist), strict=True
        )
    )
    places = (first, first + second / 2, first + second, first + second + third)
    return torch.cat(torch.broadcast_tensors(*places), dim=-1)


@dataclass(frozen=True)
class HiddenPose(Problem):
    """The shoulder's angle → four markers of a three-link arm whose other two joints are hidden."""

    dim_x = 1
    dim_y = 8
    lengths: Range = (0.3, 1.0)  # range of the links' lengths
    bend: float = 2.0  # largest angle of shoulder, elbow and wrist, to either side, in rad
    noise: float = 0.05  # standard deviation of each coordinate of a marker
    num_nodes: int = 24  # quadrature nodes for each hidden angle

    def draw(self, count: int, num_points: int, generator: torch.Generator) -> Points:
        """Draw arms, then poses."""
        limits = (-self.bend, self.bend)
        lengths = uniform((count, 1, 3), self.lengths, generator)
        x = uniform_inputs(count, num_points, generator, limits, torch.float64)
        elbow, wrist = uniform((2, count, num_points), limits, generator)
        clean = markers(x.squeeze(-1), elbow, wrist, lengths)
        y = clean + self.noise * torch.empty_like(clean).normal_(generator=generator)
        return Points(x, y, {"lengths": lengths})

    def log_density(self, x: Tensor, y: Tensor, parameters: Tensors) -> Tensor:
        """Integrate over both hidden angles, some points at a time."""
        lengths = parameters["lengths"].expand(*x.shape[:2], 3)
        return in_chunks(
            self._integrate, x.flatten(), y.flatten(0, 1), lengths.flatten(0, 1), size=1024
        ).reshape(x.shape[:2])

    def sample(self, x: Tensor, parameters: Tensors, generator: torch.Generator) -> Tensor:
        """Markers of the arm with hidden angles drawn for each point, with noise."""
        elbow, wrist = uniform((2, *x.shape[:2]), (-self.bend, self.bend), generator)
        clean = markers(x.squeeze(-1), elbow, wrist, parameters["lengths"])
        return clean + self.noise * torch.empty_like(clean).normal_(generator=generator)

    def _integrate(self, x: Tensor, y: Tensor, lengths: Tensor) -> Tensor:
        """ln p(y | x, lengths) for angles x [P], markers y [P, 8] and lengths [P, 3]."""
        l1, l2, l3 = lengths.unsqueeze(1).unbind(-1)  # [P, 1] each, which the nodes' axes follow
        elbow, middle, wrist, hand = y.unflatten(-1, (4, 2)).unbind(-2)
        joint = l1 * direction(x)  # where the elbow is, [P, 2]
        outer = self._log_prob(elbow, joint)
        # Second link, K nodes: its middle and its end are seen.
        pull = l2 * ((middle - joint) / 2 + (wrist - joint))
        angle2, log_weight2 = self._nodes(pull, x)  # [P, K]
        arm = l2.unsqueeze(-1) * direction(angle2)  # [P, K, 2]
        seen2 = self._log_prob(middle.unsqueeze(1), joint.unsqueeze(1) + arm / 2)
        seen2 = seen2 + self._log_prob(wrist.unsqueeze(1), joint.unsqueeze(1) + arm)
        # Third link, K more nodes for each of them: the hand is seen.
        rest = hand.unsqueeze(1) - joint.unsqueeze(1) - arm  # [P, K, 2]
        angle3, log_weight3 = self._nodes(l3.unsqueeze(-1) * rest, angle2)  # [P, K, K]
        tip = l3[..., None, None] * direction(angle3)
        seen3 = (self._log_prob(rest.unsqueeze(2), tip) + log_weight3).logsumexp(-1)
        return outer + (seen2 + seen3 + log_weight2).logsumexp(-1)

    def _log_prob(self, place: Tensor, centre: Tensor) -> Tensor:
        """ln N(place; centre, σ² I), [...]."""
        return gaussian_log_prob(place, centre, torch.full_like(centre, self.noise)).sum(-1)

    def _nodes(self, pull: Tensor, base: Tensor) -> tuple[Tensor, Tensor]:
        """Angles [..., K] where exp(pull·d(α)/σ²) is not negligible, and logs of quadrature weights times prior.

        Angles keep to within `bend` of `base` [...]. The density around its peak is close to a Gaussian of variance
        σ²/|pull|; seven of its standard deviations to either side are integrated.
        """
        strength = pull.square().sum(-1).sqrt()
        peak = torch.atan2(pull[..., 1], pull[..., 0]) - base
        peak = torch.remainder(peak + math.pi, 2 * math.pi) - math.pi
        width = (7 * self.noise / strength.sqrt()).clamp(max=self.bend)
        low = torch.minimum(peak - width, self.bend - width).clamp(min=-self.bend)
        high = torch.maximum(peak + width, width - self.bend).clamp(max=self.bend)
        node, weight = gauss_legendre(self.num_nodes, pull)
        half = ((high - low) / 2).unsqueeze(-1)
        angle = base.unsqueeze(-1) + low.unsqueeze(-1) + half * (node + 1)
        return angle, (half * weight / (2 * self.bend)).log()

    def moments(self, x: Tensor, parameters: Tensors) -> tuple[Tensor, Tensor]:
        """Mean and covariance: markers are linear in w = (d(θ₂), d(θ₂ + θ₃)), whose moments are numbers."""
        l1, l2, l3 = parameters["lengths"].unsqueeze(-2).unbind(-1)  # [N, 1, 1]
        x = x.squeeze(-1)
        first = l1 * direction(x)  # [N, T, 2]
        turn = torch.stack([direction(x), direction(x + math.pi / 2)], dim=-1)  # rotation by x, [N, T, 2, 2]
        second, third = l2.unsqueeze(-1) * turn, l3.unsqueeze(-1) * turn
        zero = torch.zeros_like(turn)
        rows = ((zero, zero), (second / 2, zero), (second, zero), (second, third))
        matrix = torch.cat([torch.cat(row, dim=-1) for row in rows], dim=-2)  # [N, T, 8, 4]
        mean_w, covariance_w = self._direction_moments(x)
        eye = torch.eye(8, dtype=x.dtype, device=x.device)
        return first.repeat(
            1, 1, 4
        ) + matrix @ mean_w, matrix @ covariance_w @ matrix.mT + self.noise**2 * eye

    def _direction_moments(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [4] and covariance [4, 4] of w over both hidden angles, by quadrature."""
        node, weight = gauss_legendre(32, like)
        elbow = self.bend * node[:, None].expand(32, 32)
        w = torch.cat([direction(elbow), direction(elbow + self.bend * node)], dim=-1).flatten(0, 1)
        weight = (weight[:, None] * weight / 4).flatten()  # [1024], sums to 1
        mean = weight @ w
        return mean, (w - mean).mT @ (weight[:, None] * (w - mean))
