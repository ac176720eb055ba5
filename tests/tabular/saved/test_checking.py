"""What a saved estimator must be: every shape, every limit, on both sides of its edge."""

import functools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fitted import QUICK, classifier, labels, regressor, table

from dsvnp import NPClassifier, NPRegressor
from dsvnp.tabular.saved.checking import check_network, check_recipe, check_record, check_tensors
from dsvnp.tabular.saved.content import content_of
from dsvnp.tabular.trained.recipe import FitRecipe

KINDS = {
    "one output": lambda: regressor(1),
    "two outputs": lambda: regressor(2),
    "classes": classifier,
    "gaps": lambda: NPRegressor(**QUICK | {"max_steps": 2}).fit(*with_gaps()),
    "panel": lambda: NPRegressor(effort="fast", random_state=0, device="cpu").fit(*table(30)),
    "panel of classes": lambda: NPClassifier(effort="fast", random_state=0, device="cpu").fit(*labels(30)),
}


def with_gaps():
    X, Y = table(30)
    X[::5, 1] = np.nan
    return X, Y


@functools.cache
def saved(kind):
    """What a folder would hold; tuples are lists in JSON."""
    content = content_of(KINDS[kind]())
    return content._replace(record=json.loads(json.dumps(content.record)))


@pytest.fixture(params=KINDS)
def content(request):
    return saved(request.param)


def checked(content, **changes):
    check_tensors(content.record, content.tensors | changes)


# --- tensors ---


def test_what_was_saved_passes(content):
    check_record(content.record)
    checked(content)


def test_no_tensor_may_be_longer_in_any_axis_whose_size_the_record_gives(content):
    """Rows of a context, and held-out rows of a calibration, may be any number, alike in x and y."""
    for name in [name for name in content.tensors if ".model." not in name]:
        tensor = content.tensors[name]
        free = 1 if name == "calibration" else 0
        for axis in range(free, tensor.ndim):
            longer = torch.cat([tensor, tensor.narrow(axis, 0, 1)], axis) if tensor.numel() else None
            if longer is not None:
                with pytest.raises(ValueError, match=r"has the shape"):
                    checked(content, **{name: longer})
        with pytest.raises((ValueError, IndexError), match=r"has the shape|Dimension|index"):
            checked(content, **{name: tensor.unsqueeze(-1)})
    rest = content.tensors["calibration"]
    checked(content, calibration=rest[1:])


def test_only_what_may_be_missing_may_be_nan_and_nothing_infinite(content):
    for name, tensor in content.tensors.items():
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        for value in (math.nan, math.inf):
            spoilt = tensor.clone()
            spoilt.view(-1)[0] = value
            if math.isnan(value) and name in ("context.y", "calibration"):
                checked(content, **{name: spoilt})
            else:
                with pytest.raises(ValueError, match=f"{name} has values that are not finite"):
                    checked(content, **{name: spoilt})
        for dtype in (torch.float32, torch.complex64, torch.complex128, torch.float8_e4m3fn):
            with pytest.raises(ValueError, match=f"{name} is of {dtype}, not of torch.float64"):
                checked(content, **{name: tensor.to(dtype)})
        for dtype in (torch.int64, torch.bool) if ".model." not in name else ():
            with pytest.raises(ValueError, match=f"{name} is of {dtype}, not of torch.float64"):
                checked(content, **{name: tensor.nan_to_num().to(dtype)})


def test_the_tensors_of_a_network_are_its_own_by_name_shape_and_dtype():
    network = {"a": torch.zeros(2, 3), "mask": torch.zeros(2, dtype=torch.bool)}
    check_network("replica.0.model.", dict(network), network)
    for change, reason in (
        ({"a": torch.zeros(2, 3, dtype=torch.int64)}, "a is of torch.int64, not of torch.float32"),
        ({"mask": torch.zeros(2)}, "mask is of torch.float32, not of torch.bool"),
        ({"a": torch.zeros(3, 2)}, r"a has the shape \(3, 2\), not \(2, 3\)"),
        ({"b": torch.zeros(1)}, "b is none of the network's"),
    ):
        with pytest.raises(ValueError, match=rf"^replica\.0\.model\.{reason}"):
            check_network("replica.0.model.", network | change, network)
    with pytest.raises(ValueError, match=r"replica\.0\.model\.mask is not there"):
        check_network("replica.0.model.", {"a": network["a"]}, network)


def test_labels_of_a_context_are_classes():
    content = saved("classes")
    good = content.tensors["context.y"]
    count = len(content.record["classes"])
    assert (good.min(), good.max()) == (0, count - 1)
    for bad in (-1, count):
        wrong = good.clone()
        wrong[0] = bad
        with pytest.raises(ValueError, match=f"holds labels that are none of {count} classes"):
            checked(content, **{"context.y": wrong})
    for dtype in (torch.float64, torch.int32, torch.uint64):
        with pytest.raises(ValueError, match=f"context.y is of {dtype}, not of torch.int64"):
            checked(content, **{"context.y": good.to(dtype)})
    empty = {name: content.tensors[name][:0] for name in ("context.x", "context.y")}
    checked(content, **empty)


def test_every_tensor_of_the_format_must_be_there():
    content = saved("one output")
    lacking = {name: value for name, value in content.tensors.items() if not name.endswith("power")}
    with pytest.raises(KeyError):
        check_tensors(content.record, lacking)


