"""The field's table: models that learn from RBF processes, tested on those and on three others (PROTOCOLS §6).

Every model has a row with the σ that the field gives it and a row with the other: CNP, NP, AttnNP and DSVNP have a
floor of 0.1 in the field ("no-floor" names the row without), TNP and DSVTNP none ("floor"). TNP and AttnNP have further
rows with other attention; "block", AttnNP's, is that of the public code behind the published figures. The exact GP
stands next to them with known hyper-parameters, with these integrated out, and with σ ≥ 0.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from dsvnp.models import MODELS, Architecture, Transformer, make_model
from dsvnp.models.tnp import TNP
from dsvnp.naming import lookup
from dsvnp.paper.experiment import (
    Measurement,
    Printed,
    UnitResult,
    Workplace,
    log_path,
    training_log,
)
from dsvnp.paper.field.figures import draw_course, draw_functions
from dsvnp.paper.field.measures import measure_field, read_marks, validation
from dsvnp.paper.field.panels import gp_panels, model_panels
from dsvnp.paper.field.recipe import LOCAL, FieldRecipe, LocalLatent, has_floor, sigma
from dsvnp.paper.field.unseen import TRAINED, TestSizes, draw_marks, learner_mark, measure_ceiling
from dsvnp.paper.figures import training_figure
from dsvnp.paper.label import Label
from dsvnp.paper.settings import as_json, rebuild
from dsvnp.paper.weights import WithWeights
from dsvnp.pretrained.copula import CopulaSettings, train_copula
from dsvnp.sources.gp import GPTasks
from dsvnp.training import Settings
from dsvnp.training.shared import matmul_precision

FLOORS = {"own": False, "other": True}
# TNP that reads differences of inputs only: by a network of them, or by features that turn
DIFFERENCES: dict[str, dict[str, Any]] = {
    "equivariant": {"equivariant": True},
    "rotary": {"equivariant": True, "rotary": 40.0},
}
# TNP whose targets are one Gaussian: trained so from the start, or by a copula after its training
COHERENT, COPULA = "coherent", "copula"
JOINED = (COHERENT, COPULA)
BLOCK = "block"  # AttnNP with the blocks of the public code behind the published figures
ATTENTIONS = {**dict.fromkeys(DIFFERENCES, "tnp"), BLOCK: "attnnp"}  # the model of each kind
CEILINGS = (Label("gp"), Label("gp", "floor"), Label("gp", "integrated"))
# RBF and Matérn; the joint ones are TNP-A's, which is trained for it
PUBLISHED = {
    ("cnp", "marginal"): (0.26, 0.04),
    ("np", "marginal"): (0.27, 0.07),
    ("attnnp", "marginal"): (0.81, 0.63),
    ("tnp", "marginal"): (1.39, 0.95),
    ("tnp", "chain"): (1.63, 1.21),
}
PUBLISHED_COHERENT = {"rbf": 1.46, "matern52": 1.02}  # TNP-ND's joint


@dataclass(frozen=True)
class FieldExperiment(WithWeights):
    """Settings of the field's table; the defaults are the field's."""

    name: ClassVar[str] = "field"
    printed: ClassVar[Printed] = {
        (dataset, model, "log-likelihood", split): (value, float("nan"))
        for (model, split), row in PUBLISHED.items()
        for dataset, value in zip(("rbf", "matern52"), row, strict=True)
    }
    extendable: ClassVar[tuple[str, ...]] = (
        *WithWeights.extendable,
        "floors",
        "mixtures",
        "joined",
        "attentions",
        "chains",
        "ceilings",
    )
    recorded: ClassVar[tuple[str, ...]] = (
        *WithWeights.recorded,
        "recipe.local",
        "recipe.copula",
        "tests.chunk",
        "tests.all_batches",
    )

    models: tuple[str, ...] = ("cnp", "np", "attnnp", "dsvnp", "tnp", "dsvtnp")
    floors: tuple[str, ...] = ("own", "other")  # σ as the field has it for a model, and the other way
    mixtures: tuple[str, ...] = ("tnp",)  # models that have rows with a mixture head as well
    joined: tuple[str, ...] = JOINED  # ways in which TNP has rows with all targets joined
    # kinds of attention that TNP and AttnNP have further rows with
    attentions: tuple[str, ...] = tuple(ATTENTIONS)
    chains: tuple[str, ...] = ("cnp", "tnp", "dsvtnp")  # models whose joint is also taken by autoregression
    ceilings: bool = True  # whether the exact GP has rows
    recipe: FieldRecipe = field(default_factory=FieldRecipe)
    batch_size: int = 16  # tasks per step
    num_points: int = 50  # slots of a task in training
    refresh_every: int = 512  # steps that one pool of functions serves
    num_marks: int = 50  # validations during training
    mark_batches: int = 64  # batches of 16 tasks that each is made of
    num_global: int = 32  # draws of z_G in validations and figures
    tests: TestSizes = field(default_factory=TestSizes)  # how much is tested

    def __post_init__(self) -> None:
        super().__post_init__()
        for floor in self.floors:
            lookup(floor, FLOORS, "floor")
        for way in self.joined:
            lookup(way, dict.fromkeys(JOINED), "way to join targets")
        for kind in self.attentions:
            lookup(kind, ATTENTIONS, "attention")
        if self.precision == "float64":
            raise ValueError("tasks are drawn in single precision; choose float32, tf32 or bf16")

    @classmethod
    def presets(cls) -> dict[str, Self]:
        tiny: dict[str, Any] = {"transformer": Transformer(16, 2, 2, 32, (16,)), "num_components": 8}
        small: dict[str, Any] = {"transformer": Transformer(32, 3, 4, 64, (32, 32)), "width": 64}
        smoke = cls(
            preset="smoke",
            num_seeds=2,
            floors=("own",),
            num_points=12,
            refresh_every=20,
            recipe=FieldRecipe(
                20, width=16, num_heads=2, num_global=2, copula=CopulaSettings(8, 8, 5), **tiny
            ),
            num_marks=4,
            mark_batches=1,
            num_global=4,
            tests=TestSizes(2, 1, 1, 2, 4, 32, num_points=12, num_nodes=4),
        )
        quick = cls(
            preset="quick",
            floors=("own",),
            recipe=FieldRecipe(5000, 1e-3, copula=CopulaSettings(num_steps=1000), **small),
            num_marks=20,
            mark_batches=8,
            tests=TestSizes(64, 32, 32, 2, 16, 512, num_nodes=12),
        )
        return {"smoke": smoke, "quick": quick, "paper": cls("paper", num_seeds=3, precision="tf32")}

    def labels(self) -> list[Label]:
        """Each model with each σ, with a mixture head and other attention; the ceilings last."""
        found = []
        for floor in self.floors:
            for model in self.models:
                lookup(model, MODELS, "model")
                other = ("no-floor" if has_floor(model) else "floor") if FLOORS[floor] else ""
                found.append(Label(model, other))
                if model in self.mixtures:
                    found.append(Label(model, f"mixture-{other}".rstrip("-")))
                if model == "tnp" and not other:
                    found += [Label(model, way) for way in self.joined]
                if not other:
                    found += [Label(model, kind) for kind in self.attentions if ATTENTIONS[kind] == model]
        return [*found, *(CEILINGS if self.ceilings else ())]

    def paper_figure(self, label: Label, m: Measurement) -> tuple[float | None, float | None]:
        """The published figure of a model as the field has it, AttnNP with either attention; it has no spread."""
        if label.variant in JOINED and (m.metric, m.split) == ("log-likelihood", "joint"):
            return PUBLISHED_COHERENT.get(m.dataset), None
        value, _ = super().paper_figure(label, m) if label.variant in ("", BLOCK) else (None, None)
        return value, None

    def architecture(self, label: Label) -> Architecture:
        """Sizes, head and σ of a row."""
        head = sigma(label.model, other=label.variant.endswith("floor"))
        kind = next((head for head in ("mixture", COHERENT) if label.variant.startswith(head)), "gaussian")
        attention = BLOCK if label.variant == BLOCK else "dot"
        stack = replace(self.recipe.transformer, **DIFFERENCES.get(label.variant, {}))
        return self.recipe.architecture(
            label.model, 1, 1, likelihood=kind, transformer=stack, attention=attention, **head
        )

    def settings(self, label: Label) -> Settings:
        """How to train a model, with a mark every so many steps."""
        every = max(1, self.recipe.num_steps // self.num_marks)
        return self.recipe.settings(
            label.model, log_every=every, validate_every=every, precision=self.precision
        )

    def _local(self, label: Label) -> dict[str, Any] | None:
        """Settings that change rows of some models alone."""
        return as_json(self.recipe.local) if label.model in LOCAL else None

    def refuses(self, unit: UnitResult) -> str | None:
        """A row whose local latent was trained in another way."""
        kept = unit.extras.get("recipe")
        # a setting that came later than the run has its default
        trained = None if kept is None else as_json(rebuild(LocalLatent, kept))
        return None if trained == self._local(unit.label) else "with another recipe.local"

    def measurable(self, label: Label, seeds: Sequence[int], place: Workplace) -> list[int]:
        return list(seeds) if label in CEILINGS else super().measurable(label, seeds, place)

    def run_unit(self, label: Label, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train on RBF, then measure on all kernels; or measure an exact GP."""
        if label in CEILINGS:
            rows = measure_ceiling(label.variant, self.tests, len(seeds), place.device)
            extras: dict[str, Any] = {"panels": gp_panels()}
            if label.variant == "integrated":
                known = draw_marks(self.mark_batches, self.num_points, place.device)
                extras["mark"] = learner_mark(known, self.tests.num_nodes)
            return UnitResult(label, tuple(seeds), tuple(rows), extras)
        make = partial(make_model, label.model, self.architecture(label))
        source = GPTasks(TRAINED, self.batch_size, self.num_points, refresh_every=self.refresh_every)
        mark = validation(self.mark_batches, self.num_points, (self.num_global, 1), place.device)
        nets = self.nets_of(label, make, source, seeds, self.settings(label), place, mark, best=False)
        with matmul_precision("tf32" if self.precision == "bf16" else self.precision):
            if label.variant == COPULA:
                nets = [
                    train_copula(net, source, replace(self.recipe.copula, seed=seed))
                    for net, seed in zip(nets, seeds, strict=True)
                    if isinstance(net, TNP)
                ]
            rows = list(measure_field(nets, self.tests, label.model in self.chains, place.device))
            panels = model_panels(nets[0], self.num_global, place.device) if 0 in seeds else None
        extras = {
            "marks": read_marks(log_path(label, seeds, place)),
            "training": training_log(label, seeds, place),
            "panels": panels,
            "num_parameters": sum(p.numel() for p in nets[0].parameters()),
            "recipe": self._local(label),
        }
        return UnitResult(label, tuple(seeds), tuple(rows), extras)

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """Log-likelihood during training, two curves, and the terms of the bound during training."""
        logged = [unit for unit in units if unit.extras.get("training", {}).get("step")]
        # a coherent row logs the likelihood of all targets together, and a copula is trained after what its row logs
        trained = [replace(unit, measurements=()) for unit in logged if unit.label.variant not in JOINED]
        return [
            *draw_course([*logged, *(unit for unit in units if unit.label in CEILINGS)], out),
            *draw_functions(units, out),
            *([training_figure(trained, out / "training.svg")] if trained else []),
        ]
