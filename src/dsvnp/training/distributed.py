"""Cluster: how a fleet is spread over the processes of `torchrun`, and the little they say to each other.

Two ways, both through `torch.distributed` alone:

    replicas   each rank trains its own share of the replicas; nothing is exchanged but results
    data       every rank holds the same replicas and a part of each batch; one all_reduce sums gradients
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from dsvnp.naming import lookup
from dsvnp.task import Task

SILENCE = ("gloo", "NCCL", "Connection closed", "Connection reset", "Broken pipe")
TASK_AXIS = {"global": 1, "local": 2}  # where noise has its tasks; dropout has them at 1 as well


class Deserted(OSError):
    """Another process of the run ended before its time."""


@dataclass(frozen=True)
class Cluster:
    """This process among the others."""

    rank: int = 0  # number of this process
    size: int = 1  # number of processes
    mode: str = "replicas"  # "replicas" or "data"

    def __post_init__(self) -> None:
        lookup(self.mode, {"replicas": 0, "data": 0}, "way to spread a fleet")

    @classmethod
    def from_environment(cls, mode: str = "replicas") -> Cluster:
        """Join the processes that `torchrun` started, each on a GPU of its own where there are any.

        One process alone if `torchrun` did not start it.
        """
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls(mode=mode)
        if not dist.is_initialized():
            backend = "nccl" if torch.cuda.is_available() else "gloo"
            if backend == "nccl":  # "cuda" then means this process's own
                torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            dist.init_process_group(backend)
        return cls(dist.get_rank(), size, mode)

    @classmethod
    @contextmanager
    def joined(cls) -> Iterator[None]:
        """Join the processes of `torchrun`, if any, and leave them at the end; `Deserted` if another ended early."""
        cls.from_environment()
        try:
            yield
            if dist.is_available() and dist.is_initialized():
                dist.barrier()  # all leave together, also those that write nothing at the end
        except RuntimeError as error:
            # gloo has no type for other processes that do not answer
            silent = isinstance(error, dist.DistError) or any(word in str(error) for word in SILENCE)
            if dist.is_initialized() and silent:
                raise Deserted(
                    "another process of this run ended, and this one cannot continue alone; run again, with any number "
                    "of processes, to resume from the last checkpoint"
                ) from error
            raise
        finally:
            if dist.is_available() and dist.is_initialized():
                dist.destroy_process_group()
                gc.collect()  # end its threads now: at the interpreter's exit gloo aborted some processes

    @property
    def writes(self) -> bool:
        """Whether this is the one process that writes files and progress."""
        return self.rank == 0

    @property
    def splits_data(self) -> bool:
        """Whether each batch is split over several processes."""
        return self.mode == "data" and self.size > 1

    @property
    def splits_replicas(self) -> bool:
        """Whether the replicas are split over several processes."""
        return self.mode == "replicas" and self.size > 1

    def share(self, count: int, rank: int | None = None) -> range:
        """Which of `count` replicas a rank holds: contiguous, as even as can be."""
        if not self.splits_replicas:
            return range(count)
        rank = self.rank if rank is None else rank
        return range(count * rank // self.size, count * (rank + 1) // self.size)

    def my_part(self, task: Task, noise: Mapping[str, Tensor]) -> tuple[Task, dict[str, Tensor]]:
        """Take this rank's tasks of the joint batch, and their noise."""
        if not self.splits_data:
            return task, dict(noise)
        if task.num_tasks % self.size:
            raise ValueError(
                f"a batch of {task.num_tasks} tasks cannot be split over {self.size} processes; "
                f"choose a batch size that is a multiple of {self.size}"
            )
        count = task.num_tasks // self.size
        start = count * self.rank
        mine = {name: value[start : start + count] for name, value in task.tensors().items()}
        part = {name: value.narrow(TASK_AXIS.get(name, 1), start, count) for name, value in noise.items()}
        return Task(**mine), part

    def all_reduce(self, *tensors: Tensor) -> None:
        """Sum tensors over the ranks in place, if these hold parts of one batch."""
        if self.splits_data:
            for tensor in tensors:
                dist.all_reduce(tensor)

    def largest(self, value: int) -> int:
        """The largest of all processes' numbers; all of them must ask."""
        if self.size == 1:
            return int(value)
        number = torch.tensor(int(value), device=_meeting_place())
        dist.all_reduce(number, dist.ReduceOp.MAX)
        return int(number)

    def average(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Average floating-point tensors over ranks that hold parts of one batch (batch norm's statistics)."""
        self.all_reduce(*(value for value in tensors.values() if value.is_floating_point()))
        shared = self.size if self.splits_data else 1
        return {k: v / shared if v.is_floating_point() else v for k, v in tensors.items()}

    def gather(self, tensors: Mapping[str, Tensor], counts: Sequence[int]) -> dict[str, Tensor]:
        """Collect tensors [R of this rank, ...] from all ranks on the rank that writes; `counts` are their R.

        A 0-d tensor is the same everywhere.
        """
        if not self.splits_replicas:
            return dict(tensors)
        out = {}
        for name in sorted(tensors):
            value = tensors[name]
            if value.ndim == 0:
                out[name] = value
            elif self.rank:
                dist.send(value.to(_meeting_place()).contiguous(), 0)
            else:
                parts = [value]
                for rank, count in enumerate(counts[1:], start=1):
                    shape = (count, *value.shape[1:])
                    part = torch.empty(shape, dtype=value.dtype, device=_meeting_place())
                    dist.recv(part, rank)
                    parts.append(part.to(value.device))
                out[name] = torch.cat(parts)
        return out


def _meeting_place() -> torch.device:
    """Where a tensor must lie for the processes to exchange it (the state of a generator lies on the CPU)."""
    return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
