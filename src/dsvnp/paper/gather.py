"""Runs of one experiment made in several places, put together into one folder.

    python -m dsvnp.paper.gather [--replace] OUT RUN [RUN …]

Models or seeds that were run apart (on several machines, or side by side on one GPU; `--set first_seed=2`) leave a
`units.json.gz` each. This writes their joint `units.json.gz`, `results.json` and figures; with a single RUN it draws
its figures again. With `--replace`, rows of the first RUN give way to those of the others, as after a new measurement.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsvnp.locks import folder_lock
from dsvnp.naming import lookup
from dsvnp.paper import EXPERIMENTS
from dsvnp.paper.experiment import Experiment, Measurement, UnitResult
from dsvnp.paper.records import UNITS_FILE, read_units
from dsvnp.paper.runner import check_settings, draw_figures, load_units, write_results
from dsvnp.paper.settings import joined


def gather(out: Path, runs: Sequence[Path], replace: bool = False) -> list[Path]:
    """Write what the runs hold together into `out`, and return the figures' paths; other settings are refused."""
    # Of the settings that units record themselves, those of the last run that has them hold: it is the newest.
    experiment, first = joint_experiment(runs[::-1]), joint_experiment(runs)
    for run in runs:
        check_settings(first, run, read_units(run)["config"])
    # Each run has its own of the settings that units record themselves.
    loaded = [load_units(joint_experiment([run, *runs]), run, resume=True) for run in runs]
    if replace:
        again = {unit.label for later in loaded[1:] for unit in later}
        loaded[0] = [unit for unit in loaded[0] if unit.label not in again]
    found = _united(runs, loaded)
    _check_recipes(found)
    # The settings of an old run may lack a model.
    labels = [str(label) for label in (*experiment.labels(), *(unit.label for unit in found))]
    found.sort(key=lambda unit: (labels.index(str(unit.label)), unit.seeds))
    with folder_lock(out):
        write_results(experiment, found, out)
        return draw_figures(experiment, found, out, runs)


def _united(runs: Sequence[Path], loaded: Sequence[Sequence[UnitResult]]) -> list[UnitResult]:
    """All units, each with the seeds that none before has; a reference that learns nothing is the same in each run."""
    known: dict[tuple[str, int], list[Measurement]] = {}
    found = []
    for run, units in zip(runs, loaded, strict=True):
        for unit in units:
            new = [place for place, seed in enumerate(unit.seeds) if (str(unit.label), seed) not in known]
            for place, seed in enumerate(unit.seeds):
                mine = _at(unit, [place])
                if known.setdefault((str(unit.label), seed), mine) != mine:
                    raise ValueError(
                        f"{run} has another {unit.label} with seed {seed}; leave one of them out"
                    )
            if new:
                seeds = tuple(unit.seeds[place] for place in new)
                found.append(dataclasses.replace(unit, seeds=seeds, measurements=tuple(_at(unit, new))))
    return found


def _at(unit: UnitResult, places: Sequence[int]) -> list[Measurement]:
    """The measurements of some of a unit's seeds."""

    def some(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(items[place] for place in places) if items else ()

    return [
        dataclasses.replace(m, values=some(m.values), drawn=some(m.drawn), batches=some(m.batches))
        for m in unit.measurements
    ]


def _check_recipes(units: Sequence[UnitResult]) -> None:
    """Refuse seeds of one row that were trained in several ways."""
    recipes: dict[str, Any] = {}
    for unit in units:
        recipe = unit.extras.get("recipe") if isinstance(unit.extras, dict) else None
        if recipes.setdefault(str(unit.label), recipe) != recipe:
            raise ValueError(f"the runs trained {unit.label} with several recipes; leave one of them out")


def joint_experiment(runs: Sequence[Path]) -> Experiment:
    """The experiment of the first run, with what all of them have of the settings that may be added to."""
    for run in runs:
        if not (run / UNITS_FILE).is_file():
            raise ValueError(f"{run} has no {UNITS_FILE}; name folders that `dsvnp reproduce --out` wrote")
    records = [read_units(run) for run in runs]
    kind = lookup(records[0]["experiment"], EXPERIMENTS, "experiment")
    return joined(kind, [record["config"] for record in records])


def main(words: Sequence[str]) -> None:
    """Run from the command line; an error a user can correct is one line and exit code 2."""
    parser = argparse.ArgumentParser("python -m dsvnp.paper.gather", description="Put runs together.")
    parser.add_argument("out", type=Path)
    parser.add_argument("runs", type=Path, nargs="+", metavar="run")
    parser.add_argument(
        "--replace", action="store_true", help="let the first run's rows give way to the others'"
    )
    given = parser.parse_args(words)
    try:
        print(*gather(given.out, given.runs, given.replace), sep="\n")
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
