"""Task sources: every row once in an epoch, contexts of uniform sizes, the same batch under vmap."""

from collections import Counter
from collections.abc import Mapping

import pytest
import torch
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.func import vmap

from dsvnp.sources.base import RowSource, Standardizer, TaskSource, check_context, first_points, take_batch
from dsvnp.sources.curves import Curves
from dsvnp.task import Task

CPU = torch.device("cpu")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered(rows: int = 60, **sizes) -> RowSource:
    """A table whose inputs say which row they are, and whose outputs are twice that."""
    x = torch.arange(rows, dtype=torch.float64)[:, None]
    return RowSource(x, 2 * x, **{"num_points": 5, "batch_size": 3} | sizes)


def batch(source: TaskSource, step: int, seed: int = 0) -> Task:
    """The batch of a step, from a pool and uniform numbers of a seed."""
    tensors = source.static() | source.pool(generator(seed), CPU)
    shapes = source.uniform_shapes()
    g = generator(1000 * seed + step)
    uniforms = {name: torch.rand(shape, generator=g) for name, shape in shapes.items()}
    return source.batch(tensors, uniforms, torch.tensor(step))


# --- rows ---


def test_an_epoch_visits_each_row_once():
    source = numbered()
    assert source.refresh_every == 4
    visited = torch.cat([batch(source, step).x_target.flatten() for step in range(4)])
    assert sorted(visited.tolist()) == list(range(60))
    assert visited.tolist() != list(range(60))  # in a random order


def test_the_last_rows_are_left_out_if_too_few_for_a_batch():
    source = numbered(rows=64)
    assert source.refresh_every == 4
    visited = torch.cat([batch(source, step).x_target.flatten() for step in range(4)])
    assert len(set(visited.tolist())) == 60


def test_each_epoch_has_another_order():
    source = numbered()
    assert not torch.equal(batch(source, 0, seed=0).x_target, batch(source, 0, seed=1).x_target)
    assert torch.equal(source.pool(generator(3), CPU)["order"], source.pool(generator(3), CPU)["order"])


def test_outputs_belong_to_their_inputs():
    task = batch(numbered(), 2)
    assert task.x_target.shape == task.y_target.shape == (3, 5, 1)
    assert torch.equal(task.y_target, 2 * task.x_target)


def test_all_points_are_targets_and_the_context_is_among_them():
    task = batch(numbered(), 1)
    assert task.mask_target.all()
    assert torch.equal(task.in_context, task.mask_context)
    assert torch.equal(task.x_context, task.x_target)


def test_labels_and_other_types_are_kept():
    source = RowSource(torch.rand(20, 2), torch.randint(3, (20, 1)), num_points=10)
    task = batch(source, 0)
    assert task.x_target.dtype == torch.float32
    assert task.y_target.dtype == torch.int64


def test_stored_inputs_may_be_prepared():
    class Halved(RowSource):
        def prepare(self, x: Tensor, tensors: Mapping[str, Tensor], uniforms: Mapping[str, Tensor]) -> Tensor:
            return x / 2

    x = torch.arange(20.0)[:, None]
    task = batch(Halved(x, x, num_points=10), 0)
    assert torch.equal(2 * task.x_target, task.y_target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"num_points": 61, "batch_size": 1},
            "the table has 60 rows, fewer than the 1 × 61 of one batch; lower num",
        ),
        ({"batch_size": 13}, "the table has 60 rows, fewer than the 13 × 5 of one batch"),
        ({"min_context": -1}, "0 ≤ min_context ≤ max_context ≤ 5, the points of a task; got -1 and 5"),
        ({"max_context": 6}, "got 1 and 6"),
        ({"min_context": 4, "max_context": 3}, "got 4 and 3"),
    ],
)
def test_sizes_that_cannot_be_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        numbered(**change)


def test_a_table_may_be_one_batch():
    assert numbered(rows=15).refresh_every == 1


def test_one_output_row_per_input_row():
    with pytest.raises(ValueError, match="y has 3 rows but x has 4; pass one output row per input row"):
        RowSource(torch.ones(4, 1), torch.ones(3, 1), num_points=2)


# --- contexts ---


