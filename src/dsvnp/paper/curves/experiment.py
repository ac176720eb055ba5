"""Curves from a stochastic process: Tables 2 and A.1, the second and third rows of Fig. 2 (PROTOCOLS §2).

Beside the tables: NLL against the size of the context, calibration, the divergences during training, and draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import torch

from dsvnp.models import Architecture, NeuralProcess, base_name, make_model
from dsvnp.objectives import Objective
from dsvnp.paper.change import NO_CHANGE, Change
from dsvnp.paper.curves.figures import (
    draw_by_context,
    draw_calibration,
    draw_functions,
)
from dsvnp.paper.curves.measures import Unseen, extras, measure, panels
from dsvnp.paper.experiment import Experiment, UnitResult, Workplace
from dsvnp.paper.training_figure import training_figure
from dsvnp.sources.curves import Curves
from dsvnp.training import Schedule, Settings


class Choices(NamedTuple):
    """What the paper's architecture and the wider one may differ in.

    Attributes:
        encoder: hidden sizes of the encoder.
        dim_lat: size of representations and latents.
        latent_hidden: hidden sizes between the mean over the context and the parameters of z_G.
        decoder: hidden sizes of the decoder.
        num_steps: iterations.
        learning_rate: of Adam.
        schedule: "constant" or "cosine".
        num_points: points of a training function; the more, the less KL_G weighs beside them.
        beta_local: weight of DSVNP's local divergence.
        anneal_steps: steps over which the weight of KL_G rises from 0; 0 for none.
        anneal_local: whether that of KL_L does so too.
    """

    encoder: tuple[int, ...]
    dim_lat: int
    latent_hidden: tuple[int, ...]
    decoder: tuple[int, ...]
    num_steps: int
    learning_rate: float
    schedule: str
    num_points: int
    beta_local: float
    anneal_steps: int
    anneal_local: bool


@dataclass(frozen=True)
class CurvesExperiment(Experiment):
    """Settings of the curves; the defaults are the paper's where it gives them.

    Attributes:
        variants: what to run: "paper", and "wide" with a larger network and a schedule to suit it (decision 5).
        encoder: see `Choices`; likewise the ten that follow, of the paper's architecture.
        wide_encoder: the same for the wider one; likewise the ten that follow.
        batch_size: functions a step.
        max_context: largest context in training and in interpolation.
        extra_context: largest context in extrapolation.
        num_tests: realisations to test on.
        test_points: points of each.
        num_global: draws of z_G in prediction.
    """

    name: ClassVar[str] = "curves"
    paper: ClassVar[dict[tuple[str, str, str, str], tuple[float, float]]] = {
        ("curves", model, "nll", split): value
        for split, row in {
            "inter-J": {"np": (-0.958, 2e-5), "attnnp": (-1.149, 8e-6), "dsvnp": (-0.975, 2e-5)},
            "inter-P": {
                "cnp": (-0.802, 1e-6),
                "np": (-0.949, 2e-5),
                "attnnp": (-1.141, 6e-6),
                "dsvnp": (-0.970, 2e-5),
            },
            "extra-J": {"np": (8.192, 7e1), "attnnp": (8.091, 7e2), "dsvnp": (4.203, 9e0)},
            "extra-P": {
                "cnp": (1.764, 1e-1),
                "np": (8.573, 8e1),
                "attnnp": (8.172, 7e2),
                "dsvnp": (4.303, 1e1),
            },
        }.items()
        for model, value in row.items()
    }

    extendable: ClassVar[tuple[str, ...]] = (*Experiment.extendable, "variants")

    variants: tuple[str, ...] = ("paper", "wide")
    encoder: tuple[int, ...] = (32, 32)
    dim_lat: int = 128
    latent_hidden: tuple[int, ...] = ()
    decoder: tuple[int, ...] = (128,)
    num_steps: int = 800_000
    learning_rate: float = 5e-4
    schedule: str = "constant"
    num_points: int = 100
    beta_local: float = 1000.0
    anneal_steps: int = 0
    anneal_local: bool = True
    wide_encoder: tuple[int, ...] = (256, 256)
    wide_dim_lat: int = 256
    wide_latent_hidden: tuple[int, ...] = (256,)
    wide_decoder: tuple[int, ...] = (256, 256, 256, 256)
    wide_num_steps: int = 200_000
    wide_learning_rate: float = 1e-3
    wide_schedule: str = "cosine"
    wide_num_points: int = 200
    wide_beta_local: float = 1.0
    wide_anneal_steps: int = 100_000
    wide_anneal_local: bool = False
    batch_size: int = 16
    max_context: int = 50
    extra_context: int = 200
    num_tests: int = 2000
    test_points: int = 400
    num_global: int = 32

    @classmethod
    def presets(cls) -> dict[str, Self]:
        """Seconds in CI, minutes on two cores, or the paper's setting on a GPU."""
        return {
            "smoke": cls(
                preset="smoke",
                num_seeds=2,
                variants=("paper",),
                num_steps=20,
                num_points=20,
                max_context=10,
                extra_context=20,
                num_tests=20,
                test_points=40,
                num_global=4,
            ),
            "quick": cls(
                preset="quick",
                variants=("wide",),
                wide_encoder=(128, 128),
                wide_dim_lat=128,
                wide_latent_hidden=(128,),
                wide_decoder=(128, 128),
                wide_num_steps=5000,
                wide_num_points=64,
                wide_anneal_steps=2500,
                max_context=32,
                extra_context=64,
                num_tests=200,
                test_points=128,
            ),
            "paper": cls(preset="paper", num_seeds=5, precision="tf32"),
        }

    def labels(self) -> list[str]:
        """Each model in the paper's architecture, then in the wider one."""
        return [model if v == "paper" else f"{model}-{v}" for v in self.variants for model in self.models]

    def choices(self, variant: str) -> Choices:
        """The settings that a variant stands for."""
        prefix = {"paper": "", "wide": "wide_"}[variant]
        return Choices(*(getattr(self, prefix + name) for name in Choices._fields))

    def settings(self, choices: Choices) -> Settings:
        """How to train a model; β_local concerns only one that has a local latent."""
        steps = choices.num_steps
        objective = Objective(
            beta_local=choices.beta_local,
            anneal="linear" if choices.anneal_steps else "none",
            anneal_steps=choices.anneal_steps,
            anneal_local=choices.anneal_local,
        )
        return Settings(
            steps,
            choices.learning_rate,
            schedule=Schedule(choices.schedule, warmup=min(1000, steps // 20)),
            objective=objective,
            precision=self.precision,
            log_every=max(10, steps // 100),
            checkpoint_every=max(10, steps // 8),
        )

    def run_unit(self, model: str, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train, then measure on the same unseen functions for all."""
        name = base_name(model)
        variant = model.removeprefix(name).removeprefix("-") or "paper"
        nets = self._train(model, name, self.choices(variant), seeds, place)
        data = self.unseen(place.device)
        shown = extras(nets, data, self.num_global)
        shown["training"] = self.training_log(model, seeds, place)
        shown["panels"] = panels(nets[0], self.num_global, place.device) if 0 in seeds else None
        return UnitResult(model, tuple(seeds), measure(nets, data, self.num_global), shown)

    def ablate(self, label: str, change: Change, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train a model of the paper's architecture with a change, and measure it."""
        nets = self._train(label, base_name(label), self.choices("paper"), seeds, place, change)
        measured = measure(nets, self.unseen(place.device), self.num_global)
        return UnitResult(label, tuple(seeds), measured, {"training": self.training_log(label, seeds, place)})

    def _train(
        self,
        label: str,
        name: str,
        choices: Choices,
        seeds: Sequence[int],
        place: Workplace,
        change: Change = NO_CHANGE,
    ) -> list[NeuralProcess]:
        """Train replicas of a model on curves."""
        arch, settings = change.apply(architecture(choices), self.settings(choices))
        source = Curves(self.batch_size, choices.num_points, 3, self.max_context, refresh_every=1024)
        fleet = self.fleet(label, partial(make_model, name, arch), source, seeds, settings, place)
        return [fleet.replica(row) for row in range(len(seeds))]

    def unseen(self, device: torch.device) -> Unseen:
        """What every model is measured on."""
        return Unseen.draw(self.num_tests, self.test_points, self.max_context, self.extra_context, device)

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """Fig. 2's rows, NLL by context size, calibration, and the divergences during training."""
        return [
            *draw_functions(units, out),
            draw_by_context(units, out),
            draw_calibration(units, out),
            training_figure(units, out / "training.svg"),
        ]


def architecture(choices: Choices) -> Architecture:
    """Sizes of the networks."""
    return Architecture(
        1,
        1,
        encoder=tuple(choices.encoder),  # a list, where it comes from JSON
        dim_lat=choices.dim_lat,
        latent_hidden=tuple(choices.latent_hidden),
        decoder=tuple(choices.decoder),
    )
