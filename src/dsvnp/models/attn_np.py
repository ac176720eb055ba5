"""AttnNP: a global latent and a deterministic local path by attention (Kim et al., 2019).

s_i = h(x_i, y_i), or layers of self-attention over them (Sec. 2.2)
z_attn = Σ_i w(x_i, x_*) s_i,  z = [z_attn, z_G]  (Eq. 9),  p(y_* | x_*, z)

With `attention="block"`, as in the public code of Bootstrapping NP (Lee et al., 2020), z_attn = block(x_*, x_C, s); the
layers among the s_i are blocks too, and z_G has as many among the r_i of a set before it takes their mean.
"""

from typing import NamedTuple, final

from torch import Tensor, nn

from dsvnp.aggregators import ATTENTIONS, SelfAttention
from dsvnp.models.base import NeuralProcess, Noise
from dsvnp.models.parts import Embeddings, GlobalLatent, pair_encoder
from dsvnp.models.transformer import Transformer, Trunk
from dsvnp.networks import MLP, Shape
from dsvnp.objectives import Draws
from dsvnp.task import Task


class _Summary(NamedTuple):
    """Summary of the context: its embedded inputs, the values s_i, its mask, and draws of z_G."""

    x: Tensor
    values: Tensor
    mask: Tensor
    z: Tensor


@final
class AttnNP(NeuralProcess):
    """Attentive neural process with cross-attention, and self-attention among the context as an option."""

    name = "attnnp"
    summary = "attentive neural process: a global latent, and cross-attention from each target to the context"

    def _build(self, embedding: nn.Module | None) -> None:
        arch = self.arch
        self.embed = Embeddings(arch, self.likelihood.dim_encoded, embedding)
        blocks = arch.attention == "block"
        self.z_global = GlobalLatent(arch, self.embed, arch.self_attention if blocks else 0)
        # the "doubled" encoder of App. E; blocks read values of either sign
        self.value_encoder = pair_encoder(arch, self.embed, relu_out=not blocks)
        self.among_context: Trunk | SelfAttention | None = None
        if arch.self_attention and blocks:
            self.among_context = SelfAttention(arch.dim_lat, arch.num_heads, arch.self_attention)
        elif arch.self_attention:
            sizes = Transformer(arch.dim_lat, arch.self_attention, arch.num_heads, 2 * arch.dim_lat)
            self.among_context = Trunk(sizes, arch.dim_values)
        self.attention = ATTENTIONS[arch.attention](self.embed.dim_x, arch.dim_lat, arch.num_heads)
        dims = [self.embed.dim_x, arch.dim_lat, arch.dim_lat]
        self.decoder = MLP(dims, arch.decoder, self.likelihood.dim_raw)

    def noise_shapes(
        self, num_tasks: int, num_targets: int, num_global: int, num_local: int, shared: bool
    ) -> dict[str, Shape]:
        """ε of z_G."""
        return {"global": (num_global, num_tasks, self.arch.dim_lat)}

    def draws(self, task: Task, noise: Noise) -> Draws:
        """Draw z_G from q(z_G | T), attend to the flagged points, and score all points."""
        y_target, in_context = task.all_points()
        x, y = self.embed.pair(task.x_target, y_target, self.likelihood)
        q, p = self.z_global(x, y, task.mask_target, in_context)
        z = q.unsqueeze(0).sample(noise.get("global"))  # [K, B, Z]
        values = self._values(x, y, in_context)
        z_attn = self.attention(x, x, values, in_context, self.arch.attend_self)  # [B, T, Z]
        raw = self.decoder(x, z_attn, z[:, None, :, None])  # [K, 1, B, T, raw]
        log_likelihood = self.likelihood.score(raw, y_target, self.counted(task))
        return Draws(log_likelihood, self.counted(task), q_global=q, p_global=p, z_global=z)

    def summarise(self, task: Task, noise: Noise) -> _Summary:
        """Keys and values of the context, and draws of z_G from p(z_G | C)."""
        x, y = self.embed.pair(task.x_context, task.y_context, self.likelihood)
        p = self.z_global.prior(x, y, task.mask_context)
        z = p.unsqueeze(0).sample(noise.get("global"))
        return _Summary(x, self._values(x, y, task.mask_context), task.mask_context, z[:, None, :, None])

    def decode(self, summary: _Summary, x_target: Tensor, noise: Noise) -> Tensor:
        """Raw outputs of each draw of z_G."""
        x = self.embed.x(x_target)
        z_attn = self.attention(x, summary.x, summary.values, summary.mask)
        return self.decoder(x, z_attn, summary.z)

    def _values(self, x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        """s_i of each point, [B, N, H], after self-attention among the context if the architecture has it."""
        values: Tensor = self.value_encoder(x, y)
        if isinstance(self.among_context, Trunk):
            return self.among_context.among(values, x, mask)[0]
        return values if self.among_context is None else self.among_context(values, mask)
