"""Linear layers by oneDNN: the same numbers as torch's, and only where numbers are computed at once."""

import pytest
import torch
import torch.nn.functional as F

from dsvnp.models import linear as module
from dsvnp.models.linear import LARGE, _is_plain, _serves, linear

ROWS = LARGE // (64 * 96) + 1


def parts(rows=ROWS, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, rows, 64), (96, 64), (96,))
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize("rows", [3, ROWS])
def test_it_is_a_linear_layer(rows, gelu):
    x, weight, bias = parts(rows)
    expected = F.linear(x.double(), weight.double(), bias.double())
    with torch.no_grad():
        found = linear(x.transpose(0, 1), weight, bias, gelu).transpose(0, 1)  # of any strides
    torch.testing.assert_close(found.double(), F.gelu(expected) if gelu else expected, rtol=1e-5, atol=1e-4)


def test_it_leaves_gradients_maps_casts_and_double_precision_to_torch():
    x, weight, bias = parts()
    with torch.no_grad():
        assert _is_plain(x)
        assert not _is_plain(x.double())
        with torch.autocast("cpu", torch.bfloat16):
            assert linear(x, weight, bias).dtype == torch.bfloat16
        mapped = torch.vmap(lambda x, weight, bias: linear(x, weight, bias))(
            x, weight.expand(2, -1, -1), bias.expand(2, -1)
        )
        torch.testing.assert_close(mapped, F.linear(x, weight, bias), rtol=1e-5, atol=1e-4)
    weight.requires_grad_()
    linear(x, weight, bias).sum().backward()
    torch.testing.assert_close(weight.grad, x.sum((0, 1)).expand_as(weight), rtol=1e-4, atol=1e-3)


class Layer(torch.nn.Module):
    """One layer of any number of rows."""

    def forward(self, x, weight, bias):
        return linear(x, weight, bias)


def test_a_graph_of_a_large_layer_takes_any_number_of_rows():
    given = parts()
    rows = torch.export.Dim("rows", min=2)
    with torch.no_grad():
        graph = torch.export.export(Layer(), tuple(given), dynamic_shapes=({1: rows}, None, None)).module()
        for some in (3, 2 * ROWS):
            x, weight, bias = parts(some)
            torch.testing.assert_close(
                graph(x, weight, bias), F.linear(x, weight, bias), rtol=1e-5, atol=1e-4
            )


def test_an_operation_that_is_not_as_known_is_not_used(monkeypatch):
    def wrong(x, weight, bias, *rest):
        return F.linear(x, weight, bias)  # without what follows

    def gone(*given):
        raise TypeError

    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    for other in (wrong, gone):
        monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", other, raising=False)
        assert not _serves.__wrapped__()
    monkeypatch.setattr(module, "_serves", lambda: False)
    with torch.no_grad():
        linear(*parts())
