"""CNP: a deterministic summary of the context (Garnelo et al., 2018a).

r_i = h(x_i, y_i),  r_C = ⊕ r_i  (Eq. 8),  p(y_* | x_*, r_C)
"""

from typing import final

from torch import Tensor, nn

from dsvnp.aggregators import make_aggregator
from dsvnp.models.base import NeuralProcess, Noise
from dsvnp.models.parts import DeterministicPath, Embeddings, pair_encoder
from dsvnp.networks import MLP, Shape
from dsvnp.objectives import Draws
from dsvnp.task import Task


@final
class CNP(NeuralProcess):
    """Conditional neural process."""

    name = "cnp"
    summary = "conditional neural process: a deterministic mean of the embedded context, no latent variable"
    # of the paper's models only CNP leaves the context out of its target set (Sec. 2, footnote)
    scores_context = False

    def _build(self, embedding: nn.Module | None) -> None:
        self.embed = Embeddings(self.arch, self.likelihood.dim_encoded, embedding)
        self.paths: nn.ModuleList | None = None
        if self.arch.deterministic_path:
            self.paths = nn.ModuleList(DeterministicPath(self.arch, self.embed) for _ in range(2))
        else:
            self.encoder = pair_encoder(self.arch, self.embed)
            self.aggregate = make_aggregator(self.arch.aggregator, self.arch.dim_lat)
        dims = [self.embed.dim_x, *[self.arch.dim_lat] * (2 if self.paths else 1)]
        self.decoder = MLP(dims, self.arch.decoder, self.likelihood.dim_raw)

    def noise_shapes(
        self, num_tasks: int, num_targets: int, num_global: int, num_local: int, shared: bool
    ) -> dict[str, Shape]:
        """Nothing is random."""
        return {}

    def draws(self, task: Task, noise: Noise) -> Draws:
        """Score the targets outside the context."""
        y_target, in_context = task.all_points()
        x, y = self.embed.pair(task.x_target, y_target, self.likelihood)
        raw = self.decoder(x, *self._context(x, y, in_context))[None, None]  # [1, 1, B, T, raw]
        counted = self.counted(task)
        return Draws(self.likelihood.score(raw, y_target, counted), counted)

    def summarise(self, task: Task, noise: Noise) -> tuple[Tensor, ...]:
        """r_C, [B, 1, H], or what each of two deterministic paths makes of the context."""
        x, y = self.embed.pair(task.x_context, task.y_context, self.likelihood)
        return self._context(x, y, task.mask_context)

    def decode(self, summary: tuple[Tensor, ...], x_target: Tensor, noise: Noise) -> Tensor:
        """Raw outputs, one component."""
        raw: Tensor = self.decoder(self.embed.x(x_target), *summary)
        return raw[None, None]

    def _context(self, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """Summaries of the points in `mask`, each [B, 1, H]."""
        if self.paths is not None:
            return tuple(path(x, y, mask) for path in self.paths)
        return (self.aggregate(self.encoder(x, y), mask).unsqueeze(-2),)
