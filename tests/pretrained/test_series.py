"""Curves: held-out points choose the network's view and weigh it against the process."""

import math

import pytest
import torch

from dsvnp.predictive import GaussianPredictive
from dsvnp.pretrained.seasons import CurveView, possible_views
from dsvnp.pretrained.series import fit_curve, held_out, mixed, predict_process, weigh

DOUBLE = torch.float64


def points(number=90, noise=0.2):
    generator = torch.Generator().manual_seed(0)
    x = 2000 + 20 * torch.rand(number, generator=generator, dtype=DOUBLE)
    return x, (2 * math.pi * x).sin() + noise * torch.randn(number, generator=generator, dtype=DOUBLE)


def wide(held, scale):
    """A standard distribution that is right about y if its scale is 1."""
    loc = torch.zeros(1, 1, 1, len(held), 1, dtype=DOUBLE)
    return GaussianPredictive(loc, scale * torch.ones_like(loc))


def kind(view):
    return "circle" if view.circle else "waves" if len(view.weights) > 2 else "plain"


@pytest.mark.parametrize("process", [False, True])
def test_held_out_points_choose_the_view(process):
    x, y = points()
    asked = []

    def ask(liked):
        def predict(views, known, outputs, held):
            asked.append((len(known), len(held)))
            return [wide(held, 1.0 if kind(view) == liked else 50.0) for view in views]

        return predict

    for liked in ("plain", "circle", "waves"):
        found = fit_curve(x[:, None], y, "auto", process, ask(liked))
        assert kind(found.view) == liked
        assert (found.process is not None) is process
        if liked != "plain":
            assert (
                found.view == dict(zip("pcw", possible_views(x, y, found.view.period), strict=True))[liked[0]]
            )
            assert found.view.period == pytest.approx(1.0, rel=0.01)
    known, held = asked[0]
    assert known + held == 90
    assert 15 <= held <= 35
    assert (
        kind(fit_curve(x[:, None], y, 1.0, process, ask("plain")).view) != "plain"
    )  # who names a season gets it
    named = fit_curve(x[:, None], y, 1.03, process, ask("circle"))
    assert named.view.period == pytest.approx(1.03, rel=1e-12)
    assert kind(fit_curve(x[:, None], y, None, process, ask("circle")).view) == "plain"


def test_several_inputs_have_no_season_but_a_process():
    x, y = torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=DOUBLE), points(200)[1]
    asked = []

    def ask(views, known, outputs, held):
        asked.append((views, known, held))
        return [wide(held, 50.0)]

    found = fit_curve(x, y, "auto", True, ask)
    (views, known, held) = asked.pop()
    assert views == [CurveView()] == [found.view]
    assert (len(known), len(held)) == (72, 24)
    away = lambda rows: ((rows - x.median(0).values) / x.std(0)).norm(dim=-1)  # noqa: E731
    assert away(torch.cat([known, held])).max() < 1.1 * away(x).sort().values[96]
    assert abs(away(known).mean() - away(held).mean()) < 0.2  # held out amid the others
    assert found.process.period is None
    assert found.share > 0.8
    assert fit_curve(x, y, "auto", False, ask).process is None
    assert fit_curve(torch.stack([x[:, 0], x[:, 0] * 0 + 3.0], 1), y, "auto", True, ask).process is None
    assert not asked  # there was nothing to choose


def test_few_points_have_the_network_alone():
    x, y = points(11)

    def ask(*_):
        raise AssertionError("nothing to check")

    assert fit_curve(x[:, None], y, "auto", True, ask).process is None
    assert fit_curve(torch.ones(20, 1, dtype=DOUBLE), points(20)[1], "auto", True, ask).process is None


def test_the_share_of_the_process_grows_with_the_networks_errors():
    x, y = points()
    shares = [
        fit_curve(
            x[:, None], y, "auto", True, lambda views, x, y, held, s=scale: [wide(held, s)] * len(views)
        ).share
        for scale in (1.0, 50.0)
    ]
    assert 0.5 < shares[0] < shares[1] < 0.95


def test_weights_are_those_of_expectation_maximisation():
    first, second = torch.zeros(40, dtype=DOUBLE), torch.full((40,), math.log(3), dtype=DOUBLE)
    second[::2] = -math.log(5)
    share = weigh(first, second)
    grid = torch.linspace(0.01, 0.99, 981, dtype=DOUBLE)[:, None]
    value = ((1 - grid) * first.exp() + grid * second.exp()).log().sum(1) + 3 * (grid * (1 - grid)).log()[
        :, 0
    ]
    assert share == pytest.approx(float(grid[value.argmax()]), abs=2e-3)
    assert weigh(first[:0], second[:0]) == 0.5


