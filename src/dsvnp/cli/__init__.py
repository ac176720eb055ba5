"""The command line: one file per group of commands, each of which imports what it needs when it is called."""

import sys
from typing import Annotated

import typer

import dsvnp
from dsvnp.cli import export, library, paper, playground, pretrain, tables
from dsvnp.naming import shown

app = typer.Typer(
    name="dsvnp",
    help="Neural processes with uncertainty you can use.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    *(tables.fit, tables.predict, tables.evaluate, export.export),
    *(library.models, library.demo, playground.playground),
    *(pretrain.pretrain, paper.reproduce, paper.report),
):
    app.command()(command)


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


def main() -> None:
    """Run the command; an error that a user can correct is one line and exit code 2."""
    try:
        app()
    except (ValueError, OSError) as error:
        _leave(error, 2)
    except RuntimeError as error:  # whoever raises one of these has imported torch
        import torch

        from dsvnp.training import CheckpointError, Interrupted

        if isinstance(error, Interrupted):
            typer.echo(str(error), err=True)
            sys.exit(128 + error.signal_number)
        if isinstance(error, (CheckpointError, torch.OutOfMemoryError)):
            _leave(error, 2)
        raise


def _leave(error: Exception, code: int) -> None:
    """Say what is wrong in one line."""
    typer.echo(shown(f"dsvnp: {error}"), err=True)
    sys.exit(code)
