"""Noise as the paper makes it and in a domain's range, by its moments; shuffled images by a loop over blocks."""

import math

import pytest
import torch

from dsvnp.paper.images.ood import NOISES, noise, noise_in_range, shuffle_blocks

SHAPE = (2000, 3, 8, 8)
MEAN, STD = torch.tensor([0.5, 0.3, 0.1]), torch.tensor([0.2, 0.25, 0.3])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("kind", "std", "kurtosis"),
    [("rademacher", 0.5, 1.0), ("uniform", 1 / math.sqrt(12), 1.8), ("gaussian", 1.0, 3.0)],
)
def test_the_papers_noise_is_centred_and_has_the_moments_of_its_name(kind, std, kurtosis):
    drawn = noise(kind, SHAPE, seeded())
    assert drawn.shape == SHAPE
    assert drawn.dtype == torch.float32
    assert float(drawn.mean()) == pytest.approx(0, abs=0.01)
    assert float(drawn.std()) == pytest.approx(std, rel=0.01)
    assert float((drawn / drawn.std()).pow(4).mean()) == pytest.approx(kurtosis, rel=0.02)
    assert abs(float((drawn[:, :, 1:] * drawn[:, :, :-1]).mean())) < 0.01  # pixels know nothing of each other


def test_rademacher_has_two_values_and_uniform_stays_within_one_half():
    assert set(noise("rademacher", SHAPE, seeded()).unique().tolist()) == {-0.5, 0.5}
    uniform = noise("uniform", SHAPE, seeded())
    assert -0.5 <= float(uniform.min()) < -0.49
    assert 0.49 < float(uniform.max()) < 0.5


@pytest.mark.parametrize("kind", NOISES)
def test_noise_in_range_has_pixels_between_0_and_1(kind):
    drawn = noise_in_range(kind, SHAPE, MEAN, STD, seeded())
    assert drawn.shape == SHAPE
    assert 0 <= float(drawn.min()) < 0.01
    assert 0.99 < float(drawn.max()) <= 1
    assert not torch.equal(drawn, noise_in_range(kind, SHAPE, MEAN, STD, seeded(1)))


def test_gaussian_noise_in_range_has_the_statistics_of_the_domain_before_it_is_cut_off():
    narrow = noise_in_range(
        "gaussian", SHAPE, torch.full((3,), 0.5), torch.tensor([0.1, 0.05, 0.02]), seeded()
    )
    torch.testing.assert_close(narrow.mean((0, 2, 3)), torch.full((3,), 0.5), atol=1e-3, rtol=0)
    torch.testing.assert_close(narrow.std((0, 2, 3)), torch.tensor([0.1, 0.05, 0.02]), atol=0, rtol=0.01)
    wide = noise_in_range("gaussian", SHAPE, MEAN, STD, seeded())
    black = torch.special.ndtr(-MEAN / STD)  # the share of N(mean, std²) below 0
    torch.testing.assert_close((wide == 0).float().mean((0, 2, 3)), black, atol=0.01, rtol=0)


def test_an_unknown_noise_is_refused():
    with pytest.raises(ValueError, match="unknown noise 'gausian'"):
        noise("gausian", SHAPE, seeded())


def test_shuffled_images_hold_the_blocks_of_their_own_in_another_order():
    images = torch.randint(256, (20, 3, 8, 12), generator=seeded(), dtype=torch.uint8)
    shuffled = shuffle_blocks(images, 4, seeded(1))

    def blocks(image):
        return [
            image[:, i : i + 2, j : j + 3].flatten().tolist() for i in range(0, 8, 2) for j in range(0, 12, 3)
        ]

    orders = []
    for image, other in zip(images, shuffled, strict=True):
        before, after = blocks(image), blocks(other)
        orders.append(tuple(before.index(block) for block in after))
        assert sorted(orders[-1]) == list(range(16))
    assert len(set(orders)) == 20
    assert tuple(range(16)) not in orders


def test_blocks_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="28 × 28 pixels cannot be cut into 5 × 5"):
        shuffle_blocks(torch.zeros(1, 1, 28, 28), 5, seeded())
