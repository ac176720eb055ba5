"""Task: the input of every model, a batch of functions observed at some points and to be predicted at others.

Axes: B tasks, C context slots, T target slots. A model may read the context; the target set holds *all*
points of a task, the context's among them, flagged `in_context` (PROTOCOLS: q(z_G) encodes T once). Slots are fixed
and masked: the tasks of one batch may have contexts of different sizes.

A NaN in y is a missing value: it adds nothing to a likelihood and enters an encoder as zero, the mean of a
standardised output. Class labels are integers of shape [B, T, 1].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Task:
    """A batch of tasks with fixed slots and boolean masks.

    Attributes:
        x_context: inputs of the context, [B, C, dim_x].
        y_context: outputs of the context, [B, C, dim_y].
        x_target: inputs of the targets, [B, T, dim_x].
        mask_context: True where a context slot is filled, [B, C].
        mask_target: True where a target slot is filled, [B, T].
        y_target: outputs of the targets, [B, T, dim_y], or None where they are not known.
        in_context: True where a target is also a context point, [B, T]; None if the target
            set holds no context point.
    """

    x_context: Tensor
    y_context: Tensor
    x_target: Tensor
    mask_context: Tensor
    mask_target: Tensor
    y_target: Tensor | None = None
    in_context: Tensor | None = None

    def __post_init__(self) -> None:
        _check_set("context", self.x_context, self.y_context, self.mask_context)
        _check_set("target", self.x_target, self.y_target, self.mask_target)
        if self.x_context.shape[0] != self.x_target.shape[0]:
            raise ValueError(
                f"x_context has {self.x_context.shape[0]} tasks but x_target has {self.x_target.shape[0]}; "
                "pass the same tasks, in the same order, on both sides"
            )
        if self.x_context.shape[-1] != self.x_target.shape[-1]:
            raise ValueError(
                f"x_context has {self.x_context.shape[-1]} features but x_target has "
                f"{self.x_target.shape[-1]}; pass the same features on both sides"
            )
        flags = self.in_context
        if flags is not None and (flags.shape != self.mask_target.shape or flags.dtype != torch.bool):
            raise ValueError(
                f"in_context must be boolean of shape {tuple(self.mask_target.shape)}, got {flags.dtype} "
                f"{tuple(flags.shape)}; pass one flag per target slot"
            )

    @classmethod
    def from_points(cls, x: Tensor, y: Tensor, in_context: Tensor, mask: Tensor | None = None) -> Task:
        """Make a task of all its points, the context among them flagged, as training has it.

        Args:
            x: inputs, [B, T, dim_x].
            y: outputs, [B, T, dim_y].
            in_context: True where a point belongs to the context, [B, T].
            mask: True where a slot is filled, [B, T]; all of them by default.
        """
        mask = torch.ones_like(in_context) if mask is None else mask
        in_context = in_context & mask
        return cls(x, y, x, in_context, mask, y_target=y, in_context=in_context)

    @classmethod
    def from_sets(
        cls,
        x_context: Tensor,
        y_context: Tensor,
        x_target: Tensor,
        y_target: Tensor | None = None,
        mask_context: Tensor | None = None,
        mask_target: Tensor | None = None,
    ) -> Task:
        """Make a task of a context and of other points to predict, as use after training has it."""
        if mask_context is None:
            mask_context = torch.ones(x_context.shape[:2], dtype=torch.bool, device=x_context.device)
        if mask_target is None:
            mask_target = torch.ones(x_target.shape[:2], dtype=torch.bool, device=x_target.device)
        return cls(x_context, y_context, x_target, mask_context, mask_target, y_target)

    @classmethod
    def collate(cls, tasks: Sequence[Task]) -> Task:
        """Put tasks of different sizes into one batch; empty slots hold zeros and are masked out."""
        if not tasks:
            raise ValueError("collate got no task; pass at least one")
        columns: dict[str, Tensor | None] = {}
        for field in fields(cls):
            values = [getattr(task, field.name) for task in tasks]
            if any(value is None for value in values):
                if not all(value is None for value in values):
                    raise ValueError(f"{field.name} is given for some tasks only; give it for all or none")
                columns[field.name] = None
            else:
                columns[field.name] = _pad_and_cat(values)
        return cls(**columns)  # type: ignore[arg-type]

    @property
    def num_tasks(self) -> int:
        """Number of tasks in the batch, B."""
        return self.x_target.shape[0]

    @property
    def num_targets(self) -> int:
        """Number of target slots, T."""
        return self.x_target.shape[1]

    def joined(self) -> Task:
        """Return the task with its context among the targets, as an objective needs it."""
        if self.in_context is not None:
            return self
        if self.y_target is None:
            raise ValueError("the task has no y_target and cannot be learned from; pass y_target")
        empty = torch.zeros_like(self.mask_target)
        return replace(
            self,
            x_target=torch.cat([self.x_context, self.x_target], dim=1),
            y_target=torch.cat([self.y_context, self.y_target], dim=1),
            mask_target=torch.cat([self.mask_context, self.mask_target], dim=1),
            in_context=torch.cat([self.mask_context, empty], dim=1),
        )

    def some_targets(self, every: int) -> Task:
        """Return the task with one in `every` of its targets; its context stays."""
        per_target = {f"{name}_target" for name in ("x", "y", "mask")} | {"in_context"}
        return Task(**{n: v[:, ::every] if n in per_target else v for n, v in self.tensors().items()})

    def all_points(self) -> tuple[Tensor, Tensor]:
        """Return y_target and in_context of a task whose targets are all its points, as training has it."""
        if self.y_target is None or self.in_context is None:
            lacking = "y_target" if self.y_target is None else "in_context"
            raise ValueError(
                f"expected a task with its context among the targets, got one without {lacking}; pass y_target, and "
                "call joined() on the task before noise is drawn for it"
            )
        return self.y_target, self.in_context

    def tensors(self) -> dict[str, Tensor]:
        """Return the fields that are not None as a dictionary; `Task(**task.tensors())` is the same task."""
        return {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Task:
        """Move to a device; floating-point fields also take `dtype`."""
        moved = {
            name: value.to(device, dtype if value.is_floating_point() else None)
            for name, value in self.tensors().items()
        }
        return Task(**moved)

    def check(self) -> None:
        """Refuse values that would spoil results later: non-finite x, infinite y, misplaced flags."""
        for name in ("x_context", "x_target"):
            value = getattr(self, name)
            if not torch.isfinite(value).all():
                where = tuple((~torch.isfinite(value)).nonzero()[0].tolist())
                raise ValueError(
                    f"{name} must be finite, got {value[where].item()} at {where} (task, point, feature); "
                    "drop or impute such inputs, and fill padded slots with zeros"
                )
        for name in ("y_context", "y_target"):
            value = getattr(self, name)
            if value is not None and value.is_floating_point() and torch.isinf(value).any():
                where = tuple(torch.isinf(value).nonzero()[0].tolist())
                raise ValueError(
                    f"{name} is infinite at {where} (task, point, output); use NaN for a missing value"
                )
        if not self.mask_target.any(dim=1).all():
            task = int((~self.mask_target.any(dim=1)).nonzero()[0].item())
            raise ValueError(
                f"mask_target leaves task {task} without a target; keep at least one point per task"
            )
        if self.in_context is not None and (flagged := self.in_context & ~self.mask_target).any():
            where = tuple(flagged.nonzero()[0].tolist())
            raise ValueError(
                f"in_context flags the empty slot {where} (task, point), which would be read as context; "
                "flag filled targets only"
            )


def _check_set(role: str, x: Tensor, y: Tensor | None, mask: Tensor) -> None:
    """Check the shapes of one side of a task; static, at no cost inside a compiled step."""
    if x.ndim != 3:
        raise ValueError(
            f"x_{role} must be [tasks, points, features], got {x.ndim} axes {tuple(x.shape)}; "
            "add a first axis for a single task, flatten images to one feature axis"
        )
    if y is not None and y.ndim != 3:
        raise ValueError(
            f"y_{role} must be [tasks, points, outputs], got {y.ndim} axes {tuple(y.shape)}; "
            "add a last axis for a single output or for class labels"
        )
    if y is not None and y.shape[:2] != x.shape[:2]:
        raise ValueError(
            f"y_{role} has {y.shape[1]} points in {y.shape[0]} tasks but x_{role} has {x.shape[1]} in "
            f"{x.shape[0]}; pass one output row per input row"
        )
    if mask.shape != x.shape[:2] or mask.dtype != torch.bool:
        raise ValueError(
            f"mask_{role} must be boolean of shape {tuple(x.shape[:2])}, got {mask.dtype} "
            f"{tuple(mask.shape)}; pass one flag per slot"
        )


def _pad_and_cat(values: Sequence[Tensor]) -> Tensor:
    """Concatenate along tasks after padding the points axis with zeros (False for masks)."""
    slots = max(value.shape[1] for value in values)
    return torch.cat([F.pad(v, (0, 0) * (v.ndim - 2) + (0, slots - v.shape[1])) for v in values])
