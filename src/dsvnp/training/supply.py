"""Supply: what the sources of a fleet keep on the device, for all replicas.

Static tensors are shared where all replicas have one source, and stacked where each has its own (folds). The pools have
a replica axis always, since each replica draws its own from its own seed.
"""

import hashlib
from collections.abc import Sequence

import torch

from dsvnp.sources.base import TaskSource, Tensors
from dsvnp.task import Task


class Supply:
    """Static tensors and pools of R replicas, of one source for all or of one for each.

    Each lane of a fleet, by its number, has pools with random numbers of their own.
    """

    def __init__(
        self, sources: Sequence[TaskSource], seeds: Sequence[int], device: torch.device, lane: int = 0
    ) -> None:
        self.sources, self.seeds, self.device = list(sources), tuple(seeds), device
        self._purpose = f"lane {lane} pool" if lane else "pool"
        self.per_replica = len(self.sources) > 1
        static = [source.static() for source in self.sources]
        stacked = _stack(static) if self.per_replica else static[0]
        self.static: Tensors = {name: value.to(device) for name, value in stacked.items()}
        _check_alike(self.sources)
        self.pool: Tensors = {}
        self._index = -1

    def refresh(self, step: int) -> None:
        """Draw the pools of a step, if they are not there yet."""
        index = step // self.sources[0].refresh_every
        if index == self._index:
            return
        self._index = index
        for row, seed in enumerate(self.seeds):
            generator = make_generator(seed, f"{self._purpose} {index}", self.device)
            for name, value in self.sources[row % len(self.sources)].pool(generator, self.device).items():
                if name not in self.pool:
                    self.pool[name] = value.new_empty(len(self.seeds), *value.shape)
                self.pool[name][row].copy_(value)  # in place: a captured graph reads this memory

    def example(self, dtype: torch.dtype) -> Task:
        """A batch like those to come, of the first replica."""
        static = {k: v[0] for k, v in self.static.items()} if self.per_replica else self.static
        uniforms = {
            name: torch.zeros(shape, dtype=dtype, device=self.device)
            for name, shape in self.sources[0].uniform_shapes().items()
        }
        step = torch.zeros((), dtype=torch.int64, device=self.device)
        return self.sources[0].batch({**static, **{k: v[0] for k, v in self.pool.items()}}, uniforms, step)


def make_generator(seed: int, purpose: str, device: torch.device) -> torch.Generator:
    """A generator of its own for each seed and purpose."""
    digest = hashlib.sha256(f"{seed} {purpose}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:7], "little"))


def describe(source: TaskSource) -> dict[str, object]:
    """The settings of a source, in what JSON can hold."""
    settings = {
        name: list(value.shape) if isinstance(value, torch.Tensor) else str(value)
        for name, value in vars(source).items()
    }
    return {"kind": type(source).__name__, **settings}


def fingerprint(sources: Sequence[TaskSource]) -> str:
    """A digest of what the static tensors of all sources hold: a resumed run must find the same data."""
    digest = hashlib.sha256()
    for source in sources:
        for name, value in sorted(source.static().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _stack(tensors: list[Tensors]) -> Tensors:
    """Static tensors of one source a replica, stacked."""
    for name in tensors[0]:
        shapes = {tuple(each[name].shape) for each in tensors}
        if len(shapes) > 1:
            raise ValueError(
                f"the sources of a fleet differ in the shape of {name!r}: {sorted(shapes)}; "
                "give each replica as many rows"
            )
    return {name: torch.stack([each[name] for each in tensors]) for name in tensors[0]}


def _check_alike(sources: Sequence[TaskSource]) -> None:
    """Refuse sources with different settings: one function makes the batches of all replicas."""
    first, *others = (vars(source) for source in sources)
    for name, value in first.items():
        for other in others:
            if isinstance(value, int | float | tuple | torch.dtype) and other.get(name) != value:
                raise ValueError(
                    f"the sources of a fleet differ in {name}: {value} and {other.get(name)}; "
                    "they may differ in their data alone"
                )
