"""Style of figures: one colour per model everywhere, which colour-blind readers distinguish too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dsvnp.files import write_atomically
from dsvnp.plotting.svg import compact

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Names for a reader, and colours: any two differ by at least 12 in CIELAB under simulated protanopia, deuteranopia and
# tritanopia.
LOOKS = {
    "nn": ("NN", "#7F7F7F"),
    "mc-dropout": ("MC-Dropout", "#882255"),
    "cnp": ("CNP", "#E69F00"),
    "np": ("NP", "#4DAF4A"),
    "attnnp": ("AttnNP", "#D55E00"),
    "dsvnp": ("DSVNP", "#0072B2"),
    "tnp": ("TNP", "#F781BF"),
    "dsvtnp": ("DSVTNP", "#332288"),
    "tabtnp": ("TabTNP", "#44AA99"),
    "gp": ("exact GP", "#000000"),
}
NAMES = {model: text for model, (text, _) in LOOKS.items()}
COLOURS = {model: colour for model, (_, colour) in LOOKS.items()}
INK = "#222222"


class Look(NamedTuple):
    """The look of a model in figures: its name for a reader, its colour, and whether its lines are dashed."""

    text: str
    colour: str = INK
    dashed: bool = False


def look_of(model: str, variant: str = "") -> Look:
    """The look of a model: a variant has the model's colour and dashed lines."""
    text = f"{NAMES.get(model, model)} {variant}".strip()
    return Look(text, COLOURS.get(model, INK), bool(variant))


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the project's style: quiet axes, no chart junk, without touching global settings."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        "figure.dpi": 120,
        "savefig.bbox": "tight",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": INK,
        "axes.titlesize": 10,
        "legend.frameon": False,
        "svg.fonttype": "path",
        "svg.hashsalt": "dsvnp",  # the same figure is the same file
    }
    with mpl.rc_context(settings):
        yield


WEBP: dict[str, Any] = {"dpi": 150, "pil_kwargs": {"lossless": True}}


def save(figure: Figure, path: Path) -> Path:
    """Write a figure, without a date, into a folder that is made if need be; the ending decides the format.

    Pictures of many pixels are smallest as WebP, which keeps every pixel here.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = BytesIO()
    options = WEBP if path.suffix == ".webp" else {"metadata": {"Date": None}}
    figure.savefig(drawn, format=path.suffix.removeprefix("."), **options)
    data = drawn.getvalue()
    return write_atomically(path, compact(data) if path.suffix == ".svg" else data)
