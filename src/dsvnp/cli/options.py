"""What several commands share: options, and the check of a device's name."""

from pathlib import Path
from typing import Annotated

from typer import Option


def _known(name: str) -> str:
    """Check the name of a device; only where it names a GPU must torch be asked how many there are."""
    if name in ("auto", "cpu"):
        return name
    from dsvnp.devices import known_device

    return known_device(name)


Device = Annotated[str, Option(help="Where to compute: auto, cpu or cuda.", callback=_known)]
LogDir = Annotated[
    Path | None, Option(help="Folder for TensorBoard's log of the training (extra `tensorboard`).")
]
Wait = Annotated[bool, Option("--wait", help="Wait for another process that uses the folder.")]
