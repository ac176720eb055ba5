"""Transformer: its settings as a record, and attention to a masked set however it is computed."""

from __future__ import annotations

import json
import math
import re

import pytest
import torch
from torch.func import grad_and_value, vmap

from dsvnp import Architecture, Transformer
from dsvnp.models import transformer
from dsvnp.models.transformer import Layer, Relative, Slots, Trunk, attend_to

B, H, T, N, D, X = 4, 2, 5, 6, 3, 2
SMALL = Transformer(width=6, num_layers=2, num_heads=2, feedforward=8, embedder=(5,))


def wave(*shape: int, phase: float = 0.0) -> torch.Tensor:
    return torch.sin(1.7 * torch.arange(math.prod(shape), dtype=torch.float64) + phase).reshape(shape)


def some_slots() -> tuple[torch.Tensor, torch.Tensor, Slots]:
    """Queries, their inputs, and slots of which the second task has none filled and the third all."""
    mask = wave(B, N, phase=0.5) > 0
    mask[1], mask[2] = False, True
    slots = Slots(wave(B, H, N, D, phase=1), wave(B, H, N, D, phase=2), wave(B, N, X, phase=3), mask)
    return 2 * wave(B, H, T, D), wave(B, T, X, phase=4), slots


def some_relative() -> Relative:
    torch.manual_seed(0)
    return Relative(X, H, 7).double()


def by_loops(queries, x, slots, relative) -> torch.Tensor:
    """Σ_j softmax_j(score_ij) v_j, one query, one head and one slot at a time."""
    out = torch.zeros_like(queries)
    for b in range(B):
        filled = [j for j in range(N) if slots.mask[b, j]]
        for i in range(T):
            rows = []
            for j in filled:
                row = torch.stack([queries[b, h, i] @ slots.keys[b, h, j] / math.sqrt(D) for h in range(H)])
                if relative is not None:
                    gap = x[b, i] - slots.x[b, j]
                    of_scores, of_gaps = relative.first.weights
                    hidden = of_scores @ row + of_gaps @ (gap / (1 + gap.abs())) + relative.first.bias
                    row = row + relative.last.weight @ hidden.clamp(min=0)
                rows.append(row)
            for h in range(H):
                weights = [math.exp(row[h]) for row in rows]
                for j, weight in zip(filled, weights, strict=True):
                    out[b, h, i] += weight / sum(weights) * slots.values[b, h, j]
    return out


@pytest.mark.parametrize("grad", [True, False], ids=["written out", "fused"])
@pytest.mark.parametrize("relative", [None, some_relative()], ids=["products", "differences"])
@pytest.mark.parametrize("at_once", [10**9, 300, 1])
def test_attention_is_a_weighted_mean_over_the_filled_slots(monkeypatch, grad, relative, at_once):
    monkeypatch.setattr(transformer, "PAIRS_FUSED", at_once)
    monkeypatch.setattr(transformer, "PAIRS_WRITTEN_OUT", at_once)
    queries, x, slots = some_slots()
    with torch.no_grad():
        expected = by_loops(queries, x, slots, relative)
    with torch.set_grad_enabled(grad):
        out = attend_to(queries, x, slots, relative)
    torch.testing.assert_close(out.detach(), expected, rtol=1e-12, atol=1e-12)
    assert (out[1] == 0).all()  # no filled slot


@pytest.mark.parametrize("grad", [True, False])
def test_no_slots_at_all_give_zeros(grad):
    queries, x, slots = some_slots()
    none = Slots(slots.keys[:, :, :0], slots.values[:, :, :0], slots.x[:, :0], slots.mask[:, :0])
    for relative in (None, some_relative()):
        with torch.set_grad_enabled(grad):
            assert torch.equal(attend_to(queries, x, none, relative), torch.zeros_like(queries))


