"""`dsvnp reproduce` and `dsvnp report`: the paper's experiments."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from dsvnp.cli.options import Device, LogDir, Wait
from dsvnp.naming import lookup, unknown
from dsvnp.paper import EXPERIMENTS

if TYPE_CHECKING:
    from dsvnp.paper.experiment import Workplace

ALL = "all"


def reproduce(
    experiment: Annotated[str, Argument(help=f"Which one: {', '.join(EXPERIMENTS)}, or {ALL}.")],
    preset: Annotated[
        str, Option(help="smoke (seconds), quick (minutes on two cores) or paper (a GPU).")
    ] = "quick",
    models: Annotated[str | None, Option(help="Some models only, with commas between them.")] = None,
    seeds: Annotated[int | None, Option(min=1, help="Number of seeds.")] = None,
    device: Device = "auto",
    out: Annotated[Path | None, Option(help="Folder for results; runs/EXPERIMENT-PRESET by default.")] = None,
    data_dir: Annotated[
        Path | None, Option(help="Directory of the data sets; the variable DSVNP_DATA by default.")
    ] = None,
    datasets: Annotated[
        str | None, Option(help="Some data sets only, with commas (multioutput, ablations).")
    ] = None,
    domain: Annotated[str | None, Option(help="mnist or cifar10 (images, completion).")] = None,
    resume: Annotated[bool, Option("--resume", help="Insist on an earlier run to continue.")] = False,
    dask: Annotated[
        str | None, Option(help="Address of a Dask scheduler whose workers run the units.")
    ] = None,
    workers: Annotated[
        int | None, Option(min=1, help="Start so many workers on this machine to run the units.")
    ] = None,
    wait: Wait = False,
    measure_only: Annotated[
        bool,
        Option("--measure-only", help="Measure kept weights again, without training."),
    ] = False,
    weights: Annotated[
        Path | None, Option(help="Run whose weights to measure; --out or results/EXPERIMENT by default.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        Option("--set", help="Change a setting of the preset: NAME=JSON, or GROUP.NAME=JSON; repeatable."),
    ] = None,
    log_dir: LogDir = None,
) -> None:
    """Run an experiment of the paper, or all of them; run it again to continue where it stopped."""
    from rich.console import Console

    from dsvnp.devices import one_thread, pick_device
    from dsvnp.models import MODELS
    from dsvnp.paper.experiment import Workplace
    from dsvnp.paper.spread import joined_cluster
    from dsvnp.training import Cluster
    from dsvnp.training.hooks import tensorboard

    names = tuple(models.split(",")) if models else None
    for name in names or ():
        lookup(name, MODELS, "model")
    folder = out or Path("runs") / "-".join(filter(None, [experiment, domain, preset]))
    kept = _weights_folder(experiment, folder, measure_only, weights)
    place = Workplace(folder, pick_device(device), Console(), data_dir, wait, kept)
    own = {"datasets": tuple(datasets.split(",")) if datasets else None, "domain": domain}
    if experiment == ALL and (set_ or measure_only or any(own.values())):
        raise ValueError(
            "--datasets, --domain, --measure-only and --set belong to one experiment; leave them out, or name it"
        )
    # Networks this small gain nothing by a second thread, which stalls them on a busy machine.
    threads = one_thread() if place.device.type == "cpu" else nullcontext()
    with Cluster.joined(), threads, tensorboard(log_dir), joined_cluster(dask, workers, device) as spread:
        place = replace(place, spread=spread)
        if experiment == ALL:
            _reproduce_all(preset, place, resume, models=names, num_seeds=seeds)
        else:
            given = {**own, "models": names, "num_seeds": seeds}
            changes = {**{n: v for n, v in given.items() if v is not None}, **changes_of(set_ or [])}
            _reproduce_one(experiment, preset, place, resume, own, changes)


def _weights_folder(experiment: str, out: Path, measure_only: bool, weights: Path | None) -> Path | None:
    """The run whose weights are measured: the one named, else the first of two usual places that has some."""
    if not measure_only:
        if weights is not None:
            raise ValueError("--weights names what --measure-only measures; pass both, or neither")
        return None
    places = [weights] if weights is not None else [out, Path("results") / experiment]
    for place in places:
        if any((place / "weights").glob("*.safetensors")):
            return place
    raise ValueError(
        f"no weights in {' or '.join(str(place / 'weights') for place in places)}; name a run by --weights"
    )


def _reproduce_one(
    experiment: str, preset: str, place: Workplace, resume: bool, own: dict[str, Any], changes: dict[str, Any]
) -> None:
    """Run one experiment with some settings changed; `own` are those that not every experiment has."""
    from dsvnp.paper.runner import run
    from dsvnp.paper.settings import make_experiment

    if experiment not in EXPERIMENTS:
        raise ValueError(unknown(experiment, [*EXPERIMENTS, ALL], "experiment"))
    kind = EXPERIMENTS[experiment]
    for name, value in own.items():
        if value is not None and name not in (field.name for field in fields(kind)):
            raise ValueError(f"{experiment} has no setting {name}; leave out --{name}")
    run(make_experiment(kind, preset, **changes), place, resume)


def _reproduce_all(preset: str, place: Workplace, resume: bool, **overrides: Any) -> None:
    """Run every experiment that finds its data, then make the report."""
    from dsvnp.paper.all import plan, run_all
    from dsvnp.training import Cluster

    failed = run_all(plan(EXPERIMENTS.values(), preset, place.data_dir, **overrides), place, resume)
    if Cluster.from_environment().writes:
        report(place.out)
    if failed:
        raise ValueError(f"failed: {', '.join(failed)}; correct the cause and run again with --resume")


def report(folder: Annotated[Path, Argument(help="Folder with results, at or below it.")]) -> None:
    """Make one page of all results in a folder next to the paper's figures: report.html and report.md."""
    from dsvnp.paper.report.page import write_report

    for path in write_report(folder):
        typer.echo(f"Written: {path}")


def changes_of(pairs: list[str]) -> dict[str, Any]:
    """Read NAME=JSON pairs; a value that is not JSON is a text."""
    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE, got {pair!r}")
        if name == "preset":
            raise ValueError("a preset is what --set changes; choose it with --preset")
        try:
            out[name] = json.loads(text)
        except json.JSONDecodeError:
            out[name] = text
    return out
