"""Parameters as one flat vector."""

import pytest
import torch
from torch import nn

from dsvnp.training.layout import ALIGN, Layout


class Oddly(nn.Module):
    """Parameters of awkward sizes: a scalar, more than one stretch, exactly one stretch."""

    def __init__(self) -> None:
        super().__init__()
        self.long = nn.Parameter(torch.randn(5, ALIGN // 4))
        self.scalar = nn.Parameter(torch.tensor(3.0))
        self.even = nn.Parameter(torch.randn(2, ALIGN // 2))
        self.last = nn.Parameter(torch.randn(3, 2, 1))


@pytest.fixture
def model():
    return Oddly()


@pytest.fixture
def layout(model):
    return Layout(model)


def test_flat_and_back_is_the_same(model, layout):
    named = dict(model.named_parameters())
    back = layout.unflatten(layout.flatten(named))
    assert list(back) == list(named)
    for name, value in named.items():
        assert back[name].shape == value.shape
        assert torch.equal(back[name], value), name


@pytest.mark.parametrize("leading", [(4,), (2, 3)])
def test_leading_axes_stay_in_front(layout, leading):
    named = {name: torch.randn(*leading, *shape) for name, shape in layout.shapes.items()}
    flat = layout.flatten(named)
    assert flat.shape == (*leading, layout.size)
    for name, value in layout.unflatten(flat).items():
        assert torch.equal(value, named[name]), name
    first = layout.unflatten(flat[(0,) * len(leading)])
    assert torch.equal(first["long"], named["long"][(0,) * len(leading)])


def test_parameters_start_at_aligned_places_and_do_not_overlap(model, layout):
    assert ALIGN % 32 == 0  # 128 bytes, a line of a GPU's cache
    parts = layout.unflatten(torch.zeros(layout.size))
    starts = [part.storage_offset() for part in parts.values()]
    assert all(start % ALIGN == 0 for start in starts)
    ends = [start + part.numel() for start, part in zip(starts, parts.values(), strict=True)]
    next_starts = [*starts[1:], layout.size]
    assert all(end <= start < end + ALIGN for end, start in zip(ends, next_starts, strict=True))


def test_gaps_hold_zeros(model, layout):
    named = {name: torch.full_like(p, 7.0) for name, p in model.named_parameters()}
    flat = layout.flatten(named)
    assert (flat == 7).sum() == sum(p.numel() for p in model.parameters())
    assert ((flat == 7) | (flat == 0)).all()


def test_named_parts_are_views_of_the_flat_vector(layout):
    flat = torch.zeros(2, layout.size)
    layout.unflatten(flat)["last"][1].fill_(5.0)
    assert (flat == 5).sum() == 6
    assert (flat[0] == 0).all()


def test_type_is_kept_and_no_gradient_is_carried(model, layout):
    flat = layout.flatten({name: p.double() for name, p in model.named_parameters()})
    assert flat.dtype == torch.float64
    assert not flat.requires_grad
