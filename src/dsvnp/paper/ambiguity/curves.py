"""Problems on curves of the field's RBF process, x ~ U[−2, 2]: branches, shared noise and three controls.

    branches       y = (1 − b) u(x) + b v(x) + 0.05 ε,    one b ~ Bernoulli(½) per point for both outputs
    shared noise   y_d = f_d(x) + a e + 0.02 ε_d,         one e ~ N(0, 1) per point, a ~ U[0.2, 0.6] per task
    controls       y = f(x) + σ ε;   σ = 0.1, or σ(x) = 0.02 + 0.15 (1 + sin(2x + φ)) with φ ~ U[0, 2π] per task,
                   or Student-t contamination as in `dsvnp.sources.gp`

The parameters of a task are its curves at its own points, [N, T, dim_y], without noise.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dsvnp.gaussian import gaussian_log_prob
from dsvnp.paper.ambiguity.densities import contaminated, equal_mixture, shared_direction
from dsvnp.paper.ambiguity.problem import Points, Problem
from dsvnp.sources.base import Tensors
from dsvnp.sources.gp import GPPrior, uniform_inputs

INTERVAL = (-2.0, 2.0)
CURVES = GPPrior(kernel="rbf")


def draw_latent_curves(
    count: int, num_points: int, dim: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw inputs [count, T, 1] and `dim` independent curves at them, [count, T, dim], without noise."""
    x = uniform_inputs(count, num_points, generator, INTERVAL, torch.float64)
    return x, CURVES.functions(x, CURVES.hyperparameters((count, dim), generator), generator)


