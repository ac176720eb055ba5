"""Tasks: how they are made, joined, collated and moved, and what they refuse."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from dsvnp import Task


def numbers(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


def some_points(num_points: int = 4) -> Task:
    in_context = torch.tensor([[True, False, True, False, True], [False, True, False, False, False]])
    return Task.from_points(numbers(2, num_points, 3), numbers(2, num_points, 1), in_context[:, :num_points])


def some_sets(num_context: int = 2, num_targets: int = 3, num_tasks: int = 2) -> Task:
    return Task.from_sets(
        numbers(num_tasks, num_context, 3),
        numbers(num_tasks, num_context, 1),
        -1 - numbers(num_tasks, num_targets, 3),
        -1 - numbers(num_tasks, num_targets, 1),
    )


def test_points_are_all_targets_and_the_flagged_ones_context():
    task = some_points()
    assert task.x_target is task.x_context
    assert task.y_target is task.y_context
    assert task.mask_target.all()
    assert torch.equal(task.mask_context, task.in_context)
    assert task.in_context.sum(-1).tolist() == [2, 1]


def test_a_point_that_is_masked_out_is_no_context():
    x, y, flags = numbers(1, 3, 1), numbers(1, 3, 1), torch.tensor([[True, True, False]])
    task = Task.from_points(x, y, flags, mask=torch.tensor([[True, False, True]]))
    assert task.mask_context.tolist() == task.in_context.tolist() == [[True, False, False]]
    assert task.mask_target.tolist() == [[True, False, True]]


def test_sets_are_full_unless_masked():
    task = some_sets()
    assert task.mask_context.all()
    assert task.mask_target.all()
    assert task.in_context is None
    masks = torch.tensor([[True, False]]), torch.tensor([[False, True, True]])
    masked = Task.from_sets(numbers(1, 2, 1), numbers(1, 2, 1), numbers(1, 3, 1), None, *masks)
    assert torch.equal(masked.mask_context, masks[0])
    assert torch.equal(masked.mask_target, masks[1])
    assert masked.y_target is None


def test_masks_are_made_where_the_points_are():
    task = Task.from_sets(*(numbers(1, 2, 1).to("meta") for _ in range(3)))
    assert task.mask_context.device.type == task.mask_target.device.type == "meta"


def test_a_task_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        some_sets().x_target = numbers(2, 3, 3)


def test_a_task_knows_its_size():
    assert (some_sets().num_tasks, some_sets().num_targets) == (2, 3)
    assert (some_points().num_tasks, some_points().num_targets) == (2, 4)


def test_joining_puts_the_context_among_the_targets():
    full = some_sets().tensors()
    full["mask_context"] = torch.tensor([[True, False], [True, True]])
    full["mask_target"] = torch.tensor([[True, True, True], [True, True, False]])
    task = Task(**full)
    joined = task.joined()
    assert torch.equal(joined.x_target, torch.cat([task.x_context, task.x_target], 1))
    assert torch.equal(joined.y_target, torch.cat([task.y_context, task.y_target], 1))
    assert joined.mask_target.tolist() == [[True, False, True, True, True], [True, True, True, True, False]]
    assert joined.in_context.tolist() == [
        [True, False, False, False, False],
        [True, True, False, False, False],
    ]
    assert joined.x_context is task.x_context


def test_joining_leaves_a_task_alone_whose_context_is_flagged():
    task = some_points()
    assert task.joined() is task


def test_all_points_are_there_once_the_task_is_joined():
    apart = some_sets()
    with pytest.raises(ValueError, match=r"without in_context; .* call joined\(\)"):
        apart.all_points()
    with pytest.raises(ValueError, match="without y_target"):
        replace(some_points(), y_target=None).all_points()
    joined = apart.joined()
    assert all(a is b for a, b in zip(joined.all_points(), (joined.y_target, joined.in_context), strict=True))


def test_collating_pads_with_empty_slots():
    small, large = some_sets(1, 2, num_tasks=1), some_sets(3, 4, num_tasks=2)
    batch = Task.collate([small, large])
    assert batch.num_tasks == 3
    assert batch.mask_context.tolist() == [[True, False, False], [True] * 3, [True] * 3]
    assert batch.mask_target.tolist() == [[True, True, False, False], [True] * 4, [True] * 4]
    assert torch.equal(batch.x_target[1:], large.x_target)
    assert torch.equal(batch.y_context[:1, :1], small.y_context)
    for value, mask in ((batch.x_context, batch.mask_context), (batch.y_target, batch.mask_target)):
        assert (value[~mask] == 0).all()
    assert batch.in_context is None


def test_collating_keeps_flags_and_integer_labels():
    tasks = [
        Task.from_points(
            numbers(1, n, 2), torch.ones(1, n, 1, dtype=torch.long), torch.ones(1, n, dtype=torch.bool)
        )
        for n in (1, 3)
    ]
    batch = Task.collate(tasks)
    assert batch.in_context.tolist() == [[True, False, False], [True] * 3]
    assert batch.y_target.dtype == torch.long


def test_collating_nothing_or_y_target_for_some_tasks_only_is_refused():
    with pytest.raises(ValueError, match="collate got no task; pass at least one"):
        Task.collate([])
    task = some_sets()
    blind = Task.from_sets(task.x_context, task.y_context, task.x_target)
    assert Task.collate([blind, blind]).y_target is None
    with pytest.raises(ValueError, match="y_target is given for some tasks only; give it for all or none"):
        Task.collate([task, blind])


def test_the_tensors_of_a_task_make_it_again():
    for task in (some_points(), some_sets()):
        again = Task(**task.tensors())
        assert again.tensors().keys() == task.tensors().keys()
        assert all(again.tensors()[n] is v for n, v in task.tensors().items())
    assert "in_context" not in some_sets().tensors()


def test_moving_changes_the_type_of_numbers_but_not_of_masks_and_labels():
    labels = torch.zeros(1, 2, 1, dtype=torch.long)
    task = Task.from_points(numbers(1, 2, 1), labels, torch.ones(1, 2, dtype=torch.bool)).to(
        dtype=torch.float64
    )
    assert task.x_context.dtype == task.x_target.dtype == torch.float64
    assert task.y_target.dtype == torch.long
    assert task.mask_target.dtype == task.in_context.dtype == torch.bool
    assert some_sets().to("meta").x_context.device.type == "meta"
    assert some_sets().to("cpu").x_context.dtype == torch.float32


# --- what is refused: expected, got, remedy ---

X, Y, FLAGS = numbers(2, 4, 3), numbers(2, 4, 1), torch.ones(2, 4, dtype=torch.bool)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"x_context": X[0]},
            "x_context must be [tasks, points, features], got 2 axes (4, 3); add a first axis",
        ),
        (
            {"x_target": X[0]},
            "x_target must be [tasks, points, features], got 2 axes (4, 3); add a first axis",
        ),
        (
            {"y_context": Y[..., 0]},
            "y_context must be [tasks, points, outputs], got 2 axes (2, 4); add a last axis",
        ),
        (
            {"y_target": Y[..., 0]},
            "y_target must be [tasks, points, outputs], got 2 axes (2, 4); add a last axis",
        ),
        (
            {"y_context": Y[:, :3]},
            "y_context has 3 points in 2 tasks but x_context has 4 in 2; pass one output row",
        ),
        (
            {"y_target": Y[:1]},
            "y_target has 4 points in 1 tasks but x_target has 4 in 2; pass one output row",
        ),
        (
            {"mask_context": FLAGS[:, :2]},
            "mask_context must be boolean of shape (2, 4), got torch.bool (2, 2); pass",
        ),
        (
            {"mask_target": FLAGS.int()},
            "mask_target must be boolean of shape (2, 4), got torch.int32 (2, 4); pass",
        ),
        (
            {"in_context": FLAGS[:1]},
            "in_context must be boolean of shape (2, 4), got torch.bool (1, 4); pass one",
        ),
        (
            {"in_context": FLAGS.float()},
            "in_context must be boolean of shape (2, 4), got torch.float32 (2, 4); pass",
        ),
        (
            {"x_target": X[..., :2]},
            "x_context has 3 features but x_target has 2; pass the same features on both sides",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(changes, message):
    good = {
        "x_context": X,
        "y_context": Y,
        "x_target": X,
        "mask_context": FLAGS,
        "mask_target": FLAGS,
        "y_target": Y,
    }
    Task(**good)
    with pytest.raises(ValueError, match=re.escape(message)):
        Task(**(good | changes))


def test_a_different_number_of_tasks_on_both_sides_is_refused():
    message = "x_context has 2 tasks but x_target has 1; pass the same tasks, in the same order"
    with pytest.raises(ValueError, match=message):
        Task.from_sets(X, Y, X[:1], Y[:1])


def test_joining_without_y_target_is_refused():
    with pytest.raises(ValueError, match="no y_target and cannot be learned from; pass y_target"):
        Task.from_sets(X, Y, X).joined()


def broken(name: str, where: tuple[int, ...], what: float) -> Task:
    """The task of some points with one value changed."""
    fields = some_points().tensors()
    fields[name] = fields[name].clone()
    fields[name][where] = what
    return Task(**fields)


@pytest.mark.parametrize("name", ["x_context", "x_target"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_inputs_must_be_finite(name, value):
    message = (
        f"{name} must be finite, got {value} at (1, 2, 0) (task, point, feature); drop or impute such inputs"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        broken(name, (1, 2, 0), value).check()


@pytest.mark.parametrize("name", ["y_context", "y_target"])
def test_outputs_may_be_missing_but_not_infinite(name):
    broken(name, (1, 2, 0), torch.nan).check()
    message = f"{name} is infinite at (1, 2, 0) (task, point, output); use NaN for a missing value"
    with pytest.raises(ValueError, match=re.escape(message)):
        broken(name, (1, 2, 0), -torch.inf).check()


def test_a_task_must_have_a_target():
    with pytest.raises(ValueError, match="mask_target leaves task 1 without a target; keep at least one"):
        broken("mask_target", (1,), False).check()


def test_an_empty_slot_must_not_be_flagged_as_context():
    message = (
        "in_context flags the empty slot (0, 2) (task, point), which would be read as context; flag filled"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        broken("mask_target", (0, 2), False).check()


def test_good_values_pass():
    some_points().check()
    some_sets().check()
    labels = torch.zeros(1, 2, 1, dtype=torch.long)
    Task.from_sets(numbers(1, 2, 1), labels, numbers(1, 2, 1)).check()
