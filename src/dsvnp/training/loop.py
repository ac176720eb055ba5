"""The loop: step, report, validate, save, and stop when asked to."""

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor

from dsvnp.files import sweep
from dsvnp.training import checkpoint as checkpoints
from dsvnp.training.checkpoint import Checkpoint
from dsvnp.training.fleet import Fleet
from dsvnp.training.preparation import out_of_memory
from dsvnp.training.progress import Reporter
from dsvnp.training.shared import matmul_precision, refuse_odd_modes
from dsvnp.training.step import STOP_REASONS

Validation = Callable[[Fleet], Tensor]  # one number per replica of this process, the lower the better


class Interrupted(RuntimeError):
    """Training was asked to stop; its state is saved."""

    def __init__(self, signal_number: int, path: Path | None, step: int) -> None:
        self.signal_number = signal_number
        where = f"saved in {path}; run again to continue from there" if path else "nothing was saved"
        super().__init__(f"stopped by {signal.Signals(signal_number).name} after step {step}, {where}")


def train(
    fleet: Fleet,
    folder: Path | None = None,
    validation: Validation | None = None,
    reporter: Reporter | None = None,
) -> Fleet:
    """Train a fleet to its last step, from the newest checkpoint in `folder` if there is one.

    Args:
        fleet: what to train.
        folder: where checkpoints are written; None for none.
        validation: metric of each replica, called every `validate_every` steps.
        reporter: where progress goes; none is shown by default, and a replica that breaks is a warning.

    Raises:
        Interrupted: on SIGINT or SIGTERM, after the step in progress and a checkpoint.
        CheckpointError: if the newest checkpoint is damaged or of another run.
    """
    if fleet.settings.validate_every and validation is None:
        raise ValueError("the settings ask for validations but there is none; pass validation=")
    refuse_odd_modes()
    reporter = reporter if fleet.cluster.writes else None
    found = _find(fleet, folder) if folder is not None else None
    if found is not None:
        restore(fleet, found)
    with matmul_precision(fleet.settings.precision), reporter or nullcontext(), _stop_signals() as stop:
        if reporter is not None:
            reporter.start(fleet.num_steps_taken)
            if found is not None:
                reporter.say(f"continuing from step {found.step}{_caveat(fleet, found)}")
        _loop(fleet, folder, validation, reporter, stop)
    return fleet


def _find(fleet: Fleet, folder: Path) -> Checkpoint | None:
    """Read the newest checkpoint, the same in all processes."""
    cluster = fleet.cluster
    cluster.largest(0)  # wait for all: one of them may still be writing what the others are to read
    found = checkpoints.load_latest(folder, fleet.describe())
    if cluster.writes:
        sweep(folder)  # a run that is resumed after its last step saves nothing any more
    step = found.step if found is not None else 0
    if cluster.largest(step) != -cluster.largest(-step):
        raise checkpoints.CheckpointError(
            f"{folder}: the processes found different checkpoints there, this one step {step}; "
            "give them a folder that all of them see"
        )
    return found


def _loop(
    fleet: Fleet,
    folder: Path | None,
    validation: Validation | None,
    reporter: Reporter | None,
    caught: list[int],
) -> None:
    """Step until the end, until no replica is on, or until asked to stop."""
    settings, cluster = fleet.settings, fleet.cluster
    if not cluster.largest(any(fleet.active)):  # run again after its end
        return
    news = _News(fleet, reporter)
    while fleet.num_steps_taken < settings.num_steps:
        _step(fleet, folder)
        step = fleet.num_steps_taken
        if validation is not None and settings.validate_every and step % settings.validate_every == 0:
            fleet.note_validation(validation(fleet))
        last = step == settings.num_steps
        # Several processes agree on stopping, and do so only now and then; one process stops at once.
        meet = step % settings.log_every == 0 or last
        stop = max(caught, default=0) if cluster.size == 1 else 0
        if meet:
            news.report()
            stop = cluster.largest(max(caught, default=0))
            last = last or not cluster.largest(any(fleet.active))
        due = settings.checkpoint_every and step % settings.checkpoint_every == 0
        path = (
            news.save(folder, must=bool(last or stop))
            if folder is not None and (due or last or stop)
            else None
        )
        if stop:
            raise Interrupted(stop, path or folder, step)
        if last:
            return


def _step(fleet: Fleet, folder: Path | None) -> None:
    """Take a step; where the device runs out of memory in the middle of a run, say what is saved.

    That step may be half done: the state is of no use, but the newest checkpoint is.
    """
    try:
        fleet.step()
    except torch.OutOfMemoryError as error:
        found = checkpoints.list_checkpoints(folder) if folder is not None else []
        saved = f"; saved in {found[-1]}: run again to resume from there" if found else "; nothing is saved"
        when = f"at step {fleet.num_steps_taken}"
        text = str(error) if str(error).startswith("out of memory") else out_of_memory(error, when)
        raise torch.OutOfMemoryError(text + saved) from error


def save(fleet: Fleet, folder: Path) -> Path | None:
    """Write a checkpoint of all replicas; only one process does, and gets its path."""
    cluster = fleet.cluster
    rng = torch.stack([generator.get_state() for generator in fleet.generators])
    tensors = cluster.gather({**fleet.state, "rng": rng}, _counts(fleet))
    if not cluster.writes:
        return None
    generators = [bytes(row.tolist()).hex() for row in tensors.pop("rng")]
    named = _named(fleet, tensors)
    content = Checkpoint(
        named, fleet.describe(), fleet.num_steps_taken, generators, checkpoints.environment(fleet.device)
    )
    return checkpoints.save(folder, content, fleet.settings.keep)


