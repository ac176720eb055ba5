"""Random: laws against SciPy's, proportions, and a generator that decides everything."""

import pytest
import torch
from scipy import stats

from dsvnp.sources.priors.randomness import Random, unit

CPU = torch.device("cpu")


def make(seed: int = 0) -> Random:
    return Random(torch.Generator().manual_seed(seed), CPU)


@pytest.mark.parametrize("freedom", [2.0, 3.5, 8.0])
def test_student_has_the_law_of_student(freedom):
    values = make().student(torch.tensor(freedom), 20_000)
    assert stats.kstest(values.numpy(), stats.t(freedom).cdf).pvalue > 0.01


def test_exponential_and_log_uniform_have_their_laws():
    assert stats.kstest(make().exponential(20_000).numpy(), stats.expon.cdf).pvalue > 0.01
    assert (
        stats.kstest(make().log_uniform(0.1, 10, 20_000).numpy(), stats.loguniform(0.1, 10).cdf).pvalue > 0.01
    )


@pytest.mark.parametrize("freedom", [1, 3, 5])
def test_frequencies_of_matern_kernels_are_students(freedom):
    random = make()
    scale = random.frequency_scale(torch.full((20_000,), freedom), 20_000)
    assert stats.kstest((scale * random.normal(20_000)).numpy(), stats.t(freedom).cdf).pvalue > 0.01


def test_a_frequency_scale_without_freedom_is_one():
    assert (make().frequency_scale(torch.zeros(7), 7) == 1).all()


def test_choice_follows_its_weights():
    picked = make().choice((1, 0, 3), 40_000)
    share = torch.bincount(picked, minlength=3) / 40_000
    assert torch.allclose(share, torch.tensor([0.25, 0.0, 0.75]), atol=0.01)


def test_integers_include_both_ends():
    assert set(make().integers(2, 4, 500).tolist()) == {2, 3, 4}


@pytest.mark.parametrize("count", [0, 1, 7, 100])
def test_allot_deals_each_table_once_in_proportion(count):
    blocks = make().allot(count, (0.3, 0.5, 0.2))
    assert sorted(torch.cat(blocks).tolist()) == list(range(count))
    for block, share in zip(blocks, (0.3, 0.5, 0.2), strict=True):
        assert abs(len(block) - share * count) <= 1


def test_the_generator_decides():
    assert torch.equal(make(3).normal(5), make(3).normal(5))
    assert not torch.equal(make(3).normal(5), make(4).normal(5))


def test_unit_standardises_and_gives_zeros_for_a_constant():
    values = torch.stack([torch.arange(50.0), torch.full((50,), 3.7)])
    scaled = unit(values)
    assert torch.allclose(scaled[0].mean(), torch.tensor(0.0), atol=1e-6)
    assert torch.allclose(scaled[0].std(correction=0), torch.tensor(1.0), atol=1e-5)
    assert (scaled[1] == 0).all()
