"""Adam and AdamW of a fleet against torch.optim, one optimiser a replica."""

import math

import pytest
import torch
from torch import Tensor

from dsvnp.training import Adam
from dsvnp.training.optimizer import norm_of_each

RATES = (1e-1, 3e-3, 1e-4)
SIZE = 7


def gradients(count: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Gradients of three replicas, of norms far below and far above 1."""
    g = torch.Generator().manual_seed(0)
    scales = torch.logspace(-2, 2, count, dtype=dtype)[:, None, None]
    return list(torch.randn(count, len(RATES), SIZE, generator=g, dtype=dtype) * scales)


def start(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(len(RATES), SIZE, generator=torch.Generator().manual_seed(1), dtype=dtype)


def ours(adam: Adam, grads: list[Tensor]) -> Tensor:
    params = start(grads[0].dtype)
    m, v = torch.zeros_like(params), torch.zeros_like(params)
    lr = torch.tensor(RATES, dtype=params.dtype)[:, None]
    for step, grad in enumerate(grads):
        params, m, v = adam.update(params, grad, norm_of_each(grad), m, v, torch.tensor(step), lr)
    return params


def torchs(adam: Adam, grads: list[Tensor]) -> Tensor:
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[adam.kind]
    rows = []
    for row, rate in enumerate(RATES):
        param = torch.nn.Parameter(start(grads[0].dtype)[row])
        optimizer = kind(
            [param], rate, betas=(adam.beta1, adam.beta2), eps=adam.eps, weight_decay=adam.weight_decay
        )
        for grad in grads:
            param.grad = grad[row].clone()
            if adam.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_([param], adam.clip_norm)
            optimizer.step()
        rows.append(param.detach())
    return torch.stack(rows)


@pytest.mark.parametrize("clip_norm", [None, 1.5])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_equals_torchs_own_over_many_steps(kind, weight_decay, clip_norm):
    adam = Adam(kind, weight_decay=weight_decay, clip_norm=clip_norm)
    grads = gradients(60)
    torch.testing.assert_close(ours(adam, grads), torchs(adam, grads), rtol=1e-12, atol=1e-12)


def test_equals_torchs_own_with_other_constants():
    adam = Adam("adam", beta1=0.5, beta2=0.8, eps=1e-2)
    grads = gradients(20)
    torch.testing.assert_close(ours(adam, grads), torchs(adam, grads), rtol=1e-12, atol=1e-12)


def test_a_gradient_below_the_norm_is_left_alone_and_one_above_is_cut_to_it():
    adam = Adam(beta1=0.0, clip_norm=2.0)
    grads = torch.tensor([[0.6, 0.8], [30.0, 40.0]], dtype=torch.float64)
    zeros = torch.zeros_like(grads)
    _, m, _ = adam.update(zeros, grads, norm_of_each(grads), zeros, zeros, torch.tensor(0), torch.ones(2, 1))
    torch.testing.assert_close(
        m.norm(dim=1), torch.tensor([1.0, 2.0], dtype=torch.float64), rtol=1e-6, atol=0
    )


def test_one_replicas_gradient_does_not_clip_another():
    adam = Adam(clip_norm=1.0)
    alone = gradients(5)
    wild = [torch.cat([grad[:1], 1e6 * grad[1:]]) for grad in alone]
    assert torch.equal(ours(adam, wild)[0], ours(adam, alone)[0])


def test_the_first_steps_keep_their_digits_in_single_precision():
    # 1 − 0.999 in float32 is off by 1.3e-5, and the first steps of training with it.
    grads = gradients(1)
    moved = ours(Adam(), [grad.float() for grad in grads]).double() - start(torch.float32).double()
    expected = torchs(Adam(), grads) - start()
    assert ((moved / expected)[0] - 1).abs().max() < 3e-6


def test_moments_are_kept_between_steps():
    zeros, grads = torch.zeros(1, 2), torch.tensor([[1.0, -2.0]])
    _, m, v = Adam().update(
        zeros, grads, norm_of_each(grads), zeros, zeros, torch.tensor(0), torch.ones(1, 1)
    )
    torch.testing.assert_close(m, 0.1 * grads)
    torch.testing.assert_close(v, 0.001 * grads.square())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"kind": "adamm"}, "unknown optimiser 'adamm'. Did you mean 'adam"),
        ({"clip_norm": 0.0}, "clip_norm must be positive, got 0.0"),
        ({"clip_norm": math.nan}, "clip_norm must be positive, got nan"),
        ({"beta1": 1.0}, "beta1 must be at least 0 and below 1, got 1.0"),
        ({"beta2": -0.1}, "beta2 must be at least 0 and below 1, got -0.1"),
        ({"eps": -1e-8}, "eps must not be negative, got -1e-08"),
        ({"weight_decay": -1.0}, "weight_decay must not be negative, got -1.0"),
    ],
)
def test_bad_settings_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        Adam(**bad)
