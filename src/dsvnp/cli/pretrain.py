"""`dsvnp pretrain`: train a network on synthetic tables or functions, in as many sittings as it takes."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from dsvnp.cli.options import Device, LogDir, Wait


def pretrain(
    what: Annotated[str, Argument(help="tables, curves or landscapes.")],
    out: Annotated[
        Path | None, Option(help="Folder for checkpoints and log; runs/pretrain-WHAT by default.")
    ] = None,
    minutes: Annotated[float | None, Option(min=0, help="Stop after so many; run again to continue.")] = None,
    steps: Annotated[int | None, Option(min=1, help="Last step; the learning rate falls before it.")] = None,
    decay: Annotated[
        int | None, Option(min=0, help="Steps over which it falls; the recipe's by default.")
    ] = None,
    device: Device = "auto",
    precision: Annotated[
        str, Option(help="bf16, tf32 or float32; auto is bf16 on a GPU and float32 elsewhere.")
    ] = "auto",
    seed: Annotated[int, Option(help="Of the weights and of the synthetic functions.")] = 0,
    tables: Annotated[
        Path | None, Option(help="File of real tables to score the network on as it trains.")
    ] = None,
    start: Annotated[
        Path | None, Option(help="Folder with weights to begin from, without their optimiser.")
    ] = None,
    width: Annotated[
        float, Option(min=0.1, help="Widen the layers by this factor; weights grow with its square.")
    ] = 1.0,
    wait: Wait = False,
    log_dir: LogDir = None,
) -> None:
    """Train a network on synthetic functions; run again, it continues where it stopped.

    Without --steps the learning rate never falls: name the last step before the final sitting. Several GPUs share each
    batch under `torchrun --nproc-per-node N -m dsvnp pretrain …`.
    """
    from dataclasses import replace

    from rich.console import Console

    from dsvnp.devices import pick_device
    from dsvnp.naming import lookup
    from dsvnp.pretrained.recipes import RECIPES
    from dsvnp.pretrained.training import MANY
    from dsvnp.pretrained.training import pretrain as run
    from dsvnp.training import Cluster
    from dsvnp.training.hooks import tensorboard

    if minutes is None and steps is None:
        raise ValueError("training needs an end: pass --minutes, --steps, or both")
    if tables is not None and what != "tables":
        raise ValueError(f"--tables scores a network for tables, got {what}; leave it out")
    recipe = lookup(what, RECIPES, "network to pretrain")()
    recipe = recipe if decay is None else replace(recipe, decay=decay)
    recipe = recipe if width == 1 else recipe.widened(width)
    where = pick_device(device)
    if precision == "auto":
        precision = "bf16" if where.type == "cuda" else "float32"
    folder = out or Path("runs") / (f"pretrain-{what}" + (f"-{width:g}" if width != 1 else ""))
    with Cluster.joined(), tensorboard(log_dir):
        settings = (minutes, steps or MANY, precision, seed, Console(), tables, start, wait)
        fleet = run(recipe, folder, where, *settings)
    if fleet.cluster.writes:
        typer.echo(f"{recipe.name}: step {fleet.num_steps_taken}, checkpoints in {folder / 'checkpoints'}")
