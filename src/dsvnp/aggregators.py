"""Aggregators: permutation-invariant functions of a masked set (App. A), and attention over one.

An aggregator maps [..., N, H] and a mask [..., N] to [..., H]; attention maps queries [..., T, D], keys
[..., N, D], values [..., N, H] and a mask [..., N] to [..., T, H]. An empty set gives zeros, never NaN: a
head applied to that is the learned prior without any context.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsvnp.naming import lookup
from dsvnp.networks import MLP, full_precision


class Mean(nn.Module):
    """(1/N) Σ r_i (Eq. A.3), the paper's choice throughout."""

    def forward(self, r: Tensor, mask: Tensor) -> Tensor:
        total = torch.where(mask.unsqueeze(-1), r, 0.0).sum(-2)
        return total / mask.sum(-1, keepdim=True).clamp(min=1)


class Sum(nn.Module):
    """Σ r_i (Eq. A.3): unlike the mean it depends on the number of points of a set, and grows with it."""

    def forward(self, r: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask.unsqueeze(-1), r, 0.0).sum(-2)


class TopK(nn.Module):
    """The k-th largest value of each feature (Eq. A.4); the smallest one where a set has fewer than k."""

    def __init__(self, k: int = 1) -> None:
        super().__init__()
        if k < 1:
            raise ValueError(f"top-k needs k of at least 1, got {k}")
        self.k = k

    def forward(self, r: Tensor, mask: Tensor) -> Tensor:
        r, mask = _reducible(r, mask)
        count = mask.sum(-1)[..., None, None]
        ranked = torch.where(mask.unsqueeze(-1), r, -math.inf).sort(dim=-2, descending=True).values
        rank = (torch.clamp(count, max=self.k) - 1).clamp(min=0)
        chosen = ranked.gather(-2, rank.expand(*rank.shape[:-1], r.shape[-1])).squeeze(-2)
        return torch.where(count.squeeze(-1) > 0, chosen, 0.0)


class Max(nn.Module):
    """max_i r_i (Eq. A.4)."""

    def forward(self, r: Tensor, mask: Tensor) -> Tensor:
        r, mask = _reducible(r, mask)
        largest = torch.where(mask.unsqueeze(-1), r, -math.inf).amax(-2)
        return torch.where(mask.any(-1, keepdim=True), largest, 0.0)


class Min(nn.Module):
    """min_i r_i (Eq. A.4)."""

    def forward(self, r: Tensor, mask: Tensor) -> Tensor:
        r, mask = _reducible(r, mask)
        smallest = torch.where(mask.unsqueeze(-1), r, math.inf).amin(-2)
        return torch.where(mask.any(-1, keepdim=True), smallest, 0.0)


class Pairwise(nn.Module):
    """Mean over all pairs of a symmetric function φ(r_i, r_j) = MLP(r_i + r_j, r_i · r_j) (Eq. A.5).

    A.5 sums; the mean differs by N² only and keeps its scale when the context grows.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.phi = MLP([dim, dim], [dim], dim)

    def forward(self, r: Tensor, mask: Tensor) -> Tensor:
        left, right = r.unsqueeze(-2), r.unsqueeze(-3)  # [..., N, 1, H], [..., 1, N, H]
        pairs = self.phi(left + right, left * right)  # [..., N, N, H]
        both = (mask.unsqueeze(-1) & mask.unsqueeze(-2)).unsqueeze(-1)
        total = torch.where(both, pairs, 0.0).sum((-3, -2))
        return total / mask.sum(-1, keepdim=True).square().clamp(min=1)


def _reducible(r: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Give a set without slots one empty slot, since torch refuses to take an extreme over none."""
    return (r, mask) if r.shape[-2] else (F.pad(r, (0, 0, 0, 1)), F.pad(mask, (0, 1)))


AGGREGATORS: dict[str, Callable[[int], nn.Module]] = {
    "mean": lambda dim: Mean(),
    "sum": lambda dim: Sum(),
    "max": lambda dim: Max(),
    "min": lambda dim: Min(),
    "top-3": lambda dim: TopK(3),
    "pairwise": Pairwise,
}


def make_aggregator(name: str, dim: int) -> nn.Module:
    """Make an aggregator by name, for representations of size `dim`; "top-k" takes any number for k."""
    if name.startswith("top-") and name[4:].isdigit():
        return TopK(int(name[4:]))
    return lookup(name, AGGREGATORS, "aggregator")(dim)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, itself: bool = True) -> Tensor:
    """Scaled dot-product attention, softmax(q·k / √D) v over the filled slots, [..., T, H]; zeros if there are none.

    Queries are [..., T, D], keys [..., N, D], values [..., N, H] and the mask [..., N]. Where `itself` is False queries
    and slots are the same points, and no point attends to itself. torch's own attention gives NaN for a fully masked
    row in one API and a uniform mean in another.
    """
    if not itself and queries.shape[-2] != keys.shape[-2]:
        raise ValueError(
            f"itself=False needs queries and slots to be the same points, got {queries.shape[-2]} queries and "
            f"{keys.shape[-2]} slots; leave out itself=False"
        )
    scores = (queries / math.sqrt(queries.shape[-1])) @ keys.transpose(-1, -2)  # [..., T, N]
    return average(scores, values, mask, itself)


