"""Checking: what a saved estimator must be before it is used.

The checksums notice damage. These checks notice what somebody wrote on purpose, or by mistake: sizes that would take
all memory, tensors of another shape, which would be broadcast without a word, or of another dtype, which no prediction
can be computed with, and numbers that are not finite.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from dsvnp.schema import TEXT, wrong
from dsvnp.sources.own_units import OwnUnits
from dsvnp.tabular.rows.encoding import CYCLES
from dsvnp.tabular.trained.recipe import FitRecipe

RECORD_FORM = {
    **dict.fromkeys(("format", "dsvnp", "kind"), TEXT),
    **dict.fromkeys(("version", "n_features_in", "num_context", "noise_seed"), int),
    **dict.fromkeys(("params", "validation"), dict),
    "target_names": [str],
}
# of an ensemble, and of a panel of a pretrained network
REPLICAS_FORM = {"recipe": dict, "num_replicas": int}
PANEL_FORM = {"panel": [[{"view": str, "order": int}]], "most_rows": int, "leaves": int}
INPUTS_FORM = {
    "feature_names_in": ([str],),
    "encoding": ({"names": [str], "categories": [([str],)], "cycles": [([str],)]},),
    "filling": {"medians": [float], "gaps": [bool], "empty": [bool]},
}
MOST_LAYERS, WIDEST, MOST_DRAWS = 1000, 2**20, 10**5
# settings that predictions depend on
CHOICES = {"output": ("same", "array"), "missing": ("impute", "refuse")}
MAY_BE_MISSING = ("context.y", "calibration")  # where NaN is an output that is not known


class TensorError(ValueError):
    """A tensor that is not what the record says; the message names it."""


def check_recipe(recipe: FitRecipe) -> FitRecipe:
    """The recipe, unless a model of it could not be made in any time or memory."""
    for each in fields(recipe):
        value = getattr(recipe, each.name)
        most = MOST_LAYERS if each.name.endswith("_layers") else WIDEST
        if each.name.startswith("num_steps") or not isinstance(value, int):
            continue
        if not 0 <= value <= most:
            raise ValueError(f"recipe.{each.name} is {value}, not between 0 and {most}")
    return recipe


def check_record(record: dict[str, Any]) -> None:
    """Hold the lists of a record against each other."""
    if reason := wrong(record, INPUTS_FORM | (PANEL_FORM if "panel" in record else REPLICAS_FORM)):
        raise ValueError(f"it {reason}")
    if not record["target_names"]:
        raise ValueError("it names no target")
    if record.get("most_rows", 1) < 1:
        raise ValueError(f"most_rows is {record['most_rows']}, not 1 or more")
    names, encoding, num = record["feature_names_in"], record["encoding"], record["n_features_in"]
    if names is not None and len(names) != num:
        raise ValueError(f"{len(names)} names of inputs, but {num} inputs")
    for name, known in CHOICES.items():
        if (value := record["params"].get(name, known[0])) not in known:
            raise ValueError(f"{name} is {value!r}, not {' or '.join(map(repr, known))}")
    draws = record["params"].get("n_draws", 1)
    if not isinstance(draws, int) or not 1 <= draws <= MOST_DRAWS:
        raise ValueError(f"n_draws is {draws!r}, not a number between 1 and {MOST_DRAWS}")
    if encoding is not None:
        _check_encoding(encoding, num)


def _check_encoding(encoding: dict[str, Any], num: int) -> None:
    """Refuse columns of another number than the inputs', and categories or cycles that are none."""
    if not len(encoding["names"]) == len(encoding["categories"]) == len(encoding["cycles"]) == num:
        raise ValueError(f"an encoding of {len(encoding['names'])} columns, but {num} inputs")
    if [] in encoding["categories"]:
        raise ValueError("a column of categories without any")
    if strange := {name for found in encoding["cycles"] for name in found or ()} - CYCLES.keys():
        raise ValueError(f"cycles of dates that are not known: {', '.join(sorted(strange))}")


