"""Inputs of synthetic tables: columns of all the kinds people have.

Every column begins as a *hidden* number with mean 0 and variance 1 (h, [n, T, D]), which may depend on the other
columns. From it come what the table shows (x) and what the output depends on (z): of a price the table may show the
price while the output depends on its logarithm, of a category it shows a code while the output depends on a
random effect of that code.

    normal · uniform · bimodal · skewed · heavy-tailed · rounded · zero-inflated   continuous, by a monotone map of h
    ordinal · binary                                                      Φ(h) cut into levels
    categorical                                                           Φ(h) cut, the codes in random order
"""

import torch
from torch import Tensor

from dsvnp.sources.priors.randomness import Random, unit

FACTORS = 6  # common causes of correlated columns
LEVELS = 16  # most levels that an ordinal or categorical column has
NORMAL, UNIFORM, BIMODAL, SKEWED, HEAVY, ROUNDED, ZEROS, ORDINAL, BINARY, CATEGORICAL = range(10)
STRUCTURES = (3, 2, 3, 2)  # independent columns, chained, with common factors, with clusters
GAPS = 0.25  # share of tables with missing entries
WEIGHTS = (5.0, 3.0, 1.0, 3.0, 1.0, 1.5, 1.0, 2.0, 2.0, 2.5)


def draw_hidden(random: Random, tables: int, rows: int, columns: int) -> Tensor:
    """Draw hidden columns: independent, chained, or mixed from a few factors or clusters, [n, T, D].

    Each is a linear map of the same independent numbers, so one product serves all tables.
    """
    structure = random.choice(STRUCTURES, tables).view(-1, 1, 1)
    own = torch.eye(columns, device=random.device).expand(tables, -1, -1)
    none = torch.zeros(tables, FACTORS, columns, device=random.device)
    loading = random.normal(tables, FACTORS, columns)
    loading = loading / loading.norm(dim=1, keepdim=True)
    common = random.uniform(tables, 1, columns) ** random.log_uniform(0.2, 2.0, tables, 1, 1)
    remainder = own * (1 - common.square()).sqrt()  # per column, factors and its own part have variance 1
    mixed = structure >= 2
    maps = torch.cat(
        [
            torch.where(structure == 1, _chain(random, tables, columns), torch.where(mixed, remainder, own)),
            torch.where(mixed, common * loading, none),
        ],
        dim=1,
    )  # [n, D + F, D]
    clusters = random.integers(0, FACTORS - 1, tables, rows, 1) == torch.arange(FACTORS, device=random.device)
    scaled = (clusters.float() - 1 / FACTORS) * FACTORS / (FACTORS - 1) ** 0.5  # variance 1
    numbers = random.normal(tables, rows, columns + FACTORS)
    factors = torch.where(structure == 3, scaled, numbers[..., columns:])
    return torch.cat([numbers[..., :columns], factors], dim=-1) @ maps


def _chain(random: Random, tables: int, columns: int) -> Tensor:
    """Maps of hⱼ = ρⱼ hⱼ₋₁ + √(1 − ρⱼ²) εⱼ, [n, from, to]: products of ρ along the chain."""
    rho = random.uniform(tables, columns, low=0.05, high=0.99) ** random.log_uniform(0.2, 2.0, tables, 1)
    rho[:, 0] = 0.0
    logs = torch.log(rho.clamp(min=1e-6)).cumsum(-1)
    steps = torch.exp((logs.unsqueeze(1) - logs.unsqueeze(2)).clamp(max=0)).triu()  # ρ of i+1 … j
    signs = random.sign(tables, columns).cumprod(-1)
    own = (1 - rho.square()).sqrt().unsqueeze(-1)
    return steps * own * signs.unsqueeze(1) * signs.unsqueeze(2)


