"""Settings: everything that decides what a training run does, in one frozen, JSON-friendly record."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from dsvnp.naming import lookup
from dsvnp.objectives import Objective
from dsvnp.training.optimizer import Adam
from dsvnp.training.schedule import Schedule

PRECISIONS = ("float32", "tf32", "bf16", "float64")


@dataclass(frozen=True)
class Settings:
    """Settings of the training of a fleet.

    Attributes:
        num_steps: steps in all.
        learning_rate: one for all replicas, or one for each.
        optimizer: Adam or AdamW, weight decay, clipping.
        schedule: how the learning rate changes.
        objective: weights of the bound's terms, annealing, constraints, draws.
        beta_local: β_local of each replica, in place of the objective's.
        beta_global: β_global of each replica, or one for all.
        precision: "float32"; "tf32" for matrix products and convolutions on CUDA; "bf16" for autocast; "float64".
        compile: compile the step; None does so on CUDA (on a CPU it takes half a minute first). "regions" compiles the
            layers of a deep network one by one, which starts several times sooner; replicas are then handled singly.
        capture: capture the step as a CUDA graph; None does so on CUDA. No other device can, nor processes that share
            each batch.
        chunk_size: replicas handled at once; 1 makes a fleet equal to its single runs bit by bit in float32.
        validate_every: steps between validations; 0 for none.
        patience: validations without improvement after which a replica stops; 0 for never.
        log_every: steps between lines of the log.
        checkpoint_every: steps between checkpoints; 0 for the last one only.
        keep: checkpoints that are kept.
    """

    num_steps: int
    learning_rate: float | tuple[float, ...] = 1e-3
    optimizer: Adam = field(default_factory=Adam)
    schedule: Schedule = field(default_factory=Schedule)
    objective: Objective = field(default_factory=Objective)
    beta_local: tuple[float, ...] | None = None
    beta_global: tuple[float, ...] | None = None
    precision: str = "float32"
    compile: bool | str | None = None
    capture: bool | None = None
    chunk_size: int | None = None
    validate_every: int = 0
    patience: int = 0
    log_every: int = 100
    checkpoint_every: int = 0
    keep: int = 2

    def __post_init__(self) -> None:
        lookup(self.precision, dict.fromkeys(PRECISIONS), "precision")
        if isinstance(self.compile, str) and self.compile != "regions":
            raise ValueError(f"compile must be True, False, None or 'regions', got {self.compile!r}")
        for name in ("num_steps", "log_every", "keep"):
            if not _whole(getattr(self, name), least=1):
                raise ValueError(f"{name} must be a whole number, at least 1, got {getattr(self, name)}")
        for name in ("validate_every", "patience", "checkpoint_every"):
            if not _whole(getattr(self, name), least=0):
                raise ValueError(f"{name} must be a whole number and not negative, got {getattr(self, name)}")
        if self.patience and not self.validate_every:
            raise ValueError("patience counts validations; set validate_every as well")
        if self.chunk_size is not None and not _whole(self.chunk_size, least=1):
            raise ValueError(f"chunk_size must be at least 1, got {self.chunk_size}; None takes all at once")
        if self.objective.kind in ("npml", "si") and (self.beta_local or self.beta_global):
            raise ValueError(
                f"{self.objective.kind!r} has no KL to weigh; leave beta_local and beta_global out"
            )
        rates = self.learning_rate if isinstance(self.learning_rate, tuple) else (self.learning_rate,)
        for name, values in (
            ("learning_rate", rates),
            ("beta_local", self.beta_local or ()),
            ("beta_global", self.beta_global or ()),
        ):
            if any(not 0 <= value < math.inf for value in values):
                raise ValueError(f"{name} must be finite and not negative, got {getattr(self, name)}")

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of parameters and data."""
        return torch.float64 if self.precision == "float64" else torch.float32

    def per_replica(self, name: str, num_replicas: int) -> list[float]:
        """The value of a setting for each replica."""
        value = getattr(self, name)
        value = getattr(self.objective, name) if value is None else value
        if not isinstance(value, tuple):
            return [float(value)] * num_replicas
        if len(value) != num_replicas:
            raise ValueError(f"{name} has {len(value)} values but the fleet has {num_replicas} replicas")
        return [float(v) for v in value]

    def outcome(self) -> dict[str, Any]:
        """The settings that decide what comes out, which a resumed run must share with the first.

        A run whose learning rate does not yet depend on its length may be prolonged: neither that nor the length of
        the fall at its end is among them.
        """
        others = ["log_every", "checkpoint_every", "keep", "compile", "capture"]
        found = self.to_dict()
        if self.schedule.open_ended:
            others.append("num_steps")
            found["schedule"]["decay"] = 0
        return {name: value for name, value in found.items() if name not in others}

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dictionary that JSON can hold."""
        return asdict(self)


def _whole(value: float, least: int) -> bool:
    """Whether a number is whole and large enough; NaN and infinity are neither."""
    return value >= least and value % 1 == 0