@pytest.mark.parametrize("grad", [True, False])
def test_what_stands_in_empty_slots_does_not_matter_even_if_it_is_nan(grad):
    queries, x, slots = some_slots()
    inside = slots.mask[:, None, :, None]
    bad = slots._replace(
        keys=torch.where(inside, slots.keys, math.nan), values=torch.where(inside, slots.values, math.nan)
    )
    with torch.set_grad_enabled(grad):
        expected, out = (attend_to(queries, x, each, None) for each in (slots, bad))
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("relative", [None, some_relative()], ids=["products", "differences"])
def test_gradients_of_many_replicas_equal_those_of_each(relative):
    queries, x, slots = some_slots()
    queries = torch.stack([queries, 0.3 * queries.flip(0)])
    weights = wave(B, H, T, D, phase=7)

    def loss(queries, keys, values):
        out = attend_to(queries, x, Slots(keys, values, slots.x, slots.mask), relative)
        return (weights * out).sum()

    keys, values = (torch.stack([v, v.flip(1)]) for v in (slots.keys, slots.values))
    grads, losses = vmap(grad_and_value(loss, argnums=(0, 1, 2)))(queries, keys, values)
    for r in range(2):
        leaves = [v[r].clone().requires_grad_() for v in (queries, keys, values)]
        single = loss(*leaves)
        torch.testing.assert_close(losses[r], single.detach(), rtol=1e-13, atol=1e-13)
        for many, one in zip(grads, torch.autograd.grad(single, leaves), strict=True):
            assert one.isfinite().all()
            torch.testing.assert_close(many[r], one, rtol=1e-13, atol=1e-13)


def test_tokens_outside_the_mask_are_read_by_nobody_and_slots_serve_later_queries():
    torch.manual_seed(0)
    trunk = Trunk(SMALL, X).double()
    h, x, mask = wave(2, 5, 6), wave(2, 5, X), torch.tensor([[True, True, False, False, False]]).expand(2, -1)
    out, memory = trunk.among(h, x, mask)
    fewer, _ = trunk.among(h[:, :3], x[:, :3], mask[:, :3])
    torch.testing.assert_close(out[:, :3], fewer)
    torch.testing.assert_close(trunk.onto(h[:, 3:], x[:, 3:], memory), out[:, 3:])


def test_a_layer_adds_little_at_first_and_less_where_there_are_more():
    torch.manual_seed(0)
    h, x, mask = torch.randn(3, 20, 64), torch.zeros(3, 20, 1), torch.ones(3, 20, dtype=torch.bool)
    added = [(Layer(Transformer(num_layers=count))(h, x, mask)[0] - h).std().item() for count in (1, 24)]
    assert 0.02 < added[1] < 0.4 * added[0] < 1


# --- as a record ---


def test_settings_go_through_json_and_back_inside_an_architecture():
    arch = Architecture(1, 2, transformer=Transformer(32, 3, 2, 48, (16, 24), equivariant=True, relative=5))
    again = Architecture.from_dict(json.loads(json.dumps(arch.to_dict())))
    assert again == arch
    assert hash(again) == hash(arch)
    assert Architecture.from_dict({"dim_x": 1, "dim_y": 1}).transformer == Transformer()
    partly = Architecture.from_dict({"dim_x": 1, "dim_y": 1, "transformer": {"width": 8}})
    assert partly.transformer == Transformer(width=8)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"witdh": 3}, "unknown transformer setting 'witdh'. Did you mean 'width'? Known: width, num_layers"),
        ({"width": 0}, "transformer.width must be at least 1, got 0"),
        ({"num_layers": 0}, "transformer.num_layers must be at least 1, got 0"),
        ({"embedder": [4, 0]}, "transformer.embedder must hold sizes of at least 1, got (4, 0)"),
        ({"num_heads": 3}, "transformer.num_heads must divide transformer.width=64, got 3"),
    ],
)
def test_settings_that_cannot_be_are_refused(values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Architecture.from_dict({"dim_x": 1, "dim_y": 1, "transformer": values})


def test_attention_to_slots_that_are_all_filled_is_that_to_the_same_slots_among_empty_ones():
    queries, x, slots = some_slots()
    full = slots._replace(mask=torch.ones_like(slots.mask))
    padded = Slots(
        *(torch.cat([part, part], dim=-2) for part in full[:3]), torch.cat([full.mask, ~full.mask], -1)
    )
    with torch.no_grad():
        torch.testing.assert_close(attend_to(queries, x, full, None), attend_to(queries, x, padded, None))


def test_the_slots_alone_are_those_of_a_whole_pass():
    torch.manual_seed(0)
    trunk, h, mask = Trunk(SMALL, X).double(), wave(B, N, 6), wave(B, N) > 0
    with torch.no_grad():
        whole, alone = (trunk.among(h, wave(B, N, X), mask, finish)[1] for finish in (True, False))
    for some, others in zip(whole, alone, strict=True):
        torch.testing.assert_close(some, others)
