"""Functions of Gaussian processes whose hyper-parameters differ from task to task: the field's regression tasks.

    f ~ GP(0, k),    y = f(x) + 0.02 ε [+ 0.15 u t],    ε ~ N(0, 1), u ~ U[0, 1], t ~ Student's t, per point,

with d = |x − x'|, the length ℓ ~ U[0.1, 0.6], the scale s ~ U[0.1, 1] and the period p ~ U[0.1, 0.5] per function:

    rbf        s² exp(−d² / 2ℓ²)
    matern52   s² (1 + r + r²/3) exp(−r),    r = √5 d / ℓ
    periodic   s² exp(−2 sin²(π d / p) / ℓ²)

The term in brackets contaminates context and targets with heavy tails of 2.1 degrees of freedom, as the public code
of Bootstrapping Neural Processes (Lee et al., 2020) does and, after it, that of Transformer Neural Processes.

Axes: N functions, T points, D outputs; each output of a task is a function with hyper-parameters of its own.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dsvnp.naming import lookup
from dsvnp.networks import Shape
from dsvnp.sources.base import TaskSource, Tensors, take_batch
from dsvnp.task import Task

JITTER = 1e-9  # times s², on the diagonal: an RBF matrix of 50 points is singular even in float64
CHUNK = 2048  # covariance matrices that are factorised at once: 40 MB of float64 with 50 points
Range = tuple[float, float]


class Hyperparameters(NamedTuple):
    """What each function was drawn with: fields of one shape, [N, D], or any that broadcasts to it."""

    length: Tensor
    scale: Tensor
    period: Tensor


def rbf(distance: Tensor, hyper: Hyperparameters) -> Tensor:
    """s² exp(−d² / 2ℓ²)."""
    return hyper.scale.square() * torch.exp(-0.5 * (distance / hyper.length).square())


def matern52(distance: Tensor, hyper: Hyperparameters) -> Tensor:
    """s² (1 + r + r²/3) exp(−r) with r = √5 d / ℓ."""
    r = math.sqrt(5) * distance.abs() / hyper.length
    return hyper.scale.square() * (1 + r + r.square() / 3) * torch.exp(-r)


def periodic(distance: Tensor, hyper: Hyperparameters) -> Tensor:
    """s² exp(−2 sin²(π d / p) / ℓ²)."""
    wave = torch.sin(math.pi * distance / hyper.period)
    return hyper.scale.square() * torch.exp(-2 * (wave / hyper.length).square())


KERNELS: dict[str, Callable[[Tensor, Hyperparameters], Tensor]] = {
    "rbf": rbf,
    "matern52": matern52,
    "periodic": periodic,
}


@dataclass(frozen=True)
class GPPrior:
    """The distribution that functions and their observations come from; the defaults are the field's."""

    kernel: str = "rbf"  # a name in `KERNELS`
    length: Range = (0.1, 0.6)  # range of ℓ
    scale: Range = (0.1, 1.0)  # range of s
    period: Range = (0.1, 0.5)  # range of p, which the periodic kernel alone reads
    noise: float = 0.02  # standard deviation of the Gaussian noise on every observation
    # largest amplitude of the Student-t noise; 0.15 in the field's robustness test
    contamination: float = 0.0
    degrees_of_freedom: float = 2.1  # of that noise

    def __post_init__(self) -> None:
        lookup(self.kernel, KERNELS, "kernel")
        for name in ("length", "scale", "period"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name} must be a range of positive numbers, got {low} to {high}")
        if min(self.noise, self.contamination) < 0:
            raise ValueError(
                f"noise and contamination must not be negative, got {self.noise} and {self.contamination}"
            )

    def hyperparameters(self, shape: Shape, generator: torch.Generator) -> Hyperparameters:
        """Draw ℓ, s and p of functions, in float64, on the generator's device."""
        uniform = torch.rand(3, *shape, generator=generator, dtype=torch.float64, device=generator.device)
        ranges = (self.length, self.scale, self.period)
        return Hyperparameters(*(a + (b - a) * u for u, (a, b) in zip(uniform, ranges, strict=True)))

    def covariance(self, a: Tensor, b: Tensor, hyper: Hyperparameters) -> Tensor:
        """k(a, b) without noise at inputs [..., A] and [..., B], [..., A, B]; hyper-parameters are [...]."""
        fields = Hyperparameters(*(field[..., None, None] for field in hyper))
        return KERNELS[self.kernel](a.unsqueeze(-1) - b.unsqueeze(-2), fields)

    def functions(self, x: Tensor, hyper: Hyperparameters, generator: torch.Generator) -> Tensor:
        """Draw f at inputs x [N, T, 1], each row at its own inputs: float64, [N, T, D]."""
        noise = torch.randn(
            *hyper.length.shape, x.shape[1], generator=generator, dtype=torch.float64, device=x.device
        )  # [N, D, T]
        # One row per function, in chunks that bound the memory.
        inputs = x.double().transpose(1, 2).expand(noise.shape).flatten(0, 1)
        rows = [inputs, noise.flatten(0, 1), *(field.flatten() for field in hyper)]
        drawn = [
            self._correlate(part, white, Hyperparameters(*fields))
            for part, white, *fields in zip(*(row.split(CHUNK) for row in rows), strict=True)
        ]
        return torch.cat(drawn).reshape(noise.shape).transpose(1, 2)

    def _correlate(self, x: Tensor, white: Tensor, hyper: Hyperparameters) -> Tensor:
        """L ε with K = L Lᵀ, [n, T], for inputs x and white noise ε of that shape."""
        gram = self.covariance(x, x, hyper)
        gram.diagonal(dim1=-2, dim2=-1).add_(JITTER * hyper.scale.square().unsqueeze(-1))
        return (torch.linalg.cholesky(gram) @ white.unsqueeze(-1)).squeeze(-1)

    def observe(self, f: Tensor, generator: torch.Generator) -> Tensor:
        """Add noise and contamination to values of functions, whatever their shape."""
        y = f + self.noise * torch.empty_like(f).normal_(generator=generator)
        if self.contamination == 0:
            return y
        amplitude = self.contamination * torch.empty_like(f).uniform_(generator=generator)
        return y + amplitude * student_t(f, self.degrees_of_freedom, generator)


