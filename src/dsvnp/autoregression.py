"""Autoregression: coherent functions and joint likelihoods of any model, by feeding outputs back as context.

    ln p(y_T | C) = Σ_j ln p(y_{b_j} | C, y_{b_1}, …, y_{b_{j−1}})      b_1, b_2, …: blocks of the targets in some order

With the true outputs this is a likelihood, with the model's own samples it draws a function (a *chain*). Within a
block, targets depend on each other only as far as the model says so: through z_G, or not at all. The context is encoded
again for each block: the chain rule is exact. A network is no consistent stochastic process: the result depends
on the order, and an order is therefore drawn for each chain.

A chain y¹…ᵀ is also a function to predict from: p(y_t | C, chain) is to a conditional model what p(y_t | z_G) is to one
with a latent. Averaged over chains it is p(y_t | C), if the model is consistent.

Axes: N chains or orders, B tasks, T targets, D outputs (1 for labels). N and B are one axis of *rows* for the model.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from dsvnp.predictive import Predictive, concatenate
from dsvnp.task import Task

Conditional = Callable[[Task], Predictive]  # from context and targets to the predictive distribution of these


def random_orders(task: Task, num_orders: int, generator: torch.Generator | None = None) -> Tensor:
    """Draw in which order each task's targets are visited, uniformly, [N, B, T]: place j holds a target's slot."""
    shape = (num_orders, *task.mask_target.shape)
    return torch.rand(shape, generator=generator, device=task.mask_target.device).argsort(-1)


def orders_of(task: Task, orders: int | Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw a number of orders, or check those given and repeat what serves all tasks: [N, B or 1, T] -> [N, B, T]."""
    if not isinstance(orders, Tensor):
        return random_orders(task, orders, generator)
    tasks, targets = task.mask_target.shape
    if orders.ndim != 3 or orders.shape[1] not in (1, tasks) or orders.shape[2] != targets:
        raise ValueError(
            f"orders must be [orders, tasks, targets] with {tasks} tasks (or 1) and {targets} targets, got "
            f"{tuple(orders.shape)}; pass slots of targets in the order of their visit, or a number of orders"
        )
    if not bool((orders.sort(-1).values == torch.arange(targets, device=orders.device)).all()):
        raise ValueError(f"each order must hold every slot from 0 to {targets - 1} once; pass permutations")
    return orders.expand(-1, tasks, -1)


def draw_chains(
    # a model's predictive distribution; where it has several draws, one is chosen for each block
    conditional: Conditional,
    task: Task,  # context and targets; empty target slots are not visited
    orders: Tensor,  # orders of the targets, [N, B, T]
    block: int = 1,  # number of targets that are sampled at once
    generator: torch.Generator | None = None,  # where samples are drawn from
    chunk: int = 2**16,  # number of points, over all rows, that are encoded at once
    visits: int | None = None,  # number of targets that are visited, the first of each order; None for all
) -> tuple[Tensor, Tensor]:
    """Draw functions: visit the targets in order, sample each block given the context and the samples before it.

    Outputs are in the slots of their targets, [N, B, T, D]; 0 where no sample is. The second, [N, B, T], says which
    targets were visited; empty ones never are.
    """
    visits = task.num_targets if visits is None else visits
    parts, visited = [], []
    for rows, some in _rows(task, len(orders), chunk):
        order = _filled_first(orders.flatten(0, 1)[rows], some.mask_target)
        back = order.argsort(-1)
        drawn = _chain(conditional, _reorder(some, order), block, generator, visits)
        parts.append(drawn.take_along_dim(back.unsqueeze(-1), 1))
        visited.append(some.mask_target & (back < visits))
    shape = orders.shape[:2]
    return torch.cat(parts).unflatten(0, shape), torch.cat(visited).unflatten(0, shape)


def predict_by_chains(
    conditional: Conditional,
    task: Task,
    num_chains: int,
    block: int = 1,
    generator: torch.Generator | None = None,
    chunk: int = 2**16,
) -> Predictive:
    """Draw chains in random orders and predict from each; see `draw_chains` and `given_chains`."""
    orders = random_orders(task, num_chains, generator)
    chains, visited = draw_chains(conditional, task, orders, block, generator, chunk)
    return given_chains(conditional, task, chains, visited, chunk)


def given_chains(
    conditional: Conditional, task: Task, chains: Tensor, visited: Tensor, chunk: int = 2**16
) -> Predictive:
    """Predict all targets from the context and what one chain after the other visited, [N, B, T, D] and [N, B, T].

    `conditional` has one draw of z_G, [1, S, rows, T, ·]; the result is a mixture with chains in their place, [N, S, B,
    T, ·]. `chunk` points, over all rows, are encoded at once.
    """
    parts = []
    for rows, some in _rows(task, len(chains), chunk):
        known = replace(some, mask_target=visited.flatten(0, 1)[rows])
        seen = _step(known, chains.flatten(0, 1)[rows], task.num_targets, 0)
        parts.append(conditional(replace(seen, x_target=some.x_target, mask_target=some.mask_target)))
    shape = chains.shape[:2]
    return concatenate(parts, 2).map(lambda array: array[0].unflatten(1, shape).movedim(1, 0))