def test_a_mixture_has_the_density_of_both():
    log_weights = torch.tensor([[0.2], [0.8]], dtype=DOUBLE).log().expand(2, 3)[None, :, None]
    loc = torch.tensor([[1.0], [2.0]], dtype=DOUBLE).expand(2, 3)[None, :, None, :, None]
    first = GaussianPredictive(loc, torch.ones_like(loc), log_weights, components_per_draw=2)
    mean, std = torch.tensor([0.0, 1.0, 4.0], dtype=DOUBLE), torch.tensor([1.0, 2.0, 3.0], dtype=DOUBLE)
    both = mixed(first, mean.numpy(), std.numpy(), 0.3)
    y = torch.tensor([0.5, 1.5, 2.5], dtype=DOUBLE)
    normal = torch.distributions.Normal(mean, std).log_prob(y).exp()
    density = 0.7 * first.log_prob(y[None, :, None])[0].exp() + 0.3 * normal
    torch.testing.assert_close(both.log_prob(y[None, :, None])[0].exp(), density)
    torch.testing.assert_close(both.epistemic, torch.zeros_like(both.epistemic))
    equal = mixed(GaussianPredictive(loc, torch.ones_like(loc)), mean.numpy(), std.numpy(), 0.5)
    torch.testing.assert_close(equal.mean[0, :, 0], 0.5 * 1.5 + 0.5 * mean)


def test_a_long_series_is_predicted_from_the_points_around_each_box():
    x, y = points(400)
    found = fit_curve(x[:, None], y, None, True, lambda views, x, y, held: [wide(held, 1.0)]).process
    asked = torch.linspace(2001, 2019, 30, dtype=DOUBLE)[:, None]
    whole = predict_process(found, x[:, None], y, asked, 1000)
    parts = predict_process(found, x[:, None], y, asked, 120)
    assert whole[0] == pytest.approx(found.predict(x[:, None].numpy(), y.numpy(), asked.numpy())[0])
    assert abs(whole[0] - parts[0]).max() < 0.2 * whole[1].max()
    assert abs(whole[0] - parts[0]).max() > 0


def test_each_box_of_one_target_has_its_place():
    x = torch.linspace(0, 1, 500, dtype=DOUBLE)[:, None]
    y = (9 * x[:, 0]).sin()
    found = fit_curve(x, y, None, True, lambda views, x, y, held: [wide(held, 1.0)]).process
    asked = torch.tensor([[0.1], [0.5], [0.9]], dtype=DOUBLE)
    mean, std = predict_process(found, x, y, asked, 20)
    assert mean == pytest.approx((9 * asked[:, 0]).sin().numpy(), abs=0.05)
    assert std.max() < 0.1


def test_whole_periods_and_single_points_are_held_out_amid_a_long_series():
    x = torch.arange(500, dtype=DOUBLE)[torch.randperm(500, generator=torch.Generator().manual_seed(0)), None]
    known, held = held_out(x, 12.0)
    both = x[torch.cat([known, held]), 0].sort().values
    assert both.tolist() == list(range(202, 298))
    lengths = torch.diff(x[known, 0].sort().values)
    assert lengths.max() >= 12  # a whole period
    assert (lengths == 2).sum() > 3  # single points


@pytest.mark.parametrize("number", [97, 500, 3000, 100_000])
def test_stretches_and_single_points_are_held_out_where_nothing_repeats(number):
    x = torch.arange(number, dtype=DOUBLE)[:, None]
    known, held = held_out(x, None)
    assert len(known) + len(held) == 96
    assert 20 <= len(held) <= 40
    assert torch.diff(x[known, 0]).max() >= 96 // 8
    assert torch.diff(x[known, 0])[:5].min() == 1  # the rest are neighbours


def test_a_long_period_is_checked_on_every_nth_point():
    days = torch.arange(365 * 20, dtype=DOUBLE)[:, None]
    rows = torch.cat(held_out(days, 365.0)).sort().values
    assert rows.diff().unique().numel() == 1
    assert 70 < len(rows) <= 96
    assert 3 * 365 <= float(days[rows[-1], 0] - days[rows[0], 0]) < 7 * 365


@pytest.mark.parametrize("number", [2, 9, 40])
@pytest.mark.parametrize("period", [None, 0.5, 1e3])
def test_something_is_known_whatever_is_held_out(number, period):
    known, held = held_out(points(number)[0][:, None], period)
    assert len(known) >= number / 2
    assert len(known) + len(held) == number
    same, rest = held_out(torch.ones(number, 1, dtype=DOUBLE), period)
    assert len(same) + len(rest) == number
    assert len(same) >= number / 2


def test_points_in_the_middle_of_a_surface_are_held_out_whatever_the_units():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 2, generator=generator, dtype=DOUBLE)
    known, held = held_out(x, None)
    assert (len(known), len(held)) == (72, 24)
    assert x[torch.cat([known, held])].norm(dim=-1).max() < 1
    scaled = held_out(x * torch.tensor([1.0, 1000.0]), None)
    assert torch.equal(scaled[0], known)
    assert torch.equal(scaled[1], held)
