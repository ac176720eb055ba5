"""Running an experiment: its units one after the other, or spread over a cluster, and the files that they leave.

A finished unit is written at once into `units.json.gz`, from which `results.json` and the figures are made. A later run
adds the units that are missing and needs none of the earlier weights.
"""

import json
import math
import platform
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape

from dsvnp import __version__
from dsvnp.files import sweep, write_atomically
from dsvnp.locks import folder_lock
from dsvnp.paper.experiment import Drawn, Experiment, Measurement, Unit, UnitResult, Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.records import UNITS_FILE, read_units, write_units
from dsvnp.paper.rows import grouped, make_row
from dsvnp.paper.settings import as_json, joined, rebuild
from dsvnp.schema import differences
from dsvnp.training import Cluster

DRAWING = threading.Lock()  # matplotlib draws for one thread at a time
UNDRAWN = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
SETTINGS = ("config", "recipe")  # what holds settings in a file of results


def run(experiment: Experiment, place: Workplace, resume: bool = False) -> Path:
    """Run what is missing, and write `results.json` and the figures; `resume` insists on an earlier run."""
    cluster = Cluster.from_environment()
    if not cluster.writes:
        return _run(experiment, place, resume, cluster)
    with folder_lock(place.out, place.wait, partial(place.console.print, markup=False)):
        for folder in (place.out, place.out / "logs"):
            sweep(folder)  # what a process that was killed left
        return _run(experiment, place, resume, cluster)


def _run(experiment: Experiment, place: Workplace, resume: bool, cluster: Cluster) -> Path:
    """Run what is missing; one process writes, and nobody else into that folder."""
    # A first unit that is half done can be resumed, too.
    begun = any((place.out / "checkpoints").glob("*/step-*"))
    units = load_units(experiment, place.out, resume and not begun)
    read = [place.out] if units else []
    whole = _with_earlier(experiment, place.out)
    cluster.largest(0)  # all have read what is there before one adds to it
    # As in a single run: the order in which units end, or runs are made, does not show.
    order = {str(label): number for number, label in enumerate(whole.labels())}
    for _, result in (place.spread or _one_by_one)(experiment, _missing(experiment, units, place), place):
        units = sorted([*units, result], key=lambda u: (order.get(str(u.label), len(order)), u.seeds[0]))
        if cluster.writes:
            write_results(whole, units, place.out)
    if not units:
        raise ValueError(f"{place.weights} has no weights of these settings; train without --measure-only")
    if not cluster.writes:
        return place.out / "results.json"
    # A run that was killed just before it did so has no unit left to run.
    write_results(whole, units, place.out)
    figures = draw_figures(whole, units, place.out, read)
    drawn = "a figure" if len(figures) == 1 else f"{len(figures)} figures"
    path = escape(str(place.out / "results.json"))
    place.console.print(f"Results are in [bold]{path}[/bold], with {drawn}.")
    return place.out / "results.json"


def draw_figures(
    experiment: Experiment, units: Sequence[UnitResult], out: Path, read: Sequence[Path]
) -> list[Path]:
    """Draw the figures; where they cannot be, units that were read from these folders lack what they are made of."""
    try:
        with DRAWING:
            return experiment.draw(units, out)
    except UNDRAWN as error:
        if not read:
            raise
        reason = str(error).partition("\n")[0]
        names = ", ".join(str(folder / UNITS_FILE) for folder in read)
        raise ValueError(
            f"the figures cannot be drawn ({type(error).__name__}: {reason:.200}): {names} lacks what they are made "
            "of; run that experiment again"
        ) from error


def _missing(experiment: Experiment, units: Sequence[UnitResult], place: Workplace) -> list[Unit]:
    """The units that are still to be run."""
    done = {(str(unit.label), seed) for unit in units for seed in unit.seeds}
    found: list[Unit] = []
    for label in experiment.labels():
        for group in experiment.seed_groups():
            seeds = [seed for seed in group if (str(label), seed) not in done]
            if seeds := experiment.measurable(label, seeds, place):
                found.append((label, seeds))
    return found


def _one_by_one(
    experiment: Experiment, units: Sequence[Unit], place: Workplace
) -> Iterator[tuple[int, UnitResult]]:
    """Run units here, in their order."""
    for number, unit in enumerate(units):
        yield number, measured(experiment, unit, place)


def measured(experiment: Experiment, unit: Unit, place: Workplace) -> UnitResult:
    """Run a unit, and note how long it took and on what."""
    start = time.perf_counter()
    result = experiment.run_unit(*unit, place)
    seconds = round(time.perf_counter() - start, 1)
    return stored(replace(result, seconds=seconds, machine=machine_name(place.device)))


def stored(unit: UnitResult) -> UnitResult:
    """A unit as `units.json.gz` gives it back: what is made of it is then the same in this run and in a resumed one."""
    return UnitResult.from_dict(json.loads(json.dumps(_plain(unit.to_dict()))))


