"""Seasons: a view of a curve and its way back are each other's inverse."""

import math

import pytest
import torch

from dsvnp.pretrained.seasons import CurveView, fit_trend, fit_waves

DOUBLE = torch.float64


def test_a_circle_brings_points_of_one_phase_together():
    view = CurveView(2.5, True, 1.0)
    shown = view.inputs(torch.tensor([[0.3], [2.8], [1.55]], dtype=DOUBLE))
    assert torch.allclose(shown[0, 1:], shown[1, 1:])
    assert torch.allclose(shown[0, 1:], -shown[2, 1:])
    assert shown[:, 0].tolist() == [0.3, 2.8, 1.55]


def test_waves_and_trend_are_those_of_the_points():
    x = 2000 + 20 * torch.rand(100, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
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
