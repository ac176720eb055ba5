"""DSVTNP: the doubly stochastic model on TNP's transformer, a global latent and a small local latent for each target.

h = tokens after the trunk of TNP
q(z_G | T), p(z_G | C)                         from a mean over points of (x_i, h_i, y_i): coherent functions
q(z_* | z_G, h_*, y_*), p(z_* | z_G, h_*)      what the likelihood's family cannot express
p(y_* | h_*, z_G, z_*)

It starts as TNP: the head's weights on both latents are zero at first. The latents read h, and z_* reads z_G, without
passing gradients back: no divergence changes the trunk, and KL_L does not change z_G, where it would favour a z_G that
carries no information.

z_G carries functions only where training makes it, and none of the objectives tried did so alone (`results/coherence`).
NPML, the default of our experiments, averages over K = 2 draws from the prior, and a z_G that decides a function is
missed by both. The ELBO and the importance-weighted bound reward such a z_G, but did not find it from this start in 400
steps. Draw the functions of this model by autoregression; where one pass must do, join the targets of a TNP by a copula
(`dsvnp.pretrained.copula`), whose latent carries them.
"""

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from dsvnp.aggregators import Mean
from dsvnp.gaussian import DiagonalGaussian
from dsvnp.models.base import NeuralProcess, Noise
from dsvnp.models.parts import GlobalLatent, Sizes
from dsvnp.models.tnp import Backbone
from dsvnp.models.transformer import Slots
from dsvnp.networks import MLP, GaussianHead, Shape
from dsvnp.objectives import Draws
from dsvnp.task import Task

DIM_LOCAL = 4  # default size of z_*: most of a larger one is noise


class _Summary(NamedTuple):
    """The slots of each layer, draws of z_G, [K, B, 1, Z], and the tokens of targets that were read."""

    memory: list[Slots]
    z: Tensor
    tokens: Tensor | None = None


class LocalNetwork(nn.Module):
    """[inputs] → dim_lat → dim_lat → [μ, ln σ] of z_*."""

    def __init__(self, dims_in: list[int], hidden: int, dim_local: int, scale: str) -> None:
        super().__init__()
        self.net = MLP(dims_in, [hidden], hidden, relu_out=True)
        self.head = GaussianHead(hidden, dim_local, scale)

    def forward(self, *inputs: Tensor) -> DiagonalGaussian:
        return self.head(self.net(*inputs))


