"""FitRecipe: the sizes and rates that the estimators start from, chosen for a table's size and for nothing else.

One table is one function: a small network with smooth units, which starts from its linear part, learns what that leaves
over. Many tables are many functions, of which a network must learn to read a new one off a few rows: x and context have
to interact, which smooth units next to their linear start do not; and waves of several lengths show it inputs at any
frequency.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsvnp.gaussian import gaussian_log_prob
from dsvnp.likelihoods import Gaussian
from dsvnp.models import Architecture, NeuralProcess, Transformer, make_model
from dsvnp.models.tnp import TNP
from dsvnp.networks import MLP
from dsvnp.objectives import Objective
from dsvnp.pretrained.copula import CopulaSettings, joined, train_copula
from dsvnp.sources.base import TaskSource
from dsvnp.sources.own_units import more_inputs
from dsvnp.training import Adam, Schedule, Settings

AUTO = "auto"  # the model that suits best
BY_ATTENTION = ("tnp", "attnnp")  # what tables choose from; without attention a task takes longer to read
WITH_LAYERS = ("tnp", "dsvtnp")
DEEP = (*WITH_LAYERS, "attnnp")
WITHOUT_LATENTS = ("nn", "cnp", "tnp")
POWER = 4  # of the scale of an input
# highest frequency of attention that compares inputs by waves of their differences, in the same unit
ROTARY = 8.0
FUNCTIONS = 16  # size of the latent that joins the rows of a task
WAVES = (0.5, 16.0)  # the slowest and the fastest wave of an input, in radians per unit of its spread


class Effort(NamedTuple):
    """How much a fit takes: its steps as a part of the recipe's, and members for one table and for many."""

    steps: float
    table: int
    tasks: int


EFFORTS = {"fast": Effort(0.4, 3, 1), "balanced": Effort(1.0, 5, 2), "thorough": Effort(2.5, 8, 4)}


