"""Ambiguity: problems where a local latent can help, and three controls where it cannot (PROTOCOLS §7).

Every problem knows its truth p(y | x, θ), the ceiling that rows named "truth" hold; "diagonal" and "full" are the best
Gaussians. Models are trained alike, σ floor 0.01, and measured by likelihoods with draws that suffice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import torch

from dsvnp.models import NeuralProcess, make_model
from dsvnp.naming import lookup
from dsvnp.paper.ambiguity.figures import (
    arms_figures,
    branches_figure,
    by_context_figure,
    links_figure,
    nll_figure,
    plane_figure,
)
from dsvnp.paper.ambiguity.measures import Measures, measure_nets, measure_reference, without_context
from dsvnp.paper.ambiguity.problems import PROBLEMS
from dsvnp.paper.ambiguity.recipes import (
    COMMON,
    NO_CONTEXT,
    REFERENCES,
    AmbiguityRecipe,
    Changes,
    NetworkSizes,
    chosen,
    recipe_of,
    tuned_as,
)
from dsvnp.paper.ambiguity.shown import SHOWN, ShownTask, samples_of
from dsvnp.paper.experiment import UnitResult, Workplace, training_log
from dsvnp.paper.label import Label
from dsvnp.paper.settings import as_json
from dsvnp.paper.weights import WithWeights
from dsvnp.sources.base import TaskSource
from dsvnp.task import Task
from dsvnp.training import Settings

SIZES, MEASURES = NetworkSizes(), Measures()
POSE = "hidden-pose"
MIXTURE, LOW_RANK = "mixture", "low-rank"
VARIANTS = (
    "dsvnp-paper",
    "dsvnp-no-context",
    "dsvnp-common",
    "dsvtnp-common",
    "cnp-mixture",
    "cnp-low-rank",
    "tnp-mixture",
    "tnp-low-rank",
)


@dataclass(frozen=True)
class AmbiguityExperiment(WithWeights):
    """Settings of the ambiguity experiment."""

    name: ClassVar[str] = "ambiguity"
    extendable: ClassVar[tuple[str, ...]] = (*WithWeights.extendable, "problems", "variants")
    recorded: ClassVar[tuple[str, ...]] = (*WithWeights.recorded, "chosen")

    models: tuple[str, ...] = ("cnp", "np", "attnnp", "dsvnp", "tnp", "dsvtnp")
    problems: tuple[str, ...] = tuple(PROBLEMS)  # which of them
    variants: tuple[str, ...] = VARIANTS  # rivals and other recipes of the models
    components: tuple[int, ...] = (20,)  # of mixture heads
    pose_components: tuple[int, ...] = (5, 20, 60)  # of those on the hidden pose
    num_steps: int = 30_000  # iterations of each training
    batch_size: int = 32  # tasks per step
    sizes: NetworkSizes = SIZES  # of all networks
    measures: Measures = MEASURES  # how much is measured
    # by row: what the trials chose of its recipe
    chosen: dict[str, Changes] = field(default_factory=dict)

    @classmethod
    def presets(cls) -> dict[str, Self]:
        smoke = cls(
            preset="smoke",
            num_seeds=2,
            problems=("branches", "hidden-pose"),
            components=(3,),
            pose_components=(2, 3),
            num_steps=10,
            batch_size=4,
            sizes=NetworkSizes(width=8, encoder=1, decoder=1, layers=1, token=8),
            measures=Measures(4, 12, (3, 8), max_draws=64, num_energy=8),
        )
        quick = cls(
            preset="quick",
            models=("cnp", "np", "dsvnp"),
            variants=("cnp-mixture",),
            problems=("shared-noise-2", "inverse-kinematics"),
            pose_components=(20,),
            num_steps=4000,
            batch_size=16,
            sizes=NetworkSizes(width=64, encoder=2, decoder=2, token=64),
            measures=Measures(64, max_draws=2048),
        )
        paper = cls("paper", num_seeds=5, precision="tf32", chosen=chosen())
        return {"smoke": smoke, "quick": quick, "paper": paper}

    def labels(self) -> list[Label]:
        """On each problem its references, the models, and their variants."""
        found = []
        for name in self.problems:
            problem = lookup(name, PROBLEMS, "problem")
            known = REFERENCES if problem.dim_y > 1 else REFERENCES[:2]  # one output has no covariance
            rows = [Label(model) for model in (*known, *self.models)]
            rows += [label for row in self.variants for label in self._variants(row, name)]
            found += [label._replace(dataset=name) for label in rows]
        return found

    def _variants(self, row: str, problem: str) -> list[Label]:
        """The labels that a variant stands for on a problem: one per number of components; none where it has no use."""
        lookup(row, dict.fromkeys(VARIANTS), "variant")
        label = Label.parse(row)
        useless = (label.variant == COMMON and problem != POSE) or (
            label.variant == LOW_RANK and PROBLEMS[problem].dim_y == 1
        )
        if label.model not in self.models or useless:
            return []
        if label.variant != MIXTURE:
            return [label]
        counts = self.pose_components if problem == POSE else self.components
        return [label._replace(variant=f"{MIXTURE}-{count}") for count in counts]

    def measurable(self, label: Label, seeds: Sequence[int], place: Workplace) -> list[int]:
        return list(seeds) if label.model in REFERENCES else super().measurable(label, seeds, place)

    def run_unit(self, label: Label, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train on a problem, then measure on the same unseen tasks for all."""
        problem = PROBLEMS[label.dataset]
        if label.model in REFERENCES:
            known = self.measures.tasks(problem, place.device)
            rows = measure_reference(label.model, problem, label.dataset, known, len(seeds))
            wanted = label.model == "truth" and label.dataset in SHOWN
            shown = ShownTask.draw(problem).truth(problem, label.dataset) if wanted else None
            return UnitResult(label, tuple(seeds), rows, {"shown": shown})
        recipe = self.recipe(label)
        make, source, settings = self.plan(label, recipe)
        nets = self.nets_of(label, make, source, seeds, settings, place)
        context = label.variant != NO_CONTEXT
        wanted = 0 in seeds and label.dataset in SHOWN
        extras = {
            "parameters": sum(weights.numel() for weights in nets[0].parameters()),
            "recipe": as_json(recipe),
            "training": training_log(label, seeds, place),
            "shown": samples_of(nets[0], problem, label.dataset, context) if wanted else None,
        }
        measured = measure_nets(nets, label.dataset, self.tasks_of(label, place.device), self.measures)
        extras["by_context"] = measured.by_context
        return UnitResult(label, tuple(seeds), measured.rows, extras)

    def recipe(self, label: Label) -> AmbiguityRecipe:
        """The recipe of a row, with what its trials chose."""
        return recipe_of(label, self.chosen.get(tuned_as(label)))

    def refuses(self, unit: UnitResult) -> str | None:
        """A row that was trained with other settings than its trials chose."""
        if unit.label.model in REFERENCES:
            return None
        # a setting that came later than the run has its default
        trained = as_json(AmbiguityRecipe()) | unit.extras.get("recipe", {})
        return None if trained == as_json(self.recipe(unit.label)) else "with another recipe"

    def plan(
        self, label: Label, recipe: AmbiguityRecipe
    ) -> tuple[Callable[[], NeuralProcess], TaskSource, Settings]:
        """What a row's fleet is made of: its model, its tasks, its settings; a row without a context sees none."""
        problem = PROBLEMS[label.dataset]
        make = partial(make_model, label.model, self.sizes.architecture(problem, recipe.arch))
        context = (0, 0) if label.variant == NO_CONTEXT else self.measures.context
        source = problem.source(self.batch_size, self.measures.num_points, context)
        return make, source, recipe.settings(self.num_steps, precision=self.precision)

    def tasks_of(self, label: Label, device: torch.device, unseen: bool = True) -> list[Task]:
        """The tasks that a row is measured on: to test, or of the training distribution to choose by."""
        known = self.measures.tasks(PROBLEMS[label.dataset], device, unseen)
        hide = label.variant == NO_CONTEXT
        return [without_context(each.task) if hide else each.task for each in known]

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """NLL against the truth, and samples: in the plane of two outputs, over x, as arms, and the links of arms."""
        shown = [unit for unit in units if unit.extras.get("shown")]
        figures = [nll_figure(units, out), plane_figure(shown, out), branches_figure(shown, out)]
        figures += [*arms_figures(shown, out), links_figure(shown, out), by_context_figure(units, out)]
        return [path for path in figures if path is not None]
