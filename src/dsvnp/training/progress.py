"""Progress: a live bar on a terminal, plain lines elsewhere, and always a line of JSON per report."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from dsvnp.files import sweep, write_atomically
from dsvnp.training.hooks import HOOKS


class Reporter:
    """Reports the progress of a training."""

    def __init__(
        self,
        title: str,  # what is trained
        num_steps: int,  # steps in all
        log: Path | None = None,  # file that gets a line of JSON per report; None for none
        console: Console | None = None,  # where to write; the standard error by default
        quiet: bool = False,  # write nothing to the console but warnings
    ) -> None:
        self.title, self.num_steps, self.quiet = title, num_steps, quiet
        self.console = console or Console(stderr=True)
        self._log_path = log
        self._log: IO[str] | None = None
        self._bar: Progress | None = None
        self._last = (time.perf_counter(), 0)

    def __enter__(self) -> Reporter:
        if self._log_path is not None:
            self._log_path.parent.mkdir(parents=True, exist_ok=True)
            sweep(self._log_path.parent, self._log_path.name)
            self._log = self._log_path.open("a", encoding="utf-8")
        if self.console.is_terminal and not self.quiet:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                TaskProgressColumn(),
                TextColumn("{task.fields[line]}"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self._bar.start()
            self._task = self._bar.add_task(escape(self.title), total=self.num_steps, line="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._log is not None:
            self._log.close()

    def start(self, step: int) -> None:
        """Say where training starts: not at 0 after a resume, which takes later lines of the log back."""
        self._last = (time.perf_counter(), step)
        if self._bar is not None:
            self._bar.update(self._task, completed=step)
        if self._log is not None and self._log_path is not None:
            lines = self._log_path.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if _step_of(line) <= step]
            self._log.close()
            write_atomically(self._log_path, "".join(kept))  # a process that dies here must not lose the log
            self._log = self._log_path.open("a", encoding="utf-8")

    def report(self, step: int, values: Mapping[str, Sequence[float]]) -> None:
        """Report a value per replica of each metric, without empty ones; the console shows their mean."""
        now = time.perf_counter()
        speed = (step - self._last[1]) / max(now - self._last[0], 1e-9)
        self._last = (now, step)
        if self._log is not None:
            record: dict[str, Any] = {"step": step, "steps_per_second": round(speed, 3)}
            for name, column in values.items():
                record[name] = [value if math.isfinite(value) else None for value in column]
            self._log.write(json.dumps(record) + "\n")
            self._log.flush()
        each = {f"{name}/{row}": value for name, column in values.items() for row, value in enumerate(column)}
        finite = {name: value for name, value in each.items() if math.isfinite(value)}
        for hook in HOOKS.get():
            hook(self.title, step, finite)
        line = "  ".join(f"{_SHORT.get(k, k)} {_mean(v)}" for k, v in values.items() if v)
        if self._bar is not None:
            self._bar.update(self._task, completed=step, line=f"{line}  {speed:.0f} steps/s")
        elif not self.quiet:
            left = (self.num_steps - step) / max(speed, 1e-9)
            self.console.print(
                f"{self.title}: step {step}/{self.num_steps}  {line}  {speed:.0f} steps/s  {left:.0f} s left",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    def say(self, message: str) -> None:
        """Write a line that matters whatever the mode."""
        self.console.print(f"{self.title}: {message}", highlight=False, markup=False, soft_wrap=True)


_SHORT = {"log_likelihood": "LL", "kl_local": "KL_L", "kl_global": "KL_G", "validation": "valid"}


def _step_of(line: str) -> float:
    """The step of a line of the log; infinite for one that was cut off."""
    try:
        return int(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def _mean(values: Sequence[float]) -> str:
    """Mean of the finite values; a dash if there is none, as where a CNP had nothing but context."""
    finite = [v for v in values if math.isfinite(v)]
    return f"{sum(finite) / len(finite):.3f}" if finite else "–"
