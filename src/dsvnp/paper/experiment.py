"""Experiment: what every experiment of the paper shares.

An experiment is a frozen dataclass of settings. It names *units* of work, each a model and a group of seeds trained
as one fleet, and says how one is run and what is drawn from all of them. `running.py` runs it.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import torch
from rich.console import Console

from dsvnp.models import NeuralProcess, base_name
from dsvnp.naming import lookup
from dsvnp.sources.base import TaskSource
from dsvnp.training import Fleet, Reporter, Settings, train
from dsvnp.training.loop import Validation


@dataclass(frozen=True)
class Measurement:
    """One quantity of one unit, a value per seed.

    Attributes:
        dataset: what it was measured on.
        metric: "nll", "mse", …
        split: which part: "inter-J", "test-P", …
        unit: unit of the value: "nats/point", "standard", "raw", …
        values: one per seed of the unit.
    """

    dataset: str
    metric: str
    split: str
    unit: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class UnitResult:
    """What a finished unit leaves behind.

    Attributes:
        model: name of the model, with its variant: "dsvnp", "dsvnp-wide"; in an experiment on several data sets with
            the one it was trained on, "dsvnp@wq", which rows name apart.
        seeds: the seeds it was trained with.
        measurements: what was measured.
        extras: what figures are made of; anything that JSON holds.
        seconds: how long it took, compilation included.
        machine: what it ran on.
    """

    model: str
    seeds: tuple[int, ...]
    measurements: tuple[Measurement, ...]
    extras: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    machine: str = ""

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> UnitResult:
        """Read what `asdict` wrote; what JSON could not hold is not a number."""
        measurements = tuple(
            Measurement(**{**m, "values": tuple(math.nan if v is None else v for v in m["values"])})
            for m in data["measurements"]
        )
        return cls(**{**data, "seeds": tuple(data["seeds"]), "measurements": measurements})


@dataclass(frozen=True)
class Workplace:
    """Where a run computes, writes, speaks and finds data; nothing here decides what comes out.

    Attributes:
        out: folder for results.
        device: where to compute.
        console: where progress is shown.
        data_dir: directory of the data sets; None reads the variable DSVNP_DATA.
    """

    out: Path
    device: torch.device
    console: Console
    data_dir: Path | None = None


@dataclass(frozen=True)
class Experiment(ABC):
    """Settings of an experiment; the fields here are common to all.

    Attributes:
        preset: "smoke", "quick" or "paper".
        models: models to run.
        num_seeds: seeds of each.
        first_seed: the first of them; others may be run elsewhere, and put together with `gather`.
        seeds_at_once: seeds trained as one fleet, the unit of resuming.
        precision: of training, see `Settings`.
    """

    name: ClassVar[str]
    paper: ClassVar[dict[tuple[str, str, str, str], tuple[float, float]]]  # (dataset, model, metric, split)
    parts: ClassVar[tuple[dict[str, Any], ...]] = ({},)  # settings of the runs that make up the whole of it
    # Settings to which a later run may add:
    extendable: ClassVar[tuple[str, ...]] = ("models", "num_seeds", "first_seed", "seeds_at_once")

    preset: str = "quick"
    models: tuple[str, ...] = ("cnp", "np", "attnnp", "dsvnp")
    num_seeds: int = 1
    first_seed: int = 0
    seeds_at_once: int = 5
    precision: str = "float32"

    def __post_init__(self) -> None:
        for name in ("num_seeds", "seeds_at_once"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in self.extendable:
            value = getattr(self, name)
            items = value.split(",") if isinstance(value, str) else value if isinstance(value, tuple) else ()
            if twice := [item for item in items if items.count(item) > 1]:
                raise ValueError(f"{name} names {twice[0]} twice; once is enough")

    @classmethod
    @abstractmethod
    def presets(cls) -> dict[str, Self]:
        """The settings of each preset."""

    @abstractmethod
    def run_unit(self, model: str, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train one model with some seeds and measure it."""

    @abstractmethod
    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """Draw the figures from finished units."""

    def missing(self, data_dir: Path | None) -> str | None:
        """What the experiment needs and does not find in the data directory, in one line; None if it can run."""
        return None

    def labels(self) -> list[str]:
        """The models and variants to run, as rows name them."""
        return list(self.models)

    def paper_figure(self, model: str, m: Measurement) -> tuple[float | None, float | None]:
        """The paper's figure for a model's measurement, and its spread, where there is one."""
        return self.paper.get(
            (m.dataset, base_name(model), m.metric, m.split.removesuffix("-max")), (None, None)
        )

    def refuses(self, unit: UnitResult) -> str | None:
        """Why a finished unit is not one of this run, although the settings agree; None if it is."""
        return None

    def seed_groups(self) -> list[tuple[int, ...]]:
        """The seeds, first_seed … first_seed + num_seeds − 1, in groups."""
        seeds = range(self.first_seed, self.first_seed + self.num_seeds)
        return [
            tuple(seeds[i : i + self.seeds_at_once]) for i in range(0, self.num_seeds, self.seeds_at_once)
        ]

    def fleet(
        self,
        label: str,
        make: Callable[[], NeuralProcess],
        source: TaskSource | Sequence[TaskSource],
        seeds: Sequence[int],
        settings: Settings,
        place: Workplace,
        validation: Validation | None = None,
    ) -> Fleet:
        """Train a fleet with checkpoints and a log under the run's folder, going on where it stopped."""
        name = f"{label}-seeds-{seeds[0]}-{seeds[-1]}"
        fleet = Fleet(make, source, seeds, settings, place.device)
        reporter = Reporter(
            f"{self.name} {label}",
            settings.num_steps,
            place.out / "logs" / f"{name}.jsonl",
            console=place.console,
        )
        return train(fleet, place.out / "checkpoints" / name, validation, reporter)

    @staticmethod
    def training_log(label: str, seeds: Sequence[int], place: Workplace) -> dict[str, list[Any]]:
        """The terms of the bound during training, from a fleet's log: the steps, and at each a value a seed."""
        log = place.out / "logs" / f"{label}-seeds-{seeds[0]}-{seeds[-1]}.jsonl"
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        terms = ("step", "log_likelihood", "kl_local", "kl_global")
        return {term: [line[term] for line in lines] for term in terms}


E = TypeVar("E", bound=Experiment)


def make_experiment(kind: type[E], preset: str, **overrides: Any) -> E:
    """Make an experiment of a preset with some settings changed."""
    return replace(lookup(preset, kind.presets(), "preset"), **overrides)
