"""Curves from a stochastic process: Tables 2 and A.1, the second and third rows of Fig. 2 (PROTOCOLS §2).

Also: NLL against the size of the context, calibration, the divergences during training, and draws.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from dsvnp.models import Architecture, NeuralProcess, Transformer, make_model
from dsvnp.naming import lookup
from dsvnp.paper.curves.data import UnseenCurves
from dsvnp.paper.curves.figures import draw_by_context, draw_calibration, draw_functions
from dsvnp.paper.curves.measures import curve_extras, curve_panels, measure_curves
from dsvnp.paper.experiment import Printed, UnitResult, Workplace, training_log
from dsvnp.paper.figures import training_figure
from dsvnp.paper.label import Label
from dsvnp.paper.measuring import FIXED, SUFFICE, Likelihoods
from dsvnp.paper.recipe import DIM_LOCAL, LOCAL_DEFAULT, NO_CHANGE, Change, Recipe
from dsvnp.paper.weights import WithWeights
from dsvnp.sources.curves import Curves
from dsvnp.training import Settings

VARIANTS = {"paper": "", "wide": "wide", "default": "default", "equivariant": "equivariant"}  # by recipe
LOCAL = ("dsvnp", "dsvtnp")  # models that the recipe "default" is for
TABLES_2_AND_A1 = {  # CNP, NP, AttnNP, DSVNP
    "inter-J": (None, (-0.958, 2e-5), (-1.149, 8e-6), (-0.975, 2e-5)),
    "inter-P": ((-0.802, 1e-6), (-0.949, 2e-5), (-1.141, 6e-6), (-0.970, 2e-5)),
    "extra-J": (None, (8.192, 7e1), (8.091, 7e2), (4.203, 9e0)),
    "extra-P": ((1.764, 1e-1), (8.573, 8e1), (8.172, 7e2), (4.303, 1e1)),
}


@dataclass(frozen=True)
class CurveRecipe(Recipe):
    """Architecture and training of a model of curves; the sizes are the paper's."""

    encoder: tuple[int, ...] = (32, 32)  # hidden sizes of the encoder
    dim_lat: int = 128  # size of representations and latents
    dim_local: int | None = None  # size of each local latent; None is the model's own
    # hidden sizes between the mean over the context and the parameters of z_G
    latent_hidden: tuple[int, ...] = ()
    decoder: tuple[int, ...] = (128,)  # hidden sizes of the decoder
    num_steps: int = 800_000  # iterations
    num_points: int = 100  # points of a training function; the more, the less KL_G weighs against them
    transformer: Transformer = field(default_factory=Transformer)  # sizes of TNP and DSVTNP

    def architecture(self) -> Architecture:
        """Sizes of the networks."""
        names = ("encoder", "dim_lat", "dim_local", "latent_hidden", "decoder", "transformer")
        return Architecture(1, 1, **{name: getattr(self, name) for name in names})


PAPER = CurveRecipe(5e-4, warmup=0.05, beta_local=1000.0)
WIDE = CurveRecipe(
    1e-3,
    "cosine",
    warmup=0.05,
    anneal=0.5,
    anneal_local=False,
    encoder=(256, 256),
    dim_lat=256,
    latent_hidden=(256,),
    decoder=(256, 256, 256, 256),
    num_steps=200_000,
    num_points=200,
)
DEFAULT = replace(WIDE, **LOCAL_DEFAULT, anneal_local=True, dim_local=DIM_LOCAL)
EQUIVARIANT = CurveRecipe(
    5e-4, "cosine", warmup=0.05, num_steps=30_000, transformer=Transformer(equivariant=True)
)
SMALLER: dict[str, Any] = {
    "encoder": (128, 128),
    "dim_lat": 128,
    "latent_hidden": (128,),
    "decoder": (128, 128),
}
TINY_SIZES: dict[str, Any] = {"encoder": (8,), "dim_lat": 8, "latent_hidden": (8,), "decoder": (8,)}
TINY = Transformer(16, 2, 2, 32, (16,), equivariant=True, relative=8)


_unseen = lru_cache(maxsize=1)(UnseenCurves.draw)  # the same for all units of a run


