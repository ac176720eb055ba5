"""Scaling by the context alone: what a pretrained network reads, in training and in use.

A network for tables reads 2·D channels per point: D scaled values, and D codes which say what a value is,

    0  observed        1  missing (the value is 0)        −1  the column is not used (the value is 0).

Statistics come from context points only, so no target reveals anything of itself. A column is scaled by mean and
standard deviation after values beyond three standard deviations have been pulled in, and what still lies beyond
`clip` grows like a logarithm: monotone, so no order is lost, and no outlier can blow up a network.
"""

import torch
from torch import Tensor

OBSERVED, MISSING, UNUSED = 0.0, 1.0, -1.0


def standardise(x: Tensor, used: Tensor, in_context: Tensor, mask: Tensor, clip: float = 4.0) -> Tensor:
    """Scale columns x [B, T, D] by their context, and say of each entry what it is, [B, T, 2·D].

    NaN is a missing value. Flags say which columns are used [B, D], which points are context and which slots are filled
    [B, T]. Beyond `clip` standard deviations values grow like a logarithm. A column that does not vary in the context
    is 0 everywhere: nothing can be learned from it.
    """
    there = used.unsqueeze(1) & mask.unsqueeze(-1)
    return scale_inputs(x, used, there, input_scale(x, there & in_context.unsqueeze(-1)), clip)


def input_scale(x: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column of x [B, T, D] where it counts, outliers pulled in, [B, 1, D] each."""
    counted = counted & ~x.isnan()
    values = torch.where(counted, x, 0.0)
    mean, std = moments(values, counted)
    inner = torch.minimum(torch.maximum(values, mean - 3 * std), mean + 3 * std)
    return moments(inner, counted)


def scale_inputs(
    x: Tensor, used: Tensor, there: Tensor, scale: tuple[Tensor, Tensor], clip: float = 4.0
) -> Tensor:
    """Values by the `input_scale` of their context, and codes; `there` is False in empty slots and unused columns."""
    mean, std = scale
    there = there & ~x.isnan()
    values = torch.where(there, x, 0.0)
    varies = _varies(mean, std)
    inside = soft_clip((values - mean) / torch.where(varies, std, 1.0), clip)
    code = torch.where(there, OBSERVED, MISSING)
    code = torch.where(used.unsqueeze(1), code, UNUSED)
    return torch.cat([torch.where(there & varies, inside, 0.0), code.to(x.dtype)], dim=-1)


def output_scale(y: Tensor, in_context: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the context's outputs y [B, T], each [B, 1]; 1 where they do not vary."""
    mean, std = moments(torch.where(in_context, y, 0.0), in_context)
    return mean, torch.where(_varies(mean, std), std, 1.0)


def _varies(mean: Tensor, std: Tensor) -> Tensor:
    """Whether values vary by more than rounding: in float64 seconds since 1970 do so within a minute."""
    relative, least = (1e-13, 1e-300) if std.dtype == torch.float64 else (1e-6, 1e-30)
    return std > relative * mean.abs() + least


def moments(values: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation along axis 1 of the entries that count; 0 where none does."""
    number = counted.sum(1, keepdim=True).clamp(min=1)
    mean = torch.where(counted, values, 0.0).sum(1, keepdim=True) / number
    square = torch.where(counted, values - mean, 0.0).square().sum(1, keepdim=True)
    return mean, (square / number).sqrt()


def soft_clip(values: Tensor, clip: float) -> Tensor:
    """The values up to ±clip, beyond it ±(clip + ln(1 + |value| − clip))."""
    size = values.abs()
    return torch.where(size > clip, values.sign() * (clip + torch.log1p((size - clip).clamp(min=0))), values)


def context_sizes(uniform: Tensor, smallest: int, largest: Tensor | int) -> Tensor:
    """Sizes smallest … largest, nearly log-uniform; the largest itself in a tenth of the cases."""
    top = torch.zeros_like(uniform) + largest  # a captured graph takes no number from the host
    share = (uniform / 0.9).clamp(max=1) ** 0.75  # somewhat more large contexts than log-uniform has
    sizes = smallest * (top / smallest).clamp(min=1) ** share
    return torch.minimum(sizes + 1e-3, top).long()  # rounding must not turn the largest into one less


def seen_classes(labels: Tensor, in_context: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Number the classes that the context has 0, 1, … in order; say which points have such a class, [B, T] each.

    In use a network knows the classes of its context only, numbered like this. Labels lie in 0 … num_classes − 1; one
    whose class is not in the context becomes 0.
    """
    one_hot = labels.unsqueeze(-1) == torch.arange(num_classes, device=labels.device)  # [B, T, C]
    seen = (one_hot & in_context.unsqueeze(-1)).any(1)  # [B, C]
    number = seen.cumsum(-1) - 1
    known = (one_hot & seen.unsqueeze(1)).any(-1)
    renumbered = torch.where(one_hot, number.unsqueeze(1), 0).sum(-1)
    return torch.where(known, renumbered, 0), known
