"""Periods: the one that made the points is found, whatever is on top of it."""

import math

import pytest
import torch

from dsvnp.pretrained import periods
from dsvnp.pretrained.periods import find_period

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


def test_a_slow_wave_does_not_hide_the_season():
    x, y = points(120, 1.0, 0.2)
    slow = 5 * (2 * math.pi * (x - 2000) / 17).sin()
    assert find_period(x, y + slow) == pytest.approx(1.0, rel=0.02)


def test_a_regular_series_with_few_points_shows_its_season():
    months = torch.randperm(300, generator=torch.Generator().manual_seed(0))[
        :45
    ]  # 25 cycles, more than half of them
    x = 1950 + months.double() / 12
    assert find_period(x, (2 * math.pi * x).sin()) == pytest.approx(1.0, rel=0.01)


def test_a_strong_harmonic_is_not_the_period():
    x, noise = points(200, 1e9, 0.1)
    harmonics = 0.6 * (2 * math.pi * x).sin() + (4 * math.pi * x).sin() + 0.5 * (6 * math.pi * x).cos()
    assert find_period(x, harmonics + noise) == pytest.approx(1.0, rel=0.01)
    assert find_period(x, harmonics) == pytest.approx(1.0, rel=0.01)
    assert find_period(x, (4 * math.pi * x).sin() + noise) == pytest.approx(
        0.5, rel=0.01
    )  # here the peak is it


def test_noise_and_few_cycles_have_no_period():
    found = [find_period(points(60, 1.0, 0.0, seed)[0], points(60, 1.0, 1e6, seed)[1]) for seed in range(100)]
    assert sum(period is not None for period in found) <= 16  # ten are to be expected
    assert find_period(*points(120, 7.0, 0.1)) is None  # less than three cycles
    assert find_period(torch.ones(30, dtype=DOUBLE), torch.randn(30, dtype=DOUBLE)) is None


def test_known_periods_need_fewer_cycles_and_come_first():
    x, y = points(120, 8.0, 0.3)  # two cycles and a half
    assert find_period(x, y) is None
    assert find_period(x, y, [1.0, 8.0]) == 8.0
    assert find_period(x, y, [1.0, 15.0]) is None  # not even two cycles
    x, y = points(120, 1.003, 0.1)
    assert find_period(x, y, [1.0, 4.0]) == 1.0
    assert find_period(x, y, [4.0]) == pytest.approx(1.003, rel=1e-3)  # nothing there: the periodogram's


def test_of_a_long_series_some_points_are_looked_at(monkeypatch):
    x, y = points(3000, 0.41, 0.5)
    x, order = x.sort()
    y = torch.where(x < 2012, 0.1 * y.flip(0), y[order])  # the season begins late
    seen = []
    original = periods._without_trend
    monkeypatch.setattr(
        periods, "_without_trend", lambda place, *given: (seen.append(len(place)), original(place, *given))[1]
    )
    monkeypatch.setattr(periods, "MOST_POINTS", 500)
    first = find_period(x, y)
    assert first == pytest.approx(0.41, rel=0.01)
    assert first == find_period(x, y)
    assert seen == [500, 500]


@pytest.mark.parametrize("period", [7, 24, 3000])
def test_a_long_series_shows_short_seasons_too(period):
    x = torch.arange(300_000, dtype=DOUBLE)  # up to 43,000 cycles, of which 20,000 points are looked at
    noise = torch.randn(len(x), generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    y = (2 * math.pi * x / period).sin() + 0.5 * noise
    assert find_period(x, y) == pytest.approx(period, rel=1e-3)
    assert find_period(x / 24, y, [365.25, 7.0, 1.0]) == pytest.approx(period / 24, rel=1e-3)
