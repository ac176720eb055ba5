"""`dsvnp models` and `dsvnp demo`: a first look."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from dsvnp.cli.options import Device, LogDir


def models() -> None:
    """List the registered models."""
    found = dict(registered())
    width = max(map(len, found))
    for name, summary in found.items():
        typer.echo(f"{name:<{width}}  {summary}")


def registered() -> Iterator[tuple[str, str]]:
    """Name and summary of each registered model, read from the source: to import the classes is to import torch."""
    folder = Path(__file__).parents[1] / "models"
    described = {}
    for path in folder.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and (texts := _texts(node)).keys() >= {"name", "summary"}:
                described[node.name] = (texts["name"], texts["summary"])
    listed = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    for item in ast.walk(listed):
        if isinstance(item, ast.Tuple):
            names = [name.id for name in item.elts if isinstance(name, ast.Name)]
            yield from (described[name] for name in names if name in described)


def _texts(node: ast.ClassDef) -> dict[str, str]:
    """The texts that a class assigns to names of its own."""
    return {
        target.id: line.value.value
        for line in node.body
        if isinstance(line, ast.Assign)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
        for target in line.targets
        if isinstance(target, ast.Name)
    }


def demo(
    out: Annotated[Path, Option(help="Folder for the figure.")] = Path("demo"),
    train: Annotated[bool, Option("--train", help="Train six small models instead.")] = False,
    steps: Annotated[int | None, Option(min=1, help="Training steps of each model, with --train.")] = None,
    device: Device = "cpu",
    log_dir: LogDir = None,
) -> None:
    """Draw what pretrained networks predict of unseen data, in seconds; with --train, train models in four minutes."""
    from rich.console import Console

    from dsvnp.devices import one_thread, pick_device
    from dsvnp.training.hooks import tensorboard

    place = str(pick_device(device))
    with one_thread(), tensorboard(log_dir):
        if train or steps is not None:
            from dsvnp.demo_training import Demo, run_training

            run_training(Demo() if steps is None else Demo(num_steps=steps), out, Console(), place)
        else:
            from dsvnp.demo import run_demo

            run_demo(out, Console(), place)
