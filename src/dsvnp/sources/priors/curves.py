"""CurvePrior: synthetic functions of one to three inputs to pretrain on, drawn on the device.

A function is a Gaussian process of a random kernel (`spectra`), two of them joined at a changepoint, or another
curve (`shapes`); some are sums of both, some have a trend. Its inputs are irregular, regular, clustered or lie on a
lattice. The prior also draws what is left out of the context: nothing but at random, a gap, or an end.

What a task holds
    x  [B, T, 6]  `standardise`: three scaled inputs, then codes 0 for an input that is there, −1 for one that is not.
    y  [B, T, 1]  numbers standardised by the context.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dsvnp.naming import at_least_one
from dsvnp.networks import Shape
from dsvnp.sources.base import TaskSource, Tensors, take_batch
from dsvnp.sources.priors.noise import add_outliers, draw_error
from dsvnp.sources.priors.randomness import Random, unit
from dsvnp.sources.priors.scaling import context_sizes, output_scale, standardise
from dsvnp.sources.priors.shapes import SHAPES
from dsvnp.sources.priors.spectra import DIMENSIONS, FEATURES, draw_kernels, draw_process
from dsvnp.task import Task

CHUNK_ENTRIES = 2**26  # features that are computed at once: 256 MiB, and twice that while they are
CLIP_OUTPUT = 15.0  # standard deviations of the context
CLIP_INPUT = 15.0  # far away stays far away: an extrapolation must know how far it goes


@dataclass(frozen=True)
class CurveSettings:
    """Settings of synthetic curves."""

    batch_size: int = 64  # curves of a batch
    num_points: int = 256  # points of a curve, context and targets together
    min_context: int = 3  # smallest context
    max_context: int | None = None  # largest context; seven eighths of the points by default
    # shares of curves with one, two and three inputs
    dimensions: tuple[float, float, float] = (0.65, 0.22, 0.13)
    # shares of contexts that are random, leave a gap, leave an end
    patterns: tuple[float, float, float] = (0.6, 0.2, 0.2)
    refresh_every: int = 64  # steps that one pool serves
    dtype: torch.dtype = torch.float32  # floating-point type of the tasks

    def __post_init__(self) -> None:
        top = self.largest_context
        if not 1 <= self.min_context <= top < self.num_points:
            raise ValueError(
                f"expected 1 ≤ min_context ≤ max_context < num_points, got {self.min_context}, {top} and "
                f"{self.num_points}; leave at least one point to predict"
            )
        for name in ("dimensions", "patterns"):
            shares = getattr(self, name)
            if len(shares) != 3 or min(shares) < 0 or sum(shares) <= 0:
                raise ValueError(f"{name} must be three shares, at least one of them positive, got {shares}")
        at_least_one(batch_size=self.batch_size, refresh_every=self.refresh_every)

    @property
    def largest_context(self) -> int:
        """The largest context, in numbers."""
        points = self.num_points
        return points - max(1, points // 8) if self.max_context is None else self.max_context


class CurvePrior(TaskSource):
    """A supply of synthetic curves; see the module's docstring."""

    dim_x = 2 * DIMENSIONS
    dim_y = 1

    def __init__(self, settings: CurveSettings | None = None) -> None:
        self.settings = CurveSettings() if settings is None else settings
        self.refresh_every = self.settings.refresh_every

    def pool(self, generator: torch.Generator, device: torch.device) -> Tensors:
        """Draw curves: x, y, which inputs are used, and the largest context of each."""
        settings = self.settings
        random = Random(generator, device)
        count = settings.batch_size * settings.refresh_every
        size = max(1, CHUNK_ENTRIES // (settings.num_points * FEATURES))
        chunks = [
            draw_prior_curves(random, settings, min(size, count - done)) for done in range(0, count, size)
        ]
        return {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}

    def uniform_shapes(self) -> Mapping[str, Shape]:
        return {"context": (self.settings.batch_size,)}

    def batch(self, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor], step: Tensor) -> Task:
        """The next curves of the pool, scaled by their contexts, which are their first points."""
        settings = self.settings
        x, y, used, largest = (
            take_batch(tensors[name], step, settings.batch_size) for name in ("x", "y", "used", "largest")
        )
        sizes = context_sizes(uniforms["context"], settings.min_context, largest)
        in_context = torch.arange(settings.num_points, device=x.device) < sizes.unsqueeze(1)  # [B, T]
        inputs = standardise(x, used, in_context, torch.ones_like(in_context), clip=CLIP_INPUT)
        mean, std = output_scale(y, in_context)
        outputs = ((y - mean) / std).clamp(-CLIP_OUTPUT, CLIP_OUTPUT).unsqueeze(-1)
        return Task.from_points(inputs, outputs, in_context)


Functions = Callable[[Random, Tensor, Tensor], Tensor]


def draw_prior_curves(
    random: Random, settings: CurveSettings, count: int, functions: Functions | None = None
) -> Tensors:
    """Draw n curves: x [n, T, 3], y [n, T], used [n, 3], largest [n]; the first points may be context.

    `functions` gives values [n, T] at inputs [n, T, 3] of which some are used [n, 3]; the prior's by default.
    """
    points = settings.num_points
    dims = 1 + random.choice(settings.dimensions, count, 1)
    used = torch.arange(DIMENSIONS, device=random.device) < dims
    x = torch.where(used.unsqueeze(1), draw_inputs(random, count, points), 0.0)
    f = (functions or draw_curve_functions)(random, x, used)
    along = direction(random, x, used)
    size = torch.where(random.chance(0.15, count, 1), 2e-3, random.log_uniform(5e-3, 1.0, count, 1))
    slow = unit(torch.sin(random.uniform(count, 1, high=4.0) * along + random.uniform(count, 1, high=6.3)))
    y = unit(add_outliers(random, f + size * draw_error(random, slow)), bound=100.0)
    order, largest = draw_order(random, settings, direction(random, x, used))
    x, y = x.gather(1, order.unsqueeze(-1).expand_as(x)), y.gather(1, order)
    return {"x": x.to(settings.dtype), "y": y.to(settings.dtype), "used": used, "largest": largest}


