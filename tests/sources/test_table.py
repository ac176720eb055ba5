"""Tables as tasks: one cut into random parts, or many, each a task of its own."""

import pytest
import torch

from dsvnp.sources.table import ManyTables, TableTasks, known_rows, pad_tables


def draw(source, step=0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    uniforms = {n: torch.rand(s, generator=generator) for n, s in source.uniform_shapes().items()}
    pool = source.pool(torch.Generator().manual_seed(seed), torch.device("cpu"))
    return source.batch({**source.static(), **pool}, uniforms, torch.tensor(step))


@pytest.mark.parametrize("rows", [1, 2, 5, 63, 64, 200, 1000])
def test_one_table_suits_any_number_of_rows(rows):
    x = torch.arange(rows, dtype=torch.float32)[:, None]
    task = draw(TableTasks(x, 2 * x, num_points=64, batch_size=4))
    assert task.x_target.shape == (min(4, max(1, rows // 64)), min(64, rows), 1)
    torch.testing.assert_close(task.y_target, 2 * task.x_target)  # a row keeps its output
    assert task.x_target.unique().numel() == task.x_target.numel()  # no row twice in a batch
    sizes = task.in_context.sum(1)
    assert (sizes < task.num_targets).all()  # a row is always left to predict
    assert (sizes >= min(1, rows - 1)).all()


def tables(sizes):
    return [(torch.full((n, 2), float(i)), torch.arange(n)[:, None] + 100.0 * i) for i, n in enumerate(sizes)]


def test_many_tables_keep_rows_with_their_table_and_context_within_it():
    sizes = [3, 7, 5, 2]
    source = ManyTables(tables(sizes), batch_size=4)
    for seed in range(20):
        task = draw(source, seed=seed)
        task.check()
        which = [int(task.x_target[b][task.mask_target[b]][0, 0]) for b in range(4)]
        assert sorted(which) == [0, 1, 2, 3]  # an epoch visits each table once
        for b, table in enumerate(which):
            filled = task.mask_target[b]
            assert int(filled.sum()) == sizes[table]
            expected = torch.arange(sizes[table]) + 100.0 * table
            torch.testing.assert_close(task.y_target[b][filled].flatten().sort().values, expected)
            assert int(task.in_context[b].sum()) < sizes[table]
            assert not (task.in_context[b] & ~filled).any()


def test_contexts_of_many_tables_take_every_size_and_rows_every_order():
    source = ManyTables(tables([6, 6]), batch_size=2)
    tasks = [draw(source, seed=seed) for seed in range(200)]
    assert {int(n) for task in tasks for n in task.in_context.sum(1)} == set(range(6))
    firsts = {float(task.y_target[0, 0, 0]) % 100 for task in tasks}
    assert firsts == {0.0, 1.0, 2.0, 3.0, 4.0, 5.0}


def test_a_long_table_shows_a_random_part():
    source = ManyTables(tables([50, 4]), num_points=8, batch_size=2)
    seen = set()
    for seed in range(60):
        task = draw(source, seed=seed)
        assert task.x_target.shape[1] == 8
        long = int((task.x_target[:, 0, 0] == 0).nonzero()[0])
        seen |= set(task.y_target[long].flatten().tolist())
    assert len(seen) == 50


def test_padding_is_masked_and_no_table_is_refused():
    x, y, mask = pad_tables(tables([1, 3]))
    assert x.shape == (2, 3, 2)
    assert y[0].flatten().tolist() == [0.0, 0.0, 0.0]
    assert mask.tolist() == [[True, False, False], [True, True, True]]
    assert pad_tables(tables([1, 3]), num_slots=5)[2].sum(1).tolist() == [1, 3]
    assert ManyTables(tables([1, 3]), num_slots=5).static()["x"].shape == (2, 5, 2)
    with pytest.raises(ValueError, match="at least one pair"):
        ManyTables([])


def test_rows_without_any_known_output():
    nan = torch.nan
    assert known_rows(torch.tensor([[1.0, nan], [nan, nan], [nan, 2.0]])).tolist() == [True, False, True]
    assert known_rows(torch.tensor([[0], [-1], [1]])).tolist() == [True, False, True]
