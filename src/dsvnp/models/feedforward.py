"""Networks of x alone, the paper's baselines: they learn one function and do not read the context.

x → dim_lat → y, with dropout of a given rate in the encoder
"""

from abc import abstractmethod

from torch import Tensor, nn

from dsvnp.models.architecture import make_embedding
from dsvnp.models.base import NeuralProcess, Noise, is_uniform
from dsvnp.networks import MLP, Shape
from dsvnp.objectives import Draws
from dsvnp.task import Task


class Feedforward(NeuralProcess):
    """A network of x, behind the same contract as the models that read a context."""

    @property
    @abstractmethod
    def rate(self) -> float:
        """Dropout rate in the encoder."""

    def _build(self, embedding: nn.Module | None) -> None:
        arch = self.arch
        self.embedding = embedding
        if embedding is not None:
            self.encoder: nn.Module = MLP([arch.dim_latx], [], arch.dim_lat, relu_out=True, dropout=self.rate)
        elif arch.embed_x != "none":
            self.encoder = make_embedding(arch, arch.dim_lat, self.rate)
        else:
            self.encoder = MLP([arch.dim_x], arch.encoder, arch.dim_lat, relu_out=True, dropout=self.rate)
        self.decoder = MLP([arch.dim_lat], arch.decoder, self.likelihood.dim_raw)

    def noise_shapes(
        self, num_tasks: int, num_targets: int, num_global: int, num_local: int, shared: bool
    ) -> dict[str, Shape]:
        """A mask for each point in training; in prediction one for all points, a draw of the weights."""
        points = 1 if shared else num_targets
        shapes: list[Shape] = self.encoder.dropout_shapes()  # type: ignore[operator]
        return {f"dropout.{i}": (num_global, num_tasks, points, *shape) for i, shape in enumerate(shapes)}

    def draws(self, task: Task, noise: Noise) -> Draws:
        """Score all points; neither network reads the context."""
        assert task.y_target is not None
        raw = self.decode(None, task.x_target, noise)
        counted = self.counted(task)
        return Draws(self.likelihood.score(raw, task.y_target, counted), counted)

    def summarise(self, task: Task, noise: Noise) -> None:
        """Return nothing: the context is not read."""

    def decode(self, summary: None, x_target: Tensor, noise: Noise) -> Tensor:
        """Raw outputs of each draw of the dropout masks, [K, 1, B, T, raw]."""
        x = x_target if self.embedding is None else self.embedding(x_target)
        masks = [noise[f"dropout.{i}"] for i in range(sum(is_uniform(name) for name in noise))]
        raw: Tensor = self.decoder(self.encoder(x, dropout=masks))  # [K, B, T, raw], no K without masks
        return raw[:, None] if masks else raw[None, None]
