"""How a curve of one input is predicted: a view of it for the network, and a Gaussian process as a second opinion.

The period of a season is found first (`periods`), the process is fitted to the points (`process`), and single points
and whole periods are held out. These choose the network's view (`seasons`): no season, circle or waves. Then they weigh
the two distributions in a mixture, by expectation maximisation with a few points' worth of belief in either.
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
from dsvnp.pretrained.process import Floats, SeriesProcess
from dsvnp.pretrained.seasons import CurveView, possible_views

MARGIN = 3.0  # nats by which held-out points must prefer a season
MOST_CHECKED = 96  # points of the check on held-out ones
HELD = 1 / 6  # of these points, and as many of the periods as a whole
PERIODS = 8  # as many parts of a series without a season count as periods here
BELIEF = 3.0  # held-out points that either distribution is given in advance

Ask = Callable[
    [Sequence[CurveView], Tensor, Tensor, Tensor], list[GaussianPredictive]
]  # views, x, y, x_target


@dataclass(frozen=True)
class CurveFit:
    """How a curve is predicted."""

    view: CurveView  # what the network is shown
    process: SeriesProcess | None = None  # the other distribution of the mixture; None for the network alone
    share: float = 0.0  # its weight in the mixture


def fit_curve(
    x: Tensor,  # inputs, in float64; with more than one there is nothing to choose
    y: Tensor,  # outputs
    season: float | str | None,  # a period, "auto" to look for one, None for none
    process: bool,  # whether a Gaussian process may join
    ask: Ask,  # predicts with each of some views, for the check on held-out points
    usual: Sequence[float] = (),  # periods that a season is likely to have
) -> CurveFit:
    """Choose how to predict from points x [N, D], y [N]."""
    if x.shape[1] > 1:
        return CurveFit(CurveView())
    flat = x[:, 0]
    period = find_period(flat, y, usual) if season == "auto" else None if season is None else float(season)
    second = None
    if process and len(x) >= LEAST_POINTS and flat.min() < flat.max():
        exact = season != "auto" or period in usual
        second = SeriesProcess.fit(flat.numpy(), y.numpy(), period, exact)
        period = second.period
    views = possible_views(flat, y, period)
    if len(views) == 1 and second is None:
        return CurveFit(views[0])
    known, held = held_out(flat, period)
    truth = y[held][None, :, None]
    asked = ask(possible_views(flat[known], y[known], period), x[known], y[known], x[held])
    scores = torch.stack([found.log_prob(truth)[0] for found in asked])  # [views, held]
    sums = scores.sum(1)
    if len(views) > 1:
        sums[0] += MARGIN if season == "auto" else -math.inf
    best = int(sums.argmax())
    if second is None:
        return CurveFit(views[best])
    mean, std = second.predict(flat[known].numpy(), y[known].numpy(), flat[held].numpy())
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
    process: SeriesProcess, x: Tensor, y: Tensor, x_target: Tensor, max_context: int
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of observations at inputs [T, 1], each from the nearest points x [N, 1], y [N]."""
    mean, std = np.empty(len(x_target)), np.empty(len(x_target))
    for rows, near in boxes(x, x_target, max_context):
        parts = (part.numpy() for part in (x[near, 0], y[near], x_target[rows, 0]))
        mean[rows], std[rows] = process.predict(*parts)
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
    """Indices of points to predict from and of those to predict, whole periods and single points, amid x [N]."""
    rows = x.sort(stable=True).indices
    start = max(0, len(rows) - MOST_CHECKED) // 2
    rows = rows[start : start + MOST_CHECKED]
    if period is None:
        period = float(x.max() - x.min()) / PERIODS
    generator = torch.Generator().manual_seed(0)
    number = ((x[rows] - x[rows[0]]) / period).long().unique(return_inverse=True)[1]
    whole = torch.randperm(int(number.max()) + 1, generator=generator)[number] < HELD * (number.max() + 1)
    single = torch.randperm(len(rows), generator=generator) < HELD * len(rows)
    return rows[~(whole | single)], rows[whole | single]
