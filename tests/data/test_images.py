"""Images on the device as bytes, and as numbers in a batch."""

import pytest
import torch

from dsvnp.data.images import Images


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
