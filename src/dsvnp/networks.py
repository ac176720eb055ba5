"""Networks: the MLP of several inputs, waves of an input, the Gaussian head, LeNet and VGG.

Every network maps the last axis and leaves the others alone, broadcasting over them. Dropout draws nothing itself: a
network reports the shapes it needs (`dropout_shapes`) and takes uniform numbers as an argument. The caller may draw
masks per replica, hold them fixed, or leave them out.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from dsvnp.gaussian import DiagonalGaussian

Shape = tuple[int, ...]


class ConcatLinear(nn.Module):
    """A linear layer of the concatenation of its inputs, computed without concatenating.

    W [a, b] = W_a a + W_b b projects an input with fewer axes (z_G, one per task) once and broadcasts the result, not
    once per point. Each part of W is a parameter of its own, and contiguous; together they are initialised as
    `nn.Linear` of the concatenation is.
    """

    def __init__(self, dims_in: Sequence[int], dim_out: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(sum(dims_in))
        self.weights = nn.ParameterList(torch.empty(dim_out, dim).uniform_(-bound, bound) for dim in dims_in)
        self.bias = nn.Parameter(torch.empty(dim_out).uniform_(-bound, bound))

    def forward(self, *inputs: Tensor) -> Tensor:
        first, *others = self.weights
        out = F.linear(inputs[0], first, self.bias)
        for value, weight in zip(inputs[1:], others, strict=True):
            out = out + F.linear(value, weight)
        return out


class MLP(nn.Module):
    """[inputs] → hidden → … → dim_out with ReLU between layers."""

    def __init__(
        self,
        # size of each input; `forward` takes as many tensors, broadcast against each other
        dims_in: Sequence[int],
        hidden: Sequence[int],  # sizes of the hidden layers; none makes it a single linear layer
        dim_out: int,  # size of the output
        # end with a ReLU as well, as embeddings and encoders do; heads and decoders do not
        relu_out: bool = False,
        dropout: float = 0.0,  # rate after each ReLU
    ) -> None:
        super().__init__()
        sizes = [*hidden, dim_out]
        self.first = ConcatLinear(dims_in, sizes[0])
        self.rest = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.relu_sizes = sizes if relu_out else sizes[:-1]
        self.relu_out = relu_out
        self.dropout = dropout

    def dropout_shapes(self) -> list[Shape]:
        """Shapes, per point, of the uniform numbers that dropout needs."""
        return [(size,) for size in self.relu_sizes] if self.dropout else []

    def forward(self, *inputs: Tensor, dropout: Sequence[Tensor] = ()) -> Tensor:
        uniforms = iter(dropout)
        h: Tensor = self.first(*inputs)
        for layer in self.rest:
            h = layer(drop(F.relu(h), self.dropout, uniforms))
        return drop(F.relu(h), self.dropout, uniforms) if self.relu_out else h


class Fourier(nn.Module):
    """x → W [x, sin(2^k π/4 x), cos(2^k π/4 x)], k = 0 … K − 1: a network of few layers cannot make fast waves itself.

    The first `dim_waves` inputs get K = `num_waves` waves each; codes need none.
    """

    def __init__(self, dim_x: int, dim_waves: int, num_waves: int, dim_out: int) -> None:
        super().__init__()
        self.dim_waves, self.num_waves = dim_waves, num_waves
        self.linear = nn.Linear(dim_x + 2 * dim_waves * num_waves, dim_out)

    def forward(self, x: Tensor) -> Tensor:
        frequencies = math.pi / 4 * 2 ** torch.arange(self.num_waves, device=x.device)
        angles = (x[..., : self.dim_waves].unsqueeze(-1) * frequencies).flatten(-2)  # [..., D·K]
        return self.linear(torch.cat([x, angles.sin(), angles.cos()], dim=-1))


class GaussianHead(nn.Module):
    """dim_in → [μ, ln σ], one linear step (App. E), with σ kept in a range where training is stable.

    `scale` is "bounded" for σ = 0.1 + 0.9·sigmoid(·), or "exp" for σ = exp(·), the other reading.
    """

    def __init__(self, dim_in: int, dim_lat: int, scale: str = "bounded") -> None:
        super().__init__()
        if scale not in ("bounded", "exp"):
            raise ValueError(f"latent scale must be 'bounded' or 'exp', got {scale!r}")
        self.linear = nn.Linear(dim_in, 2 * dim_lat)
        self.scale = scale

    def forward(self, representation: Tensor) -> DiagonalGaussian:
        mean, raw = full_precision(self.linear(representation)).chunk(2, dim=-1)
        scale = raw.exp() if self.scale == "exp" else 0.1 + 0.9 * torch.sigmoid(raw)
        return DiagonalGaussian(mean, scale)


class LeNet(nn.Module):
    """Image [channels, height, width] → [20, M, 50, F, 500], kernel 5 → dim_out, with ReLU, for MNIST (App. E)."""

    def __init__(self, image: Shape, dim_out: int, dropout: float = 0.0) -> None:
        super().__init__()
        channels, height, width = image
        self.image = image
        self.dropout = dropout
        self.conv1 = nn.Conv2d(channels, 20, kernel_size=5)
        self.conv2 = nn.Conv2d(20, 50, kernel_size=5)
        self.side = ((height - 4) // 2 - 4, (width - 4) // 2 - 4)
        self.dense = MLP([50 * math.prod(self.side)], [500], dim_out, relu_out=True, dropout=dropout)

    def dropout_shapes(self) -> list[Shape]:
        """Shapes, per image, of the uniform numbers that dropout needs."""
        height, width = self.image[1:]
        convolutions: list[Shape] = [(20, height - 4, width - 4), (50, *self.side)]
        return convolutions + self.dense.dropout_shapes() if self.dropout else []

    def forward(self, x: Tensor, dropout: Sequence[Tensor] = ()) -> Tensor:
        uniforms = iter(dropout)
        h = x.unflatten(-1, self.image)  # [..., D] -> [..., channels, height, width]
        h = drop(F.relu(over_images(self.conv1, h)), self.dropout, uniforms)
        h = over_images(max_pool, h)
        h = drop(F.relu(over_images(self.conv2, h)), self.dropout, uniforms)
        return self.dense(h.flatten(-3), dropout=tuple(uniforms))


VGG19: tuple[int | str, ...] = (
    *(64, 64, "M"),
    *(128, 128, "M"),
    *(256, 256, 256, 256, "M"),
    *(512, 512, 512, 512, "M"),
    *(512, 512, 512, 512, "M"),
)


class VGG(nn.Module):
    """Image (channels, height, width) → 3×3 convolutions with batch norm and pooling → dim_out (App. E), for CIFAR-10.

    `layers` lists output channels, and "M" for a max pooling.
    """

    def __init__(
        self, image: Shape, dim_out: int, layers: Sequence[int | str] = VGG19, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.image = image
        self.dropout = dropout
        self.layers = tuple(layers)
        self.blocks = nn.ModuleList()
        self.shapes: list[Shape] = []
        channels, height, width = image
        for layer in self.layers:
            if layer == "M":
                height, width = height // 2, width // 2
                continue
            size = int(layer)
            self.blocks.append(NormedConvolution(channels, size))
            self.shapes.append((size, height, width))
            channels = size
        self.dense = MLP([channels * height * width], [], dim_out, relu_out=True, dropout=dropout)

    def dropout_shapes(self) -> list[Shape]:
        """Shapes, per image, of the uniform numbers that dropout needs."""
        return self.shapes + self.dense.dropout_shapes() if self.dropout else []

    def forward(self, x: Tensor, dropout: Sequence[Tensor] = ()) -> Tensor:
        uniforms = iter(dropout)
        blocks = iter(self.blocks)
        h = x.unflatten(-1, self.image)
        for layer in self.layers:
            if layer == "M":
                h = over_images(max_pool, h)
            else:
                h = drop(F.relu(over_images(next(blocks), h)), self.dropout, uniforms)
        return self.dense(h.flatten(-3), dropout=tuple(uniforms))


class Convolution(nn.Module):
    """3×3 convolution of images [N, channels, height, width], without a bias, which batch norm would remove.

    The kernel is stored as [out, 3, 3, in] and images in the same order, channels last: tensor cores read that layout
    directly, and neither a kernel nor its gradient has to be transposed.
    """

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        usual = nn.Conv2d(dim_in, dim_out, kernel_size=3, bias=False).weight
        self.kernel = nn.Parameter(usual.detach().movedim(1, -1).contiguous())

    def forward(self, images: Tensor) -> Tensor:
        return F.conv2d(channels_last(images), self.kernel.movedim(-1, 1), padding=1)


class NormedConvolution(nn.Module):
    """Convolution and batch norm, the latter in full precision: uncompiled, `vmap` has none in mixed precision.

    The norm takes pixels as points: on CUDA `vmap` has no batch norm of images with channels last.
    """

    def __init__(self, dim_in: int, dim_out: int) -> None:
        super().__init__()
        self.convolution = Convolution(dim_in, dim_out)
        self.norm = nn.BatchNorm1d(dim_out)

    def forward(self, images: Tensor) -> Tensor:
        pixels = full_precision(self.convolution(images)).movedim(1, -1)
        normed: Tensor = self.norm(pixels.flatten(0, 2)).unflatten(0, pixels.shape[:3])
        return normed.movedim(-1, 1)


def channels_last(images: Tensor) -> Tensor:
    """[N, channels, height, width], with channels last in memory."""
    return images.movedim(1, -1).contiguous().movedim(-1, 1)


def max_pool(images: Tensor) -> Tensor:
    """2×2 max pooling of [N, channels, height, width]."""
    return F.max_pool2d(images, 2)


def over_images(function: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    """Apply a function of [N, channels, height, width] under any leading axes."""
    return function(h.reshape(-1, *h.shape[-3:])).unflatten(0, h.shape[:-3])


def full_precision(value: Tensor) -> Tensor:
    """Convert a network's output from bfloat16, the type of autocast, to float32: distributions need the digits."""
    return value.float() if value.dtype == torch.bfloat16 else value


def drop(h: Tensor, rate: float, uniforms: Iterator[Tensor]) -> Tensor:
    """Zero each element where its uniform number is below `rate` and rescale; without numbers, keep all."""
    uniform = next(uniforms, None)
    return h if uniform is None else h * (uniform >= rate) / (1 - rate)


class WithoutDraws(TorchFunctionMode):
    """Draws no first weights from torch's generator: others take their place."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.uniform_, Tensor.normal_) or getattr(func, "__module__", "") == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        own = {"generator": torch.Generator()} if func is torch.randn else {}
        return func(*args, **(own | kwargs))