@dataclass(frozen=True)
class FitRecipe:
    """Everything that decides how replicas are made and trained."""

    model: str = "dsvnp"  # name of the model
    width: int = 128  # width of every hidden layer and of the embedded inputs
    dim_lat: int = 32  # size of representations and latents
    num_points: int = 64  # rows of a task, at most
    batch_size: int = 4  # tasks of a batch, at most
    num_steps: int = 600  # steps, at most
    learning_rate: float = 1e-2  # the largest; it falls to zero as a cosine
    weight_decay: float = 0.1  # of AdamW
    beta_local: float = 1.0  # weight of the local divergence
    validate_every: int = 50  # steps between validations, at most
    patience: int = 0  # validations without improvement after which a replica stops
    encoder_layers: int = 1  # hidden layers of the encoder
    decoder_layers: int = 1  # hidden layers of the decoder
    transformer_layers: int | None = None  # None is the library's default transformer
    rotary: float = 0.0  # highest frequency of a transformer's rotary attention; 0 for none
    num_heads: int = 1  # heads of each attention
    num_waves: int = 0  # waves by which an input is embedded; 0 embeds it by a small smooth network
    smooth: bool = True  # whether the decoder has smooth units and starts near its linear part
    sigma_floor: float = 0.1  # smallest σ, in units of the outputs' spread
    # 0 trains by the likelihood; above, rows that a network is sure of count less, see `EvenGaussian`
    evenness: float = 0.0
    # size of a copula's latent that joins the rows of a task, trained after a transformer; 0 for none
    functions: int = 0
    own_units: bool = False  # whether each task is read in units of its context, see `OwnUnits`

    def settings(self, device: torch.device) -> Settings:
        """Settings of the fleet; on a CPU its replicas are trained one after the other."""
        every = max(1, min(self.validate_every, self.num_steps // 4))
        return Settings(
            num_steps=self.num_steps,
            learning_rate=self.learning_rate,
            optimizer=Adam(kind="adamw", weight_decay=self.weight_decay, clip_norm=1.0),
            schedule=Schedule("cosine", warmup=min(50, self.num_steps // 10)),
            objective=Objective(beta_local=self.beta_local),
            compile=False,
            chunk_size=1 if device.type == "cpu" else None,
            validate_every=every,
            patience=self.patience,
            log_every=every,
        )

    def make_joined(self, dim_x: int, dim_y: int, likelihood: str) -> NeuralProcess:
        """Make an untrained model as `join` leaves it."""
        model = self.make(dim_x, dim_y, likelihood)
        return joined(model, self._head(dim_y), self.functions) if self.joins(model) else model

    def joins(self, model: NeuralProcess) -> TypeGuard[TNP]:
        """Whether a copula joins the rows of a task."""
        return isinstance(model, TNP) and bool(self.functions) and model.arch.likelihood == "gaussian"

    def join(self, model: NeuralProcess, source: TaskSource, seed: int) -> NeuralProcess:
        """Train a copula on the tasks that a trained model has learned from; predictions of single rows stay."""
        if not self.joins(model):
            return model
        settings = CopulaSettings(self.functions, self.width, max(1, self.num_steps // 3), seed=seed)
        kind = next(model.parameters()).dtype
        return train_copula(copy.deepcopy(model).float(), source, settings).to(kind)

    def _head(self, dim_y: int) -> MLP:
        return MLP([self._transformer().width], [self.width], dim_y * (1 + self.functions))

    def make(self, dim_x: int, dim_y: int, likelihood: str) -> NeuralProcess:
        """Make an untrained model; with own units it has further inputs."""
        units = more_inputs(dim_x, dim_y) if self.own_units and likelihood == "gaussian" else 0
        dim_x += units
        arch = Architecture(
            dim_x=dim_x,
            dim_y=dim_y,
            likelihood=likelihood,
            dim_latx=self.width,
            encoder=(self.width,) * self.encoder_layers,
            dim_lat=self.dim_lat,
            decoder=(self.width,) * self.decoder_layers,
            sigma_floor=self.sigma_floor,
            num_heads=math.gcd(self.num_heads, self.dim_lat),
            transformer=self._transformer(),
            constant_x=units,
        )
        embedding: nn.Module = FeatureEmbedding(dim_x, self.width)
        if self.num_waves:
            embedding = WaveEmbedding(dim_x, self.width, self.num_waves)
        model = make_model(self.model, arch, embedding)
        if self.evenness and likelihood == "gaussian":
            model.likelihood = EvenGaussian(dim_y, self.sigma_floor, self.evenness)
        decoder = getattr(model, "decoder", None)
        if self.smooth and isinstance(decoder, MLP):  # a model of one's own may be made otherwise
            model.decoder = smooth = SmoothMLP.like(decoder)
            with torch.no_grad():  # start from the linear part, or from even odds
                for parameter in smooth.rest[-1].parameters():
                    parameter.mul_(0.1)
        return model

    def _transformer(self) -> Transformer:
        """Sizes of a transformer, for models that have one."""
        if self.transformer_layers is None:
            return Transformer()
        heads = math.gcd(self.num_heads, self.width)
        rotary = self.rotary if self.width // heads % 2 == 0 else 0.0  # it turns pairs of features
        return Transformer(
            self.width, self.transformer_layers, heads, 2 * self.width, (self.width,), rotary=rotary
        )


def recipe_for_table(num_rows: int, effort: str, changes: Mapping[str, Any]) -> FitRecipe:
    """The recipe for one table of so many rows; changes that are None leave a setting alone."""
    num_steps = min(3000.0, max(400.0, 600 * math.sqrt(num_rows / 1000)))
    steps = round(EFFORTS[effort].steps * num_steps)
    return _changed(FitRecipe(num_steps=steps, validate_every=25, patience=5), changes)


def recipes_for_tasks(typical_rows: int, effort: str, changes: Mapping[str, Any]) -> list[FitRecipe]:
    """The recipes for many tables that held-out tables choose from: one of each kind, or those of the model asked for.

    A transformer comes with rotary attention, which learns functions of a few numbers (time, place) several times
    faster, and without. `typical_rows` is the size of a table that is larger than most; a change to None is none.
    """
    common = FitRecipe(
        num_points=min(32, max(8, typical_rows)),
        batch_size=16,
        num_steps=round(EFFORTS[effort].steps * 1000),
        learning_rate=2e-3,
        weight_decay=0.01,
        validate_every=100,
        patience=5,
        encoder_layers=2,
        num_waves=6,
        smooth=False,
        sigma_floor=0.02,
    )
    wide = replace(common, width=128, dim_lat=128, decoder_layers=3)
    deep = replace(common, width=64, dim_lat=64, transformer_layers=2, num_heads=4)
    asked = changes.get("model")
    names = BY_ATTENTION if asked in (None, AUTO) else (asked,)
    chosen = [replace(deep if name in DEEP else wide, model=name) for name in names]
    chosen = [replace(r, functions=FUNCTIONS) if r.model == "tnp" else r for r in chosen]
    chosen = [replace(r, rotary=ROTARY) for r in chosen if r.model in WITH_LAYERS] + chosen
    changes = {**changes, "model": None}
    return [_changed(_evened(recipe), changes) for recipe in chosen]


def _evened(recipe: FitRecipe) -> FitRecipe:
    """Weigh rows evenly where the objective is the likelihood alone: a bound balances it with divergences."""
    return replace(recipe, evenness=0.3) if recipe.model in WITHOUT_LATENTS else recipe


def _changed(recipe: FitRecipe, changes: Mapping[str, Any]) -> FitRecipe:
    return replace(recipe, **{name: value for name, value in changes.items() if value not in (None, AUTO)})


class SmoothMLP(MLP):
    """An MLP with smooth units: on tables of a thousand rows they err several per cent less than ReLUs."""

    @classmethod
    def like(cls, other: MLP) -> SmoothMLP:
        """One with the sizes of another."""
        dims_in = [weight.shape[1] for weight in other.first.weights]
        layers = [layer for layer in other.rest if isinstance(layer, nn.Linear)]
        *hidden, dim_out = [len(other.first.bias), *(layer.out_features for layer in layers)]
        return cls(dims_in, hidden, dim_out)

    def forward(self, *inputs: Tensor, dropout: Sequence[Tensor] = ()) -> Tensor:
        h: Tensor = self.first(*inputs)
        for layer in self.rest:
            h = layer(F.silu(h))
        return h


class EvenGaussian(Gaussian):
    """N(μ, σ²) trained with the weight σ^(2 evenness) for each output, held constant (β-NLL, Seitzer et al., 2022).

    The gradient of μ is divided by σ². Where noise varies much, a network that has learned σ first sees errors of its
    means only where it is sure already, and may never learn the others. The weight undoes a part of that; the best μ
    and σ of each row are the same. An evenness of 0 is the likelihood, 1 weighs the errors of all means alike.
    """

    def __init__(self, dim_y: int, floor: float, evenness: float) -> None:
        super().__init__(dim_y, floor)
        self.evenness = evenness

    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """The weighted log-density, summed over the outputs that are there."""
        mean, scale = self.components(raw)
        missing = torch.isnan(y)
        each = gaussian_log_prob(torch.where(missing, 0.0, y), mean, scale)
        return torch.where(missing, 0.0, each * scale.detach().pow(2 * self.evenness)).sum(-1)


class FeatureEmbedding(nn.Module):
    """x → latx with a learned scale for each input, and smooth units.

    The scale is a power of its parameter: weight decay shrinks it several times as fast as any other weight: inputs of
    no use fade, as with a Gaussian process that has a length scale for each.
    """

    def __init__(self, dim_x: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim_x))
        self.first = nn.Linear(dim_x, width)
        self.second = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(self.second(F.silu(self.first(x * self.scale.pow(POWER)))))

    def dropout_shapes(self) -> list[tuple[int, ...]]:
        """None: there is no dropout here."""
        return []


class WaveEmbedding(nn.Module):
    """x → latx = SiLU(W [x, sin(f x), cos(f x)] + b), with the frequencies f of each input in a geometric series.

    A network that reads x as it is learns slow functions first and fast ones hardly ever.
    """

    frequencies: Tensor

    def __init__(self, dim_x: int, width: int, num_waves: int) -> None:
        super().__init__()
        low, high = (math.log2(end) for end in WAVES)
        self.register_buffer("frequencies", torch.logspace(low, high, num_waves, base=2.0))
        self.mix = nn.Linear(dim_x * (1 + 2 * num_waves), width)

    def forward(self, x: Tensor) -> Tensor:
        angles = (x.unsqueeze(-1) * self.frequencies).flatten(-2)  # [..., dim_x · waves]
        return F.silu(self.mix(torch.cat([x, angles.sin(), angles.cos()], dim=-1)))

    def dropout_shapes(self) -> list[tuple[int, ...]]:
        """None: there is no dropout here."""
        return []
