"""The toy function: Fig. 2's first row, with an exact GP beside the models (PROTOCOLS §1).

Each seed has its own 20 observations, the same for every model. The paper says that the predictive σ is largest
outside [0, 1], smaller in the gap, and smallest at observed points: measured here, per model and seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from dsvnp.models import Architecture, NeuralProcess, make_model
from dsvnp.objectives import Objective
from dsvnp.paper.experiment import Experiment, Measurement, UnitResult, Workplace
from dsvnp.paper.toy.data import Subsets, draw_observations, toy_function
from dsvnp.plotting.figures import Panel, functions_figure
from dsvnp.predictive import GaussianPredictive
from dsvnp.task import Task
from dsvnp.training import Schedule, Settings

GP = "gp"
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

    Attributes:
        num_steps: iterations.
        learning_rate: of Adam.
        schedule: "constant" or "cosine".
        batch_size: subsets a step.
        beta_local: weight of DSVNP's local divergence.
        decoder: hidden sizes of the decoder.
        num_global: draws of z_G in prediction.
        gp_steps: steps of the GP's fit.
    """

    name: ClassVar[str] = "toy"
    paper: ClassVar[dict[tuple[str, str, str, str], tuple[float, float]]] = {}  # a figure without numbers

    num_steps: int = 20_000
    learning_rate: float = 5e-4
    schedule: str = "cosine"
    batch_size: int = 16
    beta_local: float = 1.0
    decoder: tuple[int, ...] = (128, 128, 128)
    num_global: int = 32
    gp_steps: int = 500

    @classmethod
    def presets(cls) -> dict[str, Self]:
        """Seconds in CI, about a minute on two cores, or the paper's setting."""
        return {
            "smoke": cls(preset="smoke", num_seeds=2, num_steps=20, num_global=4, gp_steps=20),
            "quick": cls(preset="quick", num_steps=2000, learning_rate=2e-3, batch_size=8),
            "paper": cls(preset="paper", num_seeds=5),
        }

    def labels(self) -> list[str]:
        """The models, and the GP where GPyTorch is installed."""
        return [*self.models, *([GP] if has_gpytorch() else [])]

    def settings(self) -> Settings:
        """How to train a model."""
        return Settings(
            self.num_steps,
            self.learning_rate,
            schedule=Schedule(self.schedule, warmup=min(1000, self.num_steps // 20)),
            objective=Objective(beta_local=self.beta_local),
            precision=self.precision,
            log_every=max(10, self.num_steps // 100),
            checkpoint_every=max(10, self.num_steps // 8),
        )

    def run_unit(self, model: str, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train or fit on each seed's observations, then look at σ."""
        if model == self.models[0] and not has_gpytorch():
            place.console.print(
                "The exact GP is left out: GPyTorch is not installed (pip install 'dsvnp\\[gp]')."
            )
        data = [draw_observations(torch.Generator().manual_seed(seed)) for seed in seeds]
        if model == GP:
            predictions = [fit_gp(x, y, _inputs(x), self.gp_steps) for x, y in data]
        else:
            make = partial(make_model, model, Architecture(1, 1, decoder=self.decoder))
            sources = [Subsets(x, y, self.batch_size) for x, y in data]
            fleet = self.fleet(model, make, sources, seeds, self.settings(), place)
            predictions = [self._predict(fleet.replica(row), *data[row], place) for row in range(len(seeds))]
        sigmas = [_mean_sigmas(predictive, x) for predictive, (x, _) in zip(predictions, data, strict=True)]
        extras = {"panel": _panel(*data[0], predictions[0]).to_lists()} if 0 in seeds else {}
        return UnitResult(model, tuple(seeds), tuple(_measurements(sigmas)), extras)

    def _predict(self, net: NeuralProcess, x: Tensor, y: Tensor, place: Workplace) -> GaussianPredictive:
        """Predict everywhere from all observations, with draws that are the same for each model."""
        task = Task.from_sets(x[None], y[None], _inputs(x)[None]).to(place.device)
        generator = torch.Generator(place.device).manual_seed(0)
        predictive = net.predict(task, self.num_global, generator=generator)
        assert isinstance(predictive, GaussianPredictive)
        return GaussianPredictive(predictive.loc.cpu(), predictive.scale.cpu())

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """Fig. 2's first row, and the GP."""
        panels = {u.model: Panel.from_lists(u.extras["panel"]) for u in units if "panel" in u.extras}
        if not panels:
            return []
        order = [label for label in self.labels() if label in panels]  # the GP last, whenever it was added
        shown = {label: panels[label] for label in [*order, *(p for p in panels if p not in order)]}
        rows = [("toy function", shown)]
        return [functions_figure(rows, out / "functions.svg", _limits(shown), trained=(0.0, 1.0))]


def has_gpytorch() -> bool:
    """Whether the extra `gp` is installed."""
    return find_spec("gpytorch") is not None


def fit_gp(x: Tensor, y: Tensor, x_target: Tensor, num_steps: int) -> GaussianPredictive:
    """Fit an exact GP (RBF, constant mean, noise) by its marginal likelihood, and predict y.

    In float64: the Gram matrix of close points is nearly singular.

    Args:
        x: inputs, [N, 1].
        y: outputs, [N, 1].
        x_target: where to predict, [T, 1].
        num_steps: steps of Adam on the log marginal likelihood.

    Returns:
        One Gaussian a target, [1, 1, 1, T, 1].
    """
    # GPyTorch does on import what newer versions of torch deprecate.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import gpytorch as gp

    class ExactGP(gp.models.ExactGP):  # type: ignore[misc, name-defined, unused-ignore]
        """y ~ GP(c, s² RBF) + noise."""

        def __init__(self, likelihood: Any) -> None:
            super().__init__(x.double(), y.double().squeeze(-1), likelihood)
            self.mean = gp.means.ConstantMean()
            self.kernel = gp.kernels.ScaleKernel(gp.kernels.RBFKernel())

        def forward(self, inputs: Tensor) -> Any:
            return gp.distributions.MultivariateNormal(self.mean(inputs), self.kernel(inputs))

    likelihood = gp.likelihoods.GaussianLikelihood()
    model = ExactGP(likelihood).double()
    # From GPyTorch's 0.7, as wide as all of the data, it may end in noise alone.
    model.kernel.base_kernel.lengthscale = 0.2
    marginal = gp.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model.train()
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = -marginal(model(model.train_inputs[0]), model.train_targets)
        loss.backward()
        optimizer.step()
    model.eval()
    likelihood.eval()
    with torch.no_grad():
        predictive = likelihood(model(x_target.double()))
        mean, stddev = predictive.mean.float(), predictive.stddev.float()
    return GaussianPredictive(mean.reshape(1, 1, 1, -1, 1), stddev.reshape(1, 1, 1, -1, 1))


def _inputs(x: Tensor) -> Tensor:
    """All inputs to predict at, [T, 1]: the grid of the figure, the places where σ is averaged, the observed x."""
    return torch.cat([GRID, *PLACES.values(), x.squeeze(-1)]).unsqueeze(-1)


def _mean_sigmas(predictive: GaussianPredictive, x: Tensor) -> dict[str, float]:
    """The predictive σ averaged over each place and over the observed points."""
    sizes = [len(GRID), *(len(place) for place in PLACES.values()), len(x)]
    _, *parts = predictive.stddev[0, :, 0].split(sizes)
    return {place: float(part.mean()) for place, part in zip([*PLACES, "observed"], parts, strict=True)}


def _measurements(sigmas: Sequence[dict[str, float]]) -> list[Measurement]:
    """σ in each place, and whether outside > gap > observed, a value a seed."""
    rows = [
        Measurement("toy", "sigma", split, "raw", tuple(sigma[split] for sigma in sigmas))
        for split in sigmas[0]
    ]
    holds = tuple(float(s["outside"] > s["gap"] > s["observed"]) for s in sigmas)
    return [*rows, Measurement("toy", "order-holds", "all", "share", holds)]


def _panel(x: Tensor, y: Tensor, predictive: GaussianPredictive) -> Panel:
    """What the figure shows of one seed."""
    on_grid = GaussianPredictive(*(part[..., : len(GRID), :] for part in (predictive.loc, predictive.scale)))
    return Panel.of(GRID, toy_function(GRID), x.squeeze(-1), y.squeeze(-1), on_grid)


def _limits(panels: dict[str, Panel]) -> tuple[float, float]:
    """A range of y with all of the truth in it, and as much of the bands as leaves the truth readable."""
    truth = next(iter(panels.values())).truth
    low, high = float(truth.min()), float(truth.max())
    room = high - low
    bands = [
        (float((p.mean - 3 * p.stddev).min()), float((p.mean + 3 * p.stddev).max())) for p in panels.values()
    ]
    lowest, highest = min(low, *(band[0] for band in bands)), max(high, *(band[1] for band in bands))
    return max(lowest, low - room / 2) - 0.1, min(highest, high + room / 2) + 0.1
