"""Parts that several models are made of: embeddings, the encoder, the global and the local latent."""

from typing import NamedTuple

from torch import Tensor, nn

from dsvnp.aggregators import SelfAttention, make_aggregator
from dsvnp.gaussian import DiagonalGaussian
from dsvnp.likelihoods import Likelihood
from dsvnp.models.architecture import Architecture, make_embedding
from dsvnp.networks import MLP, GaussianHead, full_precision


class Embeddings(nn.Module):
    """x → latx and y → laty where the architecture embeds them; elsewhere they stay as they are."""

    def __init__(self, arch: Architecture, dim_encoded: int, embedding: nn.Module | None) -> None:
        super().__init__()
        self.x: nn.Module = nn.Identity()
        self.dim_x = arch.dim_x
        if embedding is not None or arch.embed_x != "none":
            self.x = embedding if embedding is not None else make_embedding(arch, arch.dim_latx)
            self.dim_x = arch.dim_latx
        self.y: nn.Module = nn.Identity()
        self.dim_y = dim_encoded
        if arch.dim_laty is not None:
            self.y = MLP([dim_encoded], [], arch.dim_laty, relu_out=True)
            self.dim_y = arch.dim_laty

    def pair(self, x: Tensor, y: Tensor, likelihood: Likelihood) -> tuple[Tensor, Tensor]:
        """Embed the inputs of some points, and their outputs as the likelihood encodes them."""
        x = self.x(x)
        return x, self.y(likelihood.encode(y, x.dtype))


class Sizes(NamedTuple):
    """Sizes of the two inputs of an encoder that reads something else than the embeddings of x and y."""

    dim_x: int
    dim_y: int


def pair_encoder(arch: Architecture, embed: Embeddings | Sizes, relu_out: bool = True) -> MLP:
    """Make r_i = h(x_i, y_i) of Eq. 8."""
    return MLP([embed.dim_x, embed.dim_y], arch.encoder, arch.dim_lat, relu_out)


def global_head(arch: Architecture) -> nn.Module:
    """Make r → [μ, ln σ] of z_G: one linear step (App. E), or hidden layers before it.

    The mean over a set depends on where its points happen to lie; layers behind it can undo that (decision 5).
    """
    if not arch.latent_hidden:
        return GaussianHead(arch.dim_lat, arch.dim_lat, arch.latent_scale)
    *hidden, last = arch.latent_hidden
    return nn.Sequential(
        MLP([arch.dim_lat], hidden, last, relu_out=True), GaussianHead(last, arch.dim_lat, arch.latent_scale)
    )


class GlobalLatent(nn.Module):
    """q(z_G | T) and p(z_G | C): encode each point once, aggregate over either set, one head (Eq. 8, 11).

    It reads the outputs of `embed`, or other inputs of some sizes. With `num_blocks` the points of either set attend to
    each other, and to no point outside it, before they are aggregated.
    """

    def __init__(self, arch: Architecture, embed: Embeddings | Sizes, num_blocks: int = 0) -> None:
        super().__init__()
        self.aggregate = make_aggregator(arch.aggregator, arch.dim_lat)
        self.encoder = pair_encoder(arch, embed)
        self.among = SelfAttention(arch.dim_lat, arch.num_heads, num_blocks)
        self.head = global_head(arch)
        self.context_posterior = arch.posterior == "context"
        self.prior_encoder: nn.Module | None = None
        if arch.separate_encoders:
            self.prior_encoder = pair_encoder(arch, embed)
            self.prior_among = SelfAttention(arch.dim_lat, arch.num_heads, num_blocks)
            self.prior_head = global_head(arch)

    def forward(
        self, x: Tensor, y: Tensor, mask: Tensor, in_context: Tensor
    ) -> tuple[DiagonalGaussian, DiagonalGaussian]:
        """Posterior and prior, each [B, Z], from all points of a task and the flags of its context."""
        r = self.encoder(x, y)
        q = self._latent(r, in_context if self.context_posterior else mask)
        shared = self.prior_encoder is None
        return q, self._latent(r, in_context) if shared else self.prior(x, y, in_context)

    def prior(self, x: Tensor, y: Tensor, mask: Tensor) -> DiagonalGaussian:
        """p(z_G | C), [B, Z]."""
        if self.prior_encoder is None:
            return self._latent(self.encoder(x, y), mask)
        return self.prior_head(self.aggregate(self.prior_among(self.prior_encoder(x, y), mask), mask))

    def _latent(self, r: Tensor, mask: Tensor) -> DiagonalGaussian:
        """z_G of the points in `mask`."""
        return self.head(self.aggregate(self.among(r, mask), mask))


