"""How figures look: one colour a model everywhere, safe for colour-blind readers (after Okabe and Ito)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from dsvnp.models import base_name

COLOURS = {
    "nn": "#7f7f7f",
    "mc-dropout": "#E69F00",
    "cnp": "#56B4E9",
    "np": "#009E73",
    "attnnp": "#D55E00",
    "dsvnp": "#0072B2",
    "gp": "#CC79A7",
}
LABELS = {
    "nn": "NN",
    "mc-dropout": "MC-Dropout",
    "cnp": "CNP",
    "np": "NP",
    "attnnp": "AttnNP",
    "dsvnp": "DSVNP",
    "gp": "exact GP",
}
INK = "#222222"


def colour_of(label: str) -> str:
    """The colour of a model, the same for all its variants."""
    return COLOURS.get(base_name(label), INK)


def text_of(label: str) -> str:
    """What a reader calls it: "DSVNP", "DSVNP wide"."""
    base = base_name(label)
    return f"{LABELS.get(base, base)} {label[len(base) + 1 :]}".strip()


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the project's style: quiet axes, no chart junk, without touching global settings."""
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


def save(figure: Figure, path: Path) -> Path:
    """Write a figure, without a date, into a folder that is made if need be; the ending decides the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    return path