def draw_inputs(random: Random, count: int, points: int) -> Tensor:
    """Inputs in about [−1, 1]³: irregular, on a regular grid, in clusters, on a lattice, [n, T, 3]."""
    shape = (count, points, DIMENSIONS)
    kind = random.choice((4, 3, 2, 1), count, 1, 1)
    x = random.uniform(*shape, low=-1.0, high=1.0)
    # A grid in each input, in an order of its own: regular for one input, a Latin hypercube for more.
    spacing = random.uniform(count, 1, 1) * random.chance(0.3, count, 1, 1)
    ranks = x.argsort(1).argsort(1) + 0.5 + spacing * random.uniform(*shape, low=-0.5, high=0.5)
    x = torch.where(kind == 1, 2 * ranks / points - 1, x)
    centres = random.uniform(count, 6, DIMENSIONS, low=-1.0, high=1.0)
    member = (random.uniform(count, points, 1) * random.integers(1, 6, count, 1, 1)).long()
    cluster = centres.gather(1, member.expand(shape)) + random.log_uniform(
        0.03, 0.4, count, 1, 1
    ) * random.normal(*shape)
    x = torch.where(kind == 2, cluster, x)
    levels = random.integers(8, 64, count, 1, 1)
    return torch.where(kind == 3, torch.floor((x + 1) / 2 * levels) / levels * 2 - 1, x)


def draw_curve_functions(random: Random, x: Tensor, used: Tensor) -> Tensor:
    """Standardised functions at x [n, T, 3]: processes, processes with a changepoint, other shapes, sums, [n, T]."""
    plain, jumping, shaped, both = random.allot(len(x), (0.52, 0.1, 0.3, 0.08))
    f = x.new_zeros(x.shape[:2])
    smooth = torch.cat([plain, jumping, both])
    f[smooth] = unit(draw_process(random, x[smooth], draw_kernels(random, used[smooth])))
    if len(jumping):
        f[jumping] = add_changepoint(random, f[jumping], x[jumping], used[jumping])
    rows = torch.cat([shaped, both])
    shape = unit(draw_shapes(random, direction(random, x[rows], used[rows])))
    f[rows] = shape + random.log_uniform(0.1, 1.0, len(rows), 1) * f[rows]
    return unit(_bend(random, f, direction(random, x, used)))


def add_changepoint(random: Random, f: Tensor, x: Tensor, used: Tensor) -> Tensor:
    """Let f [n, T] become another process beyond a changepoint, with a jump in half of the tasks."""
    tasks, along = len(x), direction(random, x, used)
    other = unit(draw_process(random, x, draw_kernels(random, used)))
    place = random.uniform(tasks, 1, low=-0.8, high=0.8)
    share = torch.sigmoid((along - place) / random.log_uniform(1e-3, 0.2, tasks, 1))
    jump = 1.5 * random.normal(tasks, 1) * random.chance(0.5, tasks, 1)
    return share * f + (1 - share) * (random.log_uniform(0.2, 2.0, tasks, 1) * other + jump)


def draw_shapes(random: Random, u: Tensor) -> Tensor:
    """One shape per task, in fixed proportions, [n, T]."""
    f = torch.empty_like(u)
    for shape, rows in zip(SHAPES, random.allot(len(u), list(SHAPES.values())), strict=True):
        if len(rows):
            f[rows] = shape(random, u[rows])
    return f


def _bend(random: Random, f: Tensor, u: Tensor) -> Tensor:
    """Add a trend to some functions (a linear kernel), let the size of some grow along u, skew some."""
    tasks = len(f)
    f = f * (1 + random.chance(0.1, tasks, 1) * random.uniform(tasks, 1, low=-1.5, high=1.5) * u)
    f = f + random.chance(0.2, tasks, 1) * 1.5 * random.normal(tasks, 1) * u
    return torch.where(random.chance(0.06, tasks, 1), torch.exp(unit(f).clamp(-4, 4)), f)


def direction(random: Random, x: Tensor, used: Tensor) -> Tensor:
    """A random direction through the inputs that are used, [n, T]; ± the input where there is one."""
    weight = torch.where(used, random.normal(*used.shape), 0.0)
    weight = weight / weight.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    return (x @ weight.unsqueeze(-1)).squeeze(-1)


def draw_order(random: Random, settings: CurveSettings, along: Tensor) -> tuple[Tensor, Tensor]:
    """Order points [n, T], and the largest context [n]: points that may be context come first, in random order.

    Those in a gap or beyond an end come last.
    """
    count, points = along.shape
    kind = random.choice(settings.patterns, count, 1)
    rank = along.argsort(-1).argsort(-1)
    held = (random.uniform(count, 1, low=0.08, high=0.5) * points).long()
    start = (random.uniform(count, 1) * (points - held)).long()
    start = torch.where(kind == 2, points - held, start)
    left_out = (kind > 0) & (rank >= start) & (rank < start + held)
    order = (random.uniform(count, points) + left_out).argsort(-1)
    largest = torch.where(kind > 0, points - held, points).squeeze(1).clamp(max=settings.largest_context)
    return order, largest.clamp(min=settings.min_context)
