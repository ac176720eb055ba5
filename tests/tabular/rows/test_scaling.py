"""From a user's units to the network's and back."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV

from dsvnp.predictive import CategoricalPredictive, GaussianPredictive
from dsvnp.sources.own_units import LIMIT
from dsvnp.tabular.rows.scaling import ALPHAS, ClassScaling, InputScaling, OutputScaling


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_normal_inputs_become_standard_and_an_outlier_moves_nothing():
    x = 5 + 3 * rows(4001, 1)
    z = InputScaling.fit(x).transform(x)
    assert abs(float(z.median())) < 1e-9
    assert float(InputScaling.fit(x).spread) == pytest.approx(3, rel=0.05)
    x[0] = 1e12
    wild = InputScaling.fit(x)
    assert float(wild.spread) == pytest.approx(3, rel=0.05)
    assert float(wild.transform(x)[0]) == pytest.approx(LIMIT)  # squashed, not cut: order stays


def test_flags_are_scaled_by_their_deviation_and_constants_are_left():
    flag = (torch.arange(100) < 10).double()[:, None]
    scaling = InputScaling.fit(torch.cat([flag, torch.full((100, 1), 0.1, dtype=torch.float64)], 1))
    assert scaling.spread.tolist() == pytest.approx([0.3, 1.0])
    assert scaling.transform(torch.tensor([[0.0, 0.1]], dtype=torch.float64))[0, 1] == pytest.approx(
        0, abs=1e-12
    )


@pytest.mark.parametrize("shape", [(80, 6), (12, 20)])
def test_the_linear_part_is_ridge_with_its_strength_by_leave_one_out(shape):
    x = rows(*shape)
    y = x @ rows(shape[1], 2, seed=1) + rows(shape[0], 2, seed=2) * torch.tensor([0.1, 3.0]) + 10
    features = torch.cat([torch.zeros_like(x), x], 1)
    scaling = OutputScaling.fit(features, y)
    for column in range(2):
        target = y[:, column].numpy()
        ridge = RidgeCV(ALPHAS).fit(x.numpy(), (target - target.mean()) / target.std())
        expected = ridge.predict(x.numpy()) * target.std() + target.mean()
        np.testing.assert_allclose(scaling.linear(features)[:, column].numpy(), expected, rtol=1e-8)
    if shape[0] > shape[1]:  # otherwise hardly anything is left over
        residual = scaling.transform(features, y)
        np.testing.assert_allclose(residual.square().mean(0).numpy(), 1, rtol=1e-9)


def test_the_linear_part_reads_inputs_as_they_are_or_squashed_as_suits_each_output():
    x = (1.5 * rows(400, 1)).exp()  # a long tail
    inputs = InputScaling.fit(x)
    squashed, plain = inputs.both(x).chunk(2, 1)
    torch.testing.assert_close(squashed, inputs.transform(x))
    torch.testing.assert_close(plain, (x - inputs.centre) / inputs.spread)
    y = torch.cat([2 * x, 3 * squashed], 1) + 0.01 * rows(400, 2, seed=1)
    scaling = OutputScaling.fit(inputs.both(x), y)
    assert (scaling.weight == 0).tolist() == [[True, False], [False, True]]
    far = torch.tensor([[1e3]], dtype=torch.float64)
    assert float(scaling.linear(inputs.both(far))[0, 0]) == pytest.approx(2e3, rel=1e-3)
    assert float(scaling.linear(inputs.both(far))[0, 1]) == pytest.approx(3 * LIMIT, rel=1e-2)


def test_missing_outputs_are_left_out_of_the_fit():
    x = rows(60, 4)
    y = x[:, 1:] @ rows(3, 2, seed=1) + 0.1 * rows(60, 2, seed=2)
    holes = y.clone()
    holes[:20, 0] = torch.nan
    alone = OutputScaling.fit(x[20:], y[20:, :1])
    both = OutputScaling.fit(x, holes)
    torch.testing.assert_close(both.weight[:, :1], alone.weight)
    torch.testing.assert_close(both.scale[:1], alone.scale)
    assert torch.isnan(both.transform(x, holes)[:20, 0]).all()


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_a_constant_and_an_exactly_linear_output_keep_a_finite_scale(unit):
    x = rows(50, 2)
    y = torch.stack([torch.full((50,), 7.0 * unit, dtype=torch.float64), unit * x[:, 0]], 1)
    scaling = OutputScaling.fit(x, y)
    assert scaling.scale[0] == 1
    assert scaling.scale[1] == pytest.approx(1e-3 * unit, rel=0.5)
    assert torch.isfinite(scaling.transform(x, y)).all()


def test_a_prediction_of_residuals_comes_back_in_units_and_corrected():
    x = rows(40, 2)  # of one input, squashed and not
    scaling = OutputScaling.fit(x, 100 * x[:, :1] + 5 * rows(40, 1, seed=3))
    loc, sigma = rows(3, 1, 1, 40, 1, seed=4), rows(3, 1, 1, 40, 1, seed=5).exp()
    plain = scaling.inverse(x, GaussianPredictive(loc, sigma))
    torch.testing.assert_close(plain.loc, scaling.linear(x) + scaling.scale * loc)
    torch.testing.assert_close(plain.scale, scaling.scale * sigma)
    half, two = torch.tensor([0.5], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    corrected = OutputScaling(scaling.weight, scaling.bias, scaling.scale, half, two, half)
    changed = corrected.inverse(x, GaussianPredictive(loc, sigma))
    torch.testing.assert_close(changed.loc, scaling.linear(x) + scaling.scale * loc / 2)
    torch.testing.assert_close(changed.scale, scaling.scale * 2 * sigma.sqrt())


def test_a_temperature_flattens_the_odds():
    logs = rows(2, 1, 1, 5, 3).log_softmax(-1)
    warm = ClassScaling(torch.tensor([2.0], dtype=torch.float64)).inverse(
        rows(5, 1), CategoricalPredictive(logs)
    )
    torch.testing.assert_close(warm.log_probs, (logs / 2).log_softmax(-1))
