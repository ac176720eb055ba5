"""Outputs: labels in range, permuted, unequal; numbers that follow their function; noise of the size asked for."""

import torch

from dsvnp.sources.priors.noise import add_outliers, draw_error
from dsvnp.sources.priors.randomness import Random
from dsvnp.sources.priors.targets import draw_classes, draw_numbers


def make(seed: int = 0) -> Random:
    return Random(torch.Generator().manual_seed(seed), torch.device("cpu"))


def test_labels_begin_at_zero_without_a_gap():
    labels = draw_classes(make(1), make().normal(500, 400, 10))
    assert torch.equal(labels, labels.round())
    assert labels.min() == 0
    assert labels.max() == 9
    number = labels.amax(1) + 1
    two = (number == 2).float().mean()
    assert 0.35 < two < 0.55
    filled = torch.tensor([len(row.unique()) for row in labels])
    assert (filled == number).float().mean() > 0.6  # rare classes may be absent


def test_labels_are_permuted_and_classes_unequal():
    labels = draw_classes(make(1), make().normal(2000, 100, 2))
    ones = labels.mean(1)
    assert abs(float(ones.mean()) - 0.5) < 0.03  # no label is preferred
    commonest = torch.maximum(ones, 1 - ones)
    assert commonest.quantile(0.1) < 0.56
    assert commonest.quantile(0.9) > 0.75
    assert (commonest == 1).float().mean() < 0.02


def test_labels_follow_the_functions():
    f = make().normal(300, 400, 3)
    labels = draw_classes(make(1), f)
    # A row's nearest row in the space of the functions has the same label far more often than a random row has.
    nearest = (torch.cdist(f, f) + 1e9 * torch.eye(400)).argmin(-1)
    agree = (labels.gather(1, nearest) == labels).float().mean(1)
    chance = (labels.roll(1, 1) == labels).float().mean(1)
    assert ((agree - chance) > 0.1).float().mean() > 0.6


def test_the_share_of_classes_does_not_depend_on_the_number_of_functions():
    labels = draw_classes(make(1), make().normal(50, 100, 20))
    assert labels.max() <= 19


def test_numbers_are_standardised_and_follow_their_function():
    f = make().normal(800, 200)
    y = draw_numbers(make(1), f, make(2).normal(800, 200))
    assert y.isfinite().all()
    assert torch.allclose(y.mean(1), torch.zeros(800), atol=1e-3)
    ranks = [value.argsort(1).argsort(1).float() for value in (f, y)]
    a, b = ((rank - rank.mean(1, keepdim=True)) / rank.std(1, keepdim=True) for rank in ranks)
    correlation = (a * b).mean(1).abs()
    assert (correlation > 0.98).float().mean() > 0.25  # nearly noise-free
    assert (correlation < 0.5).float().mean() > 0.05  # nearly noise
    distinct = torch.tensor([len(row.unique()) for row in y])
    assert 0.1 < (distinct < 60).float().mean() < 0.4  # rounded, or counts


def test_noise_has_size_one_and_can_follow_x():
    log_size = make().normal(600, 500)
    noise = draw_error(make(1), log_size)
    assert 0.8 < noise.square().mean(1).sqrt().median() < 1.2
    larger = torch.where(log_size > 1, noise.abs(), torch.nan).nanmedian(1).values
    smaller = torch.where(log_size < -1, noise.abs(), torch.nan).nanmedian(1).values
    ratio = larger / smaller
    assert 0.15 < (ratio > 2.5).float().mean() < 0.4
    assert (ratio.log().abs() < 0.5).float().mean() > 0.5


def test_outliers_are_few_and_in_few_tables():
    y = make().normal(1000, 200)
    moved = add_outliers(make(1), y, share=0.2) != y
    assert 0.1 < moved.any(1).float().mean() < 0.25
    assert moved.float().mean(1).max() < 0.12