def chain_log_prob(
    conditional: Conditional,  # a model's predictive distribution
    # tasks with y_target. Empty slots, targets that belong to the context and targets without any known output add
    # nothing and are not visited
    task: Task,
    orders: Tensor,  # orders of the targets, [N, B, T]
    block: int = 1,  # number of targets that are scored at once
    num_draws: int = 1,  # how many draws the predictive distribution has
    chunk: int = 2**16,  # number of points, over all rows, that are encoded at once
) -> Tensor:
    """Log-density of the targets of each task together by the chain rule, in each order, [N, B]."""
    parts = []
    for rows, some in _rows(_scored(task), len(orders), chunk, num_draws * block):
        some = _reorder(some, _filled_first(orders.flatten(0, 1)[rows], some.mask_target))
        assert some.y_target is not None
        total = some.x_target.new_zeros(len(rows))
        for start in _starts(some, block):
            step = _step(some, some.y_target, start, block)
            y = some.y_target[:, start : start + block]
            total = total + conditional(step).log_prob_joint(y, step.mask_target)
        parts.append(total)
    return torch.cat(parts).unflatten(0, orders.shape[:2])


def functions_of(predictive: Predictive, noise: bool, generator: torch.Generator | None = None) -> Tensor:
    """One function for each draw of z_G or chain, [K, B, T, D]: a sample, or without noise its mean."""
    draws, _, tasks = predictive.shape[:3]
    # Draws become tasks, [K, S, B, T, ·] -> [1, S, K·B, T, ·], of which each is sampled once.
    single = predictive.map(lambda array: array.transpose(0, 1).flatten(1, 2).unsqueeze(0))
    y = single.sample(1, generator)[0] if noise else single.function_mean(generator)
    return y.unflatten(0, (draws, tasks))


def _chain(
    conditional: Conditional, task: Task, block: int, generator: torch.Generator | None, visits: int
) -> Tensor:
    """Sample the targets from first to last visit, [rows, T, D]; filled ones come first, the others get 0."""
    y = task.y_context[:, :0]
    for start in _starts(task, block, visits):
        step = _step(task, y, start, min(block, visits - start))
        drawn = conditional(step).sample(1, generator)[0].to(y.dtype)
        y = torch.cat([y, torch.where(step.mask_target.unsqueeze(-1), drawn, 0)], dim=1)
    rest = y.new_zeros(y.shape[0], task.num_targets - y.shape[1], y.shape[2])
    return torch.cat([y, rest], dim=1)


def _step(task: Task, y: Tensor, start: int, block: int) -> Task:
    """The task in which the first `start` targets are context, with outputs y, and the next `block` are asked for."""
    seen, asked = slice(0, start), slice(start, start + block)
    return Task(
        x_context=torch.cat([task.x_context, task.x_target[:, seen]], dim=1),
        y_context=torch.cat([task.y_context, y[:, seen]], dim=1),
        x_target=task.x_target[:, asked],
        mask_context=torch.cat([task.mask_context, task.mask_target[:, seen]], dim=1),
        mask_target=task.mask_target[:, asked],
    )


def _starts(task: Task, block: int, visits: int | None = None) -> range:
    """Where blocks begin; those behind the last visit, or the last filled target of all rows, are left out."""
    filled = int(task.mask_target.any(0).sum())
    return range(0, filled if visits is None else min(filled, visits), block)


def _scored(task: Task) -> Task:
    """The task with those targets alone that have a likelihood; 0 stands in for the outputs of others."""
    if task.y_target is None:
        raise ValueError("the task has no y_target, so it has no likelihood; pass y_target")
    mask = task.mask_target & ~task.y_target.isnan().all(-1)
    if task.in_context is not None:
        mask = mask & ~task.in_context
    y_target = torch.where(mask.unsqueeze(-1), task.y_target, 0)
    return Task.from_sets(task.x_context, task.y_context, task.x_target, y_target, task.mask_context, mask)


def _rows(task: Task, count: int, chunk: int, decoded: int = 1) -> Iterator[tuple[Tensor, Task]]:
    """Repeat the tasks `count` times and cut them into parts: the indices of some rows and their tasks.

    At most `chunk` points are encoded at once, and as many decoded if a row has `decoded` of them.
    """
    size = max(1, chunk // max(1, decoded, task.x_context.shape[1] + task.num_targets))
    tensors = task.tensors()
    for rows in torch.arange(count * task.num_tasks, device=task.x_target.device).split(size):
        own = rows % max(1, task.num_tasks)
        yield rows, Task(**{name: value[own] for name, value in tensors.items()})


def _filled_first(order: Tensor, mask: Tensor) -> Tensor:
    """Put filled targets before empty ones, in the order given, [rows, T]: empty ones would leave gaps in blocks."""
    empty = ~mask.take_along_dim(order, -1)
    return order.take_along_dim(empty.long().argsort(dim=-1, stable=True), -1)


def _reorder(task: Task, order: Tensor) -> Task:
    """Put the targets in order."""
    moved = {
        name: value.take_along_dim(order.reshape(*order.shape, *[1] * (value.ndim - 2)), 1)
        for name, value in task.tensors().items()
        if name.endswith("_target") or name == "in_context"
    }
    return Task(**{**task.tensors(), **moved})
