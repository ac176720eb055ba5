"""Errors of known rows against naive sums."""

import numpy as np
import pytest
import torch

from dsvnp.tabular.summary import as_text, blind, errors_as_text, normal, summarise

Y = torch.tensor([[1e5, 1.0], [3e5, torch.nan], [2e5, 2.0]], dtype=torch.float64)


def test_each_output_has_its_own_rmse_over_its_known_rows():
    guess = torch.tensor([[1e5, 1.5], [2e5, 7.0], [2e5, 1.0]], dtype=torch.float64)
    (found,) = summarise(
        {"guess": normal(guess, torch.ones(2, dtype=torch.float64))}, Y, ("price", "weight")
    ).values()
    assert found["rmse_price"] == pytest.approx(np.sqrt(1e10 / 3))
    assert found["rmse_weight"] == pytest.approx(np.sqrt((0.5**2 + 1) / 2))
    assert found["mse"] == pytest.approx((1e10 + 0.5**2 + 1) / 5)
    text = errors_as_text({"guess": found, "other": found}, ["price", "weight"])
    assert text == [
        ["", "guess", "other"],
        ["price", "5.774e+04", "5.774e+04"],
        ["weight", "0.7906", "0.7906"],
    ]
    assert as_text({"guess": found})[0] == ["", "nll", "crps", "coverage_50", "coverage_90"]


def test_one_output_shows_its_rmse_with_the_rest():
    summary = summarise({"guess": normal(torch.zeros(3, 1), torch.ones(1))}, torch.tensor([[1.0], [1], [2]]))
    assert summary["guess"]["rmse"] == pytest.approx(np.sqrt(2))
    assert as_text(summary)[0] == ["", "nll", "crps", "rmse", "coverage_50", "coverage_90"]


def test_the_blind_guess_of_classes_is_called_what_it_is():
    summary = summarise({"mean predictor": blind(torch.tensor([0.25, 0.75]), 2)}, torch.tensor([[0], [1]]))
    assert [row[0] for row in as_text(summary)] == ["", "class shares"]
