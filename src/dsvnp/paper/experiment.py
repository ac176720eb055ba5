"""Experiment: what every experiment of the paper shares.

An experiment is a frozen dataclass of settings. It names *units* of work, each a label and a group of seeds trained
as one fleet, and defines how one is run and what is drawn from all of them. `runner.py` runs it.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import torch
from rich.console import Console

from dsvnp.estimation import LogLikelihood
from dsvnp.models import NeuralProcess
from dsvnp.naming import at_least_one
from dsvnp.paper.label import Label
from dsvnp.paper.records import check_name
from dsvnp.sources.base import TaskSource
from dsvnp.training import Cluster, Fleet, Reporter, Settings, train
from dsvnp.training.checkpoint import load_latest
from dsvnp.training.loop import Validation, restore

TERMS = ("step", "log_likelihood", "kl_local", "kl_global")  # of a training log
Printed = dict[tuple[str, str, str, str], tuple[float, float]]  # by data set, model, metric and split


Unit = tuple[Label, Sequence[int]]  # what to run, with which seeds


class Drawn(NamedTuple):
    """The draws behind a likelihood."""

    # "exact", "prior" or "importance", see `dsvnp.estimation`; "auto" where it is not known which of the last two
    method: str
    draws: int  # K·S
    # whether two more doublings changed it by less than the tolerance; None where draws were not doubled
    still: bool | None
    # the larger of the last two changes, in nats, by which `still` is judged; None where it was not kept
    change: float | None = None

    @classmethod
    def of(cls, found: LogLikelihood) -> Self:
        """The draws behind an estimate."""
        change = max(map(abs, found.changes), default=None)
        return cls(found.method, found.draws, found.still, change)


EXACT = Drawn("exact", 1, True)  # nothing is drawn


@dataclass(frozen=True)
class Measurement:
    """One quantity of one unit, one value per seed."""

    dataset: str  # what it was measured on
    metric: str  # "nll", "mse", …
    split: str  # which part: "inter-J", "test-P", …
    unit: str  # unit of the value: "nats/point", "standard", "raw", …
    values: tuple[float, ...]  # one per seed of the unit
    # for a likelihood the draws behind each value; empty where they were not counted
    drawn: tuple[Drawn, ...] = ()
    # the batches of tests that each value is a mean over; empty where rows do not differ in them
    batches: tuple[int, ...] = ()


@dataclass(frozen=True)
class UnitResult:
    """The results of a finished unit."""

    label: Label  # model, variant and, in an experiment on several data sets, the one it was trained on
    seeds: tuple[int, ...]  # the seeds it was trained with
    measurements: tuple[Measurement, ...]  # what was measured
    extras: dict[str, Any] = field(default_factory=dict)  # what figures are made of; anything that JSON holds
    seconds: float = 0.0  # how long it took, compilation included
    machine: str = ""  # what it ran on

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote; what JSON could not hold is not a number. Labels become names of files."""
        for part in data["model"].split("@", 1):
            check_name(part, "label")
        measurements = tuple(_measurement(m) for m in data["measurements"])
        others = {name: data[name] for name in ("extras", "seconds", "machine")}
        return cls(Label.parse(data["model"]), tuple(data["seeds"]), measurements, **others)

    def to_dict(self) -> dict[str, Any]:
        """The unit as `units.json.gz` holds it."""
        others = {name: value for name, value in asdict(self).items() if name != "label"}
        for m in others["measurements"]:
            for name in ("drawn", "batches"):
                if not m[name]:  # nothing to say: results from before have no such key
                    del m[name]
        return {"model": str(self.label), **others}


def _measurement(data: dict[str, Any]) -> Measurement:
    """A measurement as JSON holds it; a value that JSON could not hold is not a number."""
    values = tuple(math.nan if value is None else value for value in data["values"])
    drawn = tuple(Drawn(*each) for each in data.get("drawn", ()))
    return Measurement(
        **{**data, "values": values, "drawn": drawn, "batches": tuple(data.get("batches", ()))}
    )


@dataclass(frozen=True)
class Workplace:
    """Where a run computes, writes, prints and finds data; nothing here changes a result."""

    out: Path  # folder for results
    device: torch.device  # where to compute
    console: Console  # where progress is shown
    data_dir: Path | None = None  # directory of the data sets; None reads the variable DSVNP_DATA
    wait: bool = False  # wait for another process that writes into the folder, instead of refusing
    # folder of an earlier run whose kept weights are measured, without training; None to train
    weights: Path | None = None
    # what runs units somewhere else, see `spread.py`; None runs them here
    spread: "Spread | None" = None