def restore(fleet: Fleet, checkpoint: Checkpoint) -> None:
    """Put a checkpoint's state into a fleet, in place, where a captured graph reads it."""
    rows = slice(fleet.share.start, fleet.share.stop)
    if len(checkpoint.generators) < fleet.share.stop:
        raise checkpoints.CheckpointError(
            f"damaged: the checkpoint of step {checkpoint.step}: it has {len(checkpoint.generators)} random generators"
        )
    for generator, text in zip(fleet.generators, checkpoint.generators[rows], strict=True):
        if len(text) != 2 * len(generator.get_state()):
            raise checkpoints.CheckpointError(
                f"written on {checkpoint.environment.get('device')}, whose random generators differ from those of "
                f"{fleet.device.type}; continue there, or start again in another folder"
            )
        try:
            generator.set_state(torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8))
        except (RuntimeError, ValueError) as error:
            raise checkpoints.CheckpointError(
                f"damaged: the checkpoint of step {checkpoint.step}: a random generator has no such state ({error})"
            ) from None
    for name, target in fleet.state.items():
        if name.removeprefix("best.") in FLAT:
            shapes = {key: (target.shape[0], *shape) for key, shape in fleet.plan.layout.shapes.items()}
            parts = {
                key: _rows(checkpoint, f"{name}.{key}", rows, shape, target.dtype)
                for key, shape in shapes.items()
            }
            target.copy_(fleet.plan.layout.flatten(parts))
        else:
            target.copy_(_rows(checkpoint, name, rows, target.shape, target.dtype))
    fleet.num_steps_taken = checkpoint.step


def _rows(
    checkpoint: Checkpoint, name: str, rows: slice, shape: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """Some replicas of a tensor, which must have a shape and a dtype: others would be broadcast, or rounded."""
    value = checkpoint.tensors.get(name)
    found = value[rows] if value is not None and value.ndim else value
    if found is None:
        got = "is not there"
    elif found.shape != shape:
        got = f"has the shape {tuple(found.shape)}, not {tuple(shape)}"
    elif found.dtype != dtype:
        got = f"is of {found.dtype}, not of {dtype}"
    else:
        return found
    raise checkpoints.CheckpointError(f"damaged: the checkpoint of step {checkpoint.step}: {name} {got}")


def _caveat(fleet: Fleet, checkpoint: Checkpoint) -> str:
    """Name what differs between a resumed run and the first one, and may change the bits of its results."""
    here = checkpoints.environment(fleet.device)
    changed = [f"{k} {v} → {here[k]}" for k, v in checkpoint.environment.items() if here.get(k) != v]
    return f"; equal to an undisturbed run but for rounding, since {', '.join(changed)}" if changed else ""


FLAT = ("params", "m", "v")  # kept flat in a fleet, by parameter name in a file


def _named(fleet: Fleet, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Cut flat tensors into parameters by name: other programs can then read the file."""
    out: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if name.removeprefix("best.") in FLAT:
            out |= {f"{name}.{k}": part for k, part in fleet.plan.layout.unflatten(value).items()}
        else:
            out[name] = value
    return out


class _News:
    """Reports on a fleet: its terms, its validation, and replicas that stopped."""

    def __init__(self, fleet: Fleet, reporter: Reporter | None) -> None:
        self.fleet, self.reporter = fleet, reporter
        self.reported = {row for row, step in enumerate(fleet.state["stop_step"].tolist()) if step >= 0}

    def report(self) -> None:
        """Read the metrics and tell of them; one process does, for all."""
        fleet = self.fleet
        values = fleet.read_metrics()
        if fleet.num_steps_taken >= fleet.settings.validate_every > 0:
            values["validation"] = fleet.state["validation"]
        stops = {name: fleet.state[name] for name in ("stop_step", "stop_reason")}
        everything = fleet.cluster.gather({**values, **stops}, _counts(fleet))
        if not fleet.cluster.writes:
            return
        if self.reporter is not None:
            columns = {name: [float(v) for v in everything[name].tolist()] for name in values}
            self.reporter.report(fleet.num_steps_taken, columns)
        for row, (step, reason) in enumerate(
            zip(*(everything[name].tolist() for name in stops), strict=True)
        ):
            if step >= 0 and row not in self.reported:
                self.reported.add(row)
                self._say(
                    f"replica {row} (seed {fleet.all_seeds[row]}) stopped: {STOP_REASONS[reason]} was not finite "
                    f"at step {step}; the others go on. A lower learning rate or clip_norm may help"
                )

    def save(self, folder: Path, must: bool) -> Path | None:
        """Write a checkpoint; a disk that is full ends the training only where there will be no later one."""
        try:
            return save(self.fleet, folder)
        except OSError as error:
            if must:
                raise
            self._say(f"no checkpoint after step {self.fleet.num_steps_taken}: {error}; training continues")
            return None

    def _say(self, message: str) -> None:
        """Tell of a broken replica even where no progress is shown: its weights are of no use."""
        if self.reporter is not None:
            self.reporter.say(message)
        else:
            warnings.warn(message, RuntimeWarning, stacklevel=5)  # at the caller of `train`


def _counts(fleet: Fleet) -> list[int]:
    """Replicas of each process."""
    return [len(fleet.cluster.share(len(fleet.all_seeds), rank)) for rank in range(fleet.cluster.size)]


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying of them; only the main thread may."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def catch(number: int, frame: FrameType | None) -> None:
        caught.append(number)

    before = {number: signal.signal(number, catch) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set by Python
