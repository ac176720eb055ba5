"""Aggregators and attention, held against naive loops over the filled slots."""

from __future__ import annotations

import math
import re
from itertools import product

import pytest
import torch
import torch.nn.functional as F

from dsvnp.aggregators import (
    AGGREGATORS,
    Attention,
    Block,
    BlockAttention,
    SelfAttention,
    TopK,
    attend,
    average,
    make_aggregator,
)

B, N, H = 5, 6, 4
COUNTS = (0, 1, 2, 4, 6)  # filled slots of each set
NAMES = (*AGGREGATORS, "top-1", "top-2")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def some_sets() -> tuple[torch.Tensor, torch.Tensor]:
    """Sets of several sizes, with filled slots in no particular place."""
    mask = torch.zeros(B, N, dtype=torch.bool)
    for b, count in enumerate(COUNTS):
        mask[b, torch.randperm(N)[:count]] = True
    return torch.randn(B, N, H, dtype=torch.float64), mask


def naive(name: str, aggregate, members: torch.Tensor) -> torch.Tensor:
    """Aggregate the members of one set, [n, H], one by one."""
    if len(members) == 0:
        return torch.zeros(H, dtype=torch.float64)
    if name == "pairwise":
        pairs = [aggregate.phi(a + b, a * b) for a in members for b in members]
        return sum(pairs) / len(pairs)
    ranked = [sorted(column, reverse=True) for column in members.T.tolist()]
    rank = {"max": 0, "min": -1}
    if name.startswith("top-"):
        rank[name] = min(int(name[4:]), len(members)) - 1
    divisor = 1 if name == "sum" else len(members)
    values = [column[rank[name]] if name in rank else sum(column) / divisor for column in ranked]
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("name", NAMES)
def test_an_aggregator_sees_the_filled_slots_and_nothing_else(name):
    aggregate = make_aggregator(name, H).double()
    r, mask = some_sets()
    expected = torch.stack([naive(name, aggregate, r[b, mask[b]]) for b in range(B)])
    torch.testing.assert_close(aggregate(r, mask), expected)


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_a_set_does_not_matter(name):
    aggregate = make_aggregator(name, H).double()
    (r, mask), order = some_sets(), torch.randperm(N)
    torch.testing.assert_close(aggregate(r[:, order], mask[:, order]), aggregate(r, mask))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("slots", [0, 1, 3])