def student_t(like: Tensor, degrees_of_freedom: float, generator: torch.Generator) -> Tensor:
    """Draw Student's t in the shape of `like`, by Bailey's polar method: √(ν (u^(−2/ν) − 1)) cos(2π v)."""
    u = 1 - torch.empty_like(like).uniform_(generator=generator)  # in (0, 1]: never a division by zero
    v = torch.empty_like(like).uniform_(generator=generator)
    radius = torch.sqrt(degrees_of_freedom * (u ** (-2 / degrees_of_freedom) - 1))
    return radius * torch.cos(2 * math.pi * v)


# --- as a source ---


def split_sizes(u_context: Tensor, u_targets: Tensor, num_points: int) -> tuple[Tensor, Tensor]:
    """The field's sizes: N_C uniform in 3 … num_points − 4, then N_T uniform in 3 … num_points − 1 − N_C.

    They come from numbers in [0, 1) of any shape; at least one of `num_points` slots stays empty.
    """
    context = 3 + (u_context * (num_points - 6)).long()
    targets = 3 + (u_targets * (num_points - 3 - context)).long()
    return context, targets


def split_task(x: Tensor, y: Tensor, context: Tensor, targets: Tensor) -> Task:
    """A task of points [B, T, ·] whose first `context` ones are seen and whose next `targets` ones are asked for.

    Either is a number for each task, [B], or one for all, [1].
    """
    slots = torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
    return Task.from_points(x, y, slots < context[:, None], slots < (context + targets)[:, None])


