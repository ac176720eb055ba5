"""How the network for curves is shown a function of one input: without a trend, and with a season in one of two ways.

    circle   y(t) = a + b t + r(t, cos ωt, sin ωt)                             ω = 2π / period
    waves    y(t) = a + b t + Σ_h (c_h cos hωt + s_h sin hωt) + r(t)

The network predicts r. In a circle, points a whole number of periods apart are neighbours, and the season may change
with time; waves are subtracted by least squares, and r varies quickly or slowly around them. A trend is subtracted only
where it explains nearly all of y: the network would spend its digits on it. The period is the highest peak of the
periodogram, if noise does not make one as high. Held-out points choose between circle, waves and no season.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dsvnp.predictive import GaussianPredictive

LEAST_TREND = 0.95  # share of the variance that a trend explains, to be subtracted
LEAST_POINTS, LEAST_CYCLES = 12, 4  # for a season
MOST_WAVES = 4
CHANCE = 0.01  # of a peak as high in white noise
MARGIN = 3.0  # nats by which held-out points must prefer a season
CELLS, PADDING = 16, 4  # of the periodogram: cells of time per point, and how finely frequencies lie
MOST_CHECKED = 256  # points of the check on held-out ones
HELD = 1 / 6  # of these points, and as many of the periods as a whole


@dataclass(frozen=True)
class CurveView:
    """What a curve is to the network."""

    period: float | None = None  # of the season; None for none
    circle: bool = False  # whether the season becomes two more inputs
    centre: float = 0.0  # of the inputs
    # of 1, t, cos ωt, sin ωt, cos 2ωt, …, which are subtracted, where t is the distance to the centre
    weights: tuple[float, ...] = ()

    def inputs(self, x: Tensor) -> Tensor:
        """Inputs of the network at inputs of the curve, [..., D] → [..., D or 3]."""
        if not self.circle or self.period is None:
            return x
        angle = 2 * math.pi / self.period * (x - self.centre)
        return torch.cat([x, angle.cos(), angle.sin()], dim=-1)

    def baseline(self, x: Tensor) -> Tensor:
        """What is subtracted at inputs of the curve, [..., D] → [..., 1]."""
        found = torch.zeros_like(x[..., :1])
        for weight, part in zip(self.weights, self._parts(x[..., :1] - self.centre), strict=True):
            found = found + weight * part
        return found

    def _parts(self, t: Tensor) -> list[Tensor]:
        """1, t and waves, as many as there are weights."""
        parts = [torch.ones_like(t), t]
        for wave in range(1, len(self.weights) // 2):
            angle = 2 * math.pi * wave / (self.period or 1.0) * t
            parts += [angle.cos(), angle.sin()]
        return parts[: len(self.weights)]


Ask = Callable[[CurveView, Tensor, Tensor, Tensor], GaussianPredictive]  # view, x, y, x_target


def fit_view(x: Tensor, y: Tensor, season: float | str | None, ask: Ask) -> CurveView:
    """Choose how to show points x [N, D], y [N].

    Args:
        x: inputs, in float64; with more than one there is nothing to choose.
        y: outputs.
        season: a period, "auto" to look for one, None for none.
        ask: predicts with a view, for the check on held-out points.
    """
    if x.shape[1] > 1:
        return CurveView()
    period = find_period(x[:, 0], y) if season == "auto" else None if season is None else float(season)
    views = possible_views(x[:, 0], y, period)
    if len(views) == 1:
        return views[0]
    assert period is not None
    known, held = _held_out(x[:, 0], period)
    truth = y[held][None, :, None]
    scores = [
        float(ask(view, x[known], y[known], x[held]).log_prob(truth).sum())
        for view in possible_views(x[known, 0], y[known], period)
    ]
    scores[0] += MARGIN if season == "auto" else -math.inf
    return views[scores.index(max(scores))]


def possible_views(x: Tensor, y: Tensor, period: float | None) -> list[CurveView]:
    """Views of points x [N], y [N]: without a season, then, if there is one, as a circle and as waves."""
    plain = fit_trend(x, y)
    if period is None:
        return [plain]
    return [plain, CurveView(period, True, plain.centre, plain.weights), fit_waves(x, y, plain, period)]


def fit_trend(x: Tensor, y: Tensor) -> CurveView:
    """The view without the straight line through points x [N], y [N], if it explains nearly all of y."""
    view = _fitted(x, y, CurveView(None, False, float(x.mean()), (0.0, 0.0)))
    rest = (y - view.baseline(x[:, None])[:, 0]).square().sum()
    if len(x) < LEAST_POINTS or rest > (1 - LEAST_TREND) * (y - y.mean()).square().sum():
        return CurveView(None, False, view.centre)
    return view


def fit_waves(x: Tensor, y: Tensor, plain: CurveView, period: float) -> CurveView:
    """The view without waves; how many of them, is for Schwarz's criterion (BIC) to say."""
    found = []
    for waves in range(1, max(1, min(MOST_WAVES, len(x) // 16)) + 1):
        view = _fitted(
            x, y, CurveView(period, False, plain.centre, (0.0,) * (2 + 2 * waves)), bool(plain.weights)
        )
        rest = (y - view.baseline(x[:, None])[:, 0]).square().mean().clamp(min=1e-300)
        found.append((len(x) * float(rest.log()) + 2 * waves * math.log(len(x)), waves, view))
    return min(found)[2]


def _fitted(x: Tensor, y: Tensor, view: CurveView, sloped: bool = True) -> CurveView:
    """The view with the weights of least squares at points x [N], y [N]; without a slope its weight is 0."""
    t = (x - view.centre)[:, None]
    parts = torch.cat(view._parts(t), dim=-1)  # [N, weights]
    scale = parts.abs().amax(0).clamp(min=1e-300)
    scale[1] = scale[1] if sloped else math.inf
    weights = torch.linalg.lstsq(parts / scale, y[:, None], driver="gelsd").solution[:, 0] / scale
    return CurveView(view.period, False, view.centre, tuple(weights.tolist()))


def _held_out(x: Tensor, period: float) -> tuple[Tensor, Tensor]:
    """Indices of points to predict from and of those to predict, whole periods and single points, amid x [N]."""
    rows = x.sort(stable=True).indices
    start = max(0, len(rows) - MOST_CHECKED) // 2
    rows = rows[start : start + MOST_CHECKED]
    generator = torch.Generator().manual_seed(0)
    number = ((x[rows] - x[rows[0]]) / period).long().unique(return_inverse=True)[1]
    whole = torch.randperm(int(number.max()) + 1, generator=generator)[number] < HELD * (number.max() + 1)
    single = torch.randperm(len(rows), generator=generator) < HELD * len(rows)
    return rows[~(whole | single)], rows[whole | single]


def find_period(x: Tensor, y: Tensor) -> float | None:
    """The period of points x [N], y [N], or None where the periodogram has no peak that noise could not make.

    Frequencies reach from `LEAST_CYCLES` periods over the span to half as many as there are points.
    """
    span = x.max() - x.min()
    if len(x) < LEAST_POINTS or not span > 0:
        return None
    place = (x - x.min()) / span  # 0 … 1
    rest = _without_parabola(place, y)
    cells = 2 ** math.ceil(math.log2(CELLS * len(x)))
    grid = torch.zeros(PADDING * cells, dtype=x.dtype)
    grid.index_add_(0, (place * cells).long().clamp(max=cells - 1), rest)
    power = torch.fft.rfft(grid).abs().square()[: PADDING * len(x) // 2 + 1]
    power[: PADDING * LEAST_CYCLES] = 0.0
    peak = float(power.argmax()) / PADDING
    near = peak + torch.linspace(-1, 1, 81, dtype=x.dtype) / PADDING
    explained = _explained(place, rest, near.clamp(min=LEAST_CYCLES))  # [81]
    share = float(explained.max() / rest.square().sum().clamp(min=1e-300))
    chance = len(x) / 2 * max(1 - share, 1e-12) ** ((len(x) - 5) / 2)  # as many independent frequencies
    return float(span / near[explained.argmax()]) if chance < CHANCE else None


def _without_parabola(place: Tensor, y: Tensor) -> Tensor:
    """What the best parabola leaves of y [N] at places [N] between 0 and 1."""
    powers = torch.stack([torch.ones_like(place), place, place.square()], dim=1)
    basis = torch.linalg.qr(powers).Q
    return y - basis @ (basis.T @ y)


def _explained(place: Tensor, rest: Tensor, cycles: Tensor) -> Tensor:
    """Sum of squares of `rest` [N] that a sine with so many cycles [F] explains, [F]."""
    angle = 2 * math.pi * place[:, None] * cycles  # [N, F]
    c, s = angle.cos(), angle.sin()
    cc, ss, cs = c.square().sum(0), s.square().sum(0), (c * s).sum(0)
    a, b = rest @ c, rest @ s
    return (ss * a.square() - 2 * cs * a * b + cc * b.square()) / (cc * ss - cs.square()).clamp(min=1e-9)
