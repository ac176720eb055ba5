"""AttnNP with the blocks of the field's code: its size, a pass by hand, and which points each latent reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_architecture import SMALL, made, moved, some_task

from dsvnp import Architecture, Task, make_model
from dsvnp.aggregators import SelfAttention

BLOCKS = replace(SMALL, dim_lat=8, latent_hidden=(5,), attention="block", num_heads=2, self_attention=1)


def model_of(**changes):
    return made("attnnp", replace(BLOCKS, **changes)).double().eval()


def task_of(**changes) -> Task:
    return replace(some_task().to(dtype=torch.float64), **changes)


def test_in_the_fields_sizes_the_weights_are_as_many_as_in_the_public_code():
    arch = Architecture(
        1, 1, encoder=(128,), latent_hidden=(128,), decoder=(128, 128), attention="block", num_heads=8,
        self_attention=1,
    )  # fmt: skip
    assert sum(p.numel() for p in make_model("attnnp", arch).parameters()) == 348_418


def test_a_pass_by_hand():
    """T and C one by one and without masks, as the public code reads them."""
    model, task = model_of(), task_of()
    x, y = task.x_target, task.y_target
    x_context, y_context = x[:, :3], y[:, :3]

    def through(block, q, k, v):
        q, k, v = block.queries(q), block.keys(k), block.values(v)
        heads = []
        for head in (slice(0, 4), slice(4, 8)):
            scores = q[..., head] @ k[..., head].mT / 8**0.5
            heads.append(scores.softmax(-1) @ v[..., head])
        o = block.norm_attention(q + torch.cat(heads, -1))
        return block.norm_forward(o + block.forward_layer(o).relu())

    def latent(x, y):
        part = model.z_global
        r = part.encoder.rest[0](part.encoder.first(x, y).relu()).relu()
        return part.head(through(part.among.blocks[0], r, r, r).mean(1))

    s = model.value_encoder.rest[0](model.value_encoder.first(x_context, y_context).relu())  # of either sign
    assert (s < 0).any()
    s = through(model.among_context.blocks[0], s, s, s)
    attention = model.attention
    z_attn = through(attention.block, attention.embed(x), attention.embed(x_context), s)
    q, p = latent(x, y), latent(x_context, y_context)
    draws = model.draws(task, {})
    for mine, its in ((draws.q_global, q), (draws.p_global, p)):
        torch.testing.assert_close(mine.mean, its.mean, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(mine.scale, its.scale, rtol=1e-10, atol=1e-10)
    raw = model.decoder(x, z_attn, q.mean[:, None])
    torch.testing.assert_close(draws.log_likelihood[0, 0], model.likelihood.log_prob(raw, y))
    predicted = model.decoder(x, z_attn, p.mean[:, None])
    torch.testing.assert_close(model.predict(task, deterministic=True).mean, predicted[..., :1])


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("posterior", ["target", "context"])
def test_each_latent_reads_the_points_of_its_own_set(separate, posterior):
    model = model_of(separate_encoders=separate, posterior=posterior)
    base, outside, inside = (
        model.draws(t, {}) for t in (task_of(), moved(task_of(), 5), moved(task_of(), 0))
    )
    assert torch.equal(outside.p_global.mean, base.p_global.mean)
    assert torch.equal(outside.p_global.scale, base.p_global.scale)
    assert torch.equal(outside.q_global.mean, base.q_global.mean) == (posterior == "context")
    for level in ("p_global", "q_global"):
        assert not torch.allclose(getattr(inside, level).mean, getattr(base, level).mean)


def test_prior_and_posterior_agree_where_all_points_are_context_and_nowhere_else():
    model, task = model_of(), task_of()
    for flags, agree in ((torch.ones_like(task.in_context), True), (task.in_context, False)):
        draws = model.draws(replace(task, in_context=flags, mask_context=flags), {})
        assert torch.equal(draws.q_global.mean, draws.p_global.mean) == agree
        assert torch.equal(draws.q_global.scale, draws.p_global.scale) == agree


def test_a_prior_of_its_own_has_blocks_of_its_own():
    latent = model_of(separate_encoders=True).z_global
    own = {id(p) for p in latent.prior_among.parameters()}
    assert len(own) == 9
    assert not own & {id(p) for p in latent.among.parameters()}


def test_a_context_point_reads_its_own_label_in_training_or_not():
    for attend_self in (True, False):
        model, task, read = model_of(self_attention=0, attend_self=attend_self), task_of(), []
        model.decoder.register_forward_pre_hook(lambda _, inputs, read=read: read.append(inputs[1]))  # z_attn
        for shift in (0.0, 1.0):
            model.draws(replace(task, y_target=task.y_target + shift * torch.eye(6)[0, :, None]), {})
        changed = (read[0] - read[1]).abs().amax(-1) > 1e-9
        assert changed.tolist() == [[attend_self, *[True] * 5]] * 2


def test_other_models_have_no_blocks():
    for name in ("np", "dsvnp", "dsvtnp"):
        arch = replace(SMALL, attention="block", self_attention=1)
        assert made(name, arch).state_dict().keys() == made(name, SMALL).state_dict().keys()
    assert not list(made("attnnp", replace(SMALL, self_attention=1)).z_global.among.parameters())
    assert model_of(self_attention=0).among_context is None
    assert isinstance(model_of().among_context, SelfAttention)
