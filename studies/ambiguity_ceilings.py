"""What a context of 3 to 46 points can tell: ceilings for branches and shared noise that no learner exceeds.

    python -m studies.ambiguity_ceilings results/ambiguity/ceilings.json

"truth" in the ambiguity experiment knows the curves. A learner has a context alone. This one is told what no model is:
the length and scale of each curve, of branches which branch every context point lies on, of shared noise its size.
Then the curves have an exact posterior, and p(y_t | C) is known:

    branches       ½ Π_d N(y_d; m_ud, v_ud) + ½ Π_d N(y_d; m_vd, v_vd)         shared noise    N(y; m, V)

`joint` is its mean logarithm, `diagonal` that of the best Gaussian with a diagonal covariance, the one with the same
moments. Their difference is what a local latent can gain over a Gaussian head that knows as much.

Further rows are of a learner of branches that knows each curve with an error of standard deviation `curve_error`, at
most the scale of the curve: a model's NLL with a Gaussian head tells how well it reads the context, and with that what
there is to gain for it.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsvnp.gaussian import gaussian_log_prob
from dsvnp.paper.ambiguity.curves import CURVES, INTERVAL, Branches, SharedNoise, normal_like
from dsvnp.paper.ambiguity.densities import diagonal_gaussian, full_gaussian
from dsvnp.paper.ambiguity.measures import RANGES
from dsvnp.paper.ambiguity.problem import CONTEXT, NUM_POINTS
from dsvnp.sources.gp import uniform_inputs

ERRORS = (0.0, 0.05, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.45, 0.5, 0.6)


def condition(prior: Tensor, noise: Tensor, y: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [P] and covariance [P, P] of noisy values at P places, given those that are seen."""
    factor = torch.linalg.cholesky((prior + noise)[seen][:, seen])
    white = torch.linalg.solve_triangular(factor, torch.cat([prior[seen], y[seen, None]], 1), upper=False)
    return white[:, :-1].T @ white[:, -1], prior + noise - white[:, :-1].T @ white[:, :-1]


