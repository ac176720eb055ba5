"""Running an experiment: its units one after the other, and the files that they leave.

A finished unit is written at once into `units.json`, from which `results.json` and the figures are made anew. A later
run adds the units that are missing and needs none of the earlier weights.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path
from typing import Any

import torch

from dsvnp import __version__
from dsvnp.paper.experiment import Experiment, Measurement, UnitResult, Workplace

SETTINGS = ("config", "recipe")  # what holds settings in a file of results


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
    whole = _with_earlier(experiment, place.out)
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
            write_results(whole, units, place.out)
    figures = whole.draw(units, place.out)
    beside = "a figure" if len(figures) == 1 else f"{len(figures)} figures"
    place.console.print(f"Results are in [bold]{place.out / 'results.json'}[/bold], {beside} beside it.")
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


def _with_earlier(experiment: Experiment, out: Path) -> Experiment:
    """An experiment with all that a folder's earlier runs have of the settings that may be added to."""
    path = out / "units.json"
    if not path.is_file():
        return experiment
    earlier = json.loads(path.read_text(encoding="utf-8"))["config"]
    return joined(type(experiment), [comparable(experiment), earlier])


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


def joined(kind: type[Experiment], configs: Sequence[Mapping[str, Any]]) -> Experiment:
    """The experiment of the first settings, with what all of them have of those that may be added to."""
    joint = dict(configs[0])
    for name in kind.extendable:
        # As JSON has it: what a run has that was made before there was such a setting.
        default = json.loads(json.dumps(getattr(kind, name)))
        joint[name] = _joined([config.get(name, default) for config in configs], default)
    # Seeds are a span: from the first of any run to the last.
    spans = [(config.get("first_seed", 0), config["num_seeds"]) for config in configs]
    joint["first_seed"] = min(first for first, _ in spans)
    joint["num_seeds"] = max(first + number for first, number in spans) - joint["first_seed"]
    return rebuild(kind, joint)


def _joined(values: Sequence[Any], default: Any) -> Any:
    """All that lists hold, or texts with commas, in the order of a single run; of numbers the largest."""
    if isinstance(values[0], str):
        return ",".join(_joined([value.split(",") for value in values], default.split(",")))
    if not isinstance(values[0], list):
        return max(values)
    found = dict.fromkeys(item for value in values for item in value)
    return sorted(found, key=[*default, *found].index)


def _tuples(data: Any) -> Any:
    """Turn the lists that JSON gives back into the tuples that settings are made of."""
    return tuple(_tuples(value) for value in data) if isinstance(data, list) else data


def machine_name(device: torch.device) -> str:
    """What a run ran on, in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {threads} thread{'s' if threads > 1 else ''}"


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
