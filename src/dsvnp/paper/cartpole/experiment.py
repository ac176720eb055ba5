"""Cart-Pole system identification: Table 3 (PROTOCOLS §3), in raw units.

Beside the table: NLL and squared error against the number of context transitions, roll-outs of ten steps with
particles, and how one would do who knows the mechanics exactly but not the configuration ("oracle-average"). "tuned"
names the DSVNP whose weights, draws and sizes were chosen on training data (`cartpole_selection.py`), "np-annealed" an
NP whose divergence is annealed as long as that DSVNP's: is it the annealing or the local latent that helps?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import torch

from dsvnp.metrics import nll
from dsvnp.models import Architecture, NeuralProcess, base_name, make_model
from dsvnp.objectives import Objective
from dsvnp.paper.cartpole.data import CartPoleTasks, Transitions, held_out_task
from dsvnp.paper.cartpole.figures import by_context_figure, rollout_error_figure, rollouts_figure
from dsvnp.paper.cartpole.measures import (
    HORIZON,
    POINTS,
    SHOWN,
    Unseen,
    measure,
    measure_oracle,
    predict,
)
from dsvnp.paper.cartpole.physics import TEST_ENVIRONMENTS, TRAIN_ENVIRONMENTS
from dsvnp.paper.change import NO_CHANGE, Change
from dsvnp.paper.experiment import Experiment, UnitResult, Workplace
from dsvnp.training import Schedule, Settings

ANNEALED, TUNED, ORACLE = "np-annealed", "dsvnp-tuned", "oracle-average"


class Choices(NamedTuple):
    """What "dsvnp", "dsvnp-tuned" and "np-annealed" may differ in.

    Attributes:
        beta_local: weight of the local divergence.
        anneal_steps: steps over which the weights of both divergences rise from 0; 0 for none.
        dim_lat: size of representations and latents.
        train_global: draws of z_G in training.
        train_local: draws of each z_* in training.
        num_global: draws of z_G in prediction.
        num_local: draws of each z_* in prediction.
    """

    beta_local: float
    anneal_steps: int
    dim_lat: int
    train_global: int
    train_local: int
    num_global: int
    num_local: int


@dataclass(frozen=True)
class CartPoleExperiment(Experiment):
    """Settings of the Cart-Pole; the defaults are the paper's where it gives them.

    In float32 throughout: raw velocities reach 20 rad/s, where TF32's eleven bits alone are off by 0.01, a tenth of the
    smallest σ.

    Attributes:
        num_steps: 100 epochs of 240 steps.
        learning_rate: of Adam.
        schedule: "constant" as in the paper, or "cosine".
        num_trajectories: simulated in each environment, for training and for the test.
        held_out: share of the training trajectories that no model learns from.
        num_points: transitions of a training task.
        max_context: largest context, and the one at test.
        dim_hidden: width of the decoder.
        beta_local: see `Choices`; likewise the six that follow, of all models but "dsvnp-tuned".
        tuned_beta_local: the same for "dsvnp-tuned"; likewise the six that follow.
        validate_every: steps between AttnNP's validations on held-out trajectories; the best weights are kept.
        patience: validations without improvement after which AttnNP stops.
        num_contexts: random contexts over which the curve by context size is averaged.
        num_rollouts: roll-outs in each test environment.
        num_particles: particles of each.
    """

    name: ClassVar[str] = "cartpole"
    paper: ClassVar[dict[tuple[str, str, str, str], tuple[float, float]]] = {
        ("cartpole", model, metric, f"test-{points}"): value  # the paper does not say which points
        for metric, row in {
            "nll": {
                "cnp": (-2.014, 9e-4),
                "np": (-1.537, 1e-3),
                "attnnp": (-1.821, 7e-3),
                "dsvnp": (-2.145, 9e-4),
            },
            "mse": {
                "cnp": (0.096, 3e-4),
                "np": (0.074, 2e-4),
                "attnnp": (0.067, 1e-4),
                "dsvnp": (0.036, 2.1e-5),
            },
        }.items()
        for model, value in row.items()
        for points in POINTS
    }

    num_steps: int = 24_000
    learning_rate: float = 1e-3
    schedule: str = "constant"
    num_trajectories: int = 400
    held_out: float = 0.1
    num_points: int = 200
    max_context: int = 100
    dim_hidden: int = 400
    beta_local: float = 5.0
    anneal_steps: int = 0
    dim_lat: int = 32
    train_global: int = 1
    train_local: int = 1
    num_global: int = 32
    num_local: int = 1
    tuned_beta_local: float = 1.0
    tuned_anneal_steps: int = 12_000
    tuned_dim_lat: int = 32
    tuned_train_global: int = 1
    tuned_train_local: int = 1
    tuned_num_global: int = 32
    tuned_num_local: int = 1
    validate_every: int = 240
    patience: int = 20
    num_contexts: int = 5
    num_rollouts: int = 20
    num_particles: int = 100

    @classmethod
    def presets(cls) -> dict[str, Self]:
        """Seconds in CI, minutes on two cores, or the paper's setting on a GPU."""
        return {
            "smoke": cls(
                preset="smoke",
                num_seeds=2,
                num_steps=20,
                num_trajectories=20,
                num_points=40,
                max_context=20,
                dim_hidden=32,
                num_global=4,
                tuned_anneal_steps=10,
                tuned_num_global=4,
                validate_every=10,
                num_contexts=1,
                num_rollouts=2,
                num_particles=8,
            ),
            "quick": cls(
                preset="quick",
                num_steps=1500,
                schedule="cosine",
                num_trajectories=100,
                dim_hidden=128,
                num_global=16,
                tuned_anneal_steps=750,
                tuned_num_global=16,
                validate_every=150,
                num_contexts=1,
                num_rollouts=5,
                num_particles=50,
            ),
            "paper": cls(preset="paper", num_seeds=5),
        }

    def labels(self) -> list[str]:
        """The models, their variants, and the reference that learns nothing."""
        variants = {"np": ANNEALED, "dsvnp": TUNED}
        return [*self.models, *(label for name, label in variants.items() if name in self.models), ORACLE]

    def choices(self, label: str) -> Choices:
        """The settings that a label stands for."""
        prefix = "tuned_" if label == TUNED else ""
        choices = Choices(*(getattr(self, prefix + name) for name in Choices._fields))
        return choices._replace(anneal_steps=self.tuned_anneal_steps) if label == ANNEALED else choices

    def architecture(self, choices: Choices) -> Architecture:
        """9 → 32 → 32 → 32 → 32 to encode, 400 → 400 to decode (App. E)."""
        return Architecture(
            5, 4, encoder=(32, 32, 32), dim_lat=choices.dim_lat, decoder=(self.dim_hidden, self.dim_hidden)
        )

    def settings(self, name: str, choices: Choices) -> Settings:
        """How to train a model; AttnNP generalises worse the longer it trains, so that it alone is validated."""
        objective = Objective(
            beta_local=choices.beta_local,
            anneal="linear" if choices.anneal_steps else "none",
            anneal_steps=choices.anneal_steps,
            num_global=choices.train_global,
            num_local=choices.train_local,
        )
        return Settings(
            self.num_steps,
            self.learning_rate,
            schedule=Schedule(self.schedule),
            objective=objective,
            precision=self.precision,
            validate_every=self.validate_every if name == "attnnp" else 0,
            patience=self.patience if name == "attnnp" else 0,
            log_every=max(10, self.num_steps // 100),
            checkpoint_every=max(10, self.num_steps // 8),
        )

    def training_data(self, device: torch.device) -> tuple[Transitions, Transitions]:
        """What models learn from, and the trajectories held out of it; the same for all models and seeds."""
        generator = torch.Generator(device).manual_seed(1_000_000)
        data = Transitions.draw(TRAIN_ENVIRONMENTS, self.num_trajectories, HORIZON, generator)
        return data.split(self.held_out)

    def run_unit(self, model: str, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train, then measure on the same test environments for all."""
        data = self.unseen(place.device)
        if model == ORACLE:
            return UnitResult(model, tuple(seeds), *measure_oracle(data, TRAIN_ENVIRONMENTS, len(seeds)))
        choices = self.choices(model)
        nets = self._train(model, choices, seeds, place)
        draws = choices.num_global, choices.num_local
        measurements, extras = measure(nets, data, draws, self.num_particles)
        extras["training"] = self.training_log(model, seeds, place)
        return UnitResult(model, tuple(seeds), measurements, extras)

    def ablate(self, label: str, change: Change, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train a model with a change, and measure it."""
        choices = self.choices(base_name(label))
        nets = self._train(label, choices, seeds, place, change)
        draws = choices.num_global, choices.num_local
        measurements, _ = measure(nets, self.unseen(place.device), draws, self.num_particles)
        return UnitResult(
            label, tuple(seeds), measurements, {"training": self.training_log(label, seeds, place)}
        )

    def unseen(self, device: torch.device) -> Unseen:
        """What every model is measured on."""
        sizes = (self.num_trajectories, self.max_context, self.num_rollouts, self.num_contexts)
        return Unseen.draw(*sizes, torch.Generator(device).manual_seed(2_000_000))

    def _train(
        self,
        label: str,
        choices: Choices,
        seeds: Sequence[int],
        place: Workplace,
        change: Change = NO_CHANGE,
    ) -> list[NeuralProcess]:
        """Train replicas of a model; of AttnNP those are returned that did best on held-out trajectories."""
        name, draws = base_name(label), (choices.num_global, choices.num_local)
        arch, settings = change.apply(self.architecture(choices), self.settings(name, choices))
        train, held_out = self.training_data(place.device)
        generator = torch.Generator(place.device).manual_seed(1_000_001)
        task = held_out_task(train, held_out, self.max_context, generator)
        fleet = self.fleet(
            label,
            partial(make_model, name, arch),
            CartPoleTasks(train, self.num_points, 1, self.max_context),
            seeds,
            settings,
            place,
            lambda fleet: torch.stack(
                [nll(predict(fleet.replica(row), task, draws), task) for row in range(len(seeds))]
            ),
        )
        return [fleet.replica(row, best=name == "attnnp") for row in range(len(seeds))]

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """What context buys, one roll-out, and the error and coverage of all roll-outs."""
        oracle = next((unit.extras for unit in units if unit.model == ORACLE), None)
        trained = [unit for unit in units if unit.model != ORACLE]
        if not trained:
            return []
        mass, friction = TEST_ENVIRONMENTS[SHOWN]
        title = f"a cart of {mass} kg with friction {friction}, {self.max_context} context transitions"
        return [
            by_context_figure(trained, oracle, out / "by-context.svg"),
            rollouts_figure(trained, oracle, out / "rollouts.svg", title),
            rollout_error_figure(trained, oracle, out / "rollout-error.svg"),
        ]
