"""Networks, held against plain torch on concatenated inputs, and their dropout."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dsvnp.networks import MLP, VGG, VGG19, ConcatLinear, Convolution, Fourier, GaussianHead, LeNet, drop


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


# --- linear layers and MLPs ---


def as_linear(layer: ConcatLinear) -> nn.Linear:
    """The same layer of the concatenated inputs."""
    weight = torch.cat(list(layer.weights), dim=1)
    linear = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    linear.load_state_dict({"weight": weight, "bias": layer.bias})
    return linear


def test_a_linear_layer_of_several_inputs_is_one_of_their_concatenation():
    layer = ConcatLinear([2, 3, 4], 5).double()
    inputs = [torch.randn(6, 7, size, dtype=torch.float64) for size in (2, 3, 4)]
    torch.testing.assert_close(layer(*inputs), as_linear(layer)(torch.cat(inputs, -1)))


def test_inputs_with_fewer_axes_are_broadcast():
    layer = ConcatLinear([2, 3], 5).double()
    x, z = torch.randn(6, 7, 2, dtype=torch.float64), torch.randn(4, 6, 1, 3, dtype=torch.float64)
    both = torch.cat([x.expand(4, 6, 7, 2), z.expand(4, 6, 7, 3)], -1)
    torch.testing.assert_close(layer(x, z), as_linear(layer)(both))


def test_a_layer_of_several_inputs_starts_out_as_a_linear_layer_does():
    layer, linear = ConcatLinear([30, 70], 400), nn.Linear(100, 400)
    for mine, other in ((torch.cat(list(layer.weights), 1), linear.weight), (layer.bias, linear.bias)):
        assert mine.shape == other.shape
        assert mine.abs().max() <= 0.1  # uniform within 1/√(inputs)
        assert mine.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.1)
        assert mine.mean().item() == pytest.approx(0, abs=0.01)


def test_a_wrong_number_of_inputs_is_refused():
    with pytest.raises(ValueError):
        ConcatLinear([2, 3], 5)(torch.zeros(1, 2))


@pytest.mark.parametrize("hidden", [(), (4,), (4, 6)])
@pytest.mark.parametrize("relu_out", [False, True])
def test_an_mlp_is_linear_layers_with_relu_between(hidden, relu_out):
    net = MLP([2, 3], hidden, 5, relu_out=relu_out).double()
    inputs = [torch.randn(8, 2, dtype=torch.float64), torch.randn(8, 3, dtype=torch.float64)]
    layers = [as_linear(net.first), *net.rest]
    assert [layer.out_features for layer in layers] == [*hidden, 5]
    h = torch.cat(inputs, -1)
    for layer in layers[:-1]:
        h = F.relu(layer(h))
    h = layers[-1](h)
    torch.testing.assert_close(net(*inputs), F.relu(h) if relu_out else h)


# --- dropout ---


def test_dropout_keeps_an_element_where_its_uniform_number_reaches_the_rate_and_rescales_it():
    uniform = torch.tensor([0.0, 0.24, 0.25, 0.9])
    kept = drop(torch.ones(4), 0.25, iter([uniform]))
    torch.testing.assert_close(kept, torch.tensor([0.0, 0.0, 4 / 3, 4 / 3]))


def test_dropout_without_numbers_keeps_all():
    h = torch.randn(5)
    assert drop(h, 0.5, iter([])) is h


def test_dropout_keeps_the_mean():
    h = torch.tensor([1.0, -2.0, 3.0])
    uniform = torch.rand(100_000, 3)
    torch.testing.assert_close(drop(h, 0.3, iter([uniform])).mean(0), h, rtol=0.02, atol=0)


def test_an_mlp_drops_after_each_relu_and_nowhere_else():
    net = MLP([2], [4, 6], 5, dropout=0.5)
    assert net.dropout_shapes() == [(4,), (6,)]
    assert MLP([2], [4, 6], 5, relu_out=True, dropout=0.5).dropout_shapes() == [(4,), (6,), (5,)]
    assert MLP([2], [4, 6], 5).dropout_shapes() == []
    x, uniforms = torch.randn(3, 2), [torch.rand(3, 4), torch.rand(3, 6)]
    h = F.relu(net.first(x)) * (uniforms[0] >= 0.5) * 2
    h = F.relu(net.rest[0](h)) * (uniforms[1] >= 0.5) * 2
    torch.testing.assert_close(net(x, dropout=uniforms), net.rest[1](h))


def test_an_mlp_that_ends_with_relu_drops_after_that_too():
    net = MLP([2], [], 5, relu_out=True, dropout=0.5)
    x, uniform = torch.randn(3, 2), torch.rand(3, 5)
    torch.testing.assert_close(net(x, dropout=[uniform]), F.relu(net.first(x)) * (uniform >= 0.5) * 2)


# --- Gaussian heads ---


@pytest.mark.parametrize("scale", ["bounded", "exp"])
def test_a_head_makes_mean_and_scale_in_one_linear_step(scale):
    head, r = GaussianHead(4, 3, scale), torch.randn(5, 4)
    out = head.linear(r)
    mean, sigma = head(r)
    torch.testing.assert_close(mean, out[:, :3])
    raw = out[:, 3:]
    torch.testing.assert_close(sigma, raw.exp() if scale == "exp" else 0.1 + 0.9 * raw.sigmoid())


def test_an_unknown_latent_scale_is_refused():
    with pytest.raises(ValueError, match="latent scale must be 'bounded' or 'exp', got 'softplus'"):
        GaussianHead(4, 3, "softplus")


def test_a_head_leaves_the_half_precision_of_autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mean, scale = GaussianHead(4, 3)(torch.randn(5, 4))
    assert mean.dtype == scale.dtype == torch.float32


# --- images ---


def lenet_by_hand(net: LeNet, image: torch.Tensor, keep) -> torch.Tensor:
    h = keep(F.relu(net.conv1(image)))
    h = keep(F.relu(net.conv2(F.max_pool2d(h, 2)))).flatten(1)
    for layer in (net.dense.first, net.dense.rest[0]):
        h = keep(F.relu(layer(h)))
    return h


def test_lenet_is_the_papers():
    net = LeNet((1, 28, 28), 32)
    weights = (net.conv1.weight, net.conv2.weight, net.dense.first.weights[0], net.dense.rest[0].weight)
    assert [tuple(w.shape) for w in weights] == [(20, 1, 5, 5), (50, 20, 5, 5), (500, 50 * 8 * 8), (32, 500)]
    images = torch.randn(3, 1, 28, 28)
    torch.testing.assert_close(net(images.flatten(1)), lenet_by_hand(net, images, lambda h: h))


def test_lenet_drops_after_each_relu():
    net = LeNet((1, 14, 14), 6, dropout=0.5)
    shapes = net.dropout_shapes()
    assert shapes == [(20, 10, 10), (50, 1, 1), (500,), (6,)]
    assert LeNet((1, 14, 14), 6).dropout_shapes() == []
    uniforms, images = [torch.rand(3, *shape) for shape in shapes], torch.randn(3, 1, 14, 14)
    left = iter(uniforms)
    by_hand = lenet_by_hand(net, images, lambda h: h * (next(left).view(h.shape) >= 0.5) * 2)
    torch.testing.assert_close(net(images.flatten(1), dropout=uniforms), by_hand)


LAYERS = (4, "M", 8, 8, "M")


def vgg_by_hand(net: VGG, image: torch.Tensor, keep) -> torch.Tensor:
    h, blocks = image, iter(net.blocks)
    for layer in LAYERS:
        if layer == "M":
            h = F.max_pool2d(h, 2)
        else:
            block = next(blocks)
            convolution, norm = block.convolution, block.norm
            h = F.conv2d(h, convolution.kernel.permute(0, 3, 1, 2), padding=1)
            mean, var = (norm.running_mean, norm.running_var) if not norm.training else (None, None)
            normed = F.batch_norm(h, mean, var, norm.weight, norm.bias, norm.training, eps=norm.eps)
            h = keep(F.relu(normed))
    return keep(F.relu(net.dense.first(h.flatten(1))))


def test_vgg_is_convolutions_with_batch_norm_and_pooling_between():
    net, images = VGG((3, 8, 12), 6, LAYERS), torch.randn(5, 3, 8, 12)
    kernels = [block.convolution.kernel.shape for block in net.blocks]
    assert kernels == [(4, 3, 3, 3), (8, 3, 3, 4), (8, 3, 3, 8)]
    assert all(len(list(block.convolution.parameters())) == 1 for block in net.blocks)
    for training in (True, False):
        net.train(training)
        torch.testing.assert_close(net(images.flatten(1)), vgg_by_hand(net, images, lambda h: h))


def test_a_convolution_is_pytorchs_with_weights_in_another_order():
    torch.manual_seed(0)
    ours = Convolution(3, 8)
    torch.manual_seed(0)
    usual = nn.Conv2d(3, 8, kernel_size=3, padding=1, bias=False)
    images = torch.randn(5, 3, 8, 12)
    torch.testing.assert_close(ours(images), usual(images))


def test_vgg_keeps_channels_side_by_side_from_layer_to_layer(monkeypatch):
    seen = []

    def convolve(images, weight, **options):
        seen.extend([images, weight])
        return convolve.before(images, weight, **options)

    convolve.before = F.conv2d
    monkeypatch.setattr(F, "conv2d", convolve)
    VGG((3, 8, 12), 6, LAYERS)(torch.randn(2, 5, 3 * 8 * 12))
    assert len(seen) == 2 * sum(layer != "M" for layer in LAYERS)
    assert all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in seen)


def test_vgg_drops_after_each_relu():
    net = VGG((3, 8, 12), 6, LAYERS, dropout=0.5).eval()
    shapes = net.dropout_shapes()
    assert shapes == [(4, 8, 12), (8, 4, 6), (8, 4, 6), (6,)]
    assert VGG((3, 8, 12), 6, LAYERS).dropout_shapes() == []
    uniforms, images = [torch.rand(3, *shape) for shape in shapes], torch.randn(3, 3, 8, 12)
    left = iter(uniforms)
    by_hand = vgg_by_hand(net, images, lambda h: h * (next(left) >= 0.5) * 2)
    torch.testing.assert_close(net(images.flatten(1), dropout=uniforms), by_hand)


def test_the_vgg_of_the_paper_has_sixteen_convolutions_in_five_stages():
    widths = [layer for layer in VGG19 if layer != "M"]
    assert widths == [64] * 2 + [128] * 2 + [256] * 4 + [512] * 8
    assert [i for i, layer in enumerate(VGG19) if layer == "M"] == [2, 5, 10, 15, 20]


@pytest.mark.parametrize("make", [lambda: LeNet((1, 14, 14), 6), lambda: VGG((1, 14, 14), 6, LAYERS)])
@pytest.mark.parametrize("leading", [(5,), (2, 3), (4, 1, 2), (2, 0)])
def test_image_networks_leave_leading_axes_alone(make, leading):
    net, x = make().eval(), torch.randn(*leading, 196)
    out = net(x)
    assert out.shape == (*leading, 6)
    torch.testing.assert_close(out.reshape(-1, 6), net(x.reshape(-1, 196)))


def test_dropout_masks_of_several_draws_make_several_outputs_of_one_image():
    net, x = LeNet((1, 14, 14), 6, dropout=0.5), torch.randn(2, 3, 196)
    uniforms = [torch.rand(4, 2, 1, *shape) for shape in net.dropout_shapes()]  # one mask for all points
    out = net(x, dropout=uniforms)
    assert out.shape == (4, 2, 3, 6)
    alone = net(x[1:, 2:], dropout=[u[3:, 1:] for u in uniforms])
    torch.testing.assert_close(out[3:, 1:, 2:], alone)


def test_fourier_features_are_waves_of_the_first_inputs():
    net = Fourier(3, 2, 4, 5)
    x = torch.tensor([0.3, -1.7, 9.0])
    waves = [
        wave(2**k * math.pi / 4 * float(v)) for wave in (math.sin, math.cos) for v in x[:2] for k in range(4)
    ]
    expected = net.linear.weight @ torch.tensor([*x.tolist(), *waves]) + net.linear.bias
    torch.testing.assert_close(net(x), expected)
