"""Image classification and out-of-distribution detection: Table A.2 and Fig. 4 (PROTOCOLS §5).

Models learn the classes of MNIST or CIFAR-10, and are then asked about other images and noise: a model that knows what
it does not know is unsure of those. Entropies alone reward a model that is unsure of everything, so that accuracy,
calibration and AUROC stand beside them. Rows named "-strong" are trained with a recipe of ours instead of the paper's.
`images_selection.py` chooses it on held-out training images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from dsvnp.models import MODELS, Architecture, base_name, make_model
from dsvnp.naming import lookup
from dsvnp.networks import VGG19
from dsvnp.objectives import Objective
from dsvnp.paper.datasets.locate import MissingDataError
from dsvnp.paper.experiment import Experiment, Measurement, UnitResult, Workplace
from dsvnp.paper.images.data import DOMAINS, Portions, Sets, load_sets, read_sets
from dsvnp.paper.images.figures import cdf_figure, pictures_figure, reliability_figure
from dsvnp.paper.images.measures import measure
from dsvnp.paper.images.source import Images
from dsvnp.paper.training_figure import training_figure
from dsvnp.training import Adam, Schedule, Settings
from dsvnp.training.fleet import matmul_precision

STRONG = "-strong"
PICTURED = ("nn", "dsvnp")  # whose most and least certain images are kept: thumbnails fill a file quickly


class Recipe(NamedTuple):
    """How a model is trained. Selections do not write down settings that have their default: it must not change.

    Attributes:
        learning_rate: of Adam.
        schedule: "constant" or "cosine".
        warmup: share of the steps over which the rate rises.
        weight_decay: of AdamW; 0 makes it Adam.
        pad: largest shift of an image, in pixels.
        flip: probability that an image is mirrored.
        beta_local: weight of the local divergence.
        beta_global: weight of the global divergence.
        anneal: share of the steps over which both weights rise from 0; without it the local divergence, 3 nats of it at
            the start, puts most of the embedding's units to rest before they have learned anything.
        train_local: draws of each z_* in training.
        clip: largest norm of a gradient; None for any.
        attend_self: see `Architecture`; of AttnNP alone.
        length: share of the experiment's epochs that it takes.
    """

    learning_rate: float
    schedule: str = "constant"
    warmup: float = 0.0
    weight_decay: float = 0.0
    pad: int = 0
    flip: float = 0.0
    beta_local: float = 1.0
    beta_global: float = 1.0
    anneal: float = 0.0
    train_local: int = 1
    clip: float | None = None
    attend_self: bool = True
    length: float = 1.0


RECIPES = {
    "mnist": {
        "paper": Recipe(1e-3),
        "strong": Recipe(3e-3, "cosine", 0.05, 0.15, pad=1, anneal=0.25, length=0.2),
    },
    "cifar10": {
        "paper": Recipe(5e-5),
        "strong": Recipe(
            1e-3, "cosine", 0.05, 0.5, pad=4, flip=0.5, anneal=0.25, attend_self=False, length=0.4
        ),
    },
}
COLUMNS = ("nn", "mc-dropout", "cnp", "np", "attnnp", "dsvnp")
TABLE_A2 = {
    "mnist": {
        ("mnist", "entropy"): (0.011, 0.009, 0.019, 0.010, 0.012, 0.027),
        ("mnist", "accuracy"): (0.990, 0.993, 0.993, 0.991, 0.989, 0.990),
        ("fashion-mnist", "entropy"): (0.385, 0.735, 0.711, 0.434, 0.337, 0.956),
        ("kmnist", "entropy"): (0.282, 0.438, 0.497, 0.322, 0.294, 0.545),
        ("gaussian", "entropy"): (0.601, 1.623, 1.313, 0.588, 0.611, 0.966),
        ("uniform", "entropy"): (0.330, 1.739, 0.862, 0.094, 0.220, 0.375),
    },
    "cifar10": {
        ("cifar10", "entropy"): (0.151, 0.125, 0.177, 0.124, 0.124, 0.081),
        ("cifar10", "accuracy"): (0.768, 0.838, 0.834, 0.792, 0.795, 0.863),
        ("svhn", "entropy"): (0.402, 0.407, 0.459, 0.315, 0.269, 0.326),
        ("rademacher", "entropy"): (0.021, 0.062, 0.079, 0.078, 0.010, 0.146),
        ("gaussian", "entropy"): (0.351, 0.266, 0.523, 0.451, 0.349, 0.444),
        ("uniform", "entropy"): (0.334, 0.217, 0.499, 0.463, 0.261, 0.374),
    },
}


@dataclass(frozen=True)
class ImagesExperiment(Experiment):
    """Settings of the image experiment; the defaults are the paper's where it gives them.

    Attributes:
        domain: "mnist" or "cifar10", what models are trained on.
        recipe: "paper"; "strong", whose rows are named so; or "paper,strong" for both.
        num_epochs: times that every training image is seen.
        num_points: images of a task, the batch of Alg. 1.
        num_context: largest context in training, and the one at test.
        num_draws: of z_G, with one of z_* each, or of dropout masks, in prediction.
        vgg: convolutions of CIFAR-10's embedding.
        judged_on: "test", or "held-out" to choose settings; see `Portions`, likewise for the three that follow.
        num_train: training images; None for all.
        num_held_out: held out of them, if they are judged on.
        num_test: images of each set that is judged on.
        verify: whether files must have their published checksums.
        compile: see `Settings`; likewise `chunk_size`.
        learning_rate: in place of the recipe's; likewise the twelve that follow, see `Recipe`.
    """

    name: ClassVar[str] = "images"
    paper: ClassVar[dict[tuple[str, str, str, str], tuple[float, float]]] = {}  # see `paper_figure`
    parts: ClassVar[tuple[dict[str, Any], ...]] = tuple({"domain": domain} for domain in DOMAINS)
    extendable: ClassVar[tuple[str, ...]] = (*Experiment.extendable, "recipe")

    models: tuple[str, ...] = COLUMNS
    seeds_at_once: int = 1  # convolutions of several nets at once are slow
    domain: str = "mnist"
    recipe: str = "paper"
    num_epochs: int = 100
    num_points: int = 100
    num_context: int = 100
    num_draws: int = 100
    vgg: tuple[int | str, ...] = VGG19
    judged_on: str = "test"
    num_train: int | None = None
    num_held_out: int = 5000
    num_test: int = 10_000
    verify: bool = True
    compile: bool | None = None
    chunk_size: int | None = None
    learning_rate: float | None = None
    schedule: str | None = None
    warmup: float | None = None
    weight_decay: float | None = None
    pad: int | None = None
    flip: float | None = None
    beta_local: float | None = None
    beta_global: float | None = None
    anneal: float | None = None
    train_local: int | None = None
    clip: float | None = None
    attend_self: bool | None = None
    length: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup(self.domain, DOMAINS, "domain")
        if self.precision == "float64":
            raise ValueError("images are read in single precision; choose float32, tf32 or bf16")
        for recipe in self.recipe.split(","):
            lookup(recipe, RECIPES[self.domain], "recipe")

    @classmethod
    def presets(cls) -> dict[str, Self]:
        """Seconds in CI, minutes on two cores (MNIST; CIFAR-10 with a small net), or the paper's setting on a GPU."""
        pooled = (8, "M", 8, "M", 8, "M", 8, "M", 8, "M")
        return {
            "smoke": cls(
                preset="smoke",
                recipe="paper,strong",
                num_epochs=1,
                num_points=20,
                num_context=20,
                num_draws=3,
                vgg=pooled,
                num_train=60,
                num_held_out=20,
                num_test=30,
                length=1.0,  # of so few steps none is to spare; likewise below
            ),
            "quick": cls(
                preset="quick",
                num_epochs=5,
                num_draws=20,
                vgg=(32, "M", 64, "M", 128, "M", 128, "M", 128, "M"),
                num_train=6000,
                num_held_out=1000,
                num_test=1000,
                learning_rate=1e-3,
                schedule="cosine",
                anneal=1.0,
                length=1.0,
            ),
            "paper": cls(preset="paper", num_seeds=3, precision="tf32"),
        }

    def labels(self) -> list[str]:
        """The models, by either recipe."""
        for name in self.models:
            lookup(name, MODELS, "model")
        endings = {"paper": "", "strong": STRONG}
        return [f"{name}{endings[recipe]}" for recipe in self.recipe.split(",") for name in self.models]

    def paper_figure(self, model: str, m: Measurement) -> tuple[float | None, float | None]:
        """Table A.2, which has no spread; its noise is the one that is not in the images' range."""
        row = TABLE_A2[self.domain].get((m.dataset, m.metric))
        if row is None or m.split != "test":
            return None, None
        return dict(zip(COLUMNS, row, strict=True)).get(base_name(model)), None

    def missing(self, data_dir: Path | None) -> str | None:
        """Which file is not there."""
        try:
            read_sets(self.domain, data_dir, self.portions(), self.verify)
        except MissingDataError as error:
            return str(error)
        return None

    def recipe_of(self, label: str) -> Recipe:
        """The recipe that a label stands for, with the settings that replace its own."""
        base = RECIPES[self.domain]["strong" if label.endswith(STRONG) else "paper"]
        own = {name: value for name in Recipe._fields if (value := getattr(self, name)) is not None}
        recipe = base._replace(**own)
        # Where nothing attends, a unit is the same whatever AttnNP does.
        return recipe if base_name(label) == "attnnp" else recipe._replace(attend_self=True)

    def refuses(self, unit: UnitResult) -> str | None:
        """A unit that was trained when the recipe was another one."""
        trained = unit.extras.get("recipe")
        known = trained is None or Recipe(**trained) == self.recipe_of(unit.model)
        return None if known else f"trained by another recipe, {trained}"

    def portions(self) -> Portions:
        """How much of each set is used."""
        return Portions(*(getattr(self, name) for name in Portions._fields))

    def architecture(self, recipe: Recipe) -> Architecture:
        """LeNet or VGG, labels embedded, one linear layer to encode and one to decode (App. E)."""
        domain = DOMAINS[self.domain]
        return Architecture(
            math.prod(domain.image),
            10,
            "categorical",
            embed_x=domain.embedding,
            image=domain.image,
            vgg=self.vgg,
            dim_latx=32,
            dim_laty=64,
            encoder=(),
            dim_lat=domain.dim_lat,
            decoder=(),
            dropout=domain.dropout,
            attend_self=recipe.attend_self,
        )

    def source(self, sets: Sets, recipe: Recipe) -> Images:
        """Batches of training images, up to `num_context` of each the context (Alg. 1)."""
        return Images(
            sets.images,
            sets.labels,
            sets.mean.tolist(),
            sets.std.tolist(),
            self.num_points,
            max_context=min(self.num_context, self.num_points),
            pad=recipe.pad,
            flip=recipe.flip,
        )

    def optimizer(self, recipe: Recipe) -> Adam:
        """AdamW where weights decay, else Adam."""
        kind = "adamw" if recipe.weight_decay else "adam"
        return Adam(kind, weight_decay=recipe.weight_decay, clip_norm=recipe.clip)

    def settings(self, recipe: Recipe, num_steps: int) -> Settings:
        """How to train by a recipe, of so many steps if it takes all epochs."""
        num_steps = math.ceil(recipe.length * num_steps)
        objective = Objective(
            recipe.beta_local,
            recipe.beta_global,
            anneal="linear" if recipe.anneal else "none",
            anneal_steps=math.ceil(recipe.anneal * num_steps),
            divide_by="all",  # or the one image that CNP scores beside 99 of a context weighs as much as 99
            num_local=recipe.train_local,
        )
        return Settings(
            num_steps,
            recipe.learning_rate,
            self.optimizer(recipe),
            Schedule(recipe.schedule, math.ceil(recipe.warmup * num_steps)),
            objective,
            precision=self.precision,
            compile=self.compile,
            chunk_size=self.chunk_size,
            log_every=max(1, num_steps // 25),
            checkpoint_every=max(10, num_steps // 8),
        )

    def run_unit(self, model: str, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train, then judge the domain's test images, other images and noise."""
        recipe = self.recipe_of(model)
        sets = load_sets(self.domain, place.data_dir, place.device, self.portions(), self.verify)
        source = self.source(sets, recipe)
        settings = self.settings(recipe, self.num_epochs * source.refresh_every)
        make = partial(make_model, base_name(model), self.architecture(recipe))
        fleet = self.fleet(model, make, source, seeds, settings, place)
        nets = [fleet.replica(row) for row in range(len(seeds))]
        pictured = base_name(model) in PICTURED and 0 in seeds
        with matmul_precision("tf32" if self.precision == "bf16" else self.precision):
            measurements, extras = measure(nets, sets, self.num_draws, pictured)
        extras["training"] = self.training_log(model, seeds, place)
        extras["recipe"], extras["num_train"] = recipe._asdict(), len(sets.images)
        return UnitResult(model, tuple(seeds), measurements, extras)

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """Fig. 4, calibration, the course of training, and the most and least certain images."""
        if not units:
            return []
        # Recipes apart: a dozen lines with their bands would hide each other.
        recipes = {
            ending: own
            for ending in ("", STRONG)
            if (own := [unit for unit in units if unit.model.endswith(STRONG) is bool(ending)])
        }
        titles = {"": "the paper's recipe", STRONG: "strong recipe"}
        pictured = [unit for unit in units if "pictures" in unit.extras]
        return [
            *(cdf_figure(own, out / f"entropy-cdf{ending}.svg") for ending, own in recipes.items()),
            reliability_figure(
                {titles[ending]: own for ending, own in recipes.items()}, out / "reliability.svg"
            ),
            training_figure(units, out / "training.svg", "nats/image", loss=True),
            *(pictures_figure(unit, out / f"sure-{unit.model}.svg") for unit in pictured),
        ]