@dataclass(frozen=True)
class Experiment(ABC):
    """Settings of an experiment; the fields here are common to all."""

    name: ClassVar[str]
    printed: ClassVar[Printed] = {}  # the paper's figures, and their spread
    parts: ClassVar[tuple[dict[str, Any], ...]] = ({},)  # settings of the runs that make up the whole of it
    # Settings to which a later run may add:
    extendable: ClassVar[tuple[str, ...]] = ("models", "num_seeds", "first_seed", "seeds_at_once")

    # Settings, or parts of them, that units record themselves or that change no result; they may differ in a folder:
    recorded: ClassVar[tuple[str, ...]] = ("likelihoods",)

    preset: str = "quick"  # "smoke", "quick" or "paper"
    models: tuple[str, ...] = ("cnp", "np", "attnnp", "dsvnp")  # models to run
    num_seeds: int = 1  # seeds of each
    first_seed: int = 0  # the first of them; others may be run elsewhere, and put together with `gather`
    seeds_at_once: int = 5  # seeds trained as one fleet, the unit of resuming
    precision: str = "float32"  # of training, see `Settings`

    def __post_init__(self) -> None:
        at_least_one(num_seeds=self.num_seeds, seeds_at_once=self.seeds_at_once)
        for name in self.extendable:
            items = value if isinstance(value := getattr(self, name), tuple) else ()
            if twice := [item for item in items if items.count(item) > 1]:
                raise ValueError(f"{twice[0]} is listed twice in {name}; leave one of them out")

    @classmethod
    @abstractmethod
    def presets(cls) -> dict[str, Self]:
        """The settings of each preset: "smoke" takes seconds, "quick" minutes on two cores; "paper" needs a GPU."""

    @abstractmethod
    def run_unit(self, label: Label, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train one model with some seeds and measure it."""

    @abstractmethod
    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """Draw the figures from finished units."""

    def missing(self, data_dir: Path | None) -> str | None:
        """What the experiment needs and does not find in the data directory, in one line; None if it can run."""
        try:
            self.read_data(data_dir)
        except (ValueError, OSError) as error:  # a damaged file counts as missing
            return str(error)
        return None

    def read_data(self, data_dir: Path | None) -> None:
        """Read the files that the experiment needs."""
        return  # it needs none

    def labels(self) -> list[Label]:
        """Labels of the units to run."""
        return [Label(model) for model in self.models]

    def paper_figure(self, label: Label, m: Measurement) -> tuple[float | None, float | None]:
        """The paper's figure for a model's measurement, and its spread, where there is one."""
        key = m.dataset, label.model, m.metric, m.split.removesuffix("-max")
        return self.printed.get(key, (None, None))

    def measurable(self, label: Label, seeds: Sequence[int], place: Workplace) -> list[int]:
        """The seeds that can be run; where a run only measures, those whose weights were kept."""
        if place.weights is not None:
            raise ValueError(f"{self.name} keeps no weights to measure; leave out --measure-only")
        return list(seeds)

    def refuses(self, unit: UnitResult) -> str | None:
        """Why a finished unit does not belong to this run, although the settings agree; None if it does."""
        return None

    def seed_groups(self) -> list[tuple[int, ...]]:
        """The seeds, first_seed … first_seed + num_seeds − 1, in groups."""
        seeds = range(self.first_seed, self.first_seed + self.num_seeds)
        return [
            tuple(seeds[i : i + self.seeds_at_once]) for i in range(0, self.num_seeds, self.seeds_at_once)
        ]

    def train_replicas(
        self,
        label: Label,
        make: Callable[[], NeuralProcess],
        source: TaskSource | Sequence[TaskSource],
        seeds: Sequence[int],
        settings: Settings,
        place: Workplace,
        validation: Validation | None = None,
    ) -> Fleet:
        """Train one replica per seed, with checkpoints and a log below the run's folder, or resume where it stopped.

        Processes that `torchrun` started share the replicas, or each batch where there are fewer replicas than
        processes. Afterwards each of them has all replicas, read from the last checkpoint.
        """
        cluster = Cluster.from_environment(
            "replicas" if len(seeds) >= Cluster.from_environment().size else "data"
        )
        fleet = Fleet(make, source, seeds, settings, place.device, cluster)
        reporter = Reporter(
            f"{self.name} {label}", settings.num_steps, log_path(label, seeds, place), console=place.console
        )
        folder = place.out / "checkpoints" / fleet_name(label, seeds)
        train(fleet, folder, validation, reporter)
        if not cluster.splits_replicas:
            return fleet
        whole = Fleet(make, source, seeds, settings, place.device)
        cluster.largest(0)  # wait for the one that writes
        last = load_latest(folder, whole.describe())
        assert last is not None  # it was written after the last step
        restore(whole, last)
        return whole


Spread = Callable[[Experiment, Sequence[Unit], Workplace], Iterable[tuple[int, UnitResult]]]


def fleet_name(label: Label, seeds: Sequence[int]) -> str:
    """The name of a fleet's files."""
    return f"{label.file}-seeds-{seeds[0]}-{seeds[-1]}"


def log_path(label: Label, seeds: Sequence[int], place: Workplace) -> Path:
    """The path of a fleet's log."""
    return place.out / "logs" / f"{fleet_name(label, seeds)}.jsonl"


def read_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a fleet's log; none where there is no log."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []


def training_log(label: Label, seeds: Sequence[int], place: Workplace) -> dict[str, list[Any]]:
    """The terms of the bound during training, from a fleet's log: the steps, and at each one value per seed.

    A run that only measures has none, unless its folder holds the log.
    """
    lines = read_log(log_path(label, seeds, place))
    return {term: [line[term] for line in lines] for term in TERMS}
