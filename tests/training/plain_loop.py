"""The example's plain loop on the tasks and random numbers of a fleet, to compare the engine with.

The two share the model, the tasks and the stream of random numbers, and nothing else.
"""

import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from dsvnp.models import NeuralProcess
from dsvnp.networks import Shape
from dsvnp.objectives import Bound, Draws
from dsvnp.task import Task
from dsvnp.training import Fleet
from examples.plain_loop import negative_bound, train_plainly

OfDraws = Callable[[Draws, Draws, int], Tensor]  # of draws from the posterior and the priors, and steps taken


def train_like(
    fleet: Fleet,
    row: int,
    model: NeuralProcess,
    optimizer: torch.optim.Optimizer,
    num_steps: int,
    loss: Callable[[Bound, int], Tensor] = negative_bound,
    after_backward: Callable[[int], None] = lambda step: None,
    of_draws: OfDraws | None = None,
) -> None:
    """Train `model` by the example's loop on the tasks and noise that replica `row` of a fleet at step 0 would see.

    The fleet lends its tasks and its generator's state; it is not stepped. All steps must lie in its first pool.
    """
    objective = fleet.settings.objective
    draws = (objective.num_global, objective.num_local)
    batches = batches_of(fleet, row, model, num_steps, draws)
    if of_draws is None:
        train_plainly(model, batches, optimizer, loss, draws, after_backward)
        return
    for step, (task, noise) in enumerate(batches):
        optimizer.zero_grad()
        prior = model.prior_draws(task, noise, propose_local=objective.propose_local)
        of_draws(model.draws(task, noise), prior, step).backward()
        optimizer.step()


def batches_of(
    fleet: Fleet, row: int, model: NeuralProcess, num_steps: int, draws: tuple[int, int]
) -> Iterator[tuple[Task, dict[str, Tensor]]]:
    generator = torch.Generator().set_state(fleet.generators[row].get_state())
    dtype = fleet.settings.dtype
    for step in range(num_steps):
        batch, points = fleet.lanes[0].supply.sources[0].shape
        shapes = model.noise_shapes(batch, points, *draws, shared=False)
        latent = {name: shape for name, shape in shapes.items() if not name.startswith("dropout")}
        masks = {name: shape for name, shape in shapes.items() if name.startswith("dropout")}
        normal = torch.empty(_size(latent), dtype=dtype).normal_(generator=generator)
        uniform = torch.empty(batch + _size(masks), dtype=dtype).uniform_(generator=generator)
        noise = _cut(normal, latent) | _cut(uniform[batch:], masks)
        yield task_of(fleet, row, step, uniform[:batch].tolist()), noise


def task_of(fleet: Fleet, row: int, step: int, uniforms: list[float]) -> Task:
    """The batch of a step, from the pool and the rows that a replica has."""
    source = fleet.lanes[0].supply.sources[row % len(fleet.lanes[0].supply.sources)]
    batch, points = source.shape
    if "order" in fleet.lanes[0].supply.pool:
        rows = fleet.lanes[0].supply.pool["order"][row][step * batch * points : (step + 1) * batch * points]
        x, y = source.x[rows].unflatten(0, (batch, points)), source.y[rows].unflatten(0, (batch, points))
    else:
        x, y = (fleet.lanes[0].supply.pool[name][row][step * batch : (step + 1) * batch] for name in "xy")
    low, high = source.context
    in_context = torch.zeros(batch, points, dtype=torch.bool)
    for i, u in enumerate(uniforms):
        in_context[i, : low + math.floor(u * (high - low + 1))] = True
    return Task.from_points(x, y, in_context)


def _size(shapes: Mapping[str, Shape]) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def _cut(flat: Tensor, shapes: Mapping[str, Shape]) -> dict[str, Tensor]:
    parts = flat.split([math.prod(shape) for shape in shapes.values()])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