def test_context_sizes_are_uniform_over_the_range_with_both_ends():
    tasks, low, high = 40_000, 2, 6
    uniform = torch.rand(tasks, generator=generator())
    flags = first_points(uniform, low, high, torch.zeros(tasks, 8, 1))
    sizes = Counter(flags.sum(1).tolist())
    assert sorted(sizes) == [2, 3, 4, 5, 6]
    expected = tasks / 5
    assert sum((count - expected) ** 2 / expected for count in sizes.values()) < 18.5  # χ²₄ at 0.1 %


def test_the_ends_of_the_range_are_hit_exactly():
    largest = torch.nextafter(torch.tensor(1.0), torch.tensor(0.0))
    for high in range(1, 101):
        flags = first_points(torch.stack([torch.tensor(0.0), largest]), 0, high, torch.zeros(2, 128, 1))
        assert flags.sum(1).tolist() == [0, high]


def test_the_context_is_the_first_points():
    flags = first_points(torch.tensor([0.0, 0.5, 0.99]), 1, 3, torch.zeros(3, 4, 1))
    assert flags.tolist() == [[True] + [False] * 3, [True] * 2 + [False] * 2, [True] * 3 + [False]]


def test_a_table_uses_all_its_rows_as_context_at_most_by_default():
    source = numbered(batch_size=1, rows=60)
    sizes = {int(batch(source, step, seed).mask_context.sum()) for step in range(12) for seed in range(8)}
    assert sizes == {1, 2, 3, 4, 5}


def test_an_empty_context_may_be_asked_for():
    check_context((0, 0), 5)
    assert not batch(numbered(min_context=0, max_context=0), 0).mask_context.any()


# --- pools ---


def test_a_pool_is_taken_in_order_and_round():
    pool = torch.arange(7)
    taken = [take_batch(pool, torch.tensor(step), 3).tolist() for step in range(4)]
    assert taken == [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "source",
    [
        numbered(),
        Curves(3, 6, 1, 4, refresh_every=2, dtype=torch.float64),
    ],
    ids=["rows", "curves"],
)
def test_batches_of_replicas_are_those_of_each(source):
    static, pools = source.static(), [source.pool(generator(seed), CPU) for seed in (1, 2)]
    uniforms = torch.rand(2, 3, generator=generator(3))
    stacked = {name: torch.stack([pool[name] for pool in pools]) for name in pools[0]}

    def tensors(pool, uniform):
        return source.batch({**static, **pool}, {"context": uniform}, torch.tensor(1)).tensors()

    together = vmap(tensors)(stacked, uniforms)
    for row in range(2):
        alone = tensors(pools[row], uniforms[row])
        assert alone.keys() == together.keys()
        for name, value in alone.items():
            assert torch.equal(together[name][row], value), name


# --- standardisation ---


def test_columns_are_standardised_as_scikit_learn_does_and_come_back():
    rows = torch.randn(200, 3, generator=generator(4), dtype=torch.float64) * torch.tensor([1e-3, 3, 1e6]) + 7
    scaler = Standardizer.fit(rows)
    expected = StandardScaler().fit(rows)
    assert torch.allclose(scaler.transform(rows), torch.from_numpy(expected.transform(rows)), rtol=1e-12)
    assert torch.allclose(scaler.inverse(scaler.transform(rows)), rows, rtol=1e-12)
    assert scaler.transform(rows.float()).dtype == torch.float32


def test_missing_entries_do_not_count_and_stay_missing():
    rows = torch.tensor([[1.0, 2.0], [3.0, float("nan")], [5.0, 6.0]])
    scaler = Standardizer.fit(rows)
    assert scaler.mean.tolist() == [3.0, 4.0]
    assert scaler.std.tolist() == [pytest.approx((8 / 3) ** 0.5), 2.0]
    assert scaler.transform(rows).isnan().tolist() == [[False, False], [False, True], [False, False]]


def test_a_constant_column_becomes_zeros_whatever_its_size():
    rows = torch.tensor([0.1, 1e9, 0.0], dtype=torch.float64).expand(7, 3)
    assert torch.allclose(
        Standardizer.fit(rows).transform(rows), torch.zeros(7, 3, dtype=torch.float64), atol=1e-6
    )


def test_a_column_without_a_value_is_refused_by_number():
    with pytest.raises(ValueError, match="column 1 has no finite value"):
        Standardizer.fit(torch.tensor([[1.0, float("nan")]]))