class GPTasks(TaskSource):
    """Functions of a Gaussian process, each used once; all tasks of a batch have the same two sizes."""

    def __init__(
        self,
        prior: GPPrior | None = None,  # where functions come from
        batch_size: int = 16,  # tasks of a batch
        num_points: int = 50,  # slots of a task, of which N_C + N_T are filled, see `split_sizes`
        interval: Range = (-2.0, 2.0),  # where inputs lie
        # steps that one pool serves, which has batch_size × refresh_every functions
        refresh_every: int = 512,
        dtype: torch.dtype = torch.float32,  # floating-point type of the tasks
    ) -> None:
        self.prior = prior or GPPrior()
        self.shape = (batch_size, num_points)
        self.interval = interval
        self.refresh_every = refresh_every
        self.dtype = dtype
        _check_sizes(num_points, batch_size, refresh_every)

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """Draw as many functions as the steps of a pool take."""
        batch, points = self.shape
        x, y, _ = draw(self.prior, batch * self.refresh_every, points, generator, self.interval, self.dtype)
        return {"x": x, "y": y}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        """Two numbers for the whole batch, for the sizes of its contexts and targets."""
        return {"context": (1,), "targets": (1,)}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        x = take_batch(tensors["x"], step, self.shape[0])
        y = take_batch(tensors["y"], step, self.shape[0])
        return split_task(x, y, *split_sizes(uniforms["context"], uniforms["targets"], self.shape[1]))


class KnownTask(NamedTuple):
    """Tasks together with the hyper-parameters of their functions, [B, 1], which no model sees."""

    task: Task
    hyper: Hyperparameters


def gp_tasks(
    prior: GPPrior,
    num_tasks: int,
    generator: torch.Generator,
    batch_size: int = 16,
    share: int = 16,
    num_points: int = 50,
    interval: Range = (-2.0, 2.0),
    dtype: torch.dtype = torch.float32,
) -> list[KnownTask]:
    """Draw tasks to test on, in batches; every `share` tasks in a row have the same sizes.

    A larger `batch_size` saves time where a model predicts; the field's "mean of a batch first" is then a mean
    over `share` tasks in a row.
    """
    _check_sizes(num_points, batch_size, share)
    if num_tasks % share or batch_size % share:
        raise ValueError(
            f"num_tasks and batch_size must be multiples of share, {share}, got {num_tasks} and {batch_size}"
        )
    batches = []
    for start in range(0, num_tasks, batch_size):
        count = min(batch_size, num_tasks - start)
        x, y, hyper = draw(prior, count, num_points, generator, interval, dtype)
        uniform = torch.rand(2, count // share, generator=generator, device=generator.device)
        u_context, u_targets = uniform.repeat_interleave(share, dim=1)
        task = split_task(x, y, *split_sizes(u_context, u_targets, num_points))
        batches.append(KnownTask(task, hyper))
    return batches


def draw(
    prior: GPPrior,
    count: int,
    num_points: int,
    generator: torch.Generator,
    interval: Range,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Hyperparameters]:
    """Draw inputs and observations [count, num_points, 1] of functions, and their hyper-parameters [count, 1]."""
    x = uniform_inputs(count, num_points, generator, interval, dtype)
    hyper = prior.hyperparameters((count, 1), generator)
    y = prior.observe(prior.functions(x, hyper, generator), generator)
    return x, y.to(dtype), hyper


def uniform_inputs(
    count: int, num_points: int, generator: torch.Generator, interval: Range, dtype: torch.dtype
) -> Tensor:
    """Draw inputs uniformly from an interval, [count, num_points, 1]."""
    low, high = interval
    uniform = torch.rand(count, num_points, 1, generator=generator, dtype=dtype, device=generator.device)
    return low + (high - low) * uniform


def _check_sizes(num_points: int, *others: int) -> None:
    """Refuse tasks that cannot hold three points on either side, and empty batches or pools."""
    if num_points < 7 or min(others) < 1:
        raise ValueError(
            f"num_points must be at least 7 and sizes of batches and pools at least 1, got {num_points} and "
            f"{', '.join(map(str, others))}"
        )
