"""Columns: hidden numbers of unit variance, kinds that look like what they are called, missing values."""

import pytest
import torch

from dsvnp.sources.priors import inputs
from dsvnp.sources.priors.causal import draw_causal
from dsvnp.sources.priors.inputs import draw_hidden, observe
from dsvnp.sources.priors.randomness import Random


def make(seed: int = 0) -> Random:
    return Random(torch.Generator().manual_seed(seed), torch.device("cpu"))


def shown(monkeypatch, kind: int, seed: int = 0):
    """Columns of one kind, without missing values and copies, and the hidden numbers."""
    monkeypatch.setattr(inputs, "_draw_kinds", lambda random, n, d: torch.full((n, 1, d), kind))
    monkeypatch.setattr(inputs, "_missing", lambda random, hidden: torch.zeros_like(hidden, dtype=torch.bool))
    monkeypatch.setattr(inputs, "_duplicate", lambda random, x, z, used: (x, z))
    hidden = make(seed).normal(50, 300, 4)
    x, z = observe(make(seed + 1), hidden, torch.ones(50, 4, dtype=torch.bool))
    return x, z, hidden


def test_hidden_columns_have_unit_variance_and_some_are_correlated():
    hidden = draw_hidden(make(), 300, 400, 6)
    assert hidden.mean(1).abs().mean() < 0.06
    assert ((hidden.square().mean((1, 2)) - 1).abs() < 0.25).float().mean() > 0.95
    correlation = torch.stack([torch.corrcoef(table.T) for table in hidden]) - torch.eye(6)
    strongest = correlation.abs().amax((1, 2))
    assert 0.15 < (strongest < 0.2).float().mean() < 0.5  # independent ones
    assert 0.2 < (strongest > 0.6).float().mean() < 0.8


@pytest.mark.parametrize("kind", [inputs.NORMAL, inputs.UNIFORM, inputs.BIMODAL, inputs.HEAVY])
def test_continuous_kinds_keep_the_order(monkeypatch, kind):
    x, _, hidden = shown(monkeypatch, kind)
    order = hidden.argsort(1)
    assert (x.gather(1, order).diff(dim=1) >= 0).all()
    assert all(len(column.unique()) > 290 for column in x[0].T)


def test_skewed_columns_are_skewed_and_heavy_ones_heavy(monkeypatch):
    def moments(x):
        z = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
        return z.pow(3).mean(1).abs().median(), z.pow(4).mean(1).median()

    with monkeypatch.context() as patch:
        assert moments(shown(patch, inputs.SKEWED)[0])[0] > 1.5
    with monkeypatch.context() as patch:
        assert moments(shown(patch, inputs.HEAVY)[0])[1] > 4
    assert moments(shown(monkeypatch, inputs.UNIFORM)[0])[1] < 2.1


def test_codes_are_integers_and_binary_ones_are_two(monkeypatch):
    for kind in (inputs.ORDINAL, inputs.BINARY, inputs.CATEGORICAL):
        with monkeypatch.context() as patch:
            x, _, hidden = shown(patch, kind)
        assert torch.equal(x, x.round())
        assert x.min() == 0
        assert x.max() == (1 if kind == inputs.BINARY else inputs.LEVELS - 1)
        rising = (x.gather(1, hidden.argsort(1)).diff(dim=1) >= 0).all(1).float().mean()
        assert rising == 1 if kind != inputs.CATEGORICAL else rising < 0.3


def test_an_effect_belongs_to_a_code(monkeypatch):
    x, z, _ = shown(monkeypatch, inputs.CATEGORICAL)
    codes, effects = x[0, :, 0], z[0, :, 0]
    levels = [effects[codes == code].unique() for code in codes.unique()]
    assert all(len(level) == 1 for level in levels)
    assert len(torch.cat(levels).unique()) == len(levels)


def test_missing_values_copies_and_unused_columns():
    used = torch.arange(8) < torch.arange(1, 9).repeat(100)[:, None]
    x, z = observe(make(1), make().normal(800, 60, 8), used)
    gone = x.isnan().any((1, 2)).float().mean()
    assert 0.1 < gone < 0.3
    assert not z.isnan().any()
    assert (x.mT[~used] == 0).all()
    assert (z.mT[~used] == 0).all()
    complete = x[used.all(1)].nan_to_num(-99.0)
    same = torch.stack([(table.mT[:, None] == table.mT).all(-1).float() for table in complete]) - torch.eye(8)
    assert 0 < (same.amax((1, 2)) > 0).float().mean() < 0.3


def test_missing_can_depend_on_the_value():
    hidden = make().normal(2000, 100, 2)
    missing = inputs._missing(make(1), hidden)
    share = missing.float().mean(1)
    gap = torch.where(missing, hidden, torch.nan).nanmean(1)
    assert ((gap.abs() > 0.4) & (share > 0.05)).float().mean() > 0.02
    assert share[share > 0].max() < 0.8


def test_causal_nodes_are_finite_and_an_output_depends_on_inputs():
    x, y = draw_causal(make(), 200, 300, 12, 3)
    assert x.shape == (200, 300, 12)
    assert y.shape == (200, 300, 3)
    assert x.isfinite().all()
    # The share of y's variance that a linear fit to the inputs explains, against one to the inputs of other tables.
    design = torch.cat([x, torch.ones(200, 300, 1)], dim=-1)

    def explained(design):
        fit = design @ torch.linalg.lstsq(design, y[..., :1]).solution
        return (1 - (y[..., :1] - fit).var(1) / y[..., :1].var(1)).median()

    assert explained(design) > 0.15
    assert explained(design.roll(1, 0)) < 0.08
