"""Transformer: settings and layers in which every token attends to the tokens of the context, and to no other.

    a = attention(queries of norm(h), keys and values of norm(h_C)),   h ← h + W a,   h ← h + FF(norm(h))

No token attends to a token outside the context. A layer computes the keys and values of the context, its `Slots`, once
for any number of targets. With `equivariant` the scores come from products of tokens *and* differences of inputs
(TE-TNP, Ashman et al., 2024), s ← s + MLP(s, g(x_i − x_j)), and tokens carry no input. With `rotary` pairs of features
turn by angles ω·x (after Su et al., 2021), queries and keys as well as values, which a target turns back:

    s_ij = q_i · R(x_j − x_i) k_j,   a_i = Σ_j softmax(s)_ij R(x_j − x_i) v_j

so a score is a sum of waves of x_j − x_i, as a kernel is by its spectrum, and torch's fused attention still serves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsvnp.aggregators import average
from dsvnp.models.linear import linear
from dsvnp.naming import lookup
from dsvnp.networks import ConcatLinear

# numbers per pair of query and slot that prediction holds at once: 128 MiB in float32
PAIRS_WRITTEN_OUT = 2**25
PAIRS_FUSED = 2**28  # the same where torch may choose a kernel that holds none
SLOWEST = 0.25  # lowest frequency of rotary attention: a quarter of a turn over 6 units of x


@dataclass(frozen=True)
class Transformer:
    """Sizes of a transformer; the defaults are the field's TNP-D (Nguyen & Grover, 2022).

    Attributes:
        width: size of a token.
        num_layers: number of layers.
        num_heads: heads of each attention, a divisor of `width`.
        feedforward: hidden size of each layer's feed-forward network.
        embedder: hidden sizes of the network that makes a token of a point.
        equivariant: compare inputs by their differences only: a shift of all inputs changes no prediction.
        relative: hidden size of the network that turns such differences into scores.
        rotary: highest frequency, in radians per unit of x, by which features turn; 0 for none. With `equivariant` this
            takes the place of that network.
        fused: use torch's fused attention in training too, as prediction always does. It takes less memory and time on
            long sets, but `vmap` has no rule for its gradient: replicas must be handled singly.
    """

    width: int = 64
    num_layers: int = 6
    num_heads: int = 4
    feedforward: int = 128
    embedder: tuple[int, ...] = (64, 64, 64)
    equivariant: bool = False
    relative: int = 32
    rotary: float = 0.0
    fused: bool = False

    def __post_init__(self) -> None:
        for name in ("width", "num_layers", "num_heads", "feedforward", "relative"):
            if getattr(self, name) < 1:
                raise ValueError(f"transformer.{name} must be at least 1, got {getattr(self, name)}")
        if any(size < 1 for size in self.embedder):
            raise ValueError(f"transformer.embedder must hold sizes of at least 1, got {self.embedder}")
        if self.rotary and (self.rotary < SLOWEST or self.width // self.num_heads % 2):
            raise ValueError(
                f"transformer.rotary turns pairs of features by frequencies from {SLOWEST} up, got a highest frequency "
                f"of {self.rotary} and {self.width // self.num_heads} features per head; use an even number of them"
            )
        if self.width % self.num_heads:
            raise ValueError(
                f"transformer.num_heads must divide transformer.width={self.width}, got {self.num_heads}"
            )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Transformer:
        """Make settings from parsed JSON; an unknown key is refused with a suggestion."""
        for key in values:
            lookup(key, {each.name: each for each in fields(cls)}, "transformer setting")
        settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**settings)


class Slots(NamedTuple):
    """What a layer keeps of a set of tokens: keys and values [..., heads, N, d], places, mask [..., N].

    Places are inputs [..., N, D], or their cosines and sines [..., heads, N, d] where features turn.
    """

    keys: Tensor
    values: Tensor
    x: Tensor
    mask: Tensor


class Relative(nn.Module):
    """Scores of pairs from products of tokens and differences of inputs: s + MLP(s, g(x_i − x_j)) for all heads.

    g(d) = d / (1 + |d|) resolves small differences and saturates at large ones: where inputs lie twice as far apart
    as in training, the network still reads numbers close to those that it has learned from.
    """

    def __init__(self, dim_x: int, num_heads: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.first = ConcatLinear([num_heads, dim_x], hidden)
        self.last = nn.Linear(hidden, num_heads, bias=False)  # a constant would change no softmax

    def forward(self, scores: Tensor, x_queries: Tensor, x_slots: Tensor) -> Tensor:
        gap = x_queries.unsqueeze(-2) - x_slots.unsqueeze(-3)  # [..., T, N, D]
        h = F.relu(self.first(scores.movedim(-3, -1), gap / (1 + gap.abs())))  # [..., T, N, hidden]
        return scores + self.last(h).movedim(-1, -3)


class Rotary(nn.Module):
    """Inputs [..., T, D] → cosines and sines of ω·x, [..., heads, T, d]: d/2 frequencies per head, cosines first.

    Frequencies run from `SLOWEST` to `fastest` in equal ratios. With several inputs each has a random direction, the
    same for all networks, whatever their seed. Angles are computed in full precision: a fast wave has no digit to lose.
    """

    frequencies: Tensor

    def __init__(self, dim_x: int, num_heads: int, dim_head: int, fastest: float) -> None:
        super().__init__()
        size = torch.logspace(math.log10(SLOWEST), math.log10(fastest), dim_head // 2)
        generator = torch.Generator().manual_seed(0)
        direction = torch.randn(num_heads, dim_head // 2, dim_x, generator=generator)
        direction = direction / direction.norm(dim=-1, keepdim=True)
        self.register_buffer("frequencies", size.unsqueeze(-1) * direction)  # [heads, d/2, D]

    def forward(self, x: Tensor) -> Tensor:
        # Not by a matrix product: autocast and TF32 would round its factors.
        frequencies = self.frequencies.unsqueeze(1).unbind(-1)  # each [heads, 1, d/2]
        # x: [..., 1, T, 1] each
        waves = zip(x.unsqueeze(-3).unsqueeze(-1).unbind(-2), frequencies, strict=True)
        angle = torch.stack([place * frequency for place, frequency in waves]).sum(0)  # [..., heads, T, d/2]
        return torch.cat([angle.cos(), angle.sin()], dim=-1)


def turn(h: Tensor, places: Tensor, back: bool = False) -> Tensor:
    """Turn the pairs (k, k + d/2) of features [..., heads, T, d] by the angles of their places, or back."""
    first, second = h.chunk(2, dim=-1)
    cosine, sine = places.chunk(2, dim=-1)
    sine = -sine if back else sine
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1).to(h.dtype)


class Layer(nn.Module):
    """One pre-norm layer: multi-head attention to the slots, then a feed-forward network, each added to the tokens.

    An equivariant layer reads differences of `dim_x` inputs.
    """

    is_region = True  # one of many alike, worth compiling by itself

    def __init__(self, settings: Transformer, dim_x: int = 1) -> None:
        super().__init__()
        width, self.num_heads = settings.width, settings.num_heads
        self.norm_attention, self.norm_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)  # queries, keys, values
        self.mix = nn.Linear(width, width)
        self.expand = nn.Linear(width, settings.feedforward)
        self.contract = nn.Linear(settings.feedforward, width)
        self.turns = settings.rotary > 0
        self.relative: Relative | None = None
        if settings.equivariant and not self.turns:
            self.relative = Relative(dim_x, settings.num_heads, settings.relative)
        self.fused = settings.fused and self.relative is None
        self.attend = attend_to  # `dsvnp.export` puts one here that has no branches
        self._initialise(settings.num_layers)

    def _initialise(self, num_layers: int) -> None:
        """Glorot's weights and no biases; what is added to the tokens starts small, the more layers the smaller."""
        for each in (self.project, self.mix, self.expand, self.contract):
            nn.init.xavier_uniform_(each.weight)
            nn.init.zeros_(each.bias)
        with torch.no_grad():
            for each in (self.mix, self.contract):
                each.weight.div_(math.sqrt(2 * num_layers))

    def forward(self, h: Tensor, x: Tensor, mask: Tensor) -> tuple[Tensor, Slots]:
        """Let all tokens [..., T, W] attend to those under the mask; also return what was attended to."""
        queries, keys, values = self._heads(h, x, 0, 3)
        slots = Slots(keys, values, x, mask)
        return self._update(h, queries, x, slots), slots

    def slots(self, h: Tensor, x: Tensor, mask: Tensor) -> Slots:
        """What tokens would attend to."""
        keys, values = self._heads(h, x, 1, 3)
        return Slots(keys, values, x, mask)

    def onto(self, h: Tensor, x: Tensor, slots: Slots) -> Tensor:
        """Let tokens attend to slots that were computed before."""
        (queries,) = self._heads(h, x, 0, 1)
        return self._update(h, queries, x, slots)

    def _heads(self, h: Tensor, x: Tensor, start: int, stop: int) -> tuple[Tensor, ...]:
        """Some of queries, keys, values: [..., T, W] -> each [..., heads, T, d]."""
        width = h.shape[-1]
        rows = slice(start * width, stop * width)
        flat = linear(self.norm_attention(h), self.project.weight[rows], self.project.bias[rows])
        heads = flat.unflatten(-1, (stop - start, self.num_heads, -1)).movedim(-3, 0).transpose(-2, -3)
        return tuple(turn(heads, x) if self.turns else heads)

    def _update(self, h: Tensor, queries: Tensor, x: Tensor, slots: Slots) -> Tensor:
        heads = self.attend(queries, x, slots, self.relative, self.fused)
        heads = turn(heads, x, back=True) if self.turns else heads
        heads = heads.transpose(-2, -3).flatten(-2)  # [..., heads, T, d] -> [..., T, W]
        h = h + linear(heads, self.mix.weight, self.mix.bias)
        wide = linear(self.norm_forward(h), self.expand.weight, self.expand.bias, gelu=True)
        return h + linear(wide, self.contract.weight, self.contract.bias)


