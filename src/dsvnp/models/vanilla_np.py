"""NP: one global latent variable for the task (Garnelo et al., 2018b).

q(z_G | C, T),  p(z_G | C)  (Eq. 11),  p(y_* | x_*, z_G)
or, with a deterministic path next to the latent one,  p(y_* | x_*, r_C, z_G)
"""

from typing import final

from torch import Tensor, nn

from dsvnp.models.base import NeuralProcess, Noise
from dsvnp.models.parts import DeterministicPath, Embeddings, GlobalLatent
from dsvnp.networks import MLP, Shape
from dsvnp.objectives import Draws
from dsvnp.task import Task


@final
class NP(NeuralProcess):
    """Vanilla neural process."""

    name = "np"
    summary = "neural process: one global latent variable for each task"

    def _build(self, embedding: nn.Module | None) -> None:
        self.embed = Embeddings(self.arch, self.likelihood.dim_encoded, embedding)
        self.z_global = GlobalLatent(self.arch, self.embed)
        self.path = DeterministicPath(self.arch, self.embed) if self.arch.deterministic_path else None
        dims = [self.embed.dim_x, *[self.arch.dim_lat] * (2 if self.path else 1)]
        self.decoder = MLP(dims, self.arch.decoder, self.likelihood.dim_raw)

    def noise_shapes(
        self, num_tasks: int, num_targets: int, num_global: int, num_local: int, shared: bool
    ) -> dict[str, Shape]:
        """ε of z_G."""
        return {"global": (num_global, num_tasks, self.arch.dim_lat)}

    def draws(self, task: Task, noise: Noise) -> Draws:
        """Draw z_G from q(z_G | T) and score all points (Eq. 6)."""
        y_target, in_context = task.all_points()
        x, y = self.embed.pair(task.x_target, y_target, self.likelihood)
        q, p = self.z_global(x, y, task.mask_target, in_context)
        z = q.unsqueeze(0).sample(noise.get("global"))  # [K, B, Z]
        raw = self.decoder(x, *self._path(x, y, in_context), z[:, None, :, None])  # [K, 1, B, T, raw]
        log_likelihood = self.likelihood.score(raw, y_target, self.counted(task))
        return Draws(log_likelihood, self.counted(task), q_global=q, p_global=p, z_global=z)

    def summarise(self, task: Task, noise: Noise) -> tuple[Tensor, ...]:
        """r_C, [B, 1, H], if there is a path for it, and draws of z_G from p(z_G | C), [K, 1, B, 1, Z]."""
        x, y = self.embed.pair(task.x_context, task.y_context, self.likelihood)
        p = self.z_global.prior(x, y, task.mask_context)
        z = p.unsqueeze(0).sample(noise.get("global"))
        return *self._path(x, y, task.mask_context), z[:, None, :, None]

    def decode(self, summary: tuple[Tensor, ...], x_target: Tensor, noise: Noise) -> Tensor:
        """Raw outputs of each draw of z_G."""
        return self.decoder(self.embed.x(x_target), *summary)

    def _path(self, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """r_C of the points in `mask`; nothing without a deterministic path."""
        return () if self.path is None else (self.path(x, y, mask),)
