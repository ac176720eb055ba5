"""The period of a series: the highest peak of its periodogram, if noise would seldom make one as high.

A slow trend is subtracted first: a parabola and two cosines, slower than any season. Points need not be evenly spaced.
Frequencies end at twice as many cycles as there are points, or where half a cycle lies between the two nearest points:
a regular series with many missing points still shows its season. Where waves with two or three times the period explain
clearly more, the peak was a harmonic. Periods that are known beforehand, as those of a calendar, come first and need
fewer cycles. Of a long series some points are looked at, drawn at random: these show short seasons too.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

LEAST_POINTS, LEAST_CYCLES = 12, 4  # for a season
LEAST_KNOWN = 2  # cycles of a period that is known
MOST_POINTS, MOST_CYCLES = 20_000, 2**19  # that are looked at: two seconds of time, and half a GB
SLOW = 2  # cosines of the trend, the faster with one cycle
CHANCE = 0.1  # of a peak as high in white noise
# of the periodogram: cells of time in the shortest half cycle, fewer if it has many, and how finely frequencies lie
CELLS, FEWER_CELLS, PADDING = 16, 4, 4
MANY = 2**18  # shortest half cycles
MULTIPLES, MOST_WAVES = (1, 2, 3), 4
MARGIN = 20.0  # of Schwarz's criterion (BIC), by which a multiple of the period must be better


def find_period(x: Tensor, y: Tensor, known: Sequence[float] = ()) -> float | None:
    """The period of points x [N], y [N], known ones tried first; None where nothing repeats `LEAST_CYCLES` times."""
    if len(x) < LEAST_POINTS or not x.max() > x.min():
        return None
    highest = _highest(x)
    if len(x) > MOST_POINTS:
        some = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:MOST_POINTS]
        x, y = x[some], y[some]
    span = x.max() - x.min()
    place = (x - x.min()) / span  # 0 … 1
    slow = min(SLOW, len(x) // 10)
    rest = _without_trend(place, y, slow)

    def likely(explained: Tensor, frequencies: float) -> bool:
        """Whether noise would seldom explain as much at one of so many independent frequencies."""
        share = float(explained.max() / rest.square().sum().clamp(min=1e-300))
        return frequencies * max(1 - share, 1e-12) ** ((len(x) - 5 - slow) / 2) < CHANCE

    usual = [period for period in known if LEAST_KNOWN <= span / period <= highest]
    explained = _explained(place, rest, span / torch.tensor(usual, dtype=x.dtype))
    if usual and likely(explained, len(usual)):
        return usual[int(explained.argmax())]
    near = _peak(place, rest, highest) + torch.linspace(-1, 1, 81, dtype=x.dtype) / PADDING
    near = near.clamp(min=LEAST_CYCLES)
    explained = _explained(place, rest, near)  # [81]
    if not likely(explained, highest):
        return None
    cycles = float(near[explained.argmax()])
    return float(span) / cycles * _multiple(place, rest, cycles)


def _without_trend(place: Tensor, y: Tensor, slow: int) -> Tensor:
    """What a parabola and cosines leave of y [N] at places [N] between 0 and 1."""
    powers = torch.stack([torch.ones_like(place), place, place.square()], dim=1)
    half_cycles = torch.arange(1, slow + 1, dtype=place.dtype)
    return _rest(torch.cat([powers, (math.pi * place[:, None] * half_cycles).cos()], dim=1), y)


def _rest(parts: Tensor, y: Tensor) -> Tensor:
    """What least squares on parts [N, P] leave of y [N]."""
    basis = torch.linalg.qr(parts).Q
    return y - basis @ (basis.T @ y)


def _highest(x: Tensor) -> float:
    """The most cycles to look for in points x [N]."""
    place = x.sort().values
    gaps = place.diff() / (place[-1] - place[0])
    nearest = float(gaps[gaps > 1e-9].min())
    return max(min(2 * len(x), 0.5001 / nearest, MOST_CYCLES), LEAST_CYCLES + 1)


def _peak(place: Tensor, rest: Tensor, highest: float) -> float:
    """Cycles at the highest peak of the periodogram of `rest` [N]."""
    halves = max(len(place), 2 * highest)
    cells = 2 ** math.ceil(math.log2(halves * (CELLS if halves < MANY else FEWER_CELLS)))
    grid = torch.zeros(PADDING * cells, dtype=place.dtype)
    grid.index_add_(0, (place * cells).long().clamp(max=cells - 1), rest)
    power = torch.fft.rfft(grid).abs().square()[: int(PADDING * highest) + 1]
    power[: PADDING * LEAST_CYCLES] = 0.0
    return float(power.argmax()) / PADDING


def _explained(place: Tensor, rest: Tensor, cycles: Tensor) -> Tensor:
    """Sum of squares of `rest` [N] that a sine with so many cycles [F] explains, [F]."""
    angle = 2 * math.pi * place[:, None] * cycles  # [N, F]
    c, s = angle.cos(), angle.sin()
    cc, ss, cs = c.square().sum(0), s.square().sum(0), (c * s).sum(0)
    a, b = rest @ c, rest @ s
    return (ss * a.square() - 2 * cs * a * b + cc * b.square()) / (cc * ss - cs.square()).clamp(min=1e-9)


def _multiple(place: Tensor, rest: Tensor, cycles: float) -> int:
    """How many of the peak's periods are one period of the season."""
    num, total, found = len(place), rest.square().sum(), []
    for multiple in (m for m in MULTIPLES if m == 1 or cycles / m >= LEAST_CYCLES):
        for waves in range(1, max(1, min(MOST_WAVES * multiple, num // 8)) + 1):
            orders = torch.arange(1, waves + 1, dtype=place.dtype)
            angle = 2 * math.pi * cycles / multiple * place[:, None] * orders
            left = _rest(torch.cat([angle.cos(), angle.sin()], dim=1), rest).square().sum()
            criterion = num * math.log(max(float(left / total), 1e-9)) + 2 * waves * math.log(num)
            found.append((criterion + MARGIN * (multiple > 1), multiple))
    return min(found)[1]
