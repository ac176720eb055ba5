"""Remoteness: distances beyond the usual."""

import numpy as np
import torch

from dsvnp.tabular.rows.remoteness import remoteness


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_it_is_the_distance_to_the_nearest_row_in_units_of_what_is_usual():
    known, x = rows(60, 3), torch.cat([rows(30, 3, seed=1), 10 + rows(5, 3, seed=2)])

    def nearest(row, others):
        return min(np.linalg.norm(row - other) for other in others)

    a, b = known.numpy(), x.numpy()
    usual = np.quantile([nearest(a[i], np.delete(a, i, 0)) for i in range(60)], 0.95)
    expected = np.log(np.maximum([nearest(row, a) / usual for row in b], 1))
    np.testing.assert_allclose(remoteness(x, known).numpy(), expected)
    np.testing.assert_allclose(remoteness(x, known, chunk=7).numpy(), expected)
    assert (expected[:30] == 0).mean() > 0.8
    assert (expected[30:] > 1).all()


def test_few_rows_tell_nothing_and_rows_that_are_there_twice_do_not_divide_by_zero():
    assert (remoteness(100 + rows(4, 2), rows(19, 2)) == 0).all()
    twice = rows(15, 2).repeat(2, 1)
    far = remoteness(torch.cat([twice[:1], 100 + rows(1, 2)]), twice)
    assert far[0] == 0
    assert 3 < far[1] < 6
