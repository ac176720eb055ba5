"""`dsvnp export`: a fitted model or a pretrained network as one file for other programs."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

FORMATS = {"onnx": ".onnx", "pt2": ".pt2"}


def export(
    model: Annotated[
        str, Argument(help="Folder that `dsvnp fit` wrote, tables, curves, or the card (JSON) of a network.")
    ],
    out: Annotated[Path | None, Option(help="File to write; MODEL with another ending by default.")] = None,
    format_: Annotated[str, Option("--format", help="onnx, or pt2 for torch.export.")] = "onnx",
    classes: Annotated[
        int | None,
        Option(min=2, help="Classes that the network for tables distinguishes; numbers by default."),
    ] = None,
    require: Annotated[
        str, Option(help="Inputs without a default, with commas between them; ONNX only.")
    ] = "",
) -> None:
    """Write one file that predicts without this package: any number of rows, in the units of the table."""
    from dsvnp.export import to_onnx, to_pt2
    from dsvnp.naming import lookup

    ending = lookup(format_, FORMATS, "format")
    if require and format_ != "onnx":
        raise ValueError(f"--require is for ONNX, got --format {format_}, in which no input has a default")
    place = out or Path(f"{Path(model).name.removesuffix('.json')}{ending}")
    if place.is_dir():
        raise ValueError(f"--out {place} is a folder; name a file")
    what = _read(model, classes)
    try:
        if format_ == "pt2":
            to_pt2(what, place)
        else:
            to_onnx(what, place, required=[name.strip() for name in require.split(",") if name.strip()])
    except ModuleNotFoundError as error:
        raise ValueError(str(error)) from None  # one line, as for all that a user can correct
    typer.echo(f"{place}: {place.stat().st_size / 1e6:.1f} MB")


def _read(model: str, classes: int | None) -> Any:
    """A fitted estimator, or the graph of a pretrained network."""
    from dsvnp.export import pretrained_graph
    from dsvnp.tabular.base import BaseNP
    from dsvnp.tabular.saved.saving import RECORD

    path = Path(model)
    if (path / RECORD).is_file():
        if classes is not None:
            raise ValueError(f"--classes is for the network for tables; {model} knows its own, leave it out")
        return BaseNP.load(path, "cpu")
    if path.suffix == ".json":
        return pretrained_graph(path.stem, path.parent, classes)
    if path.exists():
        raise ValueError(
            f"{model} holds no estimator: pass a folder that `dsvnp fit` wrote, or a network's card"
        )
    return pretrained_graph(model, None, classes)
