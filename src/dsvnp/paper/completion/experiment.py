"""Image completion: from a few pixels of an image to all others, with coherent samples (PROTOCOLS §8).

Models learn from MNIST, and are tested on MNIST, Fashion-MNIST and KMNIST; or from CIFAR-10, in colour.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from dsvnp.models import Architecture, Transformer, make_model
from dsvnp.naming import lookup
from dsvnp.paper.completion.data import DOMAINS, ImageTensors, load_tensors
from dsvnp.paper.completion.figures import compared_figure, context_figure, pictures_figure
from dsvnp.paper.completion.measures import CompletionSizes, measure_completion, pictured, pictures
from dsvnp.paper.completion.source import Pixels
from dsvnp.paper.experiment import UnitResult, Workplace, training_log
from dsvnp.paper.field.recipe import FieldRecipe
from dsvnp.paper.figures import training_figure
from dsvnp.paper.label import Label
from dsvnp.paper.weights import WithWeights
from dsvnp.training import Settings
from dsvnp.training.shared import matmul_precision

MIXTURE = "mixture"


@dataclass(frozen=True)
class CompletionExperiment(WithWeights):
    """Settings of image completion."""

    name: ClassVar[str] = "completion"
    parts: ClassVar[tuple[dict[str, Any], ...]] = tuple({"domain": domain} for domain in DOMAINS)
    # these change pictures and no figure of a table
    recorded: ClassVar[tuple[str, ...]] = (
        *WithWeights.recorded,
        "sizes.block",
        "sizes.chain",
        "sizes.chains",
    )

    extendable: ClassVar[tuple[str, ...]] = (*WithWeights.extendable, "mixtures")

    models: tuple[str, ...] = ("attnnp", "dsvnp", "tnp", "dsvtnp")
    # models that have rows with a mixture head as well: a Gaussian head that is unsure whether a pixel is black or
    # white samples greys, which lead a chain astray
    mixtures: tuple[str, ...] = ("tnp",)
    domain: str = "mnist"  # "mnist" or "cifar10", what models are trained on
    recipe: FieldRecipe = field(default_factory=FieldRecipe)  # sizes and training, as in the field's table
    sigma_floor: float = 0.1  # of all models: most pixels of MNIST are exactly black
    batch_size: int = 16  # images per step
    num_points: int = 200  # pixels of a task in training
    max_context: int = 197  # largest context in training
    num_train: int | None = None  # training images; None for all
    sizes: CompletionSizes = field(default_factory=CompletionSizes)  # how much is tested
    verify: bool = True  # whether files must have their published checksums

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup(self.domain, DOMAINS, "domain")
        if self.precision == "float64":
            raise ValueError("images are read in single precision; choose float32, tf32 or bf16")

    @classmethod
    def presets(cls) -> dict[str, Self]:
        smoke = cls(
            preset="smoke",
            num_seeds=1,
            recipe=FieldRecipe(
                10, width=16, num_heads=2, num_global=2, transformer=Transformer(16, 1, 2, 32, (16,))
            ),
            batch_size=4,
            num_points=20,
            max_context=15,
            num_train=40,
            sizes=CompletionSizes(2, (10, 50, 200), 32, num_global=2, block=98, num_local=2),
        )
        small: dict[str, Any] = {"transformer": Transformer(32, 3, 4, 64, (32, 32)), "width": 64}
        quick = cls(
            preset="quick",
            recipe=FieldRecipe(3000, 1e-3, **small),
            sizes=CompletionSizes(20, max_draws=256, block=4),
        )
        return {"smoke": smoke, "quick": quick, "paper": cls("paper", num_seeds=3, precision="tf32")}

    def read_data(self, data_dir: Path | None) -> None:
        self._load(data_dir, torch.device("cpu"))

    def _load(self, data_dir: Path | None, device: torch.device) -> ImageTensors:
        """The images, on the device."""
        numbers = self.num_train, self.sizes.num_tests
        return load_tensors(self.domain, data_dir, device, *numbers, self.verify)

    def labels(self) -> list[Label]:
        """Each model, and with a mixture head where asked for."""
        variants = {model: ("", MIXTURE) if model in self.mixtures else ("",) for model in self.models}
        return [Label(model, variant) for model, found in variants.items() for variant in found]

    def architecture(self, label: Label, channels: int) -> Architecture:
        """Sizes as in the field's table; two inputs, and one output per channel."""
        kind = MIXTURE if label.variant == MIXTURE else "gaussian"
        return self.recipe.architecture(
            label.model, 2, channels, sigma_floor=self.sigma_floor, likelihood=kind
        )

    def settings(self, model: str) -> Settings:
        """How to train a model."""
        every = max(1, self.recipe.num_steps // 100)
        return self.recipe.settings(model, log_every=every, precision=self.precision)

    def run_unit(self, label: Label, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train, then score hidden pixels of test images and draw some."""
        images = self._load(place.data_dir, place.device)
        source = Pixels(images.train, self.batch_size, self.num_points, max_context=self.max_context)
        make = partial(make_model, label.model, self.architecture(label, images.train.shape[1]))
        nets = self.nets_of(label, make, source, seeds, self.settings(label.model), place)
        extras: dict[str, Any] = {"training": training_log(label, seeds, place)}
        with matmul_precision("tf32" if self.precision == "bf16" else self.precision):
            rows = measure_completion(nets, images.tests, self.sizes)
            if 0 in seeds:
                extras["pictures"] = pictures(nets[0], pictured(images.tests), self.sizes)
        return UnitResult(label, tuple(seeds), rows, extras)

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """Pictures of each model, log-likelihood by context size, and the course of training."""
        if not units:
            return []
        shown = [unit for unit in units if "pictures" in unit.extras]
        logged = [unit for unit in units if unit.extras["training"]["step"]]
        middle = sorted(self.sizes.contexts)[len(self.sizes.contexts) // 2]
        return [
            *(pictures_figure(unit, out / f"completed-{unit.label}.webp") for unit in shown),
            *([compared_figure(shown, out / "compared.webp", middle)] if len(shown) > 1 else []),
            context_figure(units, out / "by-context.svg"),
            *([training_figure(logged, out / "training.svg", "nats/pixel")] if logged else []),
        ]
