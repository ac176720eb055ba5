"""Cart-Pole system identification: Table 3 (PROTOCOLS §3), in raw units.

Also: NLL and squared error against the number of context transitions, roll-outs of ten steps with particles, and the
error of a predictor that knows the mechanics exactly but not the configuration ("oracle-average"). "dsvnp-tuned" is
the DSVNP whose weights, draws and sizes were chosen on training data (`studies/cartpole_selection.py`), "np-annealed"
an NP whose divergence is annealed as long: the pair separates the effect of annealing from that of the local latent.
"dsvnp-default" has the local latent of the ambiguity experiment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from dsvnp.metrics import nll
from dsvnp.models import Architecture, NeuralProcess, make_model
from dsvnp.paper.cartpole.data import CartPoleTasks, Transitions, held_out_task
from dsvnp.paper.cartpole.figures import by_context_figure, rollout_error_figure, rollouts_figure
from dsvnp.paper.cartpole.measures import (
    HORIZON,
    POINTS,
    SHOWN,
    UnseenCarts,
    measure_carts,
    measure_oracle,
    predict_carts,
)
from dsvnp.paper.cartpole.physics import TEST_ENVIRONMENTS, TRAIN_ENVIRONMENTS
from dsvnp.paper.experiment import Printed, UnitResult, Workplace, training_log
from dsvnp.paper.label import Label
from dsvnp.paper.measuring import FIXED, SUFFICE, DrawCounts, Likelihoods
from dsvnp.paper.recipe import DIM_LOCAL, LOCAL_DEFAULT, NO_CHANGE, Change, Recipe
from dsvnp.paper.weights import WithWeights
from dsvnp.training import Fleet, Settings

ANNEALED, TUNED, ORACLE = Label("np", "annealed"), Label("dsvnp", "tuned"), Label("oracle-average")
DEFAULT = Label("dsvnp", "default")
TABLE_3 = {  # CNP, NP, AttnNP, DSVNP
    "nll": ((-2.014, 9e-4), (-1.537, 1e-3), (-1.821, 7e-3), (-2.145, 9e-4)),
    "mse": ((0.096, 3e-4), (0.074, 2e-4), (0.067, 1e-4), (0.036, 2.1e-5)),
}


@dataclass(frozen=True)
class CartRecipe(Recipe):
    """Architecture, training and draws of a model of the Cart-Pole."""

    dim_lat: int = 32  # size of representations and latents
    dim_local: int | None = None  # size of each local latent; None is the model's own
    num_global: int = 32  # draws of z_G in prediction
    num_local: int = 1  # draws of each z_* in prediction

    @property
    def draws(self) -> DrawCounts:
        """Draws in prediction."""
        return self.num_global, self.num_local


PAPER, TUNED_RECIPE = CartRecipe(beta_local=5.0), CartRecipe(anneal=0.5)
DEFAULT_RECIPE = CartRecipe(**LOCAL_DEFAULT, dim_local=DIM_LOCAL)
RECIPES: dict[str, Any] = {"paper": PAPER, "tuned": TUNED_RECIPE, "default": DEFAULT_RECIPE}


@dataclass(frozen=True)
class CartPoleExperiment(WithWeights):
    """Settings of the Cart-Pole; the defaults are the paper's where it gives them.

    In float32 throughout: raw velocities reach 20 rad/s, where TF32's eleven bits alone are off by 0.01, a tenth of the
    smallest σ.
    """

    name: ClassVar[str] = "cartpole"
    printed: ClassVar[Printed] = {
        ("cartpole", model, metric, f"test-{points}"): value  # the paper does not say which points
        for metric, row in TABLE_3.items()
        for model, value in zip(("cnp", "np", "attnnp", "dsvnp"), row, strict=True)
        for points in POINTS
    }

    num_steps: int = 24_000  # 100 epochs of 240 steps
    num_trajectories: int = 400  # simulated in each environment, for training and for the test
    held_out: float = 0.1  # share of the training trajectories that no model learns from
    num_points: int = 200  # transitions of a training task
    max_context: int = 100  # largest context, and the one at test
    dim_hidden: int = 400  # width of the decoder
    paper: CartRecipe = PAPER  # recipe of all models but two
    tuned: CartRecipe = TUNED_RECIPE  # recipe of "dsvnp-tuned"; "np-annealed" has its annealing
    default: CartRecipe = DEFAULT_RECIPE  # recipe of "dsvnp-default"
    # steps between AttnNP's validations on held-out trajectories; the best weights are kept
    validate_every: int = 240
    patience: int = 20  # validations without improvement after which AttnNP stops
    num_contexts: int = 5  # random contexts over which the curve by context size is averaged
    num_rollouts: int = 20  # roll-outs in each test environment
    num_particles: int = 100  # particles of each
    likelihoods: Likelihoods = FIXED  # how NLL is estimated

    @classmethod
    def presets(cls) -> dict[str, Self]:
        smoke = cls(
            preset="smoke",
            num_seeds=2,
            num_steps=20,
            num_trajectories=20,
            num_points=40,
            max_context=20,
            dim_hidden=32,
            **{name: replace(recipe, num_global=4) for name, recipe in RECIPES.items()},
            validate_every=10,
            num_contexts=1,
            num_rollouts=2,
            num_particles=8,
        )
        quick = cls(
            preset="quick",
            num_steps=1500,
            num_trajectories=100,
            dim_hidden=128,
            **{name: replace(recipe, schedule="cosine", num_global=16) for name, recipe in RECIPES.items()},
            validate_every=150,
            num_contexts=1,
            num_rollouts=5,
            num_particles=50,
        )
        paper = cls("paper", num_seeds=5, likelihoods=replace(SUFFICE, max_draws=4096, every=4))
        return {"smoke": smoke, "quick": quick, "paper": paper}

    def labels(self) -> list[Label]:
        """The models, their variants, and the reference that learns nothing."""
        variants = [label for label in (ANNEALED, TUNED, DEFAULT) if label.model in self.models]
        return [*super().labels(), *variants, ORACLE]

    def recipe_of(self, label: Label) -> CartRecipe:
        """The recipe that a label stands for."""
        annealed = replace(self.paper, anneal=self.tuned.anneal)
        return {ANNEALED: annealed, TUNED: self.tuned, DEFAULT: self.default}.get(label, self.paper)

    def architecture(self, recipe: CartRecipe) -> Architecture:
        """9 → 32 → 32 → 32 → 32 to encode, 400 → 400 to decode (App. E)."""
        decoder = (self.dim_hidden, self.dim_hidden)
        sizes = {"dim_lat": recipe.dim_lat, "dim_local": recipe.dim_local, "decoder": decoder}
        return Architecture(5, 4, encoder=(32, 32, 32), **sizes)  # type: ignore[arg-type]

    def settings(self, model: str, recipe: CartRecipe) -> Settings:
        """Settings of training; AttnNP generalises worse the longer it trains: it alone is validated."""
        watched = {"validate_every": self.validate_every, "patience": self.patience}
        own = watched if model == "attnnp" else {}
        return recipe.settings(self.num_steps, precision=self.precision, **own)

    def training_data(self, device: torch.device) -> tuple[Transitions, Transitions]:
        """Training trajectories, and those held out of them; the same for all models and seeds."""
        generator = torch.Generator(device).manual_seed(1_000_000)
        data = Transitions.draw(TRAIN_ENVIRONMENTS, self.num_trajectories, HORIZON, generator)
        return data.split(self.held_out)

    def run_unit(self, label: Label, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train, then measure on the same test environments for all."""
        if label == ORACLE:
            data = self.unseen(place.device)
            return UnitResult(label, tuple(seeds), *measure_oracle(data, TRAIN_ENVIRONMENTS, len(seeds)))
        return self._measured(label, self.recipe_of(label), seeds, place)

    def ablate(self, label: Label, change: Change, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train a model by the paper's recipe with a change, and measure it."""
        unit = self._measured(label, self.paper, seeds, place, change)
        return replace(unit, extras={"training": unit.extras["training"]})

    def unseen(self, device: torch.device) -> UnseenCarts:
        """The configurations that every model is measured on."""
        sizes = (self.num_trajectories, self.max_context, self.num_rollouts, self.num_contexts)
        # Drawn by the CPU: kept weights are measured on the same carts on any machine.
        return UnseenCarts.draw(*sizes, torch.Generator().manual_seed(2_000_000)).to(device)

    def _measured(
        self,
        label: Label,
        recipe: CartRecipe,
        seeds: Sequence[int],
        place: Workplace,
        change: Change = NO_CHANGE,
    ) -> UnitResult:
        """Train replicas of a model and measure them."""
        nets = self._train(label, recipe, seeds, place, change)
        data = self.unseen(place.device)
        rows, extras = measure_carts(nets, data, recipe.draws, self.num_particles, self.likelihoods)
        extras["training"] = training_log(label, seeds, place)
        return UnitResult(label, tuple(seeds), rows, extras)

    def _train(
        self, label: Label, recipe: CartRecipe, seeds: Sequence[int], place: Workplace, change: Change
    ) -> list[NeuralProcess]:
        """Train replicas of a model; of AttnNP those are returned that did best on held-out trajectories."""
        arch, settings = change.apply(self.architecture(recipe), self.settings(label.model, recipe))
        train, held_out = self.training_data(place.device)
        generator = torch.Generator(place.device).manual_seed(1_000_001)
        task = held_out_task(train, held_out, self.max_context, generator)

        def validation(fleet: Fleet) -> torch.Tensor:
            nets = (fleet.replica(row) for row in range(len(seeds)))
            return torch.stack([nll(predict_carts(net, task, recipe.draws), task) for net in nets])

        make = partial(make_model, label.model, arch)
        source = CartPoleTasks(train, self.num_points, 1, self.max_context)
        return self.nets_of(label, make, source, seeds, settings, place, validation)

    def measurable(self, label: Label, seeds: Sequence[int], place: Workplace) -> list[int]:
        """The reference that learns nothing has no weights and needs none."""
        return list(seeds) if label == ORACLE else super().measurable(label, seeds, place)

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """The effect of context, one roll-out, and the error and coverage of all roll-outs."""
        oracle = next((unit.extras for unit in units if unit.label == ORACLE), None)
        trained = [unit for unit in units if unit.label != ORACLE]
        if not trained:
            return []
        mass, friction = TEST_ENVIRONMENTS[SHOWN]
        title = f"a cart of {mass} kg with friction {friction}, {self.max_context} context transitions"
        return [
            by_context_figure(trained, oracle, out / "by-context.svg"),
            rollouts_figure(trained, oracle, out / "rollouts.svg", title),
            rollout_error_figure(trained, oracle, out / "rollout-error.svg"),
        ]
