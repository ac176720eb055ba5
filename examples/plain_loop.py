"""Algorithm 1 of the paper as anyone would write it: one model, autograd, torch's Adam, a Python loop.

The engine (`dsvnp.training`) does the same for many models in one compiled step, with checkpoints; the tests compare
the two to the last digits. Usage: python examples/plain_loop.py [MODEL] [STEPS]
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
from torch import Tensor

from dsvnp import Architecture, Bound, NeuralProcess, Task, make_model
from dsvnp.metrics import nll
from dsvnp.sources.curves import curve_tasks

Noise = Mapping[str, Tensor] | None  # the random numbers of a step; None draws them


def negative_bound(bound: Bound, step: int, beta_local: float = 1.0, beta_global: float = 1.0) -> Tensor:
    """The loss (Eq. 15, 19): −[log-likelihood − β_local KL_L − β_global KL_G], per point."""
    total = bound.log_likelihood - beta_local * bound.kl_local - beta_global * bound.kl_global
    return -total.sum() / bound.num_points.sum()


def train_plainly(
    model: NeuralProcess,
    tasks: Iterable[tuple[Task, Noise]],
    optimizer: torch.optim.Optimizer,
    loss: Callable[[Bound, int], Tensor] = negative_bound,
    num_draws: tuple[int, int] = (1, 1),
    after_backward: Callable[[int], None] = lambda step: None,
) -> None:
    """Take one step per batch of tasks; `num_draws` is K and S, the draws of z_G and of each z_*."""
    for step, (task, noise) in enumerate(tasks):
        optimizer.zero_grad()
        bound = model.objective(task, *num_draws, noise)  # latents from q, given context and targets
        loss(bound, step).backward()
        after_backward(step)
        optimizer.step()


def random_curves(num_steps: int, generator: torch.Generator) -> Iterator[tuple[Task, Noise]]:
    """Yield batches of 16 curves with 100 points each, 3 to 50 of them context."""
    for _ in range(num_steps):
        yield curve_tasks(16, 100, (3, 50), generator)[0], None


def main(name: str = "dsvnp", num_steps: str = "2000") -> None:
    """Train a model and print how well it predicts curves that it has not seen."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = make_model(name, Architecture(dim_x=1, dim_y=1))
    (unseen,) = curve_tasks(64, 100, (50, 50), generator)
    print(f"NLL per point before training: {nll(model.predict(unseen), unseen):.3f}")
    train_plainly(
        model, random_curves(int(num_steps), generator), torch.optim.Adam(model.parameters(), lr=1e-3)
    )
    print(f"after {num_steps} steps: {nll(model.predict(unseen), unseen):.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
