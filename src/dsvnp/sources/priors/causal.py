"""Structural causal models: a random graph of noisy mechanisms, of which a table shows some nodes.

Nodes are computed in layers; a node has a few parents among *all* nodes before it:

    v = act(Σ_parents w·v_parent) + σ_v ε,      then standardised.

The inputs and the output of a table are random nodes, so an input can be a cause of the output, an effect of it, or
share a cause with it that the table does not show.
"""

import torch
from torch import Tensor

from dsvnp.sources.priors.functions import activate
from dsvnp.sources.priors.randomness import Random, unit

ROOTS, WIDTH, LAYERS = 12, 20, 4


def draw_causal(random: Random, tables: int, rows: int, columns: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Draw hidden columns [n, T, D] and outputs [n, T, O] as different nodes of one graph per table."""
    roots = random.normal(tables, rows, ROOTS)
    flat = random.chance(0.4, tables, 1, ROOTS)
    nodes = torch.where(flat, (torch.special.ndtr(roots) - 0.5) * 12**0.5, roots)
    density = random.log_uniform(0.02, 0.5, tables, 1, 1)
    number = random.log_uniform(
        1, ROOTS + 1, tables, 1, 1
    ).long()  # roots that have effects; others are useless columns
    silent = (torch.arange(ROOTS, device=random.device) >= number).mT  # [n, R, 1]
    for _ in range(LAYERS):
        nodes = torch.cat([nodes, _next_layer(random, nodes, density, silent)], dim=-1)
    chosen = _choose_nodes(random, tables, nodes.shape[-1], columns + outputs).unsqueeze(1)
    shown = nodes.gather(2, chosen.expand(-1, rows, -1))
    return shown[..., outputs:], shown[..., :outputs]


def _next_layer(random: Random, nodes: Tensor, density: Tensor, silent: Tensor) -> Tensor:
    """WIDTH further nodes, each with at least one parent, [n, T, W]."""
    tables, rows, before = nodes.shape
    shape = (tables, before, WIDTH)
    one = random.integers(0, before - 1, tables, 1, WIDTH) == torch.arange(
        before, device=random.device
    ).unsqueeze(-1)
    weight = torch.where(random.chance(density, *shape) | one, random.normal(*shape), 0.0)
    weight[:, :ROOTS].masked_fill_(silent, 0.0)
    gain = random.log_uniform(0.6, 3.0, tables, 1, WIDTH)
    weight = weight * gain / weight.norm(dim=1, keepdim=True).clamp(min=1e-6)
    bias = random.normal(tables, 1, WIDTH)
    kind = random.choice((4, 2, 2, 1, 1, 1, 1), tables, 1, WIDTH)
    value = unit(activate(nodes @ weight + bias, kind))
    noise = random.log_uniform(0.02, 0.5, tables, 1, WIDTH)
    value = value + noise * random.normal(tables, rows, WIDTH)
    return value / (1 + noise.square()).sqrt()


def _choose_nodes(random: Random, tables: int, nodes: int, count: int) -> Tensor:
    """Different nodes for outputs and inputs, [n, count]; the first ones, for outputs, are no roots."""
    order = random.uniform(tables, nodes).argsort(-1)
    root = order < ROOTS
    first = (~root).cumsum(-1) == 1
    # The first node that is no root moves to the front; the order of all others stays.
    front = torch.where(first & ~root, 0, 1).argsort(dim=-1, stable=True)
    return order.gather(-1, front)[:, :count]