def observe(random: Random, hidden: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Turn hidden columns [n, T, D] of unit variance into what a table shows and what its output depends on.

    Returns x [n, T, D] with NaN where a value is missing, and z [n, T, D], standardised, without missing values; both
    are 0 in columns that are not used [n, D].
    """
    kind = _draw_kinds(random, *used.shape)
    level = torch.special.ndtr(hidden)
    smooth = _continuous(random, hidden, level, kind)
    codes, effects = _discrete(random, level, kind)
    discrete = kind >= ORDINAL
    x = torch.where(discrete, codes, smooth)
    # An output may depend on what is shown or on the hidden number, of which a price is the exponential.
    direct = random.chance(0.5, *kind.shape) & (kind <= ROUNDED)
    z = unit(torch.where(discrete, effects, torch.where(direct, hidden, smooth)), bound=5.0)
    x, z = _duplicate(random, x, z, used)
    missing = _missing(random, hidden)
    used = used.unsqueeze(1)
    x = torch.where(missing, torch.nan, x)
    return torch.where(used, x, 0.0), torch.where(used, z, 0.0)


def _draw_kinds(random: Random, tables: int, columns: int) -> Tensor:
    """A kind per column, [n, 1, D]; in a third of the tables all columns are of one kind."""
    kinds = random.choice(WEIGHTS, tables, columns)
    alike = random.chance(0.35, tables, 1)
    return torch.where(alike, kinds[:, :1], kinds).unsqueeze(1)


def _continuous(random: Random, h: Tensor, level: Tensor, kind: Tensor) -> Tensor:
    """Monotone maps of hidden numbers, [n, T, D]."""
    shape = kind.shape
    amount, flip = random.uniform(*shape), random.sign(*shape)
    cut = h.clamp(-5, 5)
    rate = 0.2 + 1.1 * amount
    x = torch.where(kind == UNIFORM, level, h)
    x = torch.where(kind == BIMODAL, 0.6 * h + (0.5 + amount) * h.sign(), x)
    x = torch.where(kind == SKEWED, flip * torch.exp(rate * cut), x)
    x = torch.where(kind == HEAVY, cut * torch.exp(0.1 * rate * cut.square()), x)
    grain = 1 + 24 * amount  # steps per standard deviation
    x = torch.where(kind == ROUNDED, torch.round(h * grain) / grain, x)
    return torch.where(kind == ZEROS, flip * (h - 2 * amount + 1).clamp(min=0), x)


def _discrete(random: Random, level: Tensor, kind: Tensor) -> tuple[Tensor, Tensor]:
    """Codes that the table shows, and the effect of each code, both [n, T, D]."""
    tables, _, columns = kind.shape
    shape = (tables, 1, columns)
    count = torch.where(kind == BINARY, 2, random.log_uniform(3, LEVELS + 1, *shape).long().clamp(max=LEVELS))
    # Φ(h)^γ makes some levels rare.
    skew = torch.exp(0.7 * random.normal(*shape))
    code = (level**skew * count).long().clamp(min=0)
    code = torch.minimum(code, count - 1)
    # One table per column: in which order codes are numbered, and what effect each has.
    score = random.normal(tables, columns, LEVELS)
    filled = torch.arange(LEVELS, device=random.device) < count.mT  # [n, D, L]
    rank = torch.where(filled, score, torch.inf).argsort(-1).argsort(-1)
    effect = random.normal(tables, columns, LEVELS)
    index = code.mT
    shuffled, effects = rank.gather(2, index).mT, effect.gather(2, index).mT
    categorical = kind == CATEGORICAL
    plain = code.to(level.dtype)
    return torch.where(categorical, shuffled.to(level.dtype), plain), torch.where(categorical, effects, plain)


def _duplicate(random: Random, x: Tensor, z: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """Make some columns copies of others, in a tenth of the tables."""
    tables, columns = used.shape
    own = torch.arange(columns, device=random.device)
    other = (random.uniform(tables, columns) * used.sum(1, keepdim=True)).long()
    share = random.uniform(tables, 1) * random.chance(0.1, tables, 1)
    source = torch.where(random.chance(share, tables, columns), other, own).unsqueeze(1).expand_as(x)
    return x.gather(2, source), z.gather(2, source)


def _missing(random: Random, hidden: Tensor) -> Tensor:
    """Flags of missing entries in a quarter of the tables: at random, or likelier where h is large or small."""
    tables, _, columns = hidden.shape
    has = random.chance(GAPS, tables, 1, 1) & random.chance(0.6, tables, 1, columns)
    rate = torch.where(has, 0.6 * random.uniform(tables, 1, columns).square(), 0.0)
    slope = 3 * random.normal(tables, 1, columns) * random.chance(0.4, tables, 1, columns)
    return random.uniform(*hidden.shape) < rate * 2 * torch.special.ndtr(slope * hidden)