class DeterministicPath(nn.Module):
    """r_C = MLP(⊕ h(x_i, y_i)), a summary of the context that is not random (Kim et al., 2019; Lee et al., 2020).

    The layers behind the aggregator are as many and as wide as those of z_G, `latent_hidden`.
    """

    def __init__(self, arch: Architecture, embed: Embeddings) -> None:
        super().__init__()
        self.encoder = pair_encoder(arch, embed)
        self.aggregate = make_aggregator(arch.aggregator, arch.dim_lat)
        self.layers = MLP([arch.dim_lat], arch.latent_hidden, arch.dim_lat)

    def forward(self, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        """r_C of the points in `mask`, [B, 1, H]."""
        r: Tensor = self.layers(self.aggregate(self.encoder(x, y), mask))
        return r.unsqueeze(-2)


class LocalGaussian(nn.Module):
    """[inputs] → local_hidden → [μ, ln σ]: q(z_* | z_G, x_*, y_*) or p(z_* | z_G, x_*) (Eq. 12).

    Callers pass the prior to every posterior; this one ignores it.
    """

    def __init__(self, arch: Architecture, dims_in: list[int]) -> None:
        super().__init__()
        self.net, width = _local_network(arch, dims_in)
        self.head = GaussianHead(width, arch.local_size, arch.latent_scale)

    def forward(self, *inputs: Tensor, prior: DiagonalGaussian | None = None) -> DiagonalGaussian:
        return self.head(self.net(*inputs))


class LadderPosterior(nn.Module):
    """q(z_* | z_G, x_*, y_*) as the prior's update on one pseudo-observation u = w z_* + N(0, 1) per dimension.

    [inputs] → local_hidden → [w, u] gives the data term, and precisions add up:

        1/σ_q² = 1/σ_p² + w²,   μ_q/σ_q² = μ_p/σ_p² + w u

    w starts at zero, which makes q = p exactly; u does not, which gives w a gradient. σ_q has no floor: q may be as
    narrow as a decoder with little noise needs.
    """

    def __init__(self, arch: Architecture, dims_in: list[int]) -> None:
        super().__init__()
        self.net, width = _local_network(arch, dims_in)
        self.weight = nn.Linear(width, arch.local_size)
        self.value = nn.Linear(width, arch.local_size)
        nn.init.zeros_(self.weight.weight)
        nn.init.zeros_(self.weight.bias)

    def forward(self, *inputs: Tensor, prior: DiagonalGaussian) -> DiagonalGaussian:
        h = self.net(*inputs)
        weight, value = full_precision(self.weight(h)), full_precision(self.value(h))
        variance = prior.scale.square()
        shrink = 1 / (1 + variance * weight.square())  # σ_q² / σ_p²
        mean = prior.mean + shrink * variance * weight * (value - weight * prior.mean)
        return DiagonalGaussian(mean, prior.scale * shrink.sqrt())


def make_local_posterior(arch: Architecture, dims_in: list[int]) -> nn.Module:
    """Make the local posterior that an architecture names; called as `posterior(*inputs, prior=p_local)`."""
    return (LadderPosterior if arch.local_posterior == "ladder" else LocalGaussian)(arch, dims_in)


def _local_network(arch: Architecture, dims_in: list[int]) -> tuple[MLP, int]:
    """The hidden layers of a local network, and the size of the last."""
    *hidden, last = arch.local_hidden or (arch.dim_lat,)
    return MLP(dims_in, hidden, last, relu_out=True), last