class Trunk(nn.Module):
    """All layers and a last norm; equivariant or rotary ones read differences of the first `dim_x` inputs."""

    def __init__(self, settings: Transformer, dim_x: int) -> None:
        super().__init__()
        layers = [Layer(settings, dim_x) for _ in range(settings.num_layers)]
        self.layers = cast("list[Layer]", nn.ModuleList(layers))
        self.norm = nn.LayerNorm(settings.width)
        self.dim_x = dim_x
        self.place: nn.Module = nn.Identity()
        if settings.rotary:
            self.place = Rotary(
                dim_x, settings.num_heads, settings.width // settings.num_heads, settings.rotary
            )

    def among(self, h: Tensor, x: Tensor, mask: Tensor, finish: bool = True) -> tuple[Tensor, list[Slots]]:
        """Pass tokens [..., T, W] that attend to those under the mask; also return the slots of each layer.

        Who needs the slots alone does not `finish`: of the last layer nothing else is computed.
        """
        memory: list[Slots] = []
        x = self.place(x[..., : self.dim_x])
        for layer in self.layers:
            if not finish and layer is self.layers[-1]:
                return h, [*memory, layer.slots(h, x, mask)]
            h, slots = layer(h, x, mask)
            memory.append(slots)
        return self.norm(h), memory

    def onto(self, h: Tensor, x: Tensor, memory: list[Slots]) -> Tensor:
        """Pass tokens that attend to the slots of a context, in time linear in the number of tokens."""
        x = self.place(x[..., : self.dim_x])
        for layer, slots in zip(self.layers, memory, strict=True):
            h = layer.onto(h, x, slots)
        return self.norm(h)


