"""The card of a network whose training is under way or over."""

import json
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from dsvnp.pretrained.loading import Card
from dsvnp.pretrained.recipes import PretrainingRecipe
from dsvnp.sources.base import TaskSource
from dsvnp.training import Fleet
from dsvnp.training.supply import describe


def card_of(recipe: PretrainingRecipe, fleet: Fleet, log: Path, seed: int) -> Card:
    """What is known of a network when a sitting ends; `validated_on` is for whoever validates it."""
    on_gpu = fleet.device.type == "cuda"
    return Card(
        name=recipe.name,
        prior=[_settings(source) for source in recipe.source.sources],
        steps=fleet.num_steps_taken,
        gpu_minutes=round(_minutes(log), 1) if on_gpu else 0.0,
        gpu=torch.cuda.get_device_name(fleet.device) if on_gpu else "",
        seed=seed,
        limits=recipe.limits,
    )


def _settings(source: TaskSource) -> dict[str, Any]:
    """The settings of a prior, in what JSON can hold."""
    values = vars(source).get("settings")
    if values is None:  # a source of another kind, whose attributes are its settings
        return describe(source)
    shown = {each.name: getattr(values, each.name) for each in fields(values)}
    plain = {name: str(value) if isinstance(value, torch.dtype) else value for name, value in shown.items()}
    return {"kind": type(source).__name__, **plain}


def _minutes(log: Path) -> float:
    """Time that the steps of a log took, over all sittings; what precedes a sitting's first step does not count."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    steps = [0, *(line["step"] for line in lines)]
    spent = ((b - a) / line["steps_per_second"] for (a, b), line in zip(pairwise(steps), lines, strict=True))
    return sum(spent) / 60
