"""Folds: two halves, ten times, the same for all; nothing of the test half is in what a model sees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny_tables import smooth_rows, write_tables

from dsvnp.paper.datasets.catalogue import DataTable
from dsvnp.paper.datasets.locate import ChecksumError
from dsvnp.paper.multioutput.folds import RowPortions, Rows, Split, load_rows, load_splits, make_split

CPU = torch.device("cpu")


def table(num_rows: int = 41) -> DataTable:
    rows = smooth_rows(num_rows, 3, 2)
    return DataTable("made", rows[:, :3], rows[:, 3:], (), (), "")


def split(index: int = 0, num_rows: int = 41, judged_on: str = "test") -> Split:
    return make_split(
        table(num_rows), index, RowPortions(0.1, 4 if judged_on == "test" else 3, judged_on), CPU
    )


def numbers(made: Split, rows: Rows) -> set[int]:
    """Which rows of the table these are: the one whose outputs differ by a shift and the split's scale."""
    y = table(len(made.train.x) + len(made.held_out.x) + len(made.test.x)).y
    raw = rows.y.double().numpy() * made.std.double().numpy()
    shift = raw[0] - y  # up to the mean, each row of the table may be the first one
    for first in range(len(y)):
        distance = np.abs(raw[:, None] - shift[first] - y[None]).max(-1)
        if (distance.min(1) < 1e-4).all():
            return set(distance.argmin(1).tolist())
    raise AssertionError("these rows are not of the table")


@pytest.mark.parametrize("num_rows", [40, 41])
def test_training_sets_are_of_one_size_and_no_test_row_is_left_out(num_rows):
    made = [split(index, num_rows) for index in range(4)]
    assert {(len(s.train.x), len(s.held_out.x)) for s in made} == {(18, 2)}
    assert [len(s.test.x) for s in made] == ([20] * 4 if num_rows == 40 else [21, 20, 21, 20])


def test_parts_are_disjoint_and_folds_swap_their_halves():
    first, second, other = split(0, 40), split(1, 40), split(2, 40)
    parts = [numbers(first, rows) for rows in (first.train, first.held_out, first.test)]
    assert sorted(n for part in parts for n in part) == list(range(40))
    assert numbers(second, second.test) == parts[0] | parts[1]
    assert numbers(other, other.test) not in (parts[2], parts[0] | parts[1])  # another repeat, other halves


def test_a_split_is_the_same_each_time():
    one, two = split(3), split(3)
    assert torch.equal(one.train.y, two.train.y)
    assert torch.equal(one.context, two.context)
    assert torch.equal(one.test_context, two.test_context)


def test_units_are_of_the_training_rows_alone():
    made, y = split(), table().y
    for part in made.train:
        assert part.dtype == torch.float32
        assert part.mean(0).abs().max() < 1e-6
        assert (part.std(0, correction=0) - 1).abs().max() < 1e-5
    assert made.held_out.y.mean(0).abs().max() > 1e-3
    assert not torch.allclose(made.std.double(), torch.from_numpy(y.std(0)), rtol=1e-3)  # not of all rows
    np.testing.assert_allclose(made.span, y.max(0) - y.min(0), rtol=1e-6)


def test_contexts_are_rows_of_their_own_half_and_not_among_the_targets():
    made = split()
    task = made.task(made.test)
    assert torch.equal(task.x_context[0], made.train.x[made.context])
    assert torch.equal(task.y_target[0], made.test.y)
    assert len(set(made.context.tolist())) == len(set(made.test_context.tolist())) == 4
    batch = made.within_test()
    assert torch.equal(batch.y_context[0], made.test.y[made.test_context])
    both = torch.cat([batch.x_context[0], batch.x_target[0]])
    assert torch.equal(both.sort(0).values, made.test.x.sort(0).values)


def test_an_inner_split_looks_at_the_training_half_alone():
    """Whatever the test half holds, what settings are chosen on is the same."""
    outer, inner = split(0, 40), split(0, 40, "held-out")
    others = sorted(numbers(outer, outer.test))
    whole = table(40)
    x, y = whole.x.copy(), whole.y.copy()
    x[others], y[others] = np.nan, np.nan
    again = make_split(DataTable("made", x, y, (), (), ""), 0, RowPortions(0.1, 3, "held-out"), CPU)
    for name in ("train", "held_out", "test"):
        for mine, its in zip(getattr(inner, name), getattr(again, name), strict=True):
            assert torch.equal(mine, its)
            assert mine.isfinite().all()
    assert torch.equal(inner.span, again.span)
    assert torch.equal(inner.std, again.std)


@pytest.mark.parametrize("num_rows", [40, 41])
def test_inner_splits_divide_their_training_half(num_rows):
    for index in range(4):
        outer, inner = split(index, num_rows), split(index, num_rows, "held-out")
        parts = inner.train, inner.held_out, inner.test
        assert [len(rows.x) for rows in parts] == [
            14,
            2,
            4,
        ]  # of 20: a fifth is judged, a tenth of the rest held out
        raw = torch.cat([rows.y for rows in parts]).double() * inner.std
        learned = torch.cat([outer.train.y, outer.held_out.y]).double() * outer.std
        shift = raw.mean(0) - learned.mean(0)  # units differ by a shift
        distance = torch.cdist(raw - shift, learned)
        assert distance.min(1).values.max() < 1e-4
        assert sorted(distance.argmin(1).tolist()) == list(range(20))  # each row of the half, once
        assert inner.train.y.mean(0).abs().max() < 1e-6


def test_what_is_judged_on_is_in_the_name(tmp_path):
    write_tables(tmp_path)
    files = "wq", tmp_path, None, False
    for judged_on, name in (("test", "wq (61 of 1060 rows)"), ("held-out", "wq-held-out (61 of 1060 rows)")):
        full, splits = load_splits(*files, (0, 3), RowPortions(0.1, 2, judged_on), CPU)
        assert full == name
        assert len(splits) == 2
    with pytest.raises(ValueError, match=r"unknown set to judge on 'held_out'. Did you mean 'held-out'\?"):
        split(judged_on="held_out")


def test_too_many_context_rows_are_refused():
    with pytest.raises(ValueError, match="18 context rows cannot be taken from 18 training and 21 test rows"):
        make_split(table(), 0, RowPortions(0.1, 18), CPU)


def test_tables_say_how_many_rows_they_have(tmp_path):
    write_tables(tmp_path)
    assert load_rows("wq", tmp_path, None, verify=False).name == "wq (61 of 1060 rows)"
    some = load_rows("sarcos", tmp_path, 20, verify=False)
    assert some.name == "sarcos (20 of 48933 rows)"
    assert len(some.x) == len(some.y) == 20
    assert len(np.unique(some.x, axis=0)) == 20
    with pytest.raises(ValueError, match=r"unknown data set 'scm20'. Did you mean 'scm20d'\?"):
        load_rows("scm20", tmp_path, None, verify=False)
    with pytest.raises(ChecksumError):
        load_rows("wq", tmp_path, None, verify=True)
