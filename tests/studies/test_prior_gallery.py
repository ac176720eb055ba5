"""The gallery of priors: the script writes its pages, prints what can be learned, and draws each kind it names."""

import sys

import pytest
import torch

from dsvnp.sources.priors import inputs
from dsvnp.sources.priors.randomness import Random
from studies import prior_gallery, prior_kinds, prior_pages


@pytest.fixture
def random(monkeypatch):
    monkeypatch.setattr(prior_pages, "DRAWS", 2)
    return Random(torch.Generator().manual_seed(0), torch.device("cpu"))


def test_the_gallery_writes_its_pages_and_prints_statistics(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(prior_pages, "DRAWS", 2)
    monkeypatch.setattr(sys, "argv", ["prior_gallery", str(tmp_path), "--tables", "12"])
    prior_gallery.main()
    pages = {f"prior_{name}.png" for name in ("curves", "noise", "inputs", "tables", "classes")}
    assert {path.name for path in tmp_path.iterdir()} == pages
    printed = capsys.readouterr().out
    assert "numbers, R²" in printed
    assert printed.count("best of the three") == 2


def test_noise_and_outputs_are_of_the_kinds_that_their_rows_name(random):
    u = torch.linspace(-1, 1, 400).expand(8, 400)
    normal, heavy, skewed, varying, outliers = prior_kinds.noisy(random, 0 * u, u)
    assert _moment(heavy, 4).mean() > 1 + _moment(normal, 4).mean()
    assert (_moment(skewed, 3).abs() > 1).all()
    assert (varying[:, 300:].std(1) > 1.3 * varying[:, :100].std(1)).all()
    assert ((outliers.abs() > 0.5).sum(1) > 0).sum() >= 6
    rows = dict(zip(prior_kinds.OUTPUTS, prior_kinds.warped(random, u), strict=True))
    assert (_repeated(rows["counts"]) > 100).any()
    assert (_repeated(rows["rounded"]) > 100).any()
    assert (_repeated(rows["as drawn"]) == 0).all()
    assert (_repeated(rows["censored"]) > 20).any()


def test_columns_are_of_the_kinds_that_their_rows_name(random):
    hidden = inputs.draw_hidden(random, 4, 300, 1)
    number = {
        name: [len(x.unique()) for x in prior_kinds.columns(random, hidden, inputs.WEIGHTS, kind)[0]]
        for kind, name in enumerate(prior_kinds.COLUMN_KINDS)
    }
    assert number["binary"] == [2] * 4
    assert max(number["ordinal"] + number["categorical"]) <= inputs.LEVELS
    assert min(number["normal"]) == 300  # and no value is missing
    assert max(number["many zeros"]) < 300
    wide = inputs.draw_hidden(random, 4, 300, 8)
    assert prior_kinds.columns(random, wide, inputs.GAPS, True)[0].isnan().any(1).any(1).all()


def _moment(values, power):
    return ((values - values.mean(1, keepdim=True)) / values.std(1, keepdim=True)).pow(power).mean(1)


def _repeated(values):
    return torch.tensor([len(row) - len(row.unique()) for row in values])