@final
class DSVTNP(NeuralProcess):
    """Doubly stochastic variational transformer neural process."""

    name = "dsvtnp"
    summary = "doubly stochastic transformer neural process: tnp with a global latent and a small local one"
    scores_context = False

    def _build(self, embedding: nn.Module | None) -> None:
        arch, lat, width = self.arch, self.arch.dim_lat, self.arch.transformer.width
        self.dim_local = DIM_LOCAL if arch.dim_local is None else arch.dim_local
        self.backbone = Backbone(arch, self.likelihood, embedding)
        embed = self.backbone.embed
        self.z_global = GlobalLatent(arch, Sizes(embed.dim_x + width, embed.dim_y))
        to_local = (lat, self.dim_local, arch.latent_scale)
        self.local_posterior = LocalNetwork([lat, width, embed.dim_y], *to_local)
        self.local_prior = LocalNetwork([lat, width], *to_local)
        self.decoder = MLP([width, lat, self.dim_local], arch.decoder, self.likelihood.dim_raw)
        with torch.no_grad():
            for weight in list(self.decoder.first.weights)[1:]:
                weight.zero_()

    def noise_shapes(
        self, num_tasks: int, num_targets: int, num_global: int, num_local: int, shared: bool
    ) -> dict[str, Shape]:
        """ε of z_G and of each z_*."""
        return {
            "global": (num_global, num_tasks, self.arch.dim_lat),
            "local": (num_global, num_local, num_tasks, num_targets, self.dim_local),
        }

    def draws(self, task: Task, noise: Noise) -> Draws:
        """Draw z_G and z_* from their posteriors and score the targets outside the context (Eq. 14, 15)."""
        y_target, in_context = task.all_points()
        h, features, y = self._points(task)
        q_global, p_global = self.z_global(features, y, task.mask_target, in_context)
        z_global = q_global.unsqueeze(0).sample(noise.get("global"))  # [K, B, Z]
        z_task = z_global[:, :, None]  # [K, B, 1, Z]
        q_local, p_local = self._local(z_task.detach(), h.detach(), y)  # [K, B, T, L]
        z_local = q_local.unsqueeze(1).sample(noise.get("local"))  # [K, S, B, T, L]
        raw = self.decoder(h, z_task[:, None], z_local)  # [K, S, B, T, raw]
        log_likelihood = self.likelihood.score(raw, y_target, self.counted(task))
        return Draws(
            log_likelihood, self.counted(task), q_global, p_global, z_global, q_local, p_local, z_local
        )

    def summarise(self, task: Task, noise: Noise) -> _Summary:
        """Keys and values of the context, and draws of z_G from p(z_G | C)."""
        x, members, memory = self.backbone.context(task)
        y = self.backbone.embed.y(self.likelihood.encode(task.y_context, x.dtype))
        members = members.detach() if self.training else members  # a prediction has all of its gradients
        p_global = self.z_global.prior(self._features(x, members, task.mask_context), y, task.mask_context)
        return _Summary(memory, p_global.unsqueeze(0).sample(noise.get("global"))[:, :, None])

    def read_all(self, task: Task, noise: Noise) -> _Summary:
        """Draw z_G from p(z_G | C) and keep the tokens of all points: one pass, where prediction takes two."""
        _, in_context = task.all_points()
        h, features, y = self._points(task)
        p_global = self.z_global.prior(features, y, in_context)
        return _Summary([], p_global.unsqueeze(0).sample(noise.get("global"))[:, :, None], h)

    def _points(self, task: Task) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens of all points of a training task, and what z_G reads of each: features and y."""
        y_target, in_context = task.all_points()
        x, h, members = self.backbone.points(task, bool(self.arch.score_context))
        y = self.backbone.embed.y(self.likelihood.encode(y_target, x.dtype))
        return h, self._features(x, members.detach(), in_context), y

    def read(self, summary: _Summary, x_target: Tensor) -> _Summary:
        """Keep the tokens of the targets."""
        return summary._replace(tokens=self._tokens(summary, x_target))

    def _tokens(self, summary: _Summary, x_target: Tensor) -> Tensor:
        """Tokens of targets after the trunk, [B, T, W]."""
        known = summary.tokens
        return self.backbone.targets(summary.memory, x_target) if known is None else known

    def local_latent(
        self, summary: _Summary, x_target: Tensor, y_target: Tensor
    ) -> tuple[DiagonalGaussian, DiagonalGaussian]:
        """q(z_* | z_G, h_*, y_*) and p(z_* | z_G, h_*) for each draw of z_G."""
        h = self._tokens(summary, x_target)
        y = self.backbone.embed.y(self.likelihood.encode(y_target, h.dtype))
        return self._local(*((summary.z.detach(), h.detach()) if self.training else (summary.z, h)), y)

    def _local(self, z_task: Tensor, h: Tensor, y: Tensor) -> tuple[DiagonalGaussian, DiagonalGaussian]:
        """Posterior and prior of z_*, each [K, B, T, L]."""
        return self.local_posterior(z_task, h, y), self.local_prior(z_task, h)

    def decode(self, summary: _Summary, x_target: Tensor, noise: Noise) -> Tensor:
        """Raw outputs of each draw of z_G and, by ancestral sampling, of z_* (Eq. 17)."""
        h = self._tokens(summary, x_target)
        z_local = self.local_prior(summary.z, h).unsqueeze(1).sample(noise.get("local"))
        return self.decoder(h, summary.z[:, None], z_local)

    def _features(self, x: Tensor, members: Tensor, in_context: Tensor) -> Tensor:
        """What z_G reads of each point in addition to y; an equivariant model reads x minus the context's mean."""
        if self.arch.transformer.equivariant:
            x = x - Mean()(x, in_context).unsqueeze(-2)
        return torch.cat([x, members], dim=-1)
