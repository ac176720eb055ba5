"""Families of random functions of a table's columns, each drawn for a block of tables at once.

A family reads z [n, T, D] (standardised columns) and weights [n, D] (how much each column matters, Σ w² = 1, zero for
a column that does not), and returns O functions per table, [n, T, O]: classes need several, and noise whose size
depends on x needs a second one.

    gaussian_process   f = √(2/m) Σ a cos(ω·z + b), ω from the spectral law of an ARD RBF or Matérn kernel; or a sum of
                       such functions of one to three columns each
    network            one to four layers, dense or sparse, one activation per layer
    trees              a sum of axis-aligned trees with hard or soft splits
    formula            a linear term plus products of simple terms: steps, hinges, squares, waves, …
    cells              one value per nearest centre, with hard or soft borders
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from dsvnp.sources.priors.randomness import Random, unit

FEATURES, GROUPS = 128, 32
WIDTH, DEPTH = 32, 4
TREES, SPLITS = 8, 4
TERMS = 16
CENTRES = 24

Family = Callable[[Random, Tensor, Tensor, int], Tensor]


def draw_table_functions(
    random: Random, z: Tensor, used: Tensor, outputs: int, mixed: float = 0.35
) -> Tensor:
    """Draw functions of mixed families, standardised over the rows, [n, T, outputs].

    Columns z [n, T, D] are standardised, and zero where they are not used. A share `mixed` of the tables has sums of
    two families.
    """
    f = _deal_families(random, z, draw_relevance(random, used), outputs, FAMILIES)
    rows, _ = random.allot(len(z), (mixed, 1 - mixed))
    if len(rows):
        second = _deal_families(random, z[rows], draw_relevance(random, used[rows]), outputs, SECOND)
        angle = random.uniform(len(rows), 1, 1, low=0.15, high=math.pi / 2 - 0.15)
        f[rows] = angle.cos() * f[rows] + angle.sin() * second
    return unit(f)


def _deal_families(
    random: Random, z: Tensor, weight: Tensor, outputs: int, shares: Mapping[Family, float]
) -> Tensor:
    """Functions of one family per table, in fixed proportions."""
    f = z.new_empty(*z.shape[:2], outputs)
    for family, rows in zip(shares, random.allot(len(z), list(shares.values())), strict=True):
        if len(rows):
            f[rows] = unit(family(random, z[rows], weight[rows], outputs))
    return f


def draw_relevance(random: Random, used: Tensor) -> Tensor:
    """Draw how much each column matters: between one and all of the used ones do, Σ w² = 1, [n, D]."""
    tables, columns = used.shape
    number = used.sum(1, keepdim=True)
    share = random.uniform(tables, 1)
    some = ((number + 1) ** (1 - share)).long()  # nearly log-uniform in 1 … number
    relevant = torch.where(random.chance(0.25, tables, 1), number, some)
    score = torch.where(used, random.uniform(tables, columns), -1.0)
    rank = score.argsort(-1, descending=True).argsort(-1)
    spread = random.uniform(tables, 1, high=1.2)
    weight = torch.exp(spread * random.normal(tables, columns))
    weight = torch.where(used & (rank < relevant), weight, 0.0)
    return weight / weight.norm(dim=-1, keepdim=True).clamp(min=1e-6)


def reach(weight: Tensor) -> Tensor:
    """About how many columns matter, 1 / Σ w⁴, [n, 1, 1]: functions of many must be smoother to be learnable."""
    return 1 / weight.pow(4).sum(-1).clamp(min=1e-6).view(-1, 1, 1)


def pick_columns(random: Random, weight: Tensor, count: int) -> Tensor:
    """Draw `count` columns per table, each with probability w², [n, count]."""
    edges = weight.square().cumsum(-1)
    edges = edges / edges[:, -1:].clamp(min=1e-6)
    uniform = random.uniform(len(weight), count)
    # Column 0 … D − 1; rounding must not lead to a column of weight zero, hence "<" and the cut at 1 − 1e-6.
    index = torch.searchsorted(edges, uniform.clamp(max=1 - 1e-6), right=True)
    return index.clamp(max=weight.shape[1] - 1)


def take_columns(z: Tensor, index: Tensor) -> Tensor:
    """Columns of z [n, T, D] by index [n, K], [n, T, K]."""
    return z.gather(2, index.unsqueeze(1).expand(-1, z.shape[1], -1))


def gaussian_process(random: Random, z: Tensor, weight: Tensor, outputs: int) -> Tensor:
    """Gaussian processes with ARD kernels by random Fourier features; half of them additive."""
    tables, _, columns = z.shape
    freedom = (2 * random.choice((2, 1, 1, 1), tables, 1) - 1).clamp(min=0)  # RBF, Matérn-1/2, 3/2, 5/2
    direction = random.normal(tables, FEATURES, columns)
    direction = direction * random.frequency_scale(freedom.expand(-1, FEATURES), tables, FEATURES)[..., None]
    shortest = 0.25 * reach(weight).clamp(max=8) ** 0.75
    length = shortest * (6 / shortest) ** random.uniform(tables, 1, 1) ** 0.7
    full = weight.unsqueeze(1) / length
    additive = _additive_scales(random, weight)
    frequency = direction * torch.where(random.chance(0.5, tables, 1, 1), full, additive)
    return fourier_features(random, z, frequency, outputs)


def fourier_features(random: Random, z: Tensor, frequency: Tensor, outputs: int) -> Tensor:
    """√(2/m) Σ a cos(ω·z + b) with standard normal a and uniform b, [n, T, O]."""
    tables, features, _ = frequency.shape
    phase = random.uniform(tables, 1, features, high=2 * math.pi)
    amplitude = random.normal(tables, features, outputs) * (2 / features) ** 0.5
    return torch.baddbmm(phase, z, frequency.mT).cos_() @ amplitude


def _additive_scales(random: Random, weight: Tensor) -> Tensor:
    """Inverse length scales of features that each see one to three columns only, [n, m, D]."""
    tables, columns = weight.shape
    picked = pick_columns(random, weight, GROUPS * 3).view(tables, GROUPS, 3)
    order = random.choice((5, 3, 1), tables, 1, 1)
    picked = torch.where(torch.arange(3, device=weight.device) <= order, picked, picked[..., :1])
    seen = torch.zeros(tables, GROUPS, columns, device=weight.device).scatter_(2, picked, 1.0)
    inverse = 1 / random.log_uniform(0.4, 6.0, tables, GROUPS, 1)
    return (seen * inverse).repeat(1, FEATURES // GROUPS, 1)


def network(random: Random, z: Tensor, weight: Tensor, outputs: int) -> Tensor:
    """Random networks of one to four layers, dense or sparse, with one activation per layer."""
    tables, _, columns = z.shape
    gain = random.log_uniform(0.4, 3.5, tables, 1, 1) / reach(weight).clamp(max=8) ** 0.25
    first = random.normal(tables, columns, WIDTH) * weight.unsqueeze(-1) * gain
    density = random.log_uniform(0.08, 1.5, tables, 1, 1)
    depth = 1 + random.choice((3, 3, 2, 1), tables, 1, 1)
    hidden = activate(z @ first + random.normal(tables, 1, WIDTH), _activation(random, tables))
    for layer in range(1, DEPTH):
        sparse = random.chance(density, tables, WIDTH, WIDTH) | torch.eye(
            WIDTH, dtype=torch.bool, device=z.device
        )
        inner = torch.where(sparse, random.normal(tables, WIDTH, WIDTH), 0.0)
        inner = inner * 1.2 / inner.norm(dim=1, keepdim=True)
        further = activate(
            unit(hidden) @ inner + random.normal(tables, 1, WIDTH), _activation(random, tables)
        )
        hidden = torch.where(layer < depth, further, hidden)
    return unit(hidden) @ random.normal(tables, WIDTH, outputs)


def _activation(random: Random, tables: int) -> Tensor:
    """An activation per table, seldom the identity."""
    return random.choice((2, 4, 4, 1, 1, 1, 1), tables, 1, 1)


def activate(value: Tensor, kind: Tensor) -> Tensor:
    """Apply activation 0 … 6: identity, tanh, ReLU, sine, sign, absolute value, bump e^(−v²/2)."""
    out = torch.where(kind == 1, value.tanh(), value)
    out = torch.where(kind == 2, value.relu(), out)
    out = torch.where(kind == 3, torch.sin(2 * value), out)
    out = torch.where(kind == 4, value.sign(), out)
    out = torch.where(kind == 5, value.abs(), out)
    return torch.where(kind == 6, torch.exp(-0.5 * value.square()), out)


def trees(random: Random, z: Tensor, weight: Tensor, outputs: int) -> Tensor:
    """Sums of one to eight axis-aligned trees of one to four splits in depth, hard or soft."""
    tables, rows, _ = z.shape
    nodes = 2**SPLITS - 1
    column = pick_columns(random, weight, TREES * nodes)
    value = take_columns(z, column)  # [n, T, trees · nodes]
    # A split lies at a value that some row has, so both sides are filled.
    row = random.integers(0, rows - 1, tables, 1, TREES * nodes)
    margin = value - value.gather(1, row) + 1e-4 * random.sign(tables, 1, TREES * nodes)
    width = torch.where(random.chance(0.5, tables, 1, 1), 1e-3, random.log_uniform(0.05, 1.0, tables, 1, 1))
    gate = torch.sigmoid(margin / width).unflatten(-1, (TREES, nodes))
    depth = random.integers(1, SPLITS, tables, 1, TREES, 1)
    level = torch.arange(nodes, device=z.device).add(1).log2().floor()
    gate = torch.where(level < depth, gate, 1.0)  # below its depth a tree splits nothing
    share = torch.ones_like(gate[..., :1])
    for split in range(SPLITS):
        at = gate[..., 2**split - 1 : 2 ** (split + 1) - 1]
        share = torch.cat([share * (1 - at), share * at], dim=-1)  # [n, T, trees, 2^(split + 1)]
    number = random.integers(1, TREES, tables, 1, 1, 1)
    leaves = random.normal(tables, TREES, 2**SPLITS, outputs)
    leaves = torch.where(torch.arange(TREES, device=z.device).view(1, -1, 1, 1) < number, leaves, 0.0)
    return share.flatten(2) @ leaves.flatten(1, 2)


def formula(random: Random, z: Tensor, weight: Tensor, outputs: int) -> Tensor:
    """A linear term plus up to sixteen terms t(zᵢ), or t(zᵢ)·t′(zⱼ), with coefficients that decay."""
    tables, _, columns = z.shape
    left = _term(random, take_columns(z, pick_columns(random, weight, TERMS)))
    right = _term(random, take_columns(z, pick_columns(random, weight, TERMS)))
    product = random.chance(random.uniform(tables, 1, 1), tables, 1, TERMS)
    terms = torch.where(product, left * right, left)
    number = random.integers(1, TERMS, tables, 1, 1) * random.chance(0.7, tables, 1, 1)  # 0: linear
    counted = torch.arange(TERMS, device=z.device).unsqueeze(-1) < number
    coefficient = torch.where(counted, random.normal(tables, TERMS, outputs), 0.0)
    slope = weight.unsqueeze(-1) * random.normal(tables, columns, outputs)
    slope = slope * torch.where(number > 0, random.chance(0.6, tables, 1, 1) * 1.0, 1.0)
    return terms @ coefficient / number.clamp(min=1).sqrt() + z @ slope


def _term(random: Random, value: Tensor) -> Tensor:
    """Simple functions of one column per term: the value, a step, a hinge, a square, a wave, a bump, a root."""
    shape = (value.shape[0], 1, value.shape[2])
    kind, at = random.choice((4, 2, 2, 1, 2, 1, 1), *shape), random.normal(*shape)
    rate, phase = random.log_uniform(1.0, 8.0, *shape), random.uniform(*shape, high=2 * math.pi)
    out = torch.where(kind == 1, (value > at) * 2.0 - 1.0, value)
    out = torch.where(kind == 2, (value - at).relu(), out)
    out = torch.where(kind == 3, value.square() - 1, out)
    out = torch.where(kind == 4, torch.sin(rate * value + phase), out)
    out = torch.where(kind == 5, 2 * torch.exp(-rate * (value - at).square()), out)
    return torch.where(kind == 6, value.sign() * value.abs().sqrt(), out)


def cells(random: Random, z: Tensor, weight: Tensor, outputs: int) -> Tensor:
    """One value per nearest centre (a row of the table), with borders between hard and soft."""
    tables, rows, columns = z.shape
    near = z * weight.unsqueeze(1)
    row = random.integers(0, rows - 1, tables, CENTRES, 1).expand(-1, -1, columns)
    centre = near.gather(1, row)
    # −|z − c|² up to |z|², which all centres share.
    closeness = 2 * near @ centre.mT - centre.square().sum(-1).unsqueeze(1)
    most = 2 + 22 * random.uniform(tables, 1, 1).square()
    closeness = torch.where(torch.arange(CENTRES, device=z.device) < most, closeness, -torch.inf)
    share = torch.softmax(closeness / random.log_uniform(0.003, 0.5, tables, 1, 1), dim=-1)
    return share @ random.normal(tables, CENTRES, outputs)


FAMILIES: dict[Family, float] = {gaussian_process: 0.28, network: 0.2, trees: 0.2, formula: 0.2, cells: 0.12}
SECOND: dict[Family, float] = {gaussian_process: 0.25, trees: 0.15, formula: 0.6}  # what is added in mixtures
