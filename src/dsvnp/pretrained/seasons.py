"""How the network for curves is shown a function of one input: without a trend, and with a season in one of two ways.

    circle   y(t) = a + b t + r(t, cos ωt, sin ωt)                             ω = 2π / period
    waves    y(t) = a + b t + Σ_h (c_h cos hωt + s_h sin hωt) + r(t)

The network predicts r. In a circle, points a whole number of periods apart are neighbours, and the season may change
with time; waves are subtracted by least squares, and r varies quickly or slowly around them. A trend is subtracted only
where it explains nearly all of y: the network would spend its digits on it. `dsvnp.pretrained.series` chooses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_TREND = 0.95  # share of the variance that a trend explains, to be subtracted
LEAST_POINTS = 12  # for a trend
MOST_WAVES = 4


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
