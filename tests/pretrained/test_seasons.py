"""Seasons: the period that made the points is found, and a view and its way back are each other's inverse."""

import math

import pytest
import torch

from dsvnp.predictive import GaussianPredictive
from dsvnp.pretrained.seasons import CurveView, find_period, fit_trend, fit_view, fit_waves, possible_views

DOUBLE = torch.float64


def points(number, period, noise, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = 2000 + 20 * torch.rand(number, generator=generator, dtype=DOUBLE)
    y = (2 * math.pi * x / period).sin() + noise * torch.randn(number, generator=generator, dtype=DOUBLE)
    return x, y


@pytest.mark.parametrize("period", [0.41, 1.0, 4.3])
def test_the_period_is_found_between_points_at_random(period):
    x, y = points(120, period, 0.5)
    assert find_period(x, 1e3 * y + x**2) == pytest.approx(period, rel=0.02)


def test_noise_and_few_cycles_have_no_period():
    found = [find_period(points(60, 1.0, 0.0, seed)[0], points(60, 1.0, 1e6, seed)[1]) for seed in range(100)]
    assert sum(period is not None for period in found) <= 4  # one is to be expected
    assert find_period(*points(120, 7.0, 0.1)) is None  # less than three cycles
    assert find_period(torch.ones(30, dtype=DOUBLE), torch.randn(30, dtype=DOUBLE)) is None


def test_a_circle_brings_points_of_one_phase_together():
    view = CurveView(2.5, True, 1.0)
    shown = view.inputs(torch.tensor([[0.3], [2.8], [1.55]], dtype=DOUBLE))
    assert torch.allclose(shown[0, 1:], shown[1, 1:])
    assert torch.allclose(shown[0, 1:], -shown[2, 1:])
    assert shown[:, 0].tolist() == [0.3, 2.8, 1.55]


def test_waves_and_trend_are_those_of_the_points():
    x, _ = points(100, 1.0, 0.0)
    season = 0.3 * (2 * math.pi * x).cos() - 0.2 * (4 * math.pi * x).sin()
    y = 5 + 3 * x + season
    trend = fit_trend(x, y)
    assert trend.weights[1] == pytest.approx(3, rel=0.01)
    waves = fit_waves(x, y, trend, 1.0)
    asked = torch.tensor([[1990.0], [2031.5]], dtype=DOUBLE)
    truth = 5 + 3 * asked + 0.3 * (2 * math.pi * asked).cos() - 0.2 * (4 * math.pi * asked).sin()
    assert torch.allclose(waves.baseline(asked), truth, atol=1e-8)
    flat = fit_waves(x, season, fit_trend(x, season), 1.0)
    assert flat.weights[1] == 0  # no trend, no slope
    assert fit_trend(x, season).weights == ()


def test_held_out_points_choose_the_view():
    x, y = points(90, 1.0, 0.2)
    asked = []

    def ask(liked):
        def predict(view, known, outputs, held):
            asked.append((len(known), len(held)))
            kind = "circle" if view.circle else "waves" if len(view.weights) > 2 else "plain"
            loc = torch.zeros(1, 1, 1, len(held), 1, dtype=DOUBLE)
            return GaussianPredictive(loc, torch.ones_like(loc) * (1.0 if kind == liked else 50.0))

        return predict

    views = dict(zip(("plain", "circle", "waves"), possible_views(x, y, find_period(x, y)), strict=True))
    for liked, view in views.items():
        assert fit_view(x[:, None], y, "auto", ask(liked)) == view
    known, held = asked[0]
    assert known + held == 90
    assert 15 <= held <= 35
    assert fit_view(x[:, None], y, 1.0, ask("plain")) != views["plain"]  # who names a season gets one
    assert fit_view(x[:, None], y, None, ask("circle")) == views["plain"]
    assert fit_view(torch.stack([x, x], 1), y, "auto", ask("circle")) == CurveView()
