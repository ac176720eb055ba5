"""How numbers are written and compared."""

import pytest
from made_runs import row

from dsvnp.paper.report.numbers import mean_and_spread, needs_median, number, printed, verdict


@pytest.mark.parametrize(
    ("value", "spread", "text"),
    [
        (-0.9581, 0.0, "−0.958"),
        (-0.9581, 0.012, "−0.958"),
        (-0.9581, 0.12, "−0.96"),
        (-0.95817, 0.0012, "−0.9582"),
        (-0.95817, 1e-7, "−0.9582"),  # four decimals at most
        (412.26, 0.0, "412.3"),
        (412.26, 31.0, "412"),
        (2.1e-5, 0.0, "2.10e−5"),
        (81234.0, 70.0, "8.12e4"),
        (0.0, 0.0, "0.000"),
        (None, 0.0, "∞"),
        (float("nan"), 0.0, "∞"),
    ],
)
def test_a_number_has_the_digits_its_spread_supports(value, spread, text):
    assert number(value, spread) == text


def test_the_papers_numbers_stay_as_printed():
    assert [printed(value) for value in (-0.975, 2e-5, 70.0, 1.2e-1)] == ["−0.975", "2e−5", "70", "0.12"]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0, 1.1, 1.2], "1.10 ± 0.10"),
        ([1.5], "1.500"),
        ([0.25, 0.25], "0.250"),
        ([1.0, None], "∞"),
        ([1.09, 1.09008], "1.0900 ± 0.0001"),  # to the same decimal
        ([0.0089, 0.00893], "0.0089 ± 2e−5"),
        ([3e4, 3.4e4], "3.20e4 ± 2.8e3"),
        ([3e-5, 5e-5], "4.00e−5 ± 1.4e−5"),
    ],
)
def test_mean_and_spread(values, text):
    assert mean_and_spread(row("np", values)) == text


@pytest.mark.parametrize(
    ("values", "needed"),
    [
        ([1.0, 1.0, 1.1, 400.0, 1.0], True),
        ([0.1, 0.1, 0.2, 0.9, 1.1], True),  # the spread is as large as the mean
        ([1.0, 1.1, 1.2], False),
        ([1.0, 1.0, 1.0, 1.00001], False),  # far in standard deviations, but it reads the same
        ([1.0, 9.0], False),  # of two, mean and median are one
        ([0.0, 1.0, 1.0], False),  # yes and no have no median worth a line
        ([1.0, None, 2.0], False),
    ],
)
def test_a_median_is_needed_where_one_seed_carries_the_mean_away(values, needed):
    assert needs_median(row("np", values)) is needed


def test_a_median_stands_in_for_a_mean_that_is_not_finite():
    assert needs_median(row("np", [1.0, 1.0, None]) | {"median": 1.0})


@pytest.mark.parametrize(
    ("paper", "goal", "word"),
    [
        (1.5, "lower", "better"),
        (0.5, "lower", "worse"),
        (1.09, "lower", "level"),
        (0.91, "lower", "level"),
        (1.5, "higher", "worse"),
        (0.5, "higher", "better"),
        (0.3, 0.9, "better"),  # 1.0 is closer to 0.9
        (0.9, 0.9, "level"),
        (0.5, None, ""),
        (None, "lower", ""),
    ],
)
def test_which_is_better(paper, goal, word):
    assert verdict(row("np", [0.9, 1.0, 1.1], paper), goal) == word  # 1.0 ± 0.1


def test_a_mean_that_is_not_finite_is_compared_with_nothing():
    assert verdict(row("np", [1.0, None], 1.0), "lower") == ""
