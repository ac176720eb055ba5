"""Images on the device as bytes, and as numbers in a batch."""

import pytest
import torch

from dsvnp.paper.images.source import Images, crop, normalise


def source(**changes):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (40, 3, 4, 4), generator=generator, dtype=torch.uint8)
    labels = torch.arange(40) % 10
    settings = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4), "num_points": 10, **changes}
    return images, labels, Images(images, labels, **settings)


def batch(made, step=0):
    pool = made.pool(torch.Generator().manual_seed(1), torch.device("cpu"))
    task = made.batch({**made.static(), **pool}, {"context": torch.tensor([0.5])}, torch.tensor(step))
    return pool["order"], task


def test_a_batch_holds_the_images_normalised_by_channel():
    images, labels, made = source()
    order, task = batch(made, step=1)
    rows = order[10:20]
    expected = (images[rows].double() / 255 - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / torch.tensor(
        [0.2, 0.3, 0.4]
    )[:, None, None]
    torch.testing.assert_close(task.x_target[0].double(), expected.flatten(1).double(), atol=1e-5, rtol=1e-5)
    assert task.y_target.dtype == torch.int64
    assert torch.equal(task.y_target[0, :, 0], labels[rows])


def test_they_stay_bytes_where_they_are_kept():
    _, _, made = source()
    assert made.static()["x"].dtype == torch.uint8


def test_without_statistics_values_lie_between_0_and_1():
    _, _, made = source(mean=(0.0,) * 3, std=(1.0,) * 3)
    x = batch(made)[1].x_target
    assert float(x.min()) >= 0
    assert 0.9 < float(x.max()) <= 1


def test_numbers_in_place_of_bytes_are_refused():
    with pytest.raises(ValueError, match=r"must be bytes .* got torch\.float32"):
        Images(torch.zeros(10, 1, 2, 2), torch.zeros(10))


# --- shifted and mirrored ---


def by_hand(image, pad, row, column, mirrored):
    """Border, cut and mirror one image [channels, height, width], pixel by pixel."""
    channels, height, width = image.shape
    out = torch.zeros_like(image)
    for c in range(channels):
        for i in range(height):
            for j in range(width):
                source_i = i + row - pad
                source_j = (width - 1 - j if mirrored else j) + column - pad
                if 0 <= source_i < height and 0 <= source_j < width:
                    out[c, i, j] = image[c, source_i, source_j]
    return out


def test_a_cut_is_what_a_loop_over_pixels_gives():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(1, 256, (2, 9, 3, 4, 5), generator=generator, dtype=torch.uint8)
    corner = torch.randint(5, (2, 9, 2), generator=generator)
    corner[0, 0], corner[0, 1], corner[0, 2] = 2, 0, 4  # in place, and both extremes
    mirrored = torch.rand(2, 9, generator=generator) < 0.5
    got = crop(images.flatten(-3), (3, 4, 5), 2, corner, mirrored)
    assert got.dtype == torch.uint8
    for at in [(b, t) for b in range(2) for t in range(9)]:
        expected = by_hand(images[at], 2, *corner[at].tolist(), bool(mirrored[at]))
        assert torch.equal(got[at].unflatten(-1, (3, 4, 5)), expected), at


def test_a_batch_is_shifted_and_mirrored_as_its_uniform_numbers_say():
    images, _, made = source(pad=1, flip=0.25)
    assert made.uniform_shapes() == {"context": (1,), "shift": (1, 10, 2), "flip": (1, 10)}
    shift = torch.zeros(1, 10, 2)
    shift[0, 1] = torch.tensor([0.34, 0.99])  # of three places each: the middle row, the last column
    flip = torch.full((1, 10), 0.25)
    flip[0, 2] = 0.24
    pool = made.pool(torch.Generator().manual_seed(1), torch.device("cpu"))
    uniforms = {"context": torch.tensor([0.5]), "shift": shift, "flip": flip}
    task = made.batch({**made.static(), **pool}, uniforms, torch.tensor(0))
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.4])
    for t, (row, column, mirrored) in {0: (0, 0, False), 1: (1, 2, False), 2: (0, 0, True)}.items():
        expected = by_hand(images[pool["order"][t]], 1, row, column, mirrored)
        torch.testing.assert_close(task.x_target[0, t], normalise(expected.flatten(), mean, std))
    assert torch.equal(task.x_context, task.x_target)


def test_plain_images_need_no_further_numbers():
    assert source()[2].uniform_shapes() == {"context": (1,)}


def test_impossible_shifts_are_refused():
    with pytest.raises(ValueError, match="pad must not be negative"):
        source(pad=-1)
    with pytest.raises(ValueError, match=r"flip is a probability, got pad=0 and flip=1\.5"):
        source(flip=1.5)