def load_units(experiment: Experiment, out: Path, resume: bool) -> list[UnitResult]:
    """Read finished units; refuse those of other settings."""
    path = out / UNITS_FILE
    if not path.is_file():
        if resume:
            raise ValueError(f"nothing to resume: {path} is not there; leave out --resume to start")
        return []
    data = read_units(out)
    check_settings(experiment, out, data["config"])
    try:
        units = [UnitResult.from_dict(unit) for unit in data["units"]]
    except TypeError as error:
        raise ValueError(
            f"{path} holds a unit of another form ({error}); another version wrote it"
        ) from error
    for unit in units:
        if not unit.seeds:
            raise ValueError(
                f"{path} holds {unit.label} without seeds; remove it, and run the experiment again"
            )
        if (reason := experiment.refuses(unit)) is not None:
            raise ValueError(f"{out} holds {unit.label} {reason}; choose another --out, or remove it")
    return units


def check_settings(experiment: Experiment, out: Path, config: Mapping[str, Any]) -> None:
    """Refuse a folder whose settings differ from an experiment's, but for those that units record themselves."""
    mine, theirs = as_json(experiment), as_json(rebuild(type(experiment), config))
    free = tuple(f"{name}." for name in (*experiment.extendable, *experiment.recorded))
    for key, my, their in differences(mine, theirs):
        if not f"{key}.".startswith(free):
            raise ValueError(
                f"{out} holds a run with {key} = {their!r}, not {my!r}; choose another --out, or remove it"
            )


def _with_earlier(experiment: Experiment, out: Path) -> Experiment:
    """An experiment with all that a folder's earlier runs have of the settings that may be added to."""
    if not (out / UNITS_FILE).is_file():
        return experiment
    earlier = read_units(out)["config"]
    return joined(type(experiment), [as_json(experiment), earlier])


def write_results(experiment: Experiment, units: Sequence[UnitResult], out: Path) -> None:
    """Write `units.json.gz` and `results.json`, each in one piece."""
    config = as_json(experiment)
    record = {"experiment": experiment.name, "config": config, "units": [unit.to_dict() for unit in units]}
    write_units(out, _plain(record))
    machines = dict.fromkeys(unit.machine for unit in units)
    results = {
        "experiment": experiment.name,
        "preset": experiment.preset,
        "device": ", ".join(machines),
        "version": __version__,
        "config": config,
        "rows": rows_of(experiment, units),
    }
    write_atomically(out / "results.json", results_text(results))


def rows_of(experiment: Experiment, units: Iterable[UnitResult]) -> list[dict[str, Any]]:
    """One row per quantity, over all seeds, with the paper's figure."""
    measured = [(unit, m) for unit in units for m in unit.measurements]
    rows = []
    for (label, what, _), found in grouped(measured, lambda pair: _row_key(*pair)).items():
        values = [value for _, m in found for value in m.values]
        names = what.dataset, str(label), what.metric, what.split, what.unit
        row = make_row(*names, values, experiment.paper_figure(label, what))
        numbers = [seed for unit, _ in found for seed in unit.seeds]
        if numbers != list(range(len(numbers))):
            row["seed_numbers"] = numbers
        if batches := [each for _, m in found for each in m.batches]:
            row["batches"] = batches
        rows.append(row | _draws_of([each for _, m in found for each in m.drawn]))
    return rows


def _row_key(unit: UnitResult, m: Measurement) -> tuple[Label, Measurement, bool]:
    """The row of a measurement; values whose draws were not counted stay apart from those whose draws were."""
    return unit.label._replace(dataset=""), replace(m, values=(), drawn=(), batches=()), bool(m.drawn)


def _draws_of(drawn: Sequence[Drawn]) -> dict[str, Any]:
    """The draws behind the values of a row, one per seed; nothing where they were not counted."""
    if not drawn:
        return {}
    columns = {name: [getattr(each, name) for each in drawn] for name in Drawn._fields}
    if not any(columns["change"]):  # results from before have none
        del columns["change"]
    return columns


def machine_name(device: torch.device) -> str:
    """The name of the machine that ran it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {threads} thread{'s' if threads > 1 else ''}"


def results_text(results: Mapping[str, Any]) -> str:
    """Results as JSON for people: settings indented, then each row on a line of its own."""
    plain = _plain({**results, "rows": []})
    rows = ",\n".join(f"  {json.dumps(_plain(row))}" for row in results["rows"])
    return json.dumps(plain, indent=1).removesuffix("[]\n}") + f"[\n{rows}\n ]\n}}\n"


def _plain(data: Any, exact: bool = False) -> Any:
    """Replace what JSON cannot hold, and digits that nobody reads; of settings, which are compared, all are kept."""
    if isinstance(data, dict):
        return {str(key): _plain(value, exact or key in SETTINGS) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value, exact) for value in data]
    if isinstance(data, float):
        return (data if exact else float(f"{data:.6g}")) if math.isfinite(data) else None
    return data
