"""Tasks of one row and its neighbours, against scikit-learn's neighbours and sums by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from dsvnp.models import Architecture, make_model
from dsvnp.sources.neighbours import NeighbourTasks, nearest_rows, neighbourhood, smooth_weights
from dsvnp.training import Fleet, Settings, train

GENERATOR = torch.Generator().manual_seed(0)
X, Y = torch.randn(40, 3, generator=GENERATOR), torch.randn(40, 2, generator=GENERATOR)
METRICS = torch.tensor([[1.0, 1.0, 1.0], [0.1, 2.0, 0.5]])


def sklearn_neighbours(
    rows: torch.Tensor, queries: torch.Tensor, metric: torch.Tensor, count: int
) -> np.ndarray:
    return NearestNeighbors(n_neighbors=count).fit(rows * metric).kneighbors(queries * metric)[1]


@pytest.mark.parametrize("metric", METRICS)
def test_nearest_rows(metric):
    queries = torch.randn(11, 3, generator=GENERATOR)
    expected = sklearn_neighbours(X, queries, metric, 5)
    np.testing.assert_array_equal(nearest_rows(queries, X, metric, 5, itself=True), expected)
    expected = sklearn_neighbours(X, X, metric, 6)[:, 1:]  # the first is the row itself
    for chunk in (1024, 7):
        found = nearest_rows(X, X, metric, 5, itself=False, chunk=chunk)
        np.testing.assert_array_equal(found, expected)


def test_weights_sum_to_one_fall_with_distance_and_leave_out_what_does_not_count():
    distance, counted = torch.tensor([[1.0, 2.0, 3.0, 9.0]]), torch.tensor([[True, True, True, False]])
    by_hand = np.exp(-2 * (np.array([1.0, 2.0, 3.0]) / 2) ** 2)
    weights = smooth_weights(distance, counted)
    np.testing.assert_allclose(weights[0, :3], by_hand / by_hand.sum(), rtol=1e-6)
    assert weights[0, 3] == 0
    same = smooth_weights(torch.zeros(1, 4), counted)  # four equal rows
    np.testing.assert_allclose(same[0], [1 / 3, 1 / 3, 1 / 3, 0], rtol=1e-6)


def test_a_neighbourhood_is_measured_from_its_centre():
    metric = METRICS[1]
    x_target, y_target = torch.randn(4, 3, generator=GENERATOR), torch.randn(4, 2, generator=GENERATOR)
    task, centre = neighbourhood((X, Y), (x_target, y_target), metric, 5, itself=True)
    index = sklearn_neighbours(X, x_target, metric, 5)
    for row in range(4):
        distance = np.linalg.norm((X[index[row]] - x_target[row]) * metric, axis=1)
        weights = np.exp(-2 * (distance / distance.mean()) ** 2)
        by_hand = (weights[:, None] * Y[index[row]].numpy()).sum(0) / weights.sum()
        np.testing.assert_allclose(centre[row, 0], by_hand, rtol=1e-5)
        np.testing.assert_allclose(task.y_context[row], Y[index[row]].numpy() - by_hand, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            task.y_target[row, 0], y_target[row].numpy() - by_hand, rtol=1e-4, atol=1e-5
        )
        shown = distance / np.linalg.norm(metric)
        np.testing.assert_allclose(task.x_context[row, :, 3], shown, rtol=1e-4)
        assert torch.equal(task.x_context[row, :, :3], X[index[row]])
        assert task.x_target[row, 0].tolist() == [*x_target[row].tolist(), 0.0, *centre[row, 0].tolist()]
        assert torch.equal(task.x_context[row, :, 4:], centre[row].expand(5, -1))
    unknown = neighbourhood((X, Y), (x_target, None), metric, 5, itself=True)
    assert unknown.task.y_target is None
    assert torch.equal(unknown.centre, centre)


def test_outputs_are_left_as_they_are_where_they_are_not_recentred():
    whole = neighbourhood((X, Y), (X, Y), METRICS[0], 5, itself=False)
    task, centre = neighbourhood((X, Y), (X, Y), METRICS[0], 5, itself=False, recentre=False)
    assert not centre.any()
    assert torch.equal(task.x_context, whole.task.x_context[..., :4])  # no centre that could be told
    torch.testing.assert_close(task.y_context, whole.task.y_context + whole.centre)
    assert torch.equal(task.y_target[:, 0], Y)
    order, some = batch(NeighbourTasks(X, Y, METRICS, 5, 8, recentre=False))
    assert torch.equal(some.y_target[:, -1], Y[order[:8]])


def batch(source: NeighbourTasks, step: int = 0, uniform: float = 0.0):
    tensors = {**source.static(), **source.pool(torch.Generator().manual_seed(3), torch.device("cpu"))}
    uniforms = {"metric": torch.full((source.batch_size,), uniform)}
    return tensors["order"], source.batch(tensors, uniforms, torch.tensor(step))


@pytest.mark.parametrize(("uniform", "which"), [(0.0, 0), (0.99, 1)])
def test_a_batch_is_what_a_neighbourhood_of_its_rows_is(uniform, which):
    order, task = batch(NeighbourTasks(X, Y, METRICS, 5, 8, slots=7), step=2, uniform=uniform)
    rows = order[16:24]
    whole = neighbourhood((X, Y), (X, Y), METRICS[which], 5, itself=False).task
    assert task.in_context.sum(1).tolist() == [5] * 8
    assert task.mask_target.sum(1).tolist() == [6] * 8
    torch.testing.assert_close(task.x_target[:, :5], whole.x_context[rows])
    torch.testing.assert_close(task.y_target[:, :5], whole.y_context[rows])
    torch.testing.assert_close(task.x_target[:, -1:], whole.x_target[rows])
    torch.testing.assert_close(task.y_target[:, -1:], whole.y_target[rows])
    assert not task.in_context[:, -1].any()


def test_no_row_is_in_its_own_context_or_reveals_its_output():
    source = NeighbourTasks(X, Y, METRICS, 5, 8)
    changed = Y.clone()
    _, before = batch(source)
    order, _ = batch(source)
    changed[order[0]] += 100
    _, after = batch(NeighbourTasks(X, changed, METRICS, 5, 8))
    torch.testing.assert_close(after.x_target[0], before.x_target[0])
    torch.testing.assert_close(after.y_context[0, :5], before.y_context[0, :5])
    torch.testing.assert_close(after.y_target[0, -1], before.y_target[0, -1] + 100)


def test_a_fleet_of_different_context_sizes_trains():
    sources = [
        NeighbourTasks(X, Y, METRICS * scale, size, 8, slots=6) for scale, size in ((1.0, 4), (2.0, 6))
    ]
    arch = Architecture(6, 2, encoder=(8,), dim_lat=4, decoder=(8,), score_context=False)
    fleet = Fleet(lambda: make_model("dsvnp", arch), sources, [0, 1], Settings(30, 1e-2))
    train(fleet)
    assert fleet.active == [True, True]


def test_too_few_rows():
    with pytest.raises(
        ValueError, match="a table of 40 rows cannot give batches of 41 rows with 5 neighbours"
    ):
        NeighbourTasks(X, Y, METRICS, 5, 41)
    with pytest.raises(ValueError, match="with 40 neighbours in 40 slots each; lower"):
        NeighbourTasks(X, Y, METRICS, 40, 8)
