"""CNP: a deterministic summary of the context (Garnelo et al., 2018a).

r_i = h(x_i, y_i),  r_C = ⊕ r_i  (Eq. 8),  p(y_* | x_*, r_C)
"""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from dsvnp.aggregators import make_aggregator
from dsvnp.models.base import NeuralProcess, Noise
from dsvnp.models.parts import Embeddings, pair_encoder
from dsvnp.networks import MLP, Shape
from dsvnp.objectives import Draws
from dsvnp.task import Task


@final
class CNP(NeuralProcess):
    """Conditional neural process."""

    name = "cnp"
    summary = "conditional neural process: a deterministic mean of the embedded context, no latent variable"
    scores_context = (
        False  # of the paper's models only CNP leaves the context out of its target set (Sec. 2, footnote)
    )

    def _build(self, embedding: nn.Module | None) -> None:
        self.embed = Embeddings(self.arch, self.likelihood.dim_encoded, embedding)
        self.encoder = pair_encoder(self.arch, self.embed)
        self.aggregate = make_aggregator(self.arch.aggregator, self.arch.dim_lat)
        self.decoder = MLP([self.embed.dim_x, self.arch.dim_lat], self.arch.decoder, self.likelihood.dim_raw)

    def noise_shapes(
        self, num_tasks: int, num_targets: int, num_global: int, num_local: int, shared: bool
    ) -> dict[str, Shape]:
        """Nothing is random."""
        return {}

    def draws(self, task: Task, noise: Noise) -> Draws:
        """Score the targets outside the context."""
        y_target, in_context = task.all_points()
        x = self.embed.x(task.x_target)
        y = self.embed.y(self.likelihood.encode(y_target, x.dtype))
        r = self.aggregate(self.encoder(x, y), in_context)  # [B, H]
        raw = self.decoder(x, r[:, None])[None, None]  # [1, 1, B, T, raw]
        log_likelihood = self.likelihood.log_prob(raw, y_target)
        return Draws(log_likelihood, self.counted(task))

    def summarise(self, task: Task, noise: Noise) -> Tensor:
        """r_C, [B, 1, H]."""
        x = self.embed.x(task.x_context)
        y = self.embed.y(self.likelihood.encode(task.y_context, x.dtype))
        r: Tensor = self.aggregate(self.encoder(x, y), task.mask_context)
        return r[:, None]

    def decode(self, summary: Tensor, x_target: Tensor, noise: Noise) -> Tensor:
        """Raw outputs, one component."""
        raw: Tensor = self.decoder(self.embed.x(x_target), summary)
        return raw[None, None]
