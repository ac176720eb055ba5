"""Experiment and run: what every experiment of the paper shares.

An experiment is a frozen dataclass of settings. It names *units* of work, each a model and a group of seeds trained
as one fleet; a finished unit is written at once into `units.json`, from which `results.json` and the figures are
made anew. A later run adds the units that are missing and needs none of the earlier weights.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import torch
from rich.console import Console

from dsvnp import __version__
from dsvnp.data.base import TaskSource
from dsvnp.models import NeuralProcess
from dsvnp.naming import lookup
from dsvnp.training import Fleet, Reporter, Settings, train
from dsvnp.training.loop import Validation

SETTINGS = ("config", "recipe")  # what holds settings in a file of results


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
        base = model.split("-")[0] if not model.startswith("mc-dropout") else "mc-dropout"
        return self.paper.get((m.dataset, base, m.metric, m.split.removesuffix("-max")), (None, None))

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


def run(experiment: Experiment, place: Workplace, resume: bool = False) -> Path:
    """Run what is missing of an experiment, and write `results.json` and the figures.

    Args:
        experiment: its settings.
        place: where.
        resume: insist that there is something to go on from.
    """
    place.out.mkdir(parents=True, exist_ok=True)
    # A first unit that is half done is something to go on from, too.
    begun = any((place.out / "checkpoints").glob("*/step-*"))
    units = load_units(experiment, place.out, resume and not begun)
    done = {(unit.model, seed) for unit in units for seed in unit.seeds}
    for label in experiment.labels():
        for group in experiment.seed_groups():
            seeds = [seed for seed in group if (label, seed) not in done]
            if not seeds:
                continue
            start = time.perf_counter()
            result = experiment.run_unit(label, seeds, place)
            seconds = round(time.perf_counter() - start, 1)
            result = UnitResult(
                label, tuple(seeds), result.measurements, result.extras, seconds, machine_name(place.device)
            )
            units.append(result)
            write_results(experiment, units, place.out)
    figures = experiment.draw(units, place.out)
    place.console.print(
        f"Results are in [bold]{place.out / 'results.json'}[/bold], {len(figures)} figures beside it."
    )
    return place.out / "results.json"


def load_units(experiment: Experiment, out: Path, resume: bool) -> list[UnitResult]:
    """Read finished units; refuse those of other settings."""
    path = out / "units.json"
    if not path.is_file():
        if resume:
            raise ValueError(f"nothing to resume: {path} is not there; leave out --resume to start")
        return []
    data = json.loads(path.read_text(encoding="utf-8"))
    mine, theirs = comparable(experiment), comparable(rebuild(type(experiment), data["config"]))
    for key in mine:
        if key not in experiment.extendable and mine[key] != theirs[key]:
            raise ValueError(
                f"{out} holds a run with {key} = {theirs[key]!r}, not {mine[key]!r}; "
                "choose another --out, or remove it"
            )
    units = [UnitResult.from_dict(unit) for unit in data["units"]]
    for unit in units:
        if (reason := experiment.refuses(unit)) is not None:
            raise ValueError(f"{out} holds {unit.model} {reason}; choose another --out, or remove it")
    return units


def write_results(experiment: Experiment, units: Sequence[UnitResult], out: Path) -> None:
    """Write `units.json` and `results.json`, each in one piece."""
    config = comparable(experiment)
    record = {"experiment": experiment.name, "config": config, "units": [asdict(unit) for unit in units]}
    _write_json(out / "units.json", record)
    machines = dict.fromkeys(unit.machine for unit in units)
    results = {
        "experiment": experiment.name,
        "preset": experiment.preset,
        "device": ", ".join(machines),
        "version": __version__,
        "config": config,
        "rows": rows_of(experiment, units),
    }
    _write_json(out / "results.json", results)


def rows_of(experiment: Experiment, units: Iterable[UnitResult]) -> list[dict[str, Any]]:
    """One row a quantity: mean, standard deviation and median over all seeds, beside the paper's figure."""
    values: dict[tuple[str, Measurement], list[float]] = {}
    for unit in units:
        model = unit.model.partition("@")[0]
        for m in unit.measurements:
            values.setdefault((model, replace(m, values=())), []).extend(m.values)
    rows = []
    for (model, what), seeds in values.items():
        paper = experiment.paper_figure(model, what)
        rows.append(
            {
                "dataset": what.dataset,
                "model": model,
                "metric": what.metric,
                "split": what.split,
                "unit": what.unit,
                "mean": statistics.fmean(seeds),
                "std": _spread(seeds),
                "median": statistics.median(seeds),
                "seeds": seeds,
                "paper": paper[0],
                "paper_spread": paper[1],
            }
        )
    return rows


def _spread(values: Sequence[float]) -> float:
    """Standard deviation of a sample; NaN where a value is not a number, which `statistics` does not take."""
    if not all(map(math.isfinite, values)):
        return math.nan
    return statistics.stdev(values) if len(values) > 1 else 0.0


def make_experiment(kind: type[E], preset: str, **overrides: Any) -> E:
    """Make an experiment of a preset with some settings changed; None leaves a setting alone."""
    made = lookup(preset, kind.presets(), "preset")
    changes = {name: value for name, value in overrides.items() if value is not None}
    return type(made)(**{**made.__dict__, **changes})


def comparable(experiment: Experiment) -> dict[str, Any]:
    """The settings as JSON would give them back."""
    settings: dict[str, Any] = json.loads(json.dumps(asdict(experiment)))
    return settings


def rebuild(kind: type[Experiment], config: Mapping[str, Any]) -> Experiment:
    """An experiment from its settings as JSON holds them; one that came later has its default.

    Settings may be those of other experiments.
    """
    nested = {f.name: f.default_factory for f in fields(kind) if f.default_factory is not MISSING}
    if unknown := config.keys() - {f.name for f in fields(kind)}:
        raise ValueError(
            f"{kind.__name__} has no setting {sorted(unknown)[0]}; another version wrote that run"
        )
    settings: dict[str, Any] = {
        name: rebuild(type(nested[name]()), value) if name in nested else _tuples(value)
        for name, value in config.items()
    }
    return kind(**settings)


def _tuples(data: Any) -> Any:
    """Turn the lists that JSON gives back into the tuples that settings are made of."""
    return tuple(_tuples(value) for value in data) if isinstance(data, list) else data


def machine_name(device: torch.device) -> str:
    """What a run ran on, in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def _write_json(path: Path, data: Any) -> None:
    """Write JSON under a temporary name and rename it; numbers that JSON lacks become null."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(_plain(data), indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def _plain(data: Any, exact: bool = False) -> Any:
    """Replace what JSON cannot hold, and digits that nobody reads; of settings, which are compared, all are kept."""
    if isinstance(data, dict):
        return {str(key): _plain(value, exact or key in SETTINGS) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value, exact) for value in data]
    if isinstance(data, float):
        return (data if exact else float(f"{data:.6g}")) if math.isfinite(data) else None
    return data
