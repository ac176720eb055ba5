"""The ceilings: conditionals that agree with joint densities, and gains that a context bounds."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from torch.distributions import MultivariateNormal

from studies import ambiguity_ceilings
from studies.ambiguity_ceilings import by_error, ceilings, condition


def test_a_conditional_is_the_ratio_of_two_joint_densities():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    prior, noise = root @ root.T, 0.3 * torch.eye(6, dtype=torch.float64)
    y = torch.randn(6, generator=generator, dtype=torch.float64)
    seen = torch.tensor([True, False, True, True, False, False])
    mean, covariance = condition(prior, noise, y, seen)
    asked = MultivariateNormal(mean[~seen], covariance[~seen][:, ~seen]).log_prob(y[~seen])
    context = MultivariateNormal(torch.zeros(3).double(), (prior + noise)[seen][:, seen])
    together = MultivariateNormal(torch.zeros(6).double(), prior + noise)
    assert float(asked) == pytest.approx(float(together.log_prob(y) - context.log_prob(y[seen])), rel=1e-10)


@pytest.mark.parametrize(("name", "known"), [("branches", 2.47), ("shared-noise-2", 2.63)])
def test_the_gain_grows_with_the_context_and_stays_below_that_of_known_curves(name, known):
    first, *others = ceilings(name, 200)
    assert [row["context"] for row in others] == [[3, 10], [11, 20], [21, 30], [31, 40], [41, 46]]
    assert sum(row["tasks"] for row in others) == first["tasks"] == 200
    assert first["gain"] == pytest.approx(first["joint"] - first["diagonal"], abs=2e-3)
    assert 0 < others[0]["gain"] < others[2]["gain"] < others[4]["gain"] < known


def test_one_point_of_two_branches_by_hand(monkeypatch):
    # Curves far from any context point keep their prior: both branches are N(0, s² + 0.05²) in each output.
    curves, prior = torch.zeros(50, 4).double(), 0.25 * torch.eye(50).double().expand(4, 50, 50)
    monkeypatch.setattr(ambiguity_ceilings, "draw", lambda count, generator: (curves, prior))
    joint, diagonal = ambiguity_ceilings.branches(3, torch.Generator().manual_seed(0))
    assert joint.shape == (47,)
    torch.testing.assert_close(joint, diagonal)


def test_an_error_of_the_curves_takes_the_gain_away():
    rows = {row["curve_error"]: row for row in by_error(4000)}
    assert rows[0.0]["joint"] == pytest.approx(2.47, abs=0.03)  # the truth of the experiment
    assert rows[0.0]["diagonal"] == pytest.approx(0.0, abs=0.06)
    assert rows[0.1]["gain"] > 1 > rows[0.15]["gain"]
    assert rows[0.5]["gain"] < 0.2


def test_the_command_writes_all_problems(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ceilings", str(tmp_path / "rows.json"), "--tasks", "60"])
    ambiguity_ceilings.main()
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert {row["problem"] for row in rows} == set(ambiguity_ceilings.PROBLEMS)
    assert len(rows) == 18 + len(ambiguity_ceilings.ERRORS)