@dataclass(frozen=True)
class CurvesExperiment(WithWeights):
    """Settings of the curves; the defaults are the paper's where it gives them."""

    name: ClassVar[str] = "curves"
    printed: ClassVar[Printed] = {
        ("curves", model, "nll", split): value
        for split, row in TABLES_2_AND_A1.items()
        for model, value in zip(("cnp", "np", "attnnp", "dsvnp"), row, strict=True)
        if value is not None
    }
    extendable: ClassVar[tuple[str, ...]] = (*WithWeights.extendable, "recipes")

    # what to run: "paper"; "wide" with a larger network and a schedule to suit it (decision 5); "default" for a DSVNP
    # as wide whose local latent is inferred as in the ambiguity experiment; "equivariant" for TNP and DSVTNP that read
    # differences of inputs
    recipes: tuple[str, ...] = ("paper", "wide")
    paper: CurveRecipe = PAPER  # the paper's recipe
    wide: CurveRecipe = WIDE  # the wider one
    default: CurveRecipe = DEFAULT  # that of a local latent, in the wider networks
    equivariant: CurveRecipe = EQUIVARIANT  # the translation-equivariant one
    batch_size: int = 16  # functions per step
    max_context: int = 50  # largest context in training and in interpolation
    extra_context: int = 200  # largest context in extrapolation
    num_tests: int = 2000  # realisations to test on
    test_points: int = 400  # points of each
    num_global: int = 32  # draws of z_G in prediction
    likelihoods: Likelihoods = FIXED  # how NLL is estimated

    @classmethod
    def presets(cls) -> dict[str, Self]:
        smoke = cls(
            preset="smoke",
            num_seeds=2,
            recipes=("paper",),
            paper=replace(PAPER, num_steps=20, num_points=20),
            default=replace(DEFAULT, num_steps=20, num_points=20, **TINY_SIZES),
            equivariant=replace(EQUIVARIANT, num_steps=20, num_points=20, transformer=TINY),
            max_context=10,
            extra_context=20,
            num_tests=20,
            test_points=40,
            num_global=4,
        )
        wide = replace(WIDE, num_steps=5000, num_points=64, **SMALLER)
        sizes: dict[str, Any] = {"max_context": 32, "extra_context": 64, "num_tests": 200, "test_points": 128}
        small = Transformer(32, 3, 4, 64, (32, 32), equivariant=True, relative=16)
        equivariant = replace(
            EQUIVARIANT, learning_rate=1e-3, num_steps=3000, num_points=64, transformer=small
        )
        own = replace(DEFAULT, num_steps=5000, num_points=64, **SMALLER)
        sizes |= {"wide": wide, "default": own, "equivariant": equivariant}
        quick = cls(preset="quick", recipes=("wide",), **sizes)
        # 10 points of each of 2000 functions; far outside the interval no number of draws suffices.
        enough = replace(SUFFICE, max_draws=4096, every=40)
        paper = cls("paper", num_seeds=5, precision="tf32", likelihoods=enough)
        return {"smoke": smoke, "quick": quick, "paper": paper}

    def labels(self) -> list[Label]:
        """Each model by each recipe."""
        variants = [lookup(recipe, VARIANTS, "recipe") for recipe in self.recipes]
        found = [Label(model, variant) for variant in variants for model in self.models]
        return [label for label in found if label.variant != "default" or label.model in LOCAL]

    def settings(self, recipe: CurveRecipe) -> Settings:
        """Settings of training; β_local matters only to a model with a local latent."""
        return recipe.settings(recipe.num_steps, precision=self.precision)

    def source(self, recipe: CurveRecipe) -> Curves:
        """The source of training tasks."""
        return Curves(self.batch_size, recipe.num_points, 3, self.max_context, refresh_every=1024)

    def run_unit(self, label: Label, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train, then measure on the same unseen functions for all."""
        nets = self._train(label, getattr(self, label.variant or "paper"), seeds, place)
        data = self.unseen(place.device)
        extras = curve_extras(nets, data, self.num_global, self.likelihoods)
        extras["training"] = training_log(label, seeds, place)
        extras["panels"] = curve_panels(nets[0], self.num_global, place.device) if 0 in seeds else None
        rows = measure_curves(nets, data, self.num_global, self.likelihoods)
        return UnitResult(label, tuple(seeds), rows, extras)

    def ablate(self, label: Label, change: Change, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train a model by the paper's recipe with a change, and measure it."""
        nets = self._train(label, self.paper, seeds, place, change)
        data = self.unseen(place.device)
        measured = measure_curves(nets, data, self.num_global, self.likelihoods)
        return UnitResult(label, tuple(seeds), measured, {"training": training_log(label, seeds, place)})

    def _train(
        self,
        label: Label,
        recipe: CurveRecipe,
        seeds: Sequence[int],
        place: Workplace,
        change: Change = NO_CHANGE,
    ) -> list[NeuralProcess]:
        """Train replicas of a model on curves, or take kept ones."""
        arch, settings = change.apply(recipe.architecture(), self.settings(recipe))
        make = partial(make_model, label.model, arch)
        return self.nets_of(label, make, self.source(recipe), seeds, settings, place)

    def unseen(self, device: torch.device) -> UnseenCurves:
        """What every model is measured on."""
        return _unseen(self.num_tests, self.test_points, self.max_context, self.extra_context, device)

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """Fig. 2's rows, NLL by context size, calibration, and the divergences during training."""
        logged = [unit for unit in units if unit.extras["training"]["step"]]
        return [
            *draw_functions(units, out),
            draw_by_context(units, out),
            draw_calibration(units, out),
            *([training_figure(logged, out / "training.svg")] if logged else []),
        ]