def average(scores: Tensor, values: Tensor, mask: Tensor, itself: bool = True) -> Tensor:
    """Mean of values [..., N, H] weighted by a softmax of scores [..., T, N] over the filled slots; see `attend`."""
    seen = mask.unsqueeze(-2)  # [..., 1 or T, N]
    if not itself:
        seen = seen & ~torch.eye(mask.shape[-1], dtype=torch.bool, device=mask.device)
    # A softmax over -inf alone would be NaN: where nothing is seen, scores are kept and weights are zero.
    kept = seen | ~seen.any(-1, keepdim=True)
    weights = torch.where(kept, scores, -math.inf).softmax(-1)
    return torch.where(seen, weights, 0.0) @ torch.where(mask.unsqueeze(-1), values, 0.0)


class Attention(nn.Module):
    """Cross-attention from targets to context (Eq. 9): dot-product with one head, multi-head with more.

    Queries and keys come from one shared network of the embedded x. With one head the values are used as they are (the
    paper's dot-product attention); with more, they are projected per head and mixed. Keys and values have the size
    `dim`, a multiple of the number of heads.
    """

    def __init__(self, dim_x: int, dim: int, num_heads: int = 1) -> None:
        super().__init__()
        self.num_heads = _divisor(num_heads, dim)
        self.embed = MLP([dim_x], [dim], dim)
        if num_heads > 1:
            self.project_values = nn.Linear(dim, dim, bias=False)
            # No bias: an empty context must still give zeros.
            self.mix = nn.Linear(dim, dim, bias=False)

    def forward(
        self, x_target: Tensor, x_context: Tensor, values: Tensor, mask: Tensor, itself: bool = True
    ) -> Tensor:
        queries, keys = self.embed(x_target), self.embed(x_context)
        if self.num_heads == 1:
            return attend(queries, keys, values, mask, itself)
        heads = attend_in_heads(queries, keys, self.project_values(values), mask, self.num_heads, itself)
        return self.mix(heads)


class Block(nn.Module):
    """Attention with residuals of queries [..., T, dim] to a masked set, as in the public code of Lee et al. (2020).

        q, k, v = W_q queries, W_k keys, W_v values
        o = norm(q + heads(q, k, v)),   norm(o + ReLU(W o + b))

    The heads divide q·k by √dim of the whole width, not by that of a head. Where there is nothing to attend to, q alone
    remains.
    """

    def __init__(self, dim: int, num_heads: int = 1) -> None:
        super().__init__()
        self.num_heads = _divisor(num_heads, dim)
        self.queries, self.keys, self.values = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.forward_layer = nn.Linear(dim, dim)
        self.norm_attention, self.norm_forward = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, itself: bool = True
    ) -> Tensor:
        q, k, v = self.queries(queries), self.keys(keys), self.values(values)
        # `attend` divides by √d of a head, and √d √heads = √dim
        heads = attend_in_heads(q / math.sqrt(self.num_heads), k, v, mask, self.num_heads, itself)
        # under `vmap` a norm of bfloat16 with weights in float32 has no gradient
        o = self.norm_attention(full_precision(q + heads))
        return self.norm_forward(o + F.relu(self.forward_layer(o)))


class SelfAttention(nn.Module):
    """Blocks in which the points of a masked set, [..., N, dim], attend to each other."""

    def __init__(self, dim: int, num_heads: int, num_blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim, num_heads) for _ in range(num_blocks))

    def forward(self, r: Tensor, mask: Tensor) -> Tensor:
        for block in self.blocks:
            r = block(r, r, r, mask)
        return r


class BlockAttention(nn.Module):
    """Cross-attention from targets to context by a `Block`, with queries and keys as in `Attention`."""

    def __init__(self, dim_x: int, dim: int, num_heads: int = 1) -> None:
        super().__init__()
        self.embed = MLP([dim_x], [dim], dim)
        self.block = Block(dim, num_heads)

    def forward(
        self, x_target: Tensor, x_context: Tensor, values: Tensor, mask: Tensor, itself: bool = True
    ) -> Tensor:
        return self.block(self.embed(x_target), self.embed(x_context), values, mask, itself)


ATTENTIONS: dict[str, Callable[[int, int, int], nn.Module]] = {"dot": Attention, "block": BlockAttention}


def attend_in_heads(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, num_heads: int, itself: bool = True
) -> Tensor:
    """Attend in each head to its share of the features; see `attend`. All arrays have the width of `values`."""
    # [..., N, dim] -> [..., heads, N, dim / heads]
    q, k, v = (part.unflatten(-1, (num_heads, -1)).transpose(-2, -3) for part in (queries, keys, values))
    heads = attend(q, k, v, mask.unsqueeze(-2), itself)
    return heads.transpose(-2, -3).flatten(-2)  # [..., heads, T, d] -> [..., T, dim]


def _divisor(num_heads: int, dim: int) -> int:
    """The number of heads, which must divide the width."""
    if num_heads < 1 or dim % num_heads:
        raise ValueError(f"num_heads must divide the width {dim}, got {num_heads}")
    return num_heads
