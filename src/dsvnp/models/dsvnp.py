"""DSVNP: a global latent for the task and a local latent for each target, the paper's model.

q(z_G | C, T),  q(z_* | z_G, x_*, y_*)   (Eq. 11, 12)   in training
p(z_G | C),     p(z_* | z_G, x_*)        (Eq. 16)       in prediction
p(y_* | z_G, z_*, x_*)                   (Eq. 13)

With a deterministic path next to the latent one, the networks of z_* and the decoder read r_C as well.

The architecture's `dim_local` and `local_…` set how z_* is inferred; their defaults are the paper's.
"""

from typing import final

from torch import Tensor, nn

from dsvnp.gaussian import DiagonalGaussian
from dsvnp.models.base import NeuralProcess, Noise
from dsvnp.models.parts import (
    DeterministicPath,
    Embeddings,
    GlobalLatent,
    LocalGaussian,
    make_local_posterior,
)
from dsvnp.networks import MLP, Shape
from dsvnp.objectives import Draws
from dsvnp.task import Task


@final
class DSVNP(NeuralProcess):
    """Doubly stochastic variational neural process."""

    name = "dsvnp"
    summary = "doubly stochastic variational neural process: a global latent, and a local one for each target"

    def _build(self, embedding: nn.Module | None) -> None:
        arch, lat = self.arch, self.arch.dim_lat
        self.embed = Embeddings(arch, self.likelihood.dim_encoded, embedding)
        dim_x, dim_y = self.embed.dim_x, self.embed.dim_y
        self.z_global = GlobalLatent(arch, self.embed)
        self.path = DeterministicPath(arch, self.embed) if arch.deterministic_path else None
        path = [lat] if self.path else []
        self.local_posterior = make_local_posterior(arch, [lat, *path, dim_x, dim_y])
        self.local_prior = LocalGaussian(arch, [lat, *path, dim_x])
        self.decoder = MLP([dim_x, lat, arch.local_size, *path], arch.decoder, self.likelihood.dim_raw)
        if arch.local_start == "silent":
            nn.init.zeros_(self.decoder.first.weights[2])

    def noise_shapes(
        self, num_tasks: int, num_targets: int, num_global: int, num_local: int, shared: bool
    ) -> dict[str, Shape]:
        """ε of z_G and of each z_*."""
        return {
            "global": (num_global, num_tasks, self.arch.dim_lat),
            "local": (num_global, num_local, num_tasks, num_targets, self.arch.local_size),
        }

    def draws(self, task: Task, noise: Noise) -> Draws:
        """Draw z_G and z_* from their posteriors and score all points (Eq. 14, 15)."""
        y_target, in_context = task.all_points()
        x, y = self.embed.pair(task.x_target, y_target, self.likelihood)
        q_global, p_global = self.z_global(x, y, task.mask_target, in_context)
        z_global = q_global.unsqueeze(0).sample(noise.get("global"))  # [K, B, Z]
        z_task = z_global[:, :, None]  # [K, B, 1, Z]
        path = self._path(x, y, in_context)
        q_local, p_local = self._local((z_task, *path), x, y)  # [K, B, T, Z]
        z_local = q_local.unsqueeze(1).sample(noise.get("local"))  # [K, S, B, T, Z]
        raw = self.decoder(x, z_task[:, None], z_local, *path)  # [K, S, B, T, raw]
        log_likelihood = self.likelihood.score(raw, y_target, self.counted(task))
        return Draws(
            log_likelihood, self.counted(task), q_global, p_global, z_global, q_local, p_local, z_local
        )

    def summarise(self, task: Task, noise: Noise) -> tuple[Tensor, ...]:
        """Draws of z_G from p(z_G | C), [K, B, 1, Z], and r_C, [B, 1, H], if there is a path for it."""
        x, y = self.embed.pair(task.x_context, task.y_context, self.likelihood)
        p_global = self.z_global.prior(x, y, task.mask_context)
        z_task = p_global.unsqueeze(0).sample(noise.get("global"))[:, :, None]
        return z_task, *self._path(x, y, task.mask_context)

    def decode(self, summary: tuple[Tensor, ...], x_target: Tensor, noise: Noise) -> Tensor:
        """Raw outputs of each draw of z_G and, by ancestral sampling, of z_* (Eq. 17)."""
        x = self.embed.x(x_target)
        # In prediction nothing is detached: a caller may ask for gradients.
        read = self._read(*summary, x) if self.training else (*summary, x)
        z_local = self.local_prior(*read).unsqueeze(1).sample(noise.get("local"))
        z_task, *path = summary
        return self.decoder(x, z_task[:, None], z_local, *path)

    def local_latent(
        self, summary: tuple[Tensor, ...], x_target: Tensor, y_target: Tensor
    ) -> tuple[DiagonalGaussian, DiagonalGaussian]:
        """q(z_* | z_G, x_*, y_*) and p(z_* | z_G, x_*) for each draw of z_G (Eq. 12, 16)."""
        return self._local(summary, *self.embed.pair(x_target, y_target, self.likelihood))

    def _local(
        self, summary: tuple[Tensor, ...], x: Tensor, y: Tensor
    ) -> tuple[DiagonalGaussian, DiagonalGaussian]:
        """Posterior and prior of z_* from their inputs, each [K, B, T, Z]."""
        p_local = self.local_prior(*self._read(*summary, x))
        return self.local_posterior(*self._read(*summary, x, y), prior=p_local), p_local

    def _path(self, x: Tensor, y: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        """r_C of the points in `mask`; nothing without a deterministic path."""
        return () if self.path is None else (self.path(x, y, mask),)

    def _read(self, *inputs: Tensor) -> list[Tensor]:
        """Inputs of the local networks; without a gradient if the architecture has `local_detach`."""
        return [value.detach() if self.arch.local_detach else value for value in inputs]
