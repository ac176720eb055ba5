"""Architecture: the sizes of App. E in one JSON-friendly record, and parts made from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from torch import nn

from dsvnp import likelihoods
from dsvnp.aggregators import ATTENTIONS
from dsvnp.models.transformer import Transformer
from dsvnp.naming import at_least_one, lookup
from dsvnp.networks import MLP, VGG, VGG19, Fourier, LeNet

# settings of at least 1
SIZES = ("dim_x", "dim_y", "dim_latx", "dim_lat", "num_components", "rank", "num_waves", "dim_functions")


@dataclass(frozen=True)
class Architecture:
    """Sizes and choices of a model; the defaults are sizes that we recommend for functions of a few inputs.

    `Architecture.paper` has the sizes that the paper gives for its curves, which are small: they need hundreds of
    thousands of steps.

    Attributes:
        dim_x: number of inputs; for images the number of pixels, channels × height × width.
        dim_y: number of outputs, or of classes.
        likelihood: "gaussian" (learned σ), "mixture" (of Gaussians, shared by all outputs), "low-rank" (a Gaussian over
            all outputs), "coherent" (one over all targets as well, whose draws are functions), "coherent-mixture" (a
            mixture for each target, joined by a copula), "squared-error", "categorical", or "number-or-class" (with
            `dim_y` classes).
        num_components: components of a "mixture".
        background: weight of a wide component that bounds the loss of an outlier under a "mixture"; 0 for none.
        rank: columns of the covariance factor of a "low-rank" Gaussian.
        dim_functions: size of the latent that joins all targets under a coherent likelihood, see `Coherent`.
        embed_x: "none", "mlp", "fourier", "lenet" or "vgg": how inputs are embedded before anything else.
        embed_x_hidden: hidden sizes of an "mlp" embedding.
        num_waves: waves of a "fourier" embedding, each twice as fast as the one before.
        image: channels, height, width of an image embedding.
        vgg: output channels of a "vgg" embedding's convolutions, and "M" for a max pooling.
        dim_latx: size of the embedded x.
        dim_laty: size of the embedded y; None reads y as it is.
        encoder: hidden sizes of [x, y] → dim_lat.
        dim_lat: size of representations and of each latent variable.
        decoder: hidden sizes of [x, latents] → y.
        dim_local: size of each local latent z_*; None is the model's own: dim_lat in DSVNP, the paper's; 4 in DSVTNP.
        local_hidden: hidden sizes of the local prior and posterior; None is one layer of dim_lat, the paper's.
        local_start: "random", or "silent": the decoder's weights on z_* start at zero, and DSVNP starts as an NP.
        local_detach: stop gradients where the local prior and posterior read z_G and the embeddings. KL_L then cannot
            make z_G collapse.
        local_posterior: "free" for a network of its own (Eq. 12), or "ladder" for one that corrects the prior, see
            `LadderPosterior`.
        aggregator: name of the permutation-invariant mean over the context.
        attention: "dot" for AttnNP's cross-attention by products of x alone (Eq. 9), or "block" for residual blocks
            as in the code that the field's tables come from, see `Block`.
        num_heads: heads of AttnNP's attention; 1 with "dot" is plain dot-product attention.
        self_attention: layers of self-attention among the context before AttnNP's cross-attention (Sec. 2.2). With
            "block" they are blocks, and z_G has as many among the points of a set before it takes their mean.
        attend_self: whether, in training, a context point of AttnNP attends to itself as well, as in the code that the
            paper follows. It then reads its own label; a target never does. In prediction every target sees all of the
            context.
        latent_hidden: hidden sizes between the aggregated representation and the parameters of z_G; none is App. E's.
        deterministic_path: summarise the context a second time without a latent, next to z_G in NP and
            DSVNP, see `DeterministicPath`. CNP then has two such paths, as in the code that the field's tables come
            from. AttnNP has its attention for that; other models have no such path.
        latent_scale: "bounded" or "exp", see `GaussianHead`.
        sigma_floor: smallest observation σ of a Gaussian likelihood; 0 for none.
        sigma_form: "softplus" or "exp", how a Gaussian likelihood makes σ of the decoder's output.
        dropout: rate in the encoder of MC-Dropout; no other model has any.
        separate_encoders: give p(z_G) an encoder and head of its own instead of q(z_G)'s.
        posterior: "target" for q(z_G | T), or "context" for the reading under Eq. 15, q(z_G | C).
        score_context: whether the objective scores the context's points as well; None is the model's own choice: False
            for CNP and the transformers, True for all others. False suits contexts that are chosen for a target.
        transformer: sizes of the transformer of TNP and DSVTNP, whose head has the hidden sizes of `decoder`.
        cells: sizes of TabTNP's layers among the cells of a table, before those among its rows (`transformer`).
        coded_x: whether the second half of x holds a code for each value of the first half, as TabTNP reads tables and
            CurvePrior writes curves: 0 observed, 1 missing, −1 in a column that is not used.
        constant_x: how many of x, the last, are the same for all points of a task; rotary and equivariant attention,
            which read differences, leave them out.
    """

    dim_x: int
    dim_y: int
    likelihood: str = "gaussian"
    embed_x: str = "none"
    embed_x_hidden: tuple[int, ...] = ()
    num_waves: int = 8
    image: tuple[int, int, int] | None = None
    vgg: tuple[int | str, ...] = VGG19
    dim_latx: int = 32
    dim_laty: int | None = None
    encoder: tuple[int, ...] = (128, 128)
    dim_lat: int = 128
    decoder: tuple[int, ...] = (128, 128, 128)
    dim_local: int | None = None
    local_hidden: tuple[int, ...] | None = None
    local_start: str = "random"
    local_detach: bool = False
    local_posterior: str = "free"
    aggregator: str = "mean"
    num_heads: int = 1
    self_attention: int = 0
    attend_self: bool = True
    latent_hidden: tuple[int, ...] = ()
    latent_scale: str = "bounded"
    sigma_floor: float = 0.1
    sigma_form: str = "softplus"
    dropout: float = 0.1
    separate_encoders: bool = False
    posterior: str = "target"
    score_context: bool | None = None
    num_components: int = 20
    background: float = 0.0
    rank: int = 2
    transformer: Transformer = field(default_factory=Transformer)
    cells: Transformer = field(default_factory=lambda: Transformer(num_layers=2))
    coded_x: bool = False
    deterministic_path: bool = False
    attention: str = "dot"
    constant_x: int = 0
    dim_functions: int = 32

    def __post_init__(self) -> None:
        at_least_one(**{name: getattr(self, name) for name in SIZES})
        if self.dim_laty is not None and self.dim_laty < 1:
            raise ValueError(f"dim_laty must be at least 1, got {self.dim_laty}; None reads y as it is")
        if not 0 <= self.constant_x < self.dim_x or (self.coded_x and self.constant_x):
            raise ValueError(
                f"constant_x must be at least 0 and below dim_x={self.dim_x}, and 0 with coded_x, got {self.constant_x}"
            )
        lookup(self.attention, ATTENTIONS, "attention")
        if self.self_attention < 0:
            raise ValueError(f"self_attention must not be negative, got {self.self_attention}; 0 is none")
        if self.self_attention and not self.attend_self:
            raise ValueError(
                "attend_self=False hides a point's own label from it, but self-attention would pass it on through "
                f"others; got self_attention={self.self_attention}, use 0 or attend_self=True"
            )
        for name in ("embed_x_hidden", "encoder", "latent_hidden", "decoder"):
            if any(size < 1 for size in getattr(self, name)):
                raise ValueError(f"{name} must hold sizes of at least 1, got {getattr(self, name)}")
        self._check_local()
        for name in ("sigma_floor", "background"):
            if not 0 <= (value := getattr(self, name)) < math.inf:
                raise ValueError(f"{name} must be finite and not negative, got {value}; 0 is none")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {self.dropout}")
        if self.posterior not in ("target", "context"):
            raise ValueError(f"posterior must be 'target' or 'context', got {self.posterior!r}")
        if self.embed_x in ("lenet", "vgg") and (self.image is None or math.prod(self.image) != self.dim_x):
            raise ValueError(
                f"an image embedding needs image=(channels, height, width) whose product is "
                f"dim_x={self.dim_x}, got {self.image}"
            )

    @property
    def dim_values(self) -> int:
        """Number of values in x that differ between points; the others are codes, or of the whole task."""
        return self.dim_x // 2 if self.coded_x else self.dim_x - self.constant_x

    def _check_local(self) -> None:
        """Refuse choices of the local latent that do not exist."""
        if self.dim_local is not None and self.dim_local < 1:
            raise ValueError(f"dim_local must be at least 1, got {self.dim_local}; None is the model's own")
        hidden = self.local_hidden
        if hidden is not None and (not hidden or min(hidden) < 1):
            raise ValueError(
                f"local_hidden must hold at least one size, each at least 1, got {hidden}; None is (dim_lat,)"
            )
        for name, known in (("local_start", ("random", "silent")), ("local_posterior", ("free", "ladder"))):
            if (got := getattr(self, name)) not in known:
                raise ValueError(f"{name} must be {known[0]!r} or {known[1]!r}, got {got!r}")

    @property
    def local_size(self) -> int:
        """Size of each local latent, Z of z_*."""
        return self.dim_lat if self.dim_local is None else self.dim_local

    @classmethod
    def paper(cls, dim_x: int = 1, dim_y: int = 1, **changes: Any) -> Architecture:
        """Make the architecture of the paper's curves (App. E): encoder [x, y] → 32 → 32 → 128, decoder 128 → y."""
        sizes: dict[str, Any] = {"encoder": (32, 32), "dim_lat": 128, "decoder": (128,)}
        return cls(dim_x, dim_y, **(sizes | changes))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Architecture:
        """Make an architecture from parsed JSON; an unknown key is refused with a suggestion."""
        for key in values:
            lookup(key, {each.name: each for each in fields(cls)}, "architecture setting")
        settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        for name in ("transformer", "cells"):
            if isinstance(sizes := settings.get(name), dict):
                settings[name] = Transformer.from_dict(sizes)
        return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dictionary that JSON can hold."""
        return asdict(self)


def make_likelihood(arch: Architecture) -> likelihoods.Likelihood:
    """Make the likelihood that an architecture names."""
    sigma = (arch.sigma_floor, arch.sigma_form)
    kinds: dict[str, Callable[[], likelihoods.Likelihood]] = {
        "gaussian": lambda: likelihoods.Gaussian(arch.dim_y, *sigma),
        "mixture": lambda: likelihoods.GaussianMixture(
            arch.dim_y, arch.num_components, *sigma, arch.background
        ),
        "low-rank": lambda: likelihoods.LowRankGaussian(arch.dim_y, arch.rank, *sigma),
        "coherent": lambda: likelihoods.Coherent(arch.dim_y, arch.dim_functions, *sigma),
        "coherent-mixture": lambda: likelihoods.CoherentMixture(
            arch.dim_y, arch.dim_functions, arch.num_components, *sigma, arch.background
        ),
        "squared-error": lambda: likelihoods.FixedGaussian(arch.dim_y),
        "categorical": lambda: likelihoods.Categorical(arch.dim_y),
        "number-or-class": lambda: likelihoods.NumberOrClass(
            arch.dim_y, likelihoods.GaussianMixture(1, arch.num_components, *sigma, arch.background)
        ),
    }
    return lookup(arch.likelihood, kinds, "likelihood")()


def make_embedding(arch: Architecture, dim_out: int, dropout: float = 0.0) -> nn.Module:
    """Make the network x → dim_out that an architecture names; not for "none", which reads x as it is."""
    image = arch.image or (0, 0, 0)
    kinds: dict[str, Callable[[], nn.Module]] = {
        "mlp": lambda: MLP([arch.dim_x], arch.embed_x_hidden, dim_out, relu_out=True, dropout=dropout),
        "fourier": lambda: Fourier(arch.dim_x, arch.dim_values, arch.num_waves, dim_out),
        "lenet": lambda: LeNet(image, dim_out, dropout=dropout),
        "vgg": lambda: VGG(image, dim_out, arch.vgg, dropout),
    }
    return lookup(arch.embed_x, kinds, "embedding of x")()