def test_a_linear_part_half_as_wide_is_refused():
    content = saved("one output")
    weights = {name: value for name, value in content.tensors.items() if name.endswith("outputs.weight")}
    half = {name: value[: len(value) // 2] for name, value in weights.items()}
    with pytest.raises(ValueError, match="weight has the shape"):
        check_tensors(content.record, content.tensors | half)


def test_a_classifier_may_have_no_linear_part():
    content = saved("classes")
    parts = {name: value[:0] for name, value in content.tensors.items() if name.endswith("outputs.bias")}
    weights = {name.replace("bias", "weight"): value.new_zeros(0, 0) for name, value in parts.items()}
    checked(content, **parts, **weights)
    for name, value in parts.items():
        with pytest.raises(ValueError, match=rf"{name} has the shape \(1,\), not \(0\)"):
            checked(content, **parts | weights | {name: value.new_zeros(1)})


# --- the record ---


def changed(kind="one output", **changes):
    return {**saved(kind).record, **changes}


def test_lists_of_a_record_fit_each_other():
    check_record(changed(feature_names_in=["a", "b", "c"]))
    with pytest.raises(ValueError, match="2 names of inputs, but 3 inputs"):
        check_record(changed(feature_names_in=["a", "b"]))
    good = {"names": ["a", "b", "c"], "categories": [None] * 3, "cycles": [None] * 3}
    check_record(changed(encoding=good))
    for part in ("names", "categories", "cycles"):
        with pytest.raises(ValueError, match=r"an encoding of [23] columns, but 3 inputs"):
            check_record(changed(encoding=good | {part: good[part][:2]}))
    content = saved("one output")
    uneven = content.record | {"filling": {"medians": [0, 0], "gaps": [False] * 3, "empty": [False] * 2}}
    with pytest.raises(ValueError, match="2 medians of inputs, but 3 flags of gaps and 2 of empty columns"):
        check_tensors(uneven, content.tensors)


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        (
            "one output",
            {"feature_names_in": ["a", "b", []]},
            r"feature_names_in\[2\] = a list of 0, not a text",
        ),
        ("one output", {"feature_names_in": 3}, "feature_names_in = 3, not a list"),
        (
            "one output",
            {"filling": {"medians": [None], "gaps": [], "empty": []}},
            r"medians\[0\] = None, not a number",
        ),
        (
            "one output",
            {"filling": {"medians": [True], "gaps": [], "empty": []}},
            r"medians\[0\] = True, not a number",
        ),
        (
            "one output",
            {"filling": {"medians": [1.5], "gaps": [0], "empty": []}},
            r"gaps\[0\] = 0, not true or false",
        ),
        ("one output", {"target_names": []}, "it names no target"),
        ("panel", {"panel": [[{"view": [], "order": 0}]]}, "view = a list of 0, not a text"),
        ("panel", {"panel": [[{"view": "columns", "order": 1.5}]]}, "order = 1.5, not a whole number"),
        ("panel", {"panel": [[{"view": "columns"}]]}, r"lacks panel\[0\]\[0\].order"),
        ("panel", {"most_rows": "x"}, "most_rows = 'x', not a whole number"),
        ("panel", {"most_rows": 0}, "most_rows is 0, not 1 or more"),
        ("panel", {"leaves": None}, "leaves = None, not a whole number"),
    ],
)
def test_what_a_record_says_of_inputs_and_members_has_its_form(kind, changes, reason):
    with pytest.raises(ValueError, match=reason):
        check_record(changed(kind, **changes))


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"categories": [None, None, []]}, "a column of categories without any"),
        ({"categories": [None, None, [1]]}, r"categories\[2\]\[0\] = 1, not a text"),
        ({"cycles": [None, ["month"], None]}, "cycles of dates that are not known: month"),
        ({"cycles": 3}, "encoding.cycles = 3, not a list"),
    ],
)
def test_an_encoding_has_categories_and_cycles_that_are_known(part, reason):
    good = {"names": ["a", "b", "c"], "categories": [None, None, ["x"]], "cycles": [None, ["week"], None]}
    check_record(changed(encoding=good))
    with pytest.raises(ValueError, match=reason):
        check_record(changed(encoding=good | part))


def test_an_ensemble_needs_its_replicas_and_its_recipe_and_a_panel_does_not():
    for name in ("recipe", "num_replicas"):
        record = changed()
        del record[name]
        with pytest.raises(ValueError, match=f"it lacks {name}"):
            check_record(record)
    panel = changed("panel")
    assert "num_replicas" not in panel
    check_record(panel)


@pytest.mark.parametrize(
    ("draws", "fits"), [(1, True), (10**5, True), (0, False), (10**5 + 1, False), ("4", False)]
)
def test_draws_are_a_number_that_can_be_drawn(draws, fits):
    record = changed()
    record["params"] = {**record["params"], "n_draws": draws}
    if fits:
        check_record(record)
    else:
        with pytest.raises(ValueError, match=r"n_draws is .* not a number between 1 and 100000"):
            check_record(record)


def test_settings_that_predictions_depend_on_are_known_ones():
    for name, good in (("output", ("same", "array")), ("missing", ("impute", "refuse"))):
        for value in (*good, "other"):
            record = changed()
            record["params"] = {**record["params"], name: value}
            if value in good:
                check_record(record)
            else:
                with pytest.raises(ValueError, match=f"{name} is 'other', not '{good[0]}' or '{good[1]}'"):
                    check_record(record)


def test_a_recipe_has_sizes_that_can_be_made():
    recipe = FitRecipe()
    layers = next(name for name in vars(recipe) if name.endswith("_layers"))
    for name, most in (("width", 2**20), (layers, 1000)):
        assert getattr(check_recipe(replace(recipe, **{name: most})), name) == most
        assert getattr(check_recipe(replace(recipe, **{name: 0})), name) == 0
        for size in (-1, most + 1):
            with pytest.raises(ValueError, match=rf"recipe\.{name} is {size}, not between 0 and {most}"):
                check_recipe(replace(recipe, **{name: size}))
