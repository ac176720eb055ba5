"""What the base class does for every model: refuse bad input before it computes anything."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from dsvnp import MODELS, Architecture, Task, make_model

B, C, T = 2, 3, 5
SMALL = {"encoder": (4,), "dim_lat": 4, "decoder": ()}
REGRESSION = Architecture(2, 2, **SMALL)
CLASSIFICATION = Architecture(2, 3, "categorical", **SMALL)


def points(arch: Architecture) -> Task:
    """T points of B tasks, the first C of them context; labels take all three values."""
    x = torch.sin(torch.arange(B * T * 2.0)).reshape(B, T, 2)
    y = torch.arange(B * T).reshape(B, T, 1) % 3 if arch is CLASSIFICATION else torch.cos(x)
    return Task.from_points(x, y, (torch.arange(T) < C).expand(B, -1))


def put(value: torch.Tensor, where: tuple[int, ...], what: float) -> torch.Tensor:
    value = value.clone()
    value[where] = what
    return value


@pytest.fixture
def refuses(monkeypatch):
    """Check that a model refuses a task with a message, and that it has not been run by then."""

    def check(arch, task, message, methods=("predict", "objective"), **options):
        model = make_model("dsvnp", arch)
        for hook in ("summarise", "decode", "draws", "noise_shapes"):
            monkeypatch.setattr(model, hook, lambda *a, **k: pytest.fail("computed before it refused"))
        for method in methods:
            with pytest.raises(ValueError, match=re.escape(message)):
                getattr(model, method)(task, **options)

    return check


@pytest.mark.parametrize("count", ["num_global", "num_local"])
def test_no_draws_are_refused(refuses, count):
    message = f"{count} must be at least 1, got 0; raise it"
    refuses(REGRESSION, points(REGRESSION), message, **{count: 0})


@pytest.mark.parametrize("validate", [True, False])
def test_a_wrong_number_of_features_is_refused(refuses, validate):
    x = torch.zeros(B, T, 5)
    task = replace(points(REGRESSION), x_context=x, x_target=x)
    message = "x has 5 features but the model was made for 2; pass the inputs it was trained on"
    refuses(REGRESSION, task, message, validate=validate)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_inputs_of_another_type_than_the_models_are_refused(refuses, dtype):
    task = points(REGRESSION)
    task = replace(task, x_context=task.x_context.to(dtype), x_target=task.x_target.to(dtype))
    message = f"x is {dtype} but the model computes in torch.float32; pass x.to(torch.float32), or convert the model"
    refuses(REGRESSION, task, message)


@pytest.mark.parametrize("side", ["x_context", "x_target"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_inputs_that_are_not_finite_are_refused(refuses, side, bad):
    task = points(REGRESSION)
    task = replace(task, **{side: put(getattr(task, side), (1, 2, 0), bad)})
    message = (
        f"{side} must be finite, got {bad} at (1, 2, 0) (task, point, feature); drop or impute such inputs"
    )
    refuses(REGRESSION, task, message)


@pytest.mark.parametrize(
    ("side", "methods"), [("y_context", ("predict", "objective")), ("y_target", ("objective",))]
)
class TestOutputs:
    """A prediction reads y_context alone, so it has nothing to say about y_target."""

    def test_a_wrong_number_is_refused(self, refuses, side, methods):
        task = replace(points(REGRESSION), **{side: torch.zeros(B, T, 4)})
        message = f"{side} has 4 outputs but the model was made for 2"
        for validate in (True, False):
            refuses(REGRESSION, task, message, methods, validate=validate)

    def test_integers_are_refused(self, refuses, side, methods):
        task = replace(points(REGRESSION), **{side: torch.zeros(B, T, 2, dtype=torch.long)})
        message = f"{side} must be floating point for regression, got torch.int64; pass y.float()"
        refuses(REGRESSION, task, message, methods)

    def test_infinity_is_refused(self, refuses, side, methods):
        task = points(REGRESSION)
        task = replace(task, **{side: put(getattr(task, side), (1, 2, 1), -torch.inf)})
        message = f"{side} is infinite at (1, 2, 1) (task, point, output); use NaN for a missing value"
        refuses(REGRESSION, task, message, methods)

    def test_one_hot_labels_are_refused(self, refuses, side, methods):
        task = replace(points(CLASSIFICATION), **{side: torch.zeros(B, T, 3, dtype=torch.long)})
        message = (
            f"{side} must hold one label per point, [tasks, points, 1], got (2, 5, 3); pass class indices"
        )
        refuses(CLASSIFICATION, task, message, methods)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
    def test_labels_that_are_not_integers_are_refused(self, refuses, side, methods, dtype):
        task = points(CLASSIFICATION)
        task = replace(task, **{side: getattr(task, side).to(dtype)})
        message = f"{side} must hold integer class labels, got {dtype}; pass y.long()"
        refuses(CLASSIFICATION, task, message, methods)

    @pytest.mark.parametrize(("label", "got"), [(3, "0 to 3"), (-1, "-1 to 2")])
    def test_labels_out_of_range_are_refused(self, refuses, side, methods, label, got):
        task = points(CLASSIFICATION)
        task = replace(task, **{side: put(getattr(task, side), (0, 1, 0), label)})
        message = f"{side} must hold labels from 0 to 2, got {got}; renumber the classes or raise num_classes"
        refuses(CLASSIFICATION, task, message, methods)


def test_labels_of_empty_slots_may_be_anything():
    task = points(CLASSIFICATION)
    y, filled = put(task.y_target, (0, 4, 0), 99), put(task.mask_target, (0, 4), False)
    task = replace(task, y_context=y, y_target=y, mask_target=filled)
    assert make_model("np", CLASSIFICATION).objective(task).elbo().isfinite().all()


def test_a_task_without_targets_is_refused(refuses):
    task = points(REGRESSION)
    task = replace(task, mask_target=put(task.mask_target, (1,), False))
    refuses(REGRESSION, task, "mask_target leaves task 1 without a target; keep at least one point per task")


def test_a_context_flag_on_an_empty_slot_is_refused(refuses):
    task = points(REGRESSION)
    task = replace(task, mask_target=put(task.mask_target, (1, 2), False))
    message = (
        "in_context flags the empty slot (1, 2) (task, point), which would be read as context; flag filled"
    )
    refuses(REGRESSION, task, message)


@pytest.mark.parametrize("flagged", [True, False])
def test_an_objective_without_y_target_is_refused(refuses, flagged):
    task = replace(points(REGRESSION), y_target=None)
    task = task if flagged else replace(task, in_context=None)
    message = "the task has no y_target and cannot be learned from; pass y_target"
    refuses(REGRESSION, task, message, ("objective",))


@pytest.mark.parametrize("num_points", [2, T + 1])
def test_local_noise_for_another_number_of_targets_is_refused(num_points):
    noise = {"global": torch.zeros(1, B, 4), "local": torch.zeros(1, 1, B, num_points, 4)}
    message = rf"noise\['local'\] must have the shape \(1, 1, 2, 5, 4\), got \(1, 1, 2, {num_points}, 4\)"
    with pytest.raises(ValueError, match=message):
        make_model("dsvnp", REGRESSION).predict(points(REGRESSION), noise=noise)


@pytest.mark.parametrize("name", MODELS)
def test_values_are_looked_at_only_if_asked_for(name):
    task = points(REGRESSION)
    broken, model = (
        replace(task, x_target=put(task.x_target, (0, 0), torch.nan)),
        make_model(name, REGRESSION),
    )
    assert model.predict(broken, validate=False).mean[0, 1:].isfinite().all()
    model.objective(broken, validate=False)


def test_models_are_made_by_name_and_a_misspelt_name_gets_a_suggestion():
    assert list(MODELS) == [model.name for model in MODELS.values()]
    for name, model in MODELS.items():
        assert type(make_model(name, REGRESSION)) is model
        assert model.summary
    known = ", ".join(MODELS)
    message = f"unknown model 'dsnvp'. Did you mean 'dsvnp'? Known: {known}."
    with pytest.raises(ValueError, match=re.escape(message)):
        make_model("dsnvp", REGRESSION)
