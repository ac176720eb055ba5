"""How each model and rival of the ambiguity experiment is made and trained, and eight trials of settings for each.

A row of the experiment is a model or a variant of one: "dsvnp" has the recipe `default`, "dsvnp-paper" the paper's,
"dsvnp-no-context" is the default without a context (a CVAE), "dsvnp-common" and "dsvtnp-common" have one σ for all
outputs at first, "cnp-mixture-20" and "tnp-mixture-20" a head of 20 components, and "cnp-low-rank" and "tnp-low-rank" a
Gaussian over all outputs. Networks are of the same sizes throughout.

`studies/ambiguity_choice.py` judges the trials on tasks of the training distribution. What it chooses is kept in
`chosen.json`: for each row the settings that differ from its recipe here.
"""

import json
import re
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import product
from typing import Any

from dsvnp.models import Architecture, Transformer
from dsvnp.paper.ambiguity.problem import Problem
from dsvnp.paper.label import Label
from dsvnp.paper.recipe import DIM_LOCAL, LOCAL_DEFAULT, Recipe, steps_of
from dsvnp.paper.settings import changed
from dsvnp.training import Settings

FLOOR = 0.01
CHOSEN = "chosen.json"
MIDDLE = 20  # components of the mixtures that are tuned
NO_CONTEXT = "no-context"
COMMON = "common"  # one σ for all outputs at first
REFERENCES = ("truth", "diagonal", "full")  # what is known of a problem without any training
Changes = dict[str, Any]  # settings of a recipe, or of an architecture, by name


@dataclass(frozen=True)
class AmbiguityRecipe(Recipe):
    """How a model is made and trained; see `Objective` for the last three."""

    arch: Changes = field(default_factory=dict)  # changes of the architecture
    late: float = 0.0  # share of the steps over which β_local falls from 100 times its value
    free_bits: float = 0.0  # nats per dimension of z_* that cost nothing
    common: float = 0.0  # share of the steps in which all outputs have one σ; 2/3 at most

    def settings(self, num_steps: int, **others: Any) -> Settings:
        made = super().settings(num_steps, **others)
        own: Changes = {
            "free_bits": self.free_bits,
            "late_steps": steps_of(self.late, num_steps),
            "common_steps": steps_of(self.common, num_steps),
        }
        return replace(made, objective=replace(made.objective, **own))


@dataclass(frozen=True)
class NetworkSizes:
    """Sizes that all models share; the transformers have the field's."""

    width: int = 256  # of every layer, and of representations and z_G
    encoder: int = 2  # hidden layers of the encoder
    decoder: int = 3  # hidden layers of the decoder
    layers: int = 6  # layers of a transformer
    token: int = 128  # width of a transformer

    def architecture(self, problem: Problem, changes: Changes) -> Architecture:
        """The architecture for a problem, with the changes of a row."""
        transformer = Transformer(
            self.token, self.layers, feedforward=2 * self.token, embedder=(self.token,) * 3
        )
        usual: Changes = {
            "encoder": (self.width,) * self.encoder,
            "decoder": (self.width,) * self.decoder,
            "dim_lat": self.width,
            "sigma_floor": FLOOR,
            "transformer": transformer,
        }
        return Architecture(problem.dim_x, problem.dim_y, **usual | changes)


COSINE = AmbiguityRecipe(1e-3, "cosine", warmup=0.02)
DEFAULT = replace(COSINE, **LOCAL_DEFAULT, arch={"dim_local": DIM_LOCAL})
SIGMA_IN_COMMON = replace(DEFAULT, anneal=0.0, common=0.3, arch={"dim_local": 8})
RECIPES = {
    "dsvnp": DEFAULT,
    "dsvnp-no-context": DEFAULT,
    "tnp": replace(COSINE, learning_rate=5e-4),
    "dsvtnp": replace(COSINE, learning_rate=5e-4, anneal=0.25),
    "dsvnp-common": SIGMA_IN_COMMON,
    "dsvtnp-common": SIGMA_IN_COMMON,
}
RATES = (3e-4, 5e-4, 1e-3, 2e-3)
# Two ways of training, each with four rates: eight trials for every row.
WAYS: dict[str, tuple[Changes, Changes]] = {
    "np": ({}, {"anneal": 0.25}),
    # A context point that attends to itself copies its outputs: the longer it trains, the worse AttnNP is elsewhere.
    "attnnp": ({}, {"arch": {"attend_self": False}}),
    "dsvnp": ({}, {"arch": {"dim_local": 8}}),
    "dsvnp-paper": ({}, {"anneal": 0.5}),
    "dsvtnp": ({}, {"kind": "npml", "train_global": 2, "train_local": 4}),
    "dsvnp-common": ({}, {"anneal": 0.5}),
    "dsvtnp-common": ({}, {"anneal": 0.5}),
}
PLAIN_WAYS: tuple[Changes, Changes] = ({}, {"clip": 1.0})  # of models that draw nothing


def recipe_of(label: Label, changes: Changes | None = None) -> AmbiguityRecipe:
    """The recipe of a row; a variant without one of its own has the model's, but "dsvnp-paper" none of DSVNP's."""
    usual = COSINE if label.variant == "paper" else RECIPES.get(label.model, COSINE)
    made = RECIPES.get(label.row, usual)
    made = replace(made, arch=made.arch | head_of(label.variant))
    return changed(made, changes or {})


def head_of(variant: str) -> Changes:
    """The head that a variant names, as changes of the architecture: "mixture-20", "low-rank"."""
    if found := re.fullmatch(r"mixture-(\d+)", variant):
        return {"likelihood": "mixture", "num_components": int(found[1])}
    return {"likelihood": "low-rank", "rank": 2} if variant == "low-rank" else {}


def trials_of(label: Label) -> list[Changes]:
    """The eight trials of a row: changes of its recipe."""
    ways = WAYS.get(
        label.row, WAYS.get(label.model, PLAIN_WAYS) if not head_of(label.variant) else PLAIN_WAYS
    )
    return [{"learning_rate": rate, **way} for way, rate in product(ways, RATES)]


def tuned_as(label: Label) -> str:
    """The row whose trials choose a row's settings: mixtures of all sizes share theirs, and so does a model's CVAE."""
    if label.variant == NO_CONTEXT:
        return label.model
    return f"{label.model}-mixture-{MIDDLE}" if label.variant.startswith("mixture-") else label.row


def chosen() -> dict[str, Changes]:
    """What the trials chose for each row; nothing before there were any."""
    path = files("dsvnp.paper.ambiguity").joinpath(CHOSEN)
    found: dict[str, Changes] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found