def draw(num_curves: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Curves of one task [T, num_curves] and their covariances [num_curves, T, T], in float64."""
    x = uniform_inputs(1, NUM_POINTS, generator, INTERVAL, torch.float64)
    hyper = CURVES.hyperparameters((1, num_curves), generator)
    places = x.transpose(1, 2).expand(1, num_curves, -1)
    return CURVES.functions(x, hyper, generator)[0], CURVES.covariance(places, places, hyper)[0]


def branches(num_context: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """`joint` and `diagonal` of the targets of one task, [T − num_context] each; the branch of context points known."""
    problem = Branches()
    curves, prior = draw(2 * problem.dim_y, generator)
    branch = torch.rand(NUM_POINTS, generator=generator) < 0.5
    u, v = curves.chunk(2, dim=-1)
    y = torch.where(branch[:, None], v, u) + problem.noise * normal_like(u, generator)  # [T, D]
    noise = problem.noise**2 * torch.eye(NUM_POINTS, dtype=torch.float64)
    in_context = torch.arange(NUM_POINTS) < num_context
    found = [
        condition(prior[number], noise, y[:, number % problem.dim_y], in_context & (branch == second))
        for number, second in enumerate([False] * problem.dim_y + [True] * problem.dim_y)
    ]
    shape = (2, problem.dim_y)
    means = torch.stack([mean[num_context:] for mean, _ in found]).unflatten(0, shape).transpose(1, 2)
    stds = torch.stack([cov.diagonal()[num_context:].sqrt() for _, cov in found]).unflatten(0, shape)
    return two_branches(y[num_context:], means, stds.transpose(1, 2))


def known_with_error(error: float, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """`joint` and `diagonal` of points on branches that are known with an error, [count] each."""
    problem = Branches()
    scale = CURVES.hyperparameters((2, count, problem.dim_y), generator).scale
    spread = scale.clamp(max=error)
    means = (scale.square() - spread.square()).sqrt() * normal_like(scale, generator)  # [2, count, D]
    u, v = means + spread * normal_like(scale, generator)
    branch = torch.rand(count, 1, generator=generator) < 0.5
    y = torch.where(branch, v, u) + problem.noise * normal_like(u, generator)
    return two_branches(y, means, (spread.square() + problem.noise**2).sqrt())


def two_branches(y: Tensor, means: Tensor, stds: Tensor) -> tuple[Tensor, Tensor]:
    """`joint` and `diagonal` of points y [t, D] for means and standard deviations of both branches, [2, t, D]."""
    joint = gaussian_log_prob(y, means, stds).sum(-1).logsumexp(0) - math.log(2)
    mean = means.mean(0)
    spread = ((stds.square() + means.square()).mean(0) - mean.square()).sqrt()
    return joint, gaussian_log_prob(y, mean, spread).sum(-1)


def shared_noise(dim_y: int, num_context: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """`joint` and `diagonal` of the targets of one task, [T − num_context] each; the size of the noise known."""
    problem = SharedNoise(dim_y)
    f, priors = draw(dim_y, generator)
    low, high = problem.amplitude
    a = low + (high - low) * float(torch.rand((), generator=generator))
    y = f + a * normal_like(f[:, :1], generator) + problem.noise * normal_like(f, generator)
    own = a**2 * torch.ones(dim_y, dim_y) + problem.noise**2 * torch.eye(dim_y)
    prior = torch.block_diag(*priors)  # places in the order output, point
    noise = torch.kron(own.double(), torch.eye(NUM_POINTS, dtype=torch.float64))
    seen = (torch.arange(NUM_POINTS) < num_context).repeat(dim_y)
    mean, covariance = condition(prior, noise, y.T.flatten(), seen)
    # of each target its own outputs: [D·T, D·T] -> [T, D, D]
    blocks = covariance.unflatten(0, (dim_y, -1)).unflatten(-1, (dim_y, -1)).diagonal(dim1=1, dim2=3)
    parts = y, mean.unflatten(0, (dim_y, -1)).T, blocks.permute(2, 0, 1)
    asked = [part[num_context:] for part in parts]
    return full_gaussian(*asked), diagonal_gaussian(*asked)


PROBLEMS: dict[str, Callable[[int, torch.Generator], tuple[Tensor, Tensor]]] = {
    "branches": branches,
    "shared-noise-2": lambda size, generator: shared_noise(2, size, generator),
    "shared-noise-8": lambda size, generator: shared_noise(8, size, generator),
}


def ceilings(name: str, num_tasks: int, seed: int = 0) -> list[dict[str, Any]]:
    """One row per range of context sizes: mean log-likelihoods over all targets of its tasks, and the gain."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(CONTEXT[0], CONTEXT[1] + 1, (num_tasks,), generator=generator).tolist()
    found = [(size, *PROBLEMS[name](size, generator)) for size in sizes]
    rows = []
    for low, high in (CONTEXT, *RANGES):
        inside = [(joint, diagonal) for size, joint, diagonal in found if low <= size <= high]
        joint, diagonal = (torch.cat(part) for part in zip(*inside, strict=True))
        gains = torch.stack([(one - other).mean() for one, other in inside])
        stderr = round(float(gains.std()) / len(gains) ** 0.5, 3)  # of the gain, over tasks
        row = {"problem": name, "context": [low, high], "tasks": len(inside), **_means(joint, diagonal)}
        rows.append({**row, "stderr": stderr})
    return rows


def by_error(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """One row per error of the curves of branches."""
    generator = torch.Generator().manual_seed(seed)
    return [
        {"problem": "branches", "curve_error": error, **_means(*known_with_error(error, count, generator))}
        for error in ERRORS
    ]


def _means(joint: Tensor, diagonal: Tensor) -> dict[str, float]:
    """Mean log-likelihoods, and the gain."""
    parts = {"joint": joint, "diagonal": diagonal, "gain": joint - diagonal}
    return {name: round(float(values.mean()), 3) for name, values in parts.items()}


def main() -> None:
    """Write the rows of all problems, one per line."""
    parser = argparse.ArgumentParser(description="Ceilings for a learner that is told all but the curves.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", type=int, default=4000)
    given = parser.parse_args()
    rows = [row for name in PROBLEMS for row in ceilings(name, given.tasks)] + by_error(50 * given.tasks)
    given.out.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
