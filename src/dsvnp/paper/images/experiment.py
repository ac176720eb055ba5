"""Image classification and out-of-distribution detection: Table A.2 and Fig. 4 (PROTOCOLS §5).

Models learn the classes of MNIST or CIFAR-10 and then classify other images and noise, for which their predictive
entropy should be high. Entropy alone rewards a model that is uncertain everywhere; accuracy, calibration and AUROC are
measured too. Rows named "-strong" are trained by a recipe of ours instead of the paper's, which
`studies/images_selection.py` chose on held-out training images.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from dsvnp.models import MODELS, Architecture, make_model
from dsvnp.naming import lookup
from dsvnp.networks import VGG19
from dsvnp.paper.experiment import Experiment, Measurement, UnitResult, Workplace, training_log
from dsvnp.paper.figures import training_figure
from dsvnp.paper.images.data import DOMAINS, ImagePortions, Sets, load_sets, read_sets
from dsvnp.paper.images.figures import cdf_figure, pictures_figure, reliability_figure
from dsvnp.paper.images.measures import measure_images
from dsvnp.paper.images.source import Images
from dsvnp.paper.label import Label
from dsvnp.paper.recipe import Recipe
from dsvnp.paper.rows import grouped
from dsvnp.training import Settings
from dsvnp.training.shared import matmul_precision

VARIANTS = {"paper": "", "strong": "strong"}  # by recipe
PICTURED = ("nn", "dsvnp")  # whose most and least certain images are kept: thumbnails fill a file quickly


@dataclass(frozen=True)
class ImageRecipe(Recipe):
    """Settings of training of a classifier of images.

    Annealing matters: without it the local divergence, 3 nats of it at the start, switches off most of the embedding's
    units before they have learned anything.
    """

    pad: int = 0  # largest shift of an image, in pixels
    flip: float = 0.0  # probability that an image is mirrored
    attend_self: bool = True  # see `Architecture`; of AttnNP alone
    length: float = 1.0  # share of the experiment's epochs that it takes


RECIPES = {
    "mnist": {
        "paper": ImageRecipe(1e-3),
        "strong": ImageRecipe(3e-3, "cosine", 0.05, 0.15, pad=1, anneal=0.25, length=0.2),
    },
    "cifar10": {
        "paper": ImageRecipe(5e-5),
        "strong": ImageRecipe(
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
    """Settings of the image experiment; the defaults are the paper's where it gives them."""

    name: ClassVar[str] = "images"
    parts: ClassVar[tuple[dict[str, Any], ...]] = tuple({"domain": domain} for domain in DOMAINS)
    extendable: ClassVar[tuple[str, ...]] = (*Experiment.extendable, "recipes")

    models: tuple[str, ...] = COLUMNS
    seeds_at_once: int = 1  # convolutions of several nets at once are slow
    domain: str = "mnist"  # "mnist" or "cifar10", what models are trained on
    recipes: tuple[str, ...] = ("paper",)  # "paper", and "strong", whose rows are named so
    # settings of `ImageRecipe` in place of those of the recipes
    change: dict[str, Any] = field(default_factory=dict, metadata={"of": ImageRecipe})
    num_epochs: int = 100  # times that every training image is seen
    num_points: int = 100  # images of a task, the batch of Alg. 1
    num_draws: int = 100  # of z_G, with one of z_* each, or of dropout masks, in prediction
    vgg: tuple[int | str, ...] = VGG19  # convolutions of CIFAR-10's embedding
    # how much of each set is used, and for what
    portions: ImagePortions = field(default_factory=ImagePortions)
    verify: bool = True  # whether files must have their published checksums
    compile: bool | None = None  # see `Settings`
    chunk_size: int | None = None  # see `Settings`

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup(self.domain, DOMAINS, "domain")
        if self.precision == "float64":
            raise ValueError("images are read in single precision; choose float32, tf32 or bf16")
        for recipe in self.recipes:
            lookup(recipe, VARIANTS, "recipe")

    @classmethod
    def presets(cls) -> dict[str, Self]:
        pooled = (8, "M", 8, "M", 8, "M", 8, "M", 8, "M")
        smoke = cls(
            preset="smoke",
            recipes=("paper", "strong"),
            change={"length": 1.0},  # all of so few steps are needed, here and below
            num_epochs=1,
            num_points=20,
            num_draws=3,
            vgg=pooled,
            portions=ImagePortions("test", 60, 20, 30, num_context=20),
        )
        quick = cls(
            preset="quick",
            change={"learning_rate": 1e-3, "schedule": "cosine", "anneal": 1.0, "length": 1.0},
            num_epochs=5,
            num_draws=20,
            vgg=(32, "M", 64, "M", 128, "M", 128, "M", 128, "M"),
            portions=ImagePortions("test", 6000, 1000, 1000),
        )
        return {"smoke": smoke, "quick": quick, "paper": cls("paper", num_seeds=3, precision="tf32")}

    def labels(self) -> list[Label]:
        """The models, by each recipe."""
        for name in self.models:
            lookup(name, MODELS, "model")
        return [Label(model, VARIANTS[recipe]) for recipe in self.recipes for model in self.models]

    def paper_figure(self, label: Label, m: Measurement) -> tuple[float | None, float | None]:
        """Table A.2, which has no spread; its noise is the one that is not in the images' range."""
        row = TABLE_A2[self.domain].get((m.dataset, m.metric))
        if row is None or m.split != "test":
            return None, None
        return dict(zip(COLUMNS, row, strict=True)).get(label.model), None

    def read_data(self, data_dir: Path | None) -> None:
        read_sets(self.domain, data_dir, self.portions, self.verify)

    def recipe_of(self, label: Label) -> ImageRecipe:
        """The recipe that a label stands for, with the settings that replace its own."""
        recipe = replace(RECIPES[self.domain][label.variant or "paper"], **self.change)
        # Where nothing attends, a unit is the same whatever AttnNP does.
        return recipe if label.model == "attnnp" else replace(recipe, attend_self=True)

    def refuses(self, unit: UnitResult) -> str | None:
        """A unit that was trained when the recipe was another one."""
        trained = unit.extras.get("recipe")
        known = trained is None or ImageRecipe(**trained) == self.recipe_of(unit.label)
        return None if known else f"trained by another recipe, {trained}"

    def architecture(self, recipe: ImageRecipe) -> Architecture:
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

    def source(self, sets: Sets, recipe: ImageRecipe) -> Images:
        """Batches of training images, up to `num_context` of each the context (Alg. 1)."""
        scale = sets.mean.tolist(), sets.std.tolist()
        most = min(self.portions.num_context, self.num_points)
        shifts: dict[str, Any] = {"pad": recipe.pad, "flip": recipe.flip}
        return Images(sets.images, sets.labels, *scale, self.num_points, max_context=most, **shifts)

    def settings(self, recipe: ImageRecipe, num_steps: int) -> Settings:
        """Settings of training by a recipe; a recipe of full length takes `num_steps`."""
        num_steps = math.ceil(recipe.length * num_steps)
        how = {name: getattr(self, name) for name in ("precision", "compile", "chunk_size")}
        made = recipe.settings(num_steps, log_every=max(1, num_steps // 25), **how)
        # Or the one image that CNP scores next to a context of 99 weighs as much as 99.
        return replace(made, objective=replace(made.objective, divide_by="all"))

    def run_unit(self, label: Label, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train, then judge the domain's test images, other images and noise."""
        recipe = self.recipe_of(label)
        sets = load_sets(self.domain, place.data_dir, place.device, self.portions, self.verify)
        source = self.source(sets, recipe)
        settings = self.settings(recipe, self.num_epochs * source.refresh_every)
        make = partial(make_model, label.model, self.architecture(recipe))
        fleet = self.train_replicas(label, make, source, seeds, settings, place)
        nets = [fleet.replica(row) for row in range(len(seeds))]
        pictured = label.model in PICTURED and 0 in seeds
        with matmul_precision("tf32" if self.precision == "bf16" else self.precision):
            measurements, extras = measure_images(nets, sets, self.num_draws, pictured)
        extras["training"] = training_log(label, seeds, place)
        extras["recipe"], extras["num_train"] = asdict(recipe), len(sets.images)
        return UnitResult(label, tuple(seeds), measurements, extras)

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """Fig. 4, calibration, the course of training, and the most and least certain images."""
        if not units:
            return []
        # Recipes apart: a dozen lines would hide each other.
        groups = grouped(sorted(units, key=lambda unit: unit.label.variant), lambda unit: unit.label.variant)
        titles = {"": "the paper's recipe", "strong": "strong recipe"}
        pictured = [unit for unit in units if "pictures" in unit.extras]
        return [
            *(cdf_figure(own, out / f"{Label('entropy-cdf', v)}.svg") for v, own in groups.items()),
            reliability_figure({titles[v]: own for v, own in groups.items()}, out / "reliability.svg"),
            training_figure(units, out / "training.svg", "nats/image", loss=True),
            *(pictures_figure(unit, out / f"sure-{unit.label}.webp") for unit in pictured),
        ]
