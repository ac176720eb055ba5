"""The random numbers that a model consumes, and the mode in which it predicts.

`noise` maps names to tensors: "global" [K, B, Z] and "local" [K, S, B, T, Z] are standard normal, "dropout.i" uniform.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dsvnp.naming import unknown
from dsvnp.networks import Shape
from dsvnp.task import Task

Noise = Mapping[str, Tensor]


def draw_noise(
    shapes: Mapping[str, Shape], like: Tensor, generator: torch.Generator | None
) -> dict[str, Tensor]:
    """Draw noise of the given shapes: uniform in [0, 1) for dropout, standard normal for latents."""
    return {
        name: (torch.rand if is_uniform(name) else torch.randn)(
            shape, generator=generator, dtype=like.dtype, device=like.device
        )
        for name, shape in shapes.items()
    }


def is_uniform(name: str) -> bool:
    """Whether noise of this name is uniform; all other noise is standard normal."""
    return name.startswith("dropout")


def check_noise(
    noise: Noise, shapes: Callable[[int, int, int], Mapping[str, Shape]], num_targets: int
) -> None:
    """Refuse noise that a model does not know, or of another shape, which torch might repeat without a word.

    A name that is left out puts its latents at their mean; a points axis of size 1 serves all targets. `shapes` gives
    the `noise_shapes` of T targets, K and S draws.
    """
    known = shapes(num_targets, 1, 1)
    draws = {name: len(value) for name, value in noise.items() if value.ndim}
    for name, value in noise.items():
        if name not in known:
            raise ValueError(
                unknown(name, known, "noise") if known else f"unknown noise {name!r}; this model has none"
            )
        num_global, num_local = draws.get(name, 1), value.shape[1] if value.ndim > 1 else 1
        fitting = [shapes(points, num_global, num_local)[name] for points in dict.fromkeys((num_targets, 1))]
        if tuple(value.shape) not in map(tuple, fitting):
            raise ValueError(
                f"noise[{name!r}] must have the shape {tuple(fitting[0])}, got {tuple(value.shape)}; "
                "make it by draw_noise(model.noise_shapes(…)), or leave it out"
            )
    if len(set(draws.values())) > 1:
        raise ValueError(f"noise must be of the same number of draws, got {draws}")


def noise_of(noise: Noise, task: Task, start: int, step: int) -> dict[str, Tensor]:
    """Take the local noise of some targets, where there is any; a single slot serves all."""
    if "local" not in noise or (points := noise["local"].shape[-2]) == 1:
        return {}
    if points != task.num_targets:
        raise ValueError(
            f"noise['local'] has {points} points but the task has {task.num_targets} targets; "
            "pass one slot per target, or a single one for all"
        )
    return {"local": noise["local"][..., start : start + step, :]}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode (batch norm) for a while."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:  # each as it was: a user may have frozen a part
        for module, training in modes:
            module.training = training
