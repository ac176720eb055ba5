"""Linear layers of large sets on a CPU, by oneDNN's kernels where they are the faster ones.

torch multiplies float32 matrices by MKL, which uses half the width of a core's vectors on processors that are not
Intel's: there oneDNN, which torch has too, takes less than half the time. It needs about a millisecond to make a kernel
for each new size, which small products are not worth.
"""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

LARGE = 2**24  # products of numbers in a matrix product, from which oneDNN serves


def linear(x: Tensor, weight: Tensor, bias: Tensor, gelu: bool = False) -> Tensor:
    """W x + b of the last axis of x [..., D], and its GELU if asked for."""
    # An export records comparisons of sizes as conditions: whether one is under way comes first.
    if _is_plain(x) and x.numel() * len(weight) >= LARGE and _serves():
        made: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, weight, bias, "gelu" if gelu else "none", [], "none"
        )
        return made
    found = F.linear(x, weight, bias)
    return F.gelu(found) if gelu else found


def _is_plain(x: Tensor) -> bool:
    """Whether numbers are computed now, on a CPU, in single precision, and nothing is traced, mapped or cast."""
    return (
        not torch.compiler.is_compiling()
        and not torch.is_grad_enabled()
        and not torch._C._functorch.is_functorch_wrapped_tensor(x)
        and (x.device.type, x.dtype) == ("cpu", torch.float32)
        and not torch.is_autocast_enabled("cpu")
    )


@cache
def _serves() -> bool:
    """Whether this processor gains and this version of torch has the operation, which is not public, as it is known."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkldnn.is_available():
        return False
    ramp = torch.linspace(-1, 1, 32).view(4, 8)
    try:
        found = torch.ops.mkldnn._linear_pointwise(ramp, ramp, ramp[0, :4], "gelu", [], "none")
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.allclose(found, F.gelu(F.linear(ramp, ramp, ramp[0, :4])), atol=1e-6)
