"""Hooks: who else receives the numbers of a training, such as TensorBoard, Weights & Biases or MLflow."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

Hook = Callable[[str, int, dict[str, float]], None]  # what is trained, the step, values by "metric/replica"
HOOKS: ContextVar[tuple[Hook, ...]] = ContextVar("hooks", default=())


@contextmanager
def reporting_to(hook: Hook) -> Iterator[None]:
    """Call a function with each report of every training inside the block."""
    token = HOOKS.set((*HOOKS.get(), hook))
    try:
        yield
    finally:
        HOOKS.reset(token)


@contextmanager
def tensorboard(folder: Path | None) -> Iterator[None]:
    """Write each report of every training inside the block for TensorBoard; without a folder do nothing."""
    if folder is None:
        yield
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError("TensorBoard is not installed; pip install 'dsvnp[tensorboard]'") from None
    writer = SummaryWriter(str(folder))

    def write(title: str, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(f"{title}/{name}", value, step)

    try:
        with reporting_to(write):
            yield
    finally:
        writer.close()
