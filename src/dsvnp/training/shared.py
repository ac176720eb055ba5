"""State that torch keeps once per process, shared by trainings in several threads.

Random numbers of a model's first weights come from a generator of their own: torch's default generator is neither read
nor changed. The precision of float32 products is a switch for all threads: trainings that want the same position share
it, one that wants another waits, and the last to leave puts it back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

T = TypeVar("T")

building = threading.RLock()  # compiling and capturing: both turn switches of the whole process


def seeded(make: Callable[[], T], seed: int) -> T:
    """Call `make` with random numbers of a seed: those that torch draws after `manual_seed`, in this thread alone."""
    with _OwnNumbers(seed):
        return make()


class _OwnNumbers(TorchDispatchMode):
    """Hand a generator to each operation that draws from torch's default one; a mode belongs to one thread."""

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags and kwargs.get("generator") is None:
            if (taking := _with_generator(func)) is None:
                raise NotImplementedError(
                    f"{func} takes no generator, which the first weights of a replica need; draw them with "
                    "torch.nn.init, or with methods such as normal_ and uniform_"
                )
            device = args[0].device if args and isinstance(args[0], torch.Tensor) else kwargs.get("device")
            func, kwargs["generator"] = taking, self._generator(torch.device(device or "cpu"))
        return func(*args, **kwargs)

    def _generator(self, device: torch.device) -> torch.Generator:
        """The generator of a device, made when it is first needed."""
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]


def _with_generator(func: Any) -> Any:
    """The form of an operation that takes a generator: itself, or one that differs in nothing else."""
    names = [argument.name for argument in func._schema.arguments]
    if "generator" in names:
        return func
    for overload in func.overloadpacket.overloads():
        other = getattr(func.overloadpacket, overload)
        others = [argument.name for argument in other._schema.arguments]
        if "generator" in others and [name for name in others if name != "generator"] == names:
            return other
    return None


# --- precision ---


class _Switches(NamedTuple):
    """How torch multiplies float32 matrices, and whether cuDNN may use TF32."""

    matmul: str
    cudnn: bool

    @classmethod
    def now(cls) -> _Switches:
        return cls(torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)

    def set(self) -> None:
        torch.set_float32_matmul_precision(self.matmul)
        torch.backends.cudnn.allow_tf32 = self.cudnn


class _Held:
    """Who is inside: the position of the switches, the one before, and how often each thread is in."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.wanted: _Switches | None = None
        self.before: _Switches | None = None
        self.threads: dict[int, int] = {}
        self.swapped = 0  # how many trainings inside another one of the same thread have turned them


_held = _Held()


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Use TF32 for float32 matrix products and convolutions for a while, or make sure that it is not used.

    Threads that want the same are inside together; one that wants another precision waits until they have left.
    """
    tf32 = precision == "tf32"
    wanted, me = _Switches("high" if tf32 else "highest", tf32), threading.get_ident()
    outer = _enter(wanted, me)
    try:
        yield
    finally:
        _leave(outer, me)


def _enter(wanted: _Switches, me: int) -> tuple[_Switches | None, _Switches | None]:
    """Turn the switches, once nobody wants them otherwise; returns what `_leave` puts back."""
    with _held.changed:
        if me not in _held.threads:
            _held.changed.wait_for(lambda: _held.wanted in (None, wanted) and not _held.swapped)
        elif (
            _held.wanted != wanted and len(_held.threads) > 1
        ):  # to wait here for others could be to wait forever
            raise RuntimeError(
                "a training inside another one asks for another precision while other threads train; "
                "give both the same precision, or run them one after the other"
            )
        outer = _held.wanted, _held.before
        if _held.wanted != wanted:
            _held.swapped += me in _held.threads
            _held.wanted, _held.before = wanted, _Switches.now()
            wanted.set()
        _held.threads[me] = _held.threads.get(me, 0) + 1
        return outer


def _leave(outer: tuple[_Switches | None, _Switches | None], me: int) -> None:
    """Put the switches back: after the last, or to what the same thread wanted outside."""
    with _held.changed:
        _held.threads[me] -= 1
        if not _held.threads[me]:
            del _held.threads[me]
        inside_itself = me in _held.threads and outer[0] != _held.wanted
        if (not _held.threads or inside_itself) and _held.before is not None:
            _held.swapped -= inside_itself
            _held.before.set()
            _held.wanted, _held.before = outer if inside_itself else (None, None)
        _held.changed.notify_all()


def refuse_odd_modes() -> None:
    """Refuse modes of torch in which the same arguments give another result, or none."""
    if torch.is_inference_mode_enabled():
        raise RuntimeError(
            "training needs gradients but torch.inference_mode() is on; leave that block before you train"
        )
    if torch.get_default_dtype() != torch.float32:
        raise RuntimeError(
            f"the default dtype is {torch.get_default_dtype()}, in which first weights differ from those of the same "
            "seed; call torch.set_default_dtype(torch.float32), and ask for Settings(precision='float64') if you "
            "want double precision"
        )
    refuse_autocast()


def refuse_autocast() -> None:
    """Refuse to compute where torch would round on the way."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise RuntimeError(
            "torch.autocast is on, in which the same arguments give another result; leave that block, and ask for "
            "Settings(precision='bf16') if you want to train in half precision"
        )