def check_tensors(record: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Refuse tensors whose dtypes or shapes are not those of the record, or that are not finite."""
    for name, value in tensors.items():
        _check_dtype(name, value, _dtype(record, name, value))
        usual = value.isfinite() | value.isnan() if name in MAY_BE_MISSING else value.isfinite()
        if not bool(usual.all()):
            raise TensorError(f"{name} has values that are not finite")
    for name, shape in _shapes(record, tensors).items():
        found = tuple(tensors[name].shape)
        if len(found) != len(shape) or any(
            want not in (None, got) for want, got in zip(shape, found, strict=True)
        ):
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise TensorError(f"{name} has the shape {found}, not ({wanted})")
    if record["kind"] == "classifier":
        _check_labels(tensors["context.y"], len(record["classes"]))


def check_network(owner: str, tensors: Mapping[str, Tensor], network: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not a network's own, by name, shape and dtype; owner is what their names begin with."""
    for name in sorted(network.keys() ^ tensors.keys()):
        where = "not there" if name in network else "none of the network's"
        raise TensorError(f"{owner}{name} is {where}")
    for name, value in tensors.items():
        if value.shape != network[name].shape:
            wanted = tuple(network[name].shape)
            raise TensorError(f"{owner}{name} has the shape {tuple(value.shape)}, not {wanted}")
        _check_dtype(owner + name, value, network[name].dtype)


def _dtype(record: dict[str, Any], name: str, value: Tensor) -> torch.dtype:
    """The dtype of a tensor by the record; a network may have whole numbers, which `check_network` knows."""
    if ".model." in name and not value.is_floating_point() and not value.is_complex():
        return value.dtype
    return torch.int64 if name == "context.y" and record["kind"] == "classifier" else torch.float64


def _check_dtype(name: str, value: Tensor, wanted: torch.dtype) -> None:
    if value.dtype != wanted:
        raise TensorError(f"{name} is of {value.dtype}, not of {wanted}")


def _shapes(record: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, tuple[int | None, ...]]:
    """The shape of each tensor by the record; None is any size."""
    regression = record["kind"] == "regressor"
    dim_y = len(record["target_names"] if regression else record["classes"])
    dim_x = _num_inputs(record["filling"])
    rows = len(tensors["context.x"])
    out: dict[str, tuple[int | None, ...]] = {
        "context.x": (rows, dim_x),
        "context.y": (rows, dim_y if regression else 1),
        "prior": (2, dim_y) if regression else (dim_y,),
        "calibration": (None,) if regression else (None, dim_y + 1),
    }
    if "panel" in record:
        out["stretch"] = (dim_y if regression else 1,)
    replicas = range(record.get("num_replicas", 0))
    owners = (f"replica.{row}." for row in replicas)  # never all at once: a record may claim any number
    for owner in owners if replicas else ("",):  # or a panel
        out |= {f"{owner}inputs.{name}": (dim_x,) for name in ("centre", "spread")}
        parts = ("bias", "scale", "damping", "stretch", "power") if regression else ("bias",)
        linear = tensors[f"{owner}outputs.weight"]
        size = dim_y if regression or linear.numel() else 0  # a classifier may have no linear part
        out |= {f"{owner}outputs.{name}": (size,) for name in parts}
        out[f"{owner}outputs.weight"] = ((2 * dim_x if regression else dim_x) if size else 0, size)
        if regression and record.get("recipe") and record["recipe"].get("own_units"):
            sizes = {each.name: dim_x if each.name.startswith("x_") else dim_y for each in fields(OwnUnits)}
            out |= {f"{owner}own.{name}": (size,) for name, size in sizes.items()}
        if not regression:
            out |= {f"{owner}outputs.{name}": (1,) for name in ("temperature", "trust")}
    return out


def _num_inputs(filling: dict[str, Any]) -> int:
    """Numbers that a row of inputs becomes."""
    medians, gaps, empty = filling["medians"], filling["gaps"], filling["empty"]
    if not len(medians) == len(gaps) == len(empty):
        raise ValueError(
            f"{len(medians)} medians of inputs, but {len(gaps)} flags of gaps and {len(empty)} of empty columns"
        )
    return len(medians) + sum(map(bool, gaps))


def _check_labels(labels: Tensor, num_classes: int) -> None:
    """Refuse labels of a context that are no class."""
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise TensorError(f"context.y holds labels that are none of {num_classes} classes")
