"""How a curve is predicted: a view of it for the network, and a Gaussian process as a second opinion.

With one input the period of a season is found first (`periods`). The process is fitted to the points (`process`), and
single points are held out, with one input whole periods too. These choose the network's view (`seasons`): no season,
circle or waves. Then they weigh the two distributions in a mixture, by expectation maximisation with a few points'
worth of belief in either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dsvnp.predictive import GaussianPredictive
from dsvnp.pretrained.curves import boxes
from dsvnp.pretrained.periods import LEAST_POINTS, find_period
from dsvnp.pretrained.process import CurveProcess, Floats
from dsvnp.pretrained.seasons import CurveView, possible_views

MARGIN = 3.0  # nats by which held-out points must prefer a season
MOST_CHECKED = 96  # points of the check on held-out ones
HELD = 1 / 6  # of these points, and as many of the periods as a whole
HELD_OF_SURFACES = 1 / 4  # of the points of a curve with more than one input
STRETCHES = 8  # parts of the checked points that stand for periods where there are few or none
FEWEST_PERIODS = 3  # that the checked points should cover
BELIEF = 3.0  # held-out points that either distribution is given in advance

Ask = Callable[
    [Sequence[CurveView], Tensor, Tensor, Tensor], list[GaussianPredictive]
]  # views, x, y, x_target


@dataclass(frozen=True)
class CurveFit:
    """How a curve is predicted."""

    view: CurveView  # what the network is shown
    process: CurveProcess | None = None  # the other distribution of the mixture; None for the network alone
    share: float = 0.0  # its weight in the mixture


def fit_curve(
    x: Tensor,  # inputs, in float64; with more than one no season is looked for
    y: Tensor,  # outputs
    season: float | str | None,  # a period, "auto" to look for one, None for none
    process: bool,  # whether a Gaussian process may join
    ask: Ask,  # predicts with each of some views, for the check on held-out points
    usual: Sequence[float] = (),  # periods that a season is likely to have
) -> CurveFit:
    """Choose how to predict from points x [N, D], y [N]."""
    flat = x[:, 0] if x.shape[1] == 1 else None
    period = None if season in ("auto", None) else float(season)
    if flat is not None and season == "auto":
        period = find_period(flat, y, usual)
    second = None
    if process and len(x) >= LEAST_POINTS and bool((x.amin(0) < x.amax(0)).all()):
        exact = season != "auto" or period in usual
        second = CurveProcess.fit(x.numpy(), y.numpy(), period, exact)
        period = second.period
    views = [CurveView()] if flat is None else possible_views(flat, y, period)
    if len(views) == 1 and second is None:
        return CurveFit(views[0])
    known, held = held_out(x, period)
    truth = y[held][None, :, None]
    shown = views if flat is None else possible_views(flat[known], y[known], period)
    asked = ask(shown, x[known], y[known], x[held])
    scores = torch.stack([found.log_prob(truth)[0] for found in asked])  # [views, held]
    sums = scores.sum(1)
    if len(views) > 1:
        sums[0] += MARGIN if season == "auto" else -math.inf
    best = int(sums.argmax())
    if second is None:
        return CurveFit(views[best])
    mean, std = second.predict(x[known].numpy(), y[known].numpy(), x[held].numpy())
    own = torch.distributions.Normal(torch.from_numpy(mean), torch.from_numpy(std)).log_prob(y[held])
    return CurveFit(views[best], second, weigh(scores[best], own))


def weigh(first: Tensor, second: Tensor) -> float:
    """Weight of the second of two distributions in a mixture, from log-densities [N] of the same points."""
    share = 0.5
    for _ in range(100):
        belongs = torch.sigmoid(second - first + math.log(share / (1 - share)))
        share = (float(belongs.sum()) + BELIEF) / (len(first) + 2 * BELIEF)
    return share


def predict_process(
    process: CurveProcess, x: Tensor, y: Tensor, x_target: Tensor, max_context: int
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of observations at inputs [T, D], each from the nearest points x [N, D], y [N]."""
    mean, std = np.empty(len(x_target)), np.empty(len(x_target))
    for rows, near in boxes(x, x_target, max_context):
        parts = (part.numpy() for part in (x[near], y[near], x_target[rows]))
        places = rows.numpy()  # NumPy takes a tensor of one index for a number
        mean[places], std[places] = process.predict(*parts)
    return mean, std


def mixed(first: GaussianPredictive, mean: Floats, std: Floats, share: float) -> GaussianPredictive:
    """The mixture of a distribution [1, S, 1, T, 1] and of Gaussians [T] with that weight."""
    locs, scales = (torch.from_numpy(part)[None, None, None, :, None] for part in (mean, std))
    weights = first.log_weights
    if weights is None:
        weights = torch.full_like(first.loc[..., 0], -math.log(first.shape[1]))
    return GaussianPredictive(
        torch.cat([first.loc, locs], 1),
        torch.cat([first.scale, scales], 1),
        torch.cat([weights + math.log1p(-share), torch.full_like(locs[..., 0], math.log(share))], 1),
        components_per_draw=first.shape[1] + 1,
    )


def held_out(x: Tensor, period: float | None) -> tuple[Tensor, Tensor]:
    """Indices of points to predict from and of those to predict, amid points x [N, D] or some of them close together.

    Single points are held out, with one input whole periods as well, or shorter stretches where there are too few.
    """
    generator = torch.Generator().manual_seed(0)
    if x.shape[1] > 1:
        middle = ((x - x.median(0).values) / x.std(0)).norm(dim=-1).argsort(stable=True)[:MOST_CHECKED]
        rows = middle[torch.randperm(len(middle), generator=generator)]
        number = math.ceil(HELD_OF_SURFACES * len(rows))
        return rows[number:], rows[:number]
    rows = _checked(x[:, 0], period)
    away = x[rows, 0] - x[rows[0], 0]
    single = torch.randperm(len(rows), generator=generator) < HELD * len(rows)
    for length in (period, float(away[-1]) / STRETCHES):
        if length:
            number = (away / length).long().unique(return_inverse=True)[1]
            count = int(number.max()) + 1
            held = (torch.randperm(count, generator=generator)[number] < HELD * count) | single
            if held.sum() <= len(rows) / 2:  # otherwise most points lie in one period
                return rows[~held], rows[held]
    return rows[~single], rows[single]


def _checked(x: Tensor, period: float | None) -> Tensor:
    """Indices of at most `MOST_CHECKED` points in order: neighbours, or thinned so that they cover a few periods."""
    rows = x.sort(stable=True).indices
    step = 1
    while True:
        start = max(0, len(rows) - step * MOST_CHECKED) // 2
        found = rows[start : start + step * MOST_CHECKED : step]
        covered = period is None or float(x[found[-1]] - x[found[0]]) >= FEWEST_PERIODS * period
        if covered or len(rows) <= step * MOST_CHECKED:
            return found
        step *= 2