def attend_to(
    queries: Tensor, x: Tensor, slots: Slots, relative: Relative | None, fused: bool = False
) -> Tensor:
    """Attention of queries [..., heads, T, d] at x [..., T, D] to the slots; zeros where none is filled.

    Without gradients a bounded number of queries at a time; with them all at once, since what a piece computes would be
    kept for the backward pass anyway.
    """
    if torch.is_grad_enabled():
        return (_fused if fused else _written_out)(queries, x, slots, relative)
    tasks, slots_each = math.prod(queries.shape[:-3]), slots.keys.shape[-2]
    if relative is None:
        attend, at_once = _fused, PAIRS_FUSED // max(1, tasks * slots_each * queries.shape[-3])
    else:
        attend, at_once = _written_out, PAIRS_WRITTEN_OUT // max(1, tasks * slots_each * relative.hidden)
    if queries.shape[-2] <= at_once:
        return attend(queries, x, slots, relative)
    parts = zip(queries.split(max(1, at_once), dim=-2), x.split(max(1, at_once), dim=-2), strict=True)
    return torch.cat([attend(some, places, slots, relative) for some, places in parts], dim=-2)


def _written_out(queries: Tensor, x: Tensor, slots: Slots, relative: Relative | None) -> Tensor:
    """By its equation, for training: `vmap` has no rule for the gradient of torch's fused kernels."""
    # Scaled before the product: divided after it, scores in bfloat16 made a compiled softmax wrong where they were
    # large (results/pretrained).
    scores = (queries / math.sqrt(queries.shape[-1])) @ slots.keys.transpose(-1, -2)  # [..., heads, T, N]
    if relative is not None:
        scores = relative(scores, x, slots.x)
    return average(scores, slots.values, slots.mask.unsqueeze(-2))


def _fused(queries: Tensor, x: Tensor, slots: Slots, relative: Relative | None) -> Tensor:
    """By torch's kernels, for prediction: they need not hold a number for each pair of query and slot.

    Some kernels give NaN for a set without a filled slot. There all slots are seen, and their values are zero.
    """
    if not slots.keys.shape[-2]:
        return torch.zeros_like(queries)
    sets = queries.shape[:-3]
    keys, values = (part.expand(*sets, *part.shape[-3:]) for part in (slots.keys, slots.values))
    seen: Tensor | None = None
    if not all_filled(slots.mask):
        mask = slots.mask.expand(*sets, -1)[..., None, :, None]  # [..., 1, N, 1]
        keys, values = torch.where(mask, keys, 0.0), torch.where(mask, values, 0.0)
        seen = _one_axis((mask | ~mask.any(-2, keepdim=True)).transpose(-1, -2))  # [sets, 1, 1, N]
    q, k, v = (_one_axis(part) for part in (queries, keys, values))
    return F.scaled_dot_product_attention(q, k, v, seen).view(queries.shape)


def _one_axis(part: Tensor) -> Tensor:
    """The kernels take one axis of sets: [..., heads, T, d] -> [sets, heads, T, d]."""
    return part.flatten(0, -4) if part.ndim > 3 else part


def all_filled(mask: Tensor) -> bool:
    """Whether it is known that every slot is filled; a GPU, `vmap` and a compiler are not asked."""
    traced = torch.compiler.is_compiling() or torch._C._functorch.is_batchedtensor(mask)
    return mask.device.type == "cpu" and not traced and bool(mask.all())
