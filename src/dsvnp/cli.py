"""The command line: `dsvnp demo`, `dsvnp models`, and what follows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import dsvnp
from dsvnp.experiments.demo import Demo, run_demo
from dsvnp.models import MODELS
from dsvnp.training import Interrupted

app = typer.Typer(
    name="dsvnp",
    help="Neural processes with uncertainty you can use.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
    device: Annotated[str, typer.Option(help="Where to compute: cpu or cuda.")] = "cpu",
) -> None:
    """Train four neural processes on random curves and draw what they predict, in about two minutes."""
    run_demo(Demo(num_steps=steps), out, Console(), device)


def main() -> None:
    """Run the command; an error a user can mend is one line and exit code 2."""
    try:
        app()
    except Interrupted as stop:
        typer.echo(str(stop), err=True)
        sys.exit(128 + stop.signal_number)
    except (ValueError, OSError) as error:
        typer.echo(f"dsvnp: {error}", err=True)
        sys.exit(2)
