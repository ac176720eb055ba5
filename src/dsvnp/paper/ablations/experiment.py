"""Ablations: other readings of the paper, each run once on the curves and on the Cart-Pole.

Each row is DSVNP with the paper's sizes and one change; NP stands next to it. One change is no reading of this paper:
the code it builds on has a hidden layer between the mean over the context and the parameters of z_G.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from dsvnp.naming import lookup
from dsvnp.paper.cartpole.experiment import CartPoleExperiment
from dsvnp.paper.curves.experiment import CurvesExperiment
from dsvnp.paper.experiment import Experiment, UnitResult, Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.recipe import NO_CHANGE, Change
from dsvnp.plotting.figures import dots_figure

VARIANTS = {
    "np": NO_CHANGE,
    "dsvnp": NO_CHANGE,
    "dsvnp-context-posterior": Change(arch={"posterior": "context"}),
    "dsvnp-undivided-kl": Change(objective={"divide_global": False}),
    "dsvnp-separate-encoders": Change(arch={"separate_encoders": True}),
    "dsvnp-exp-scale": Change(arch={"latent_scale": "exp"}),
    "np-latent-hidden": Change(arch={"latent_hidden": (128,)}),
    "dsvnp-latent-hidden": Change(arch={"latent_hidden": (128,)}),
    "dsvnp-beta-local-1": Change(objective={"beta_local": 1.0}),
    "dsvnp-beta-local-5": Change(objective={"beta_local": 5.0}),
    "dsvnp-beta-local-1000": Change(objective={"beta_local": 1000.0}),
    "dsvnp-annealed": Change(anneal=0.5),
    "dsvnp-constrained": Change(objective={"epsilon_local": 0.05}),
    "dsvnp-beta-global-5": Change(objective={"beta_global": 5.0}),
}
# What the figure shows of each data set: its title, the split, the axis.
SHOWN = {
    "curves": ("curves, 50 context points", "inter-J-max", "NLL (nats/point)"),
    "cartpole": ("Cart-Pole, 14 unseen configurations", "test-J", "NLL (nats/transition)"),
}


@dataclass(frozen=True)
class AblationsExperiment(Experiment):
    """Settings of the ablations."""

    name: ClassVar[str] = "ablations"
    extendable: ClassVar[tuple[str, ...]] = (*Experiment.extendable, "datasets", "variants")

    models: tuple[str, ...] = ("np", "dsvnp")
    datasets: tuple[str, ...] = ("curves", "cartpole")  # "curves", "cartpole"
    variants: tuple[str, ...] = tuple(VARIANTS)  # which of `VARIANTS`
    # settings of the curves; the paper's architecture is used
    curves: CurvesExperiment = field(default_factory=CurvesExperiment)
    cartpole: CartPoleExperiment = field(default_factory=CartPoleExperiment)  # settings of the Cart-Pole

    @classmethod
    def presets(cls) -> dict[str, Self]:
        """The experiments' own presets; the curves of the paper's for fewer steps, at a rate that falls."""
        curves, cartpole = CurvesExperiment.presets(), CartPoleExperiment.presets()
        brief: dict[str, Any] = {"learning_rate": 1e-3, "schedule": "cosine"}
        changes: dict[str, dict[str, Any]] = {
            "smoke": {},
            "quick": {"num_steps": 2000, "num_points": 64, **brief},
            "paper": {"num_steps": 100_000, **brief},
        }
        made = {}
        for name, change in changes.items():
            study = replace(curves[name], paper=replace(curves[name].paper, **change))
            seeds = cartpole[name].num_seeds
            made[name] = cls(name, num_seeds=seeds, curves=study, cartpole=cartpole[name])
        return made

    def labels(self) -> list[Label]:
        """Each variant on each data set, but those that change nothing there."""
        for name in self.datasets:
            lookup(name, SHOWN, "data set")
        for name in self.variants:
            lookup(name, VARIANTS, "variant")
        if (reason := self.missing(None)) is not None:
            raise ValueError(reason)
        return [
            label._replace(dataset=dataset)
            for dataset in self.datasets
            for label in self._chosen()
            if VARIANTS[str(label)].objective.get("beta_local") != self.study_of(dataset).paper.beta_local
        ]

    def study_of(self, dataset: str) -> CurvesExperiment | CartPoleExperiment:
        """The experiment of a data set."""
        return self.curves if dataset == "curves" else self.cartpole

    def _chosen(self) -> list[Label]:
        """Variants of the models that are asked for."""
        return [label for label in map(Label.parse, self.variants) if label.model in self.models]

    def missing(self, data_dir: Path | None) -> str | None:
        """It needs no data, but a model that is ablated."""
        if self._chosen():
            return None
        known = ", ".join(dict.fromkeys(Label.parse(name).model for name in self.variants))
        return f"The ablations are of {known}; none of {', '.join(self.models)} is among them."

    def run_unit(self, label: Label, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Let the data set's experiment train and measure with the change."""
        return self.study_of(label.dataset).ablate(label, VARIANTS[label.row], seeds, place)

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """NLL of each variant, one plot per data set."""
        panels = []
        for dataset, (title, split, axis) in SHOWN.items():
            values = {
                unit.label.look: m.values
                for unit in units
                for m in unit.measurements
                if (m.dataset, m.metric, m.split) == (dataset, "nll", split)
            }
            if values:
                panels.append((title, axis, values))
        return [dots_figure(panels, out / "ablations.svg")]
