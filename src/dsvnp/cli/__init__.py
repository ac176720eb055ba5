"""The command line: `dsvnp demo`, `dsvnp models`, and what follows."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

import dsvnp
from dsvnp.cli import tables as cli_tables
from dsvnp.demo import Demo, run_demo
from dsvnp.devices import pick_device
from dsvnp.models import MODELS
from dsvnp.naming import lookup, unknown
from dsvnp.paper import EXPERIMENTS
from dsvnp.paper.all import plan, run_all
from dsvnp.paper.experiment import Workplace
from dsvnp.paper.report.page import write_report
from dsvnp.paper.runner import run
from dsvnp.paper.settings import make_experiment
from dsvnp.training import CheckpointError, Interrupted

ALL = "all"
app = typer.Typer(
    name="dsvnp",
    help="Neural processes with uncertainty you can use.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
cli_tables.register(app)


def _version(asked: bool) -> None:
    """Print the version and leave."""
    if asked:
        typer.echo(f"dsvnp {dsvnp.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Neural processes with uncertainty you can use."""


@app.command()
def models() -> None:
    """List the registered models."""
    width = max(len(name) for name in MODELS)
    for name, model in MODELS.items():
        typer.echo(f"{name:<{width}}  {model.summary}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each model.")] = Demo.num_steps,
    device: cli_tables.Device = "cpu",
) -> None:
    """Train four neural processes on random curves and draw what they predict, in about two minutes."""
    torch.set_num_threads(1)  # networks this small: a second thread waits longer than it works
    run_demo(Demo(num_steps=steps), out, Console(), str(pick_device(device)))


@app.command()
def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"Which one: {', '.join(EXPERIMENTS)}, or {ALL}.")],
    preset: Annotated[
        str, typer.Option(help="smoke (seconds), quick (minutes on two cores) or paper (a GPU).")
    ] = "quick",
    models: Annotated[str | None, typer.Option(help="Some models only, with commas between them.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds.")] = None,
    device: cli_tables.Device = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; runs/EXPERIMENT-PRESET by default.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory of the data sets; the variable DSVNP_DATA by default.")
    ] = None,
    datasets: Annotated[
        str | None, typer.Option(help="Some data sets only, with commas (multioutput, ablations).")
    ] = None,
    domain: Annotated[str | None, typer.Option(help="mnist or cifar10 (images).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Insist on going on from an earlier run.")] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a setting of the preset: NAME=JSON, or GROUP.NAME=JSON; repeatable."
        ),
    ] = None,
) -> None:
    """Run an experiment of the paper, or all of them; run again, it goes on where it stopped."""
    names = tuple(models.split(",")) if models else None
    for name in names or ():
        lookup(name, MODELS, "model")
    folder = out or Path("runs") / "-".join(filter(None, [experiment, domain, preset]))
    place = Workplace(folder, pick_device(device), Console(), data_dir)
    own = {"datasets": tuple(datasets.split(",")) if datasets else None, "domain": domain}
    if experiment == ALL:
        if set_ or any(own.values()):
            raise ValueError(
                "--datasets, --domain and --set belong to one experiment; leave them out, or name it"
            )
        return _reproduce_all(preset, place, resume, models=names, num_seeds=seeds)
    if experiment not in EXPERIMENTS:
        raise ValueError(unknown(experiment, [*EXPERIMENTS, ALL], "experiment"))
    kind = EXPERIMENTS[experiment]
    for name, value in own.items():
        if value is not None and name not in (field.name for field in fields(kind)):
            raise ValueError(f"{experiment} has no setting {name}; leave out --{name}")
    given = {**own, "models": names, "num_seeds": seeds}
    changes = {**{n: v for n, v in given.items() if v is not None}, **_changes(set_ or [])}
    run(make_experiment(kind, preset, **changes), place, resume)


def _reproduce_all(preset: str, place: Workplace, resume: bool, **overrides: Any) -> None:
    """Run every experiment that finds its data, then make the report."""
    failed = run_all(plan(EXPERIMENTS.values(), preset, place.data_dir, **overrides), place, resume)
    report(place.out)
    if failed:
        raise ValueError(f"failed: {', '.join(failed)}; once that is mended, run again with --resume")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="Folder with results, at or below it.")],
) -> None:
    """Make one page of all results in a folder, beside the paper's figures: report.html and report.md."""
    for path in write_report(folder):
        typer.echo(f"Written: {path}")


def _changes(pairs: list[str]) -> dict[str, Any]:
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


def main() -> None:
    """Run the command; an error a user can mend is one line and exit code 2."""
    try:
        app()
    except Interrupted as stop:
        typer.echo(str(stop), err=True)
        sys.exit(128 + stop.signal_number)
    except (ValueError, OSError, CheckpointError) as error:
        typer.echo(f"dsvnp: {error}", err=True)
        sys.exit(2)
