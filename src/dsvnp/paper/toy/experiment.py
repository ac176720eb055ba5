"""The toy function: Fig. 2's first row, and an exact GP next to the models (PROTOCOLS §1).

Each seed has its own 20 observations, the same for every model. The paper claims that the predictive σ is largest
outside [0, 1], smaller in the gap, and smallest at observed points: measured here, per model and seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor

from dsvnp.models import Architecture, NeuralProcess, make_model
from dsvnp.paper.experiment import Experiment, Measurement, UnitResult, Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.measuring import seeded_predict
from dsvnp.paper.recipe import Recipe
from dsvnp.paper.toy.data import Subsets, draw_observations, toy_function
from dsvnp.paper.toy.figures import draw_functions
from dsvnp.paper.toy.gp import fit_toy_gp, has_gpytorch, say_if_left_out
from dsvnp.plotting.figures import FunctionPanel
from dsvnp.predictive import GaussianPredictive
from dsvnp.task import Task

GP = Label("gp")
RECIPE = Recipe(5e-4, "cosine", warmup=0.05)
GRID = torch.linspace(-0.5, 1.5, 201)
PLACES = {
    "outside": torch.cat([torch.linspace(-0.5, 0, 101), torch.linspace(1, 1.5, 101)]),
    "gap": torch.linspace(0.6, 0.8, 101),
}


@dataclass(frozen=True)
class ToyExperiment(Experiment):
    """Settings of the toy function.

    The encoder and the learning rate are App. E's; its decoder of one layer cannot draw this function. With one hidden
    layer NP's log-likelihood stays at 0.2 after 20k steps, where the floor of σ allows 1.38; with three all models pass
    1.1 in 2.5k.
    """

    name: ClassVar[str] = "toy"

    num_steps: int = 20_000  # iterations
    recipe: Recipe = RECIPE  # how models are trained
    batch_size: int = 16  # subsets per step
    decoder: tuple[int, ...] = (128, 128, 128)  # hidden sizes of the decoder
    num_global: int = 32  # draws of z_G in prediction
    gp_steps: int = 500  # steps of the GP's fit

    @classmethod
    def presets(cls) -> dict[str, Self]:
        fast = replace(RECIPE, learning_rate=2e-3)
        return {
            "smoke": cls(preset="smoke", num_seeds=2, num_steps=20, num_global=4, gp_steps=20),
            "quick": cls(preset="quick", num_steps=2000, recipe=fast, batch_size=8),
            "paper": cls(preset="paper", num_seeds=5),
        }

    def labels(self) -> list[Label]:
        """The models, and the GP where GPyTorch is installed."""
        return [*super().labels(), *([GP] if has_gpytorch() else [])]

    def run_unit(self, label: Label, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train or fit on each seed's observations, then measure σ."""
        if label == self.labels()[0]:
            say_if_left_out("The exact GP", place)
        data = [draw_observations(torch.Generator().manual_seed(seed)) for seed in seeds]
        if label == GP:
            predictions = [fit_toy_gp(x, y, _inputs(x), self.gp_steps) for x, y in data]
        else:
            make = partial(make_model, label.model, Architecture.paper(decoder=self.decoder))
            sources = [Subsets(x, y, self.batch_size) for x, y in data]
            settings = self.recipe.settings(self.num_steps, precision=self.precision)
            fleet = self.train_replicas(label, make, sources, seeds, settings, place)
            predictions = [self._predict(fleet.replica(row), *data[row], place) for row in range(len(seeds))]
        sigmas = [_mean_sigmas(predictive, x) for predictive, (x, _) in zip(predictions, data, strict=True)]
        extras = {"panel": _panel(*data[0], predictions[0]).to_lists()} if 0 in seeds else {}
        return UnitResult(label, tuple(seeds), tuple(_measurements(sigmas)), extras)

    def _predict(self, net: NeuralProcess, x: Tensor, y: Tensor, place: Workplace) -> GaussianPredictive:
        """Predict everywhere from all observations."""
        task = Task.from_sets(x[None], y[None], _inputs(x)[None]).to(place.device)
        predictive = seeded_predict(net, task, (self.num_global, 1))
        assert isinstance(predictive, GaussianPredictive)
        return GaussianPredictive(predictive.loc.cpu(), predictive.scale.cpu())

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """Fig. 2's first row; the GP is last, whenever it was added."""
        return draw_functions(units, self.labels(), out)


def _inputs(x: Tensor) -> Tensor:
    """All inputs to predict at, [T, 1]: the grid of the figure, the places where σ is averaged, the observed x."""
    return torch.cat([GRID, *PLACES.values(), x.squeeze(-1)]).unsqueeze(-1)


def _mean_sigmas(predictive: GaussianPredictive, x: Tensor) -> dict[str, float]:
    """The predictive σ averaged over each place and over the observed points."""
    sizes = [len(GRID), *(len(place) for place in PLACES.values()), len(x)]
    _, *parts = predictive.stddev[0, :, 0].split(sizes)
    return {place: float(part.mean()) for place, part in zip([*PLACES, "observed"], parts, strict=True)}


def _measurements(sigmas: Sequence[dict[str, float]]) -> list[Measurement]:
    """σ in each place, and whether outside > gap > observed, one value per seed."""
    rows = [
        Measurement("toy", "sigma", split, "raw", tuple(sigma[split] for sigma in sigmas))
        for split in sigmas[0]
    ]
    holds = tuple(float(s["outside"] > s["gap"] > s["observed"]) for s in sigmas)
    return [*rows, Measurement("toy", "order-holds", "all", "share", holds)]


def _panel(x: Tensor, y: Tensor, predictive: GaussianPredictive) -> FunctionPanel:
    """The figure's panel of one seed."""
    on_grid = GaussianPredictive(*(part[..., : len(GRID), :] for part in (predictive.loc, predictive.scale)))
    return FunctionPanel.of(GRID, toy_function(GRID), x.squeeze(-1), y.squeeze(-1), on_grid)
