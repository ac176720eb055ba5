"""The command line: `dsvnp demo`, `dsvnp models`, and what follows."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import torch
import typer
from rich.console import Console

import dsvnp
from dsvnp.cli import playground as cli_playground
from dsvnp.cli import tables as cli_tables
from dsvnp.demo import Demo, run_demo
from dsvnp.devices import pick_device
from dsvnp.models import MODELS
from dsvnp.naming import lookup, unknown
from dsvnp.paper import EXPERIMENTS
from dsvnp.paper.all import plan, run_all
from dsvnp.paper.experiment import Experiment, Workplace, make_experiment
from dsvnp.paper.report.page import write_report
from dsvnp.paper.runner import run
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
cli_playground.register(app)


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
        list[str] | None, typer.Option("--set", help="Change a setting of the preset: NAME=JSON, repeatable.")
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
        if value is not None and name not in _settings(kind):
            raise ValueError(f"{experiment} has no setting {name}; leave out --{name}")
    given = {**own, "models": names, "num_seeds": seeds}
    changes = {**{n: v for n, v in given.items() if v is not None}, **_overrides(kind, set_ or [])}
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


def _settings(kind: type[Experiment]) -> list[str]:
    """Names of an experiment's settings."""
    return [field.name for field in fields(kind)]


def _overrides(kind: type[Experiment], pairs: list[str]) -> dict[str, Any]:
    """Read NAME=JSON pairs; a value that is not JSON is a text."""
    known, hints = _settings(kind), get_type_hints(kind)
    out: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"--set takes NAME=VALUE, got {pair!r}")
        if name not in known:
            raise ValueError(unknown(name, known, f"setting of {kind.name}"))
        if name == "preset":
            raise ValueError("a preset is what --set changes; choose it with --preset")
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            value = text
        out[name] = tuple(value) if isinstance(value, list) else value
        if not _is_a(out[name], hints[name]):
            expected = getattr(hints[name], "__name__", "") if not get_args(hints[name]) else str(hints[name])
            raise ValueError(f"--set {name}: expected {expected}, got {text!r}")
    return out


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a value out of JSON is of a setting's type; of a type that JSON does not have, nothing is said."""
    if isinstance(hint, UnionType):
        return any(_is_a(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_is_a(one, get_args(hint)[0]) for one in value)
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    return isinstance(value, hint) if hint in (bool, str, type(None)) else True


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