def test_an_empty_set_gives_zeros(name, slots):
    out = make_aggregator(name, H)(torch.randn(2, slots, H), torch.zeros(2, slots, dtype=torch.bool))
    assert torch.equal(out, torch.zeros(2, H))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_finite_and_none_come_from_empty_slots(name):
    r, mask = some_sets()
    r = r.requires_grad_()
    make_aggregator(name, H).double()(r, mask).square().sum().backward()
    assert r.grad.isfinite().all()
    assert (r.grad[~mask] == 0).all()
    assert (r.grad[mask].abs().sum() > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_leading_axes_are_left_alone(name):
    aggregate, (r, mask) = make_aggregator(name, H).double(), some_sets()
    stacked = aggregate(torch.stack([r, 2 * r]), torch.stack([mask, mask]))
    torch.testing.assert_close(stacked, torch.stack([aggregate(r, mask), aggregate(2 * r, mask)]))


def test_top_k_takes_any_k_of_at_least_1():
    assert make_aggregator("top-17", H).k == 17
    assert AGGREGATORS["top-3"](H).k == 3
    assert TopK().k == 1
    with pytest.raises(ValueError, match="top-k needs k of at least 1, got 0"):
        make_aggregator("top-0", H)


def test_a_misspelt_aggregator_gets_a_suggestion():
    message = "unknown aggregator 'maen'. Did you mean 'mean'? Known: mean, sum, max, min, top-3, pairwise."
    with pytest.raises(ValueError, match=re.escape(message)):
        make_aggregator("maen", H)
    with pytest.raises(ValueError, match=r"unknown aggregator 'top-x'\. Did you mean 'top-3'"):
        make_aggregator("top-x", H)
    with pytest.raises(ValueError, match=r"unknown aggregator 'mean3'\. Did you mean 'mean'"):
        make_aggregator("mean3", H)


# --- attention ---


def naive_attention(queries, keys, values, mask) -> torch.Tensor:
    """softmax(q·k / √D) v of one set, one query and one key at a time."""
    out = torch.zeros(len(queries), values.shape[-1], dtype=values.dtype)
    filled = [n for n in range(len(keys)) if mask[n]]
    for t, query in enumerate(queries):
        weights = [math.exp(sum(a * b for a, b in zip(query.tolist(), keys[n].tolist(), strict=True))
                            / math.sqrt(len(query))) for n in filled]  # fmt: skip
        for weight, n in zip(weights, filled, strict=True):
            out[t] += weight / sum(weights) * values[n]
    return out


def some_attention() -> tuple[torch.Tensor, ...]:
    values, mask = some_sets()
    queries, keys = torch.randn(B, 3, 2, dtype=torch.float64), torch.randn(B, N, 2, dtype=torch.float64)
    return queries, keys, values, mask


def test_attention_is_a_softmax_over_the_filled_slots():
    queries, keys, values, mask = some_attention()
    expected = torch.stack([naive_attention(queries[b], keys[b], values[b], mask[b]) for b in range(B)])
    torch.testing.assert_close(attend(queries, keys, values, mask), expected)


def test_an_average_sees_all_filled_slots_unless_told():
    keys, (values, mask) = torch.randn(B, N, 2, dtype=torch.float64), some_sets()
    scores = keys @ keys.transpose(-1, -2) / math.sqrt(2)
    torch.testing.assert_close(average(scores, values, mask), attend(keys, keys, values, mask))


def test_attention_over_full_sets_is_torchs():
    queries, keys, values, _ = some_attention()
    expected = F.scaled_dot_product_attention(queries, keys, values)
    torch.testing.assert_close(attend(queries, keys, values, torch.ones(B, N, dtype=torch.bool)), expected)


@pytest.mark.parametrize("slots", [0, 1, 6])
def test_attention_to_an_empty_set_gives_zeros(slots):
    queries, keys, values, _ = some_attention()
    out = attend(queries, keys[:, :slots], values[:, :slots], torch.zeros(B, slots, dtype=torch.bool))
    assert torch.equal(out, torch.zeros(B, 3, H, dtype=torch.float64))


def test_attention_does_not_overflow():
    queries, keys, values, mask = some_attention()
    out = attend(1e3 * queries, 1e3 * keys, values, mask)
    assert out.isfinite().all()
    closest = (queries @ keys.transpose(-1, -2)).masked_fill(~mask[:, None], -math.inf).argmax(-1)
    torch.testing.assert_close(out[1:], values.gather(1, closest[..., None].expand(-1, -1, H))[1:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_attention_are_finite_and_none_come_from_empty_slots(dtype):
    *inputs, mask = some_attention()
    queries, keys, values = (v.to(dtype).requires_grad_() for v in inputs)
    attend(queries, keys, values, mask).square().sum().backward()
    assert all(v.grad.isfinite().all() for v in (queries, keys, values))
    assert (keys.grad[~mask] == 0).all()
    assert (values.grad[~mask] == 0).all()
    assert (queries.grad[2:] != 0).all()  # of two or more filled slots


def test_empty_slots_do_not_matter_to_attention():
    queries, keys, values, mask = some_attention()
    dirty = [torch.where(mask[..., None], v, 1e6) for v in (keys, values)]
    torch.testing.assert_close(attend(queries, *dirty, mask), attend(queries, keys, values, mask))


def test_points_may_attend_to_all_but_themselves():
    keys, (values, mask) = torch.randn(B, N, 2, dtype=torch.float64), some_sets()
    out = attend(keys, keys, values, mask, itself=False)
    for b, n in product(range(B), range(N)):
        others = mask[b].clone()
        others[n] = False
        expected = naive_attention(keys[b, n : n + 1], keys[b], values[b], others)
        torch.testing.assert_close(out[b, n : n + 1], expected)
    single = mask & (mask.sum(1, keepdim=True) == 1)
    assert single.any()  # such a point sees nothing
    assert (out[single] == 0).all()


def test_other_points_cannot_leave_themselves_out():
    queries, keys, values, mask = some_attention()
    with pytest.raises(ValueError, match="to be the same points, got 3 queries and 6 slots"):
        attend(queries, keys, values, mask, itself=False)


@pytest.mark.parametrize("num_heads", [1, 2])
def test_no_head_looks_at_a_points_own_value(num_heads):
    attention, x = Attention(3, H, num_heads).double(), torch.randn(2, 5, 3, dtype=torch.float64)
    values, mask = torch.randn(2, 5, H, dtype=torch.float64), torch.ones(2, 5, dtype=torch.bool)
    changed = values.clone()
    changed[:, 1] += 1
    for itself in (True, False):
        before, after = (attention(x, x, v, mask, itself) for v in (values, changed))
        moved = (before - after).abs().amax(-1) > 1e-6
        assert moved.tolist() == [[True, itself, True, True, True]] * 2


@pytest.mark.parametrize("num_heads", [1, 2, 4])
def test_cross_attention_splits_keys_and_values_into_heads(num_heads):
    attention = Attention(3, H, num_heads).double()
    x_target, x_context = torch.randn(B, 2, 3, dtype=torch.float64), torch.randn(B, N, 3, dtype=torch.float64)
    values, mask = some_sets()
    out = attention(x_target, x_context, values, mask)
    queries, keys = attention.embed(x_target), attention.embed(x_context)
    projected = values if num_heads == 1 else attention.project_values(values)
    width = H // num_heads
    heads = []
    for head in range(num_heads):
        own = slice(head * width, (head + 1) * width)
        rows = [
            naive_attention(queries[b, :, own], keys[b, :, own], projected[b, :, own], mask[b])
            for b in range(B)
        ]
        heads.append(torch.stack(rows))
    expected = torch.cat(heads, -1)
    torch.testing.assert_close(out, expected if num_heads == 1 else attention.mix(expected))


@pytest.mark.parametrize("num_heads", [1, 2])
def test_cross_attention_to_an_empty_context_gives_zeros(num_heads):
    attention, x = Attention(3, H, num_heads), torch.randn(2, 5, 3)
    for slots in (0, 4):
        out = attention(x, x[:, :slots], torch.randn(2, slots, H), torch.zeros(2, slots, dtype=torch.bool))
        assert torch.equal(out, torch.zeros(2, 5, H))


def test_one_head_uses_the_values_as_they_are():
    assert [n for n, _ in Attention(3, H).named_parameters() if not n.startswith("embed")] == []


def test_several_heads_project_and_mix_the_values_without_a_bias():
    own = {n: tuple(p.shape) for n, p in Attention(3, H, 2).named_parameters() if not n.startswith("embed")}
    assert own == {"project_values.weight": (H, H), "mix.weight": (H, H)}


@pytest.mark.parametrize("num_heads", [1, 2])
def test_cross_attention_leaves_leading_axes_alone(num_heads):
    attention = Attention(3, H, num_heads).double()
    x, (values, mask) = torch.randn(B, N, 3, dtype=torch.float64), some_sets()
    once, twice = attention(x, x, values, mask), (torch.stack([v, v]) for v in (x, x, values, mask))
    torch.testing.assert_close(attention(*twice), torch.stack([once, once]))


@pytest.mark.parametrize("num_heads", [0, 3, -2])
@pytest.mark.parametrize("kind", [Attention, BlockAttention])
def test_heads_that_do_not_divide_the_width_are_refused(num_heads, kind):
    with pytest.raises(ValueError, match=f"num_heads must divide the width 4, got {num_heads}"):
        kind(3, H, num_heads)


# --- blocks ---


@torch.no_grad()
def some_block(num_heads: int) -> Block:
    """A block in which no weight has the value it starts with: norms start as ones and zeros."""
    block = Block(H, num_heads).double()
    for parameter in block.parameters():
        parameter.add_(0.5 * torch.randn_like(parameter))
    return block


def naive_norm(row: list[float], norm: torch.nn.LayerNorm) -> list[float]:
    mean = sum(row) / len(row)
    std = math.sqrt(sum((value - mean) ** 2 for value in row) / len(row) + 1e-5)
    scaled = [(value - mean) / std for value in row]
    return [w * s + b for w, s, b in zip(norm.weight.tolist(), scaled, norm.bias.tolist(), strict=True)]


def naive_block(block: Block, queries, keys, values, mask, itself: bool = True) -> list[list[float]]:
    """A block over one set: loops over tokens, heads and slots, with numbers."""

    def mapped(layer, row):
        bias = [0.0] * H if layer.bias is None else layer.bias.tolist()
        rows = zip(layer.weight.tolist(), bias, strict=True)
        return [sum(w * v for w, v in zip(line, row, strict=True)) + b for line, b in rows]

    q, k, v = (
        [mapped(layer, row) for row in rows.tolist()]
        for layer, rows in ((block.queries, queries), (block.keys, keys), (block.values, values))
    )
    out, width = [], H // block.num_heads
    for t, query in enumerate(q):
        seen = [n for n in range(len(k)) if mask[n] and (itself or n != t)]
        attended = []
        for head in range(block.num_heads):
            own = range(head * width, (head + 1) * width)
            weights = [math.exp(sum(query[i] * k[n][i] for i in own) / math.sqrt(H)) for n in seen]
            attended += [
                sum(w * v[n][i] for w, n in zip(weights, seen, strict=True)) / sum(weights) if seen else 0.0
                for i in own
            ]
        o = naive_norm([a + b for a, b in zip(query, attended, strict=True)], block.norm_attention)
        hidden = [max(value, 0.0) for value in mapped(block.forward_layer, o)]
        out.append(naive_norm([a + b for a, b in zip(o, hidden, strict=True)], block.norm_forward))
    return out


@pytest.mark.parametrize("itself", [True, False])
@pytest.mark.parametrize("num_heads", [1, 2, 4])
def test_a_block_equals_a_loop_over_heads_tokens_and_masks(num_heads, itself):
    block, (keys, mask) = some_block(num_heads), some_sets()
    values = torch.randn(B, N, H, dtype=torch.float64)
    queries = torch.randn(B, N if not itself else 3, H, dtype=torch.float64)
    expected = [naive_block(block, queries[b], keys[b], values[b], mask[b], itself) for b in range(B)]
    found = block(queries, keys, values, mask, itself)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-10)


def test_a_block_has_the_weights_of_the_public_code():
    assert sum(p.numel() for p in Block(128, 8).parameters()) == 66_176
    assert [name for name, p in Block(H, 2).named_parameters() if "bias" in name and p.ndim == 1] == [
        "forward_layer.bias", "norm_attention.bias", "norm_forward.bias",
    ]  # fmt: skip


@pytest.mark.parametrize("slots", [0, 4])
def test_a_block_that_sees_nothing_keeps_its_queries(slots):
    block, queries = some_block(2), torch.randn(2, 5, H, dtype=torch.float64)
    others = torch.randn(2, slots, H, dtype=torch.float64)
    q = block.queries(queries)
    o = block.norm_attention(q)
    expected = block.norm_forward(o + block.forward_layer(o).relu())
    found = block(queries, others, others, torch.zeros(2, slots, dtype=torch.bool))
    torch.testing.assert_close(found, expected)


def test_empty_slots_do_not_matter_to_a_block_and_give_no_gradients():
    block, (r, mask) = some_block(2), some_sets()
    queries = torch.randn(B, 3, H, dtype=torch.float64)
    dirty = torch.where(mask[..., None], r, 1e3).requires_grad_()
    found = block(queries, dirty, dirty, mask)
    torch.testing.assert_close(found, block(queries, r, r, mask))
    (gradient,) = torch.autograd.grad(found.square().sum(), dirty)
    assert gradient.isfinite().all()
    assert (gradient[~mask] == 0).all()
    assert (gradient[mask].abs().sum(-1) > 0).all()


def test_self_attention_applies_its_blocks_in_turn_whatever_the_order_of_the_set():
    among, (r, mask), order = SelfAttention(H, 2, 2).double(), some_sets(), torch.randperm(N)
    once = among.blocks[0](r, r, r, mask)
    torch.testing.assert_close(among(r, mask), among.blocks[1](once, once, once, mask))
    torch.testing.assert_close(among(r[:, order], mask[:, order]), among(r, mask)[:, order])
    assert SelfAttention(H, 2, 0)(r, mask) is r


def test_cross_attention_by_a_block_embeds_both_sides_by_one_network():
    attention = BlockAttention(3, H, 2).double()
    x_target, x_context = torch.randn(B, 2, 3, dtype=torch.float64), torch.randn(B, N, 3, dtype=torch.float64)
    values, mask = some_sets()
    expected = attention.block(attention.embed(x_target), attention.embed(x_context), values, mask)
    torch.testing.assert_close(attention(x_target, x_context, values, mask), expected)
    same = attention.block(attention.embed(x_context), attention.embed(x_context), values, mask, False)
    torch.testing.assert_close(attention(x_context, x_context, values, mask, itself=False), same)
