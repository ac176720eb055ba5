"""The curves that models are judged on (Sec. 4.1), inside and outside the interval of training.

`sources/curves.py` draws them, y = sin(f(x) + x) with f ~ GP(0, RBF), and supplies those that models learn from.
"""

from typing import NamedTuple, Self

import torch

from dsvnp.sources.curves import curve_tasks
from dsvnp.task import Task

INSIDE, OUTSIDE = (-2.0, 2.0), (-4.0, 4.0)
CONTEXT_SIZES = (1, 2, 3, 5, 8, 12, 20, 30, 40, 50)


class UnseenCurves(NamedTuple):
    """Functions that no model learns from, the same for every model."""

    # tasks of "inter" and "extra", and with "-max" those whose context is exactly the largest
    splits: dict[str, list[Task]]
    by_size: dict[int, list[Task]]  # interpolation with contexts of exactly each size

    @classmethod
    def draw(
        cls, num_tests: int, num_points: int, max_context: int, extra_context: int, device: torch.device
    ) -> Self:
        """Draw `num_tests` functions for each split, with the largest contexts inside and outside the interval.

        They are drawn by the CPU: kept weights are measured on the same functions on any machine.
        """

        def tasks(
            seed: int, number: int, sizes: tuple[int, int], interval: tuple[float, float]
        ) -> list[Task]:
            drawn = curve_tasks(number, num_points, sizes, torch.Generator().manual_seed(seed), interval)
            return [task.to(device) for task in drawn]

        splits = {}
        for i, (part, interval, most) in enumerate(
            (("inter", INSIDE, max_context), ("extra", OUTSIDE, extra_context))
        ):
            splits[part] = tasks(1_000_000 + i, num_tests, (3, most), interval)
            splits[f"{part}-max"] = tasks(1_000_000 + i, num_tests, (most, most), interval)
        few = min(500, num_tests)
        sizes = [size for size in CONTEXT_SIZES if size <= max_context]
        return cls(splits, {size: tasks(2_000_000, few, (size, size), INSIDE) for size in sizes})