def normal_like(value: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers in the shape of a tensor."""
    return torch.empty_like(value).normal_(generator=generator)


def scaled_identity(variance: Tensor | float, like: Tensor) -> Tensor:
    """The covariance variance · I of outputs [..., D], [..., D, D]; the variance is a number or [..., 1]."""
    diagonal = variance * torch.ones_like(like)
    return torch.diag_embed(diagonal)


@dataclass(frozen=True)
class Branches(Problem):
    """Two curves per output; each point lies on the first of all outputs or on the second of all."""

    dim_x = 1
    dim_y: int = 2
    noise: float = 0.05  # standard deviation around a branch

    def draw(self, count: int, num_points: int, generator: torch.Generator) -> Points:
        """Draw curves, then the branch of each point."""
        x, curves = draw_latent_curves(count, num_points, 2 * self.dim_y, generator)
        u, v = curves.chunk(2, dim=-1)
        second = torch.empty_like(x).uniform_(generator=generator) < 0.5  # b, [N, T, 1]
        y = torch.where(second, v, u) + self.noise * normal_like(u, generator)
        return Points(x, y, {"u": u, "v": v})

    def log_density(self, x: Tensor, y: Tensor, parameters: Tensors) -> Tensor:
        """A mixture of two equal Gaussians."""
        return equal_mixture(y, torch.stack([parameters["u"], parameters["v"]]), self.noise)

    def sample(self, x: Tensor, parameters: Tensors, generator: torch.Generator) -> Tensor:
        """One branch or the other, with noise."""
        u, v = parameters["u"], parameters["v"]
        second = torch.empty_like(x).uniform_(generator=generator) < 0.5
        return torch.where(second, v, u) + self.noise * normal_like(u, generator)

    def moments(self, x: Tensor, parameters: Tensors) -> tuple[Tensor, Tensor]:
        """Mean ½(u + v), covariance ¼ (u − v)(u − v)ᵀ + σ² I."""
        u, v = parameters["u"], parameters["v"]
        gap = (u - v) / 2
        return (u + v) / 2, gap[..., :, None] * gap[..., None, :] + scaled_identity(self.noise**2, u)


@dataclass(frozen=True)
class SharedNoise(Problem):
    """Outputs that a common disturbance of each point moves together."""

    dim_x = 1
    dim_y: int = 2  # number of outputs
    amplitude: tuple[float, float] = (0.2, 0.6)  # range of a, the size of the common disturbance
    noise: float = 0.02  # standard deviation of what each output has for itself

    def draw(self, count: int, num_points: int, generator: torch.Generator) -> Points:
        """Draw curves and the amplitude, then the disturbance of each point."""
        x, f = draw_latent_curves(count, num_points, self.dim_y, generator)
        low, high = self.amplitude
        uniform = torch.empty_like(x[:, :1]).uniform_(generator=generator)  # [N, 1, 1]
        a = low + (high - low) * uniform
        y = f + a * normal_like(x, generator) + self.noise * normal_like(f, generator)
        return Points(x, y, {"f": f, "a": a})

    def log_density(self, x: Tensor, y: Tensor, parameters: Tensors) -> Tensor:
        """A Gaussian with covariance a² 1 1ᵀ + σ² I."""
        f = parameters["f"]
        return shared_direction(y - f, parameters["a"].expand_as(f), self.noise)

    def sample(self, x: Tensor, parameters: Tensors, generator: torch.Generator) -> Tensor:
        """The curves, a common disturbance, and noise."""
        f = parameters["f"]
        return f + parameters["a"] * normal_like(x, generator) + self.noise * normal_like(f, generator)

    def moments(self, x: Tensor, parameters: Tensors) -> tuple[Tensor, Tensor]:
        """The Gaussian's own."""
        f = parameters["f"]
        return f, parameters["a"].square().unsqueeze(-1) + scaled_identity(self.noise**2, f)


@dataclass(frozen=True)
class GaussianNoise(Problem):
    """A control: one curve with Gaussian noise, which a Gaussian head says already."""

    dim_x = 1
    dim_y = 1
    noise: float = 0.1  # standard deviation of the noise

    def std(self, x: Tensor, parameters: Tensors) -> Tensor:
        """Standard deviation of the noise, [N, T, 1]."""
        return torch.full_like(x, self.noise)

    def draw(self, count: int, num_points: int, generator: torch.Generator) -> Points:
        """Draw curves, then the noise of each point."""
        x, f = draw_latent_curves(count, num_points, 1, generator)
        phase = torch.empty_like(x[:, :1]).uniform_(generator=generator) * 2 * math.pi
        parameters = {"f": f, "phase": phase}
        return Points(x, f + self.std(x, parameters) * normal_like(f, generator), parameters)

    def log_density(self, x: Tensor, y: Tensor, parameters: Tensors) -> Tensor:
        """A Gaussian."""
        return gaussian_log_prob(y, parameters["f"], self.std(x, parameters)).sum(-1)

    def sample(self, x: Tensor, parameters: Tensors, generator: torch.Generator) -> Tensor:
        """The curve with noise."""
        f = parameters["f"]
        return f + self.std(x, parameters) * normal_like(f, generator)

    def moments(self, x: Tensor, parameters: Tensors) -> tuple[Tensor, Tensor]:
        """The Gaussian's own."""
        f = parameters["f"]
        return f, scaled_identity(self.std(x, parameters).square(), f)


@dataclass(frozen=True)
class VaryingNoise(GaussianNoise):
    """A control: one curve with Gaussian noise that depends on x, σ(x) = noise + swing (1 + sin(2x + φ))."""

    noise: float = 0.02  # smallest standard deviation
    swing: float = 0.15  # half of what the largest one is above it

    def std(self, x: Tensor, parameters: Tensors) -> Tensor:
        return self.noise + self.swing * (1 + torch.sin(2 * x + parameters["phase"]))


@dataclass(frozen=True)
class Contamination(Problem):
    """A control: one curve with Gaussian noise and, on every point, heavy tails of random size."""

    dim_x = 1
    dim_y = 1
    prior: GPPrior = field(default_factory=lambda: GPPrior(contamination=0.15))  # noise and contamination

    def draw(self, count: int, num_points: int, generator: torch.Generator) -> Points:
        """Draw curves, then the noise of each point."""
        x, f = draw_latent_curves(count, num_points, 1, generator)
        return Points(x, self.prior.observe(f, generator), {"f": f})

    def log_density(self, x: Tensor, y: Tensor, parameters: Tensors) -> Tensor:
        """A scale mixture of Gaussians."""
        prior = self.prior
        residual = (y - parameters["f"]).squeeze(-1)
        return contaminated(residual, prior.noise, prior.contamination, prior.degrees_of_freedom)

    def sample(self, x: Tensor, parameters: Tensors, generator: torch.Generator) -> Tensor:
        """The curve with noise and tails."""
        return self.prior.observe(parameters["f"], generator)

    def moments(self, x: Tensor, parameters: Tensors) -> tuple[Tensor, Tensor]:
        """Mean f, variance σ² + A² E[u²] ν/(ν − 2)."""
        prior, f = self.prior, parameters["f"]
        tails = prior.degrees_of_freedom / (prior.degrees_of_freedom - 2)
        return f, scaled_identity(prior.noise**2 + prior.contamination**2 / 3 * tails, f)
