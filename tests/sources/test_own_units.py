"""Own units: against a loop over tables, with gaps and without rows, and as a network is shown them."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.special import digamma, polygamma

from dsvnp.sources.own_units import FAR, LIMIT, OwnUnits, _chance, more_inputs, squashed, tables_differ
from dsvnp.sources.table import ManyTables

DOUBLE = torch.float64
COMMON = OwnUnits(
    *(
        torch.tensor(value, dtype=DOUBLE)
        for value in ([1.0], [40.0], [3.0], [5.0, 0.0], [9.0, 4.0], [0.7, -1.0], [0.3, 0.1])
    )
)


def tables(number=400, rows=12, seed=0):
    """One input with an offset and two outputs with an offset and a scale for each table, some missing."""
    g = torch.Generator().manual_seed(seed)
    offset, log_scale = (torch.randn(number, 1, 2, generator=g, dtype=DOUBLE) for _ in range(2))
    noise, x = (torch.randn(number, rows, size, generator=g, dtype=DOUBLE) for size in (2, 1))
    y = 5 + 3 * offset + (0.7 + 0.5 * log_scale).exp() * noise
    y[torch.rand(y.shape, generator=g) < 0.1] = torch.nan
    x = 3 * x + 40 * torch.randn(number, 1, 1, generator=g, dtype=DOUBLE)
    return list(zip(x, y, strict=True))


def test_what_tables_have_in_common_is_found():
    found = OwnUnits.fit(tables(2000))
    assert found.x_apart.sqrt().tolist() == pytest.approx([40], rel=0.15)
    assert found.x_spread.tolist() == pytest.approx([3], rel=0.05)
    assert found.centre.tolist() == pytest.approx([5, 5], abs=0.5)
    assert found.apart.sqrt().tolist() == pytest.approx([3, 3], abs=0.5)
    assert found.log_spread.tolist() == pytest.approx([0.7, 0.7], abs=0.1)
    assert found.vary.sqrt().tolist() == pytest.approx([0.5, 0.5], abs=0.1)
    strange = torch.full((12, 1), 1e9, dtype=DOUBLE), torch.full((12, 2), 1e9, dtype=DOUBLE)
    assert OwnUnits.fit([*tables(2000), strange]).centre.tolist() == pytest.approx(
        found.centre.tolist(), abs=0.1
    )


def test_units_of_a_context_by_their_formulas():
    x, y = (torch.stack(column) for column in zip(*tables(6), strict=True))
    seen = torch.rand(6, 12, generator=torch.Generator().manual_seed(1)) < 0.4
    seen[0] = False
    seen[1] = torch.arange(12) == 3
    y[1, 3] = 8.0
    units = COMMON.of(x, y, seen)
    assert [tuple(part.shape) for part in units] == [(6, 1, 1), (6, 1, 2), (6, 1, 2)]
    for b in range(6):
        rows = x[b, seen[b], 0].numpy()
        expected = 1 + 40 / (40 + 9 / len(rows)) * (rows.mean() - 1) if len(rows) else 1.0
        assert float(units.x_centre[b]) == pytest.approx(expected)
        for d in range(2):
            values = y[b, seen[b], d].numpy()
            values = values[~np.isnan(values)]
            m0, a, log_s0, v = (float(part[d]) for part in list(vars(COMMON).values())[3:])
            n, s = len(values), math.exp(log_s0)
            if n > 1:
                bias, chance = (float(part) for part in _chance(torch.tensor(float(n), dtype=DOUBLE)))
                beyond = np.log(values.std(ddof=1)) + bias - log_s0
                s = math.exp(log_s0 + v / (v + chance) * np.clip(beyond, -FAR * v**0.5, FAR * v**0.5))
            m = m0 + a / (a + s**2 / n) * (values.mean() - m0) if n else 0.0
            assert float(units.centre[b, 0, d]) == pytest.approx(m)
            assert float(units.spread[b, 0, d]) == pytest.approx(s if n else 1.0)


def test_what_chance_does_to_the_logarithm_of_a_deviation():
    number = torch.tensor([2.0, 3.0, 5.0, 30.0], dtype=DOUBLE)
    half = (number.numpy() - 1) / 2  # d² is χ² with n − 1 degrees of freedom
    bias, variance = _chance(number)
    np.testing.assert_allclose(bias, (np.log(half) - digamma(half)) / 2, rtol=0.05)
    np.testing.assert_allclose(variance, polygamma(1, half) / 4, rtol=0.1)


def test_few_rows_make_tables_look_apart_by_chance_alone():
    found = OwnUnits.fit(tables(4000, rows=6))
    assert found.x_apart.sqrt().tolist() == pytest.approx([40], rel=0.05)
    assert found.log_spread.tolist() == pytest.approx([0.7, 0.7], abs=0.05)
    assert found.vary.tolist() == pytest.approx([0.25, 0.25], abs=0.07)  # 0.38 with chance
    g = torch.Generator().manual_seed(0)
    y = 0.5 * torch.randn(4000, 1, 1, generator=g, dtype=DOUBLE)
    y = y + torch.randn(4000, 3, 1, generator=g, dtype=DOUBLE)
    rows = list(zip(torch.zeros_like(y), y, strict=True))
    assert OwnUnits.fit(rows).apart.tolist() == pytest.approx([0.25], abs=0.06)  # 0.58 with chance
    empty = torch.full((3, 1), torch.nan, dtype=DOUBLE)  # tables without any output change nothing
    more = [*rows, *[(empty * 0 + 1, empty)] * 3000]
    assert OwnUnits.fit(more).apart.tolist() == pytest.approx([0.25], abs=0.06)


def test_tables_whose_output_is_constant_leave_the_range_of_others():
    rows = tables()
    quiet = [(x, torch.full_like(y, float(number % 7))) for number, (x, y) in enumerate(rows)]
    expected = OwnUnits.fit(rows)
    found = OwnUnits.fit(rows[:200] + quiet[:200])
    assert found.log_spread.tolist() == pytest.approx(expected.log_spread.tolist(), abs=0.1)
    assert found.vary.tolist() == pytest.approx(expected.vary.tolist(), abs=0.1)
    x, y = quiet[0]
    units = found.of(x, y, torch.ones(len(x), dtype=torch.bool))
    assert (units.spread > 0.1).all()  # what comes next may vary
    assert found.inputs(x, units).abs().max() <= LIMIT


def test_tables_that_are_alike_have_common_units():
    g = torch.Generator().manual_seed(0)
    rows = [
        (torch.randn(50, 1, generator=g, dtype=DOUBLE), torch.randn(50, 1, generator=g, dtype=DOUBLE))
        for _ in range(50)
    ]
    few = torch.tensor([[[2.0], [2.001]]], dtype=DOUBLE)
    units = OwnUnits.fit(rows).of(few, few, torch.ones(1, 2, dtype=torch.bool))
    assert 0.7 < float(units.spread) < 1.3
    assert abs(float(units.centre)) < 0.3
    assert abs(float(units.x_centre)) < 0.3


def test_constant_columns_and_tables_of_a_row_have_units_too():
    flag = torch.tensor([[1.0], [0.0], [1.0], [0.0]], dtype=DOUBLE)  # of the whole table
    same = [(each.expand(5, 1), torch.full((5, 1), 3.0, dtype=DOUBLE)) for each in flag]
    single = [(torch.ones(1, 1), torch.ones(1, 1)), (torch.zeros(1, 1), torch.full((1, 1), torch.nan))]
    for rows in (same, single):
        own = OwnUnits.fit(rows)
        assert own.x_spread.tolist() == [1.0]
        x, y = rows[0]
        units = own.of(x, y, torch.ones(len(x), dtype=torch.bool))
        shown = own.inputs(x, units)
        assert shown.isfinite().all()
        assert own.outputs(y, units).isfinite().all()
        assert (units.spread > 0).all()
        other = own.inputs(rows[1][0], own.of(*rows[1], torch.ones(len(x), dtype=torch.bool)))
        assert not torch.allclose(shown[..., :2], other[..., :2], atol=0.1)  # a flag can still be told


def test_tables_differ_in_place_or_range_and_not_by_chance():
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(200, 8, 1, generator=g, dtype=DOUBLE) for _ in range(2))
    far, wide = 2 * torch.randn(200, 1, 1, generator=g), torch.randn(200, 1, 1, generator=g).exp()
    flag = (torch.rand(200, 1, 1, generator=g) < 0.5).double().expand(200, 8, 1)

    def differ(x, y):
        return tables_differ(list(zip(x, y, strict=True)))

    assert not differ(x, y)
    assert differ(x + far, y)
    assert differ(x, y + far)
    assert differ(x, wide * y)
    assert not differ(x, wide.pow(0.5) * y)  # a range within a factor of two is left alone
    assert not differ(wide * x, y)  # inputs keep a common unit
    assert not differ(flag, y)
    assert not differ(x, torch.where(torch.arange(200)[:, None, None] < 5, y + 1e6, y))  # a few do not matter


def test_tasks_are_shown_in_units_of_their_contexts():
    rows = tables(8)
    uniforms = {"context": torch.full((8,), 0.3), "rows": torch.arange(12).expand(8, 12) / 12}
    common = OwnUnits.fit(rows)

    def task_of(some, own):
        source = ManyTables(some, 10, 8, min_context=1, own=own)
        return source.batch(source.static() | {"order": torch.arange(8)}, uniforms, torch.tensor(0))

    plain, own = task_of(rows, None), task_of(rows, common)
    seen = plain.in_context & plain.mask_target
    assert 0 < int(seen.sum()) < int(plain.mask_target.sum())
    assert torch.equal(own.in_context & own.mask_target, seen)
    units = common.of(plain.x_target, plain.y_target, seen)
    read = (plain.y_target - units.centre) / units.spread
    torch.testing.assert_close(own.y_target, read.float(), equal_nan=True)
    assert own.x_target.dtype == torch.float32
    x, more = own.x_target.double().split([1, more_inputs(1, 2)], dim=-1)
    close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-5, equal_nan=True)
    close(x, squashed((plain.x_target - units.x_centre) / common.x_spread))
    assert x.abs().max() < LIMIT
    away = [
        (units.x_centre - common.x_centre) / common.x_apart.sqrt(),
        (units.centre - common.centre) / common.apart.sqrt(),
    ]
    parts = [*away, units.spread.log() - common.log_spread]
    close(more, squashed(torch.cat(parts, -1)).expand(8, 10, -1))
    changed = [(x, torch.where(torch.arange(12)[:, None] < 6, y, y + 1e3)) for x, y in rows]
    after = task_of(changed, common)  # what is to be predicted tells nothing
    assert torch.equal(after.x_target, own.x_target)
    torch.testing.assert_close(after.y_target[seen], own.y_target[seen], equal_nan=True)


def test_a_network_sees_tables_that_lie_far_away_to_all_digits():
    near = tables(8)
    far = [(x + 1e7, y + 1e9) for x, y in near]
    uniforms = {"context": torch.full((8,), 0.6), "rows": torch.arange(12).expand(8, 12) / 12}

    def shown(rows):
        source = ManyTables(rows, 10, 8, min_context=1, own=OwnUnits.fit(rows))
        return source.batch(source.static() | {"order": torch.arange(8)}, uniforms, torch.tensor(0))

    for name in ("x_target", "y_target"):
        parts = (getattr(shown(rows), name) for rows in (near, far))
        torch.testing.assert_close(*parts, atol=1e-5, rtol=1e-5, equal_nan=True)
