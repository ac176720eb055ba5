"""Weights that ship with the package: `load_pretrained(name)` gives a network that predicts without training.

A network is two files in one folder,

    NAME.safetensors   parameters in half precision; buffers (fixed frequencies and codes) in single precision
    NAME.json          its card: architecture, prior, steps, GPU minutes, what it was validated on, limits, licence,
                       and the checksum of the other file

Loading refuses weights that are damaged, not finite, or not of the card's architecture; it never runs code of a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from dsvnp.files import write_atomically
from dsvnp.models import Architecture, NeuralProcess, make_model
from dsvnp.naming import unknown
from dsvnp.networks import WithoutDraws
from dsvnp.schema import NUMBER, read_json, wrong

SHIPPED = Path(__file__).parent / "weights"
KEPT = (torch.float16, torch.bfloat16, torch.float32)  # dtypes of weights in a file
FORM = {  # of a card, where others rely on it
    **dict.fromkeys(("name", "gpu", "validated_on", "limits", "licence", "model", "sha256"), str),
    **{"steps": int, "seed": int, "gpu_minutes": NUMBER, "prior": [dict], "architecture": dict},
}
MOST_LAYERS, WIDEST = 1000, 2**20
REFUSALS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class WeightsError(ValueError):
    """Weights that cannot be used; the message names the file and says what to do."""


@dataclass(frozen=True)
class Card:
    """What a pretrained network is and where it comes from."""

    name: str  # of the files
    # settings of the synthetic functions, one entry per shape of batch
    prior: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0  # training steps
    gpu_minutes: float = 0.0  # time that training took
    gpu: str = ""  # which one
    seed: int = 0  # of the weights and of the prior
    validated_on: str = ""  # functions, series or tables that the network was judged by, and how it did
    limits: str = ""  # what it was not made for
    licence: str = "MIT"  # of the weights
    model: str = ""  # which of `dsvnp.MODELS`; filled in on saving
    architecture: dict[str, Any] = field(default_factory=dict)  # sizes and choices; filled in on saving
    sha256: str = ""  # checksum of the weights; filled in on saving

    @classmethod
    def read(cls, path: Path) -> Card:
        """Read a card; one that is not JSON or has other entries is refused."""
        try:
            values = read_json(path, "get the file again")
        except ValueError as error:
            raise WeightsError(str(error)) from None
        if reason := wrong(values, {"name": str}):
            raise WeightsError(f"{path} {reason}; get the file again")
        known = [each.name for each in fields(cls)]
        for key in values:
            if key not in known:
                raise WeightsError(f"{path}: {unknown(key, known, 'entry of a card')}")
        card = cls(**values)
        if reason := wrong(vars(card), FORM):
            raise WeightsError(f"{path} {reason}; get the file again")
        return card


def load_pretrained(name: str, folder: Path | str | None = None) -> NeuralProcess:
    """Load a network by its name, in float32 and in evaluation mode.

    Args:
        name: "curves", "tables", or the name of a network of your own.
        folder: where its two files lie; None is the folder that ships with the package.
    """
    place = SHIPPED if folder is None else Path(folder)
    card = read_card(name, place)
    path = place / f"{name}.safetensors"
    if not path.is_file():
        raise WeightsError(f"{path} is missing but its card is there; get both files again")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != card.sha256:
        raise WeightsError(f"{path}: damaged, its checksum is not the card's; get both files again")
    try:
        tensors = load(content)
    except (SafetensorError, *REFUSALS) as error:
        raise WeightsError(f"{path}: no tensors can be read ({error}); get both files again") from None
    # One that did not ship with the package takes no memory until its tensors are known to fit. The others need not
    # wait for what torch imports to do so.
    model = empty_network(card.model, card.architecture, place / f"{name}.json", on_meta=place != SHIPPED)
    _check(tensors, model.state_dict(), path)
    model.load_state_dict({key: value.float() for key, value in tensors.items()}, assign=True)
    return model.eval()


def empty_network(
    name: str, architecture: Mapping[str, Any], path: Path, on_meta: bool = True
) -> NeuralProcess:
    """Make the network that a file describes, without torch's random numbers; on torch's meta device without memory."""
    try:
        _check_sizes(architecture)
        make = partial(make_model, name, Architecture.from_dict(dict(architecture)))
        with WithoutDraws(), torch.device("meta") if on_meta else nullcontext():
            return make()
    except REFUSALS as error:
        reason = str(error).partition("\n")[0]
        raise WeightsError(f"{path}: its network cannot be made ({reason:.200}); get it again") from None


def _check_sizes(settings: Mapping[str, Any]) -> None:
    """Refuse sizes that no network has, and that would take all time or memory."""
    for name, value in settings.items():
        most = MOST_LAYERS if name in ("num_layers", "self_attention", "num_waves") else WIDEST
        if isinstance(value, dict):
            _check_sizes(value)
        elif isinstance(value, int) and value > most:
            raise ValueError(f"{name} is {value}, more than {most}")
        elif isinstance(value, list):
            _check_sizes({f"{name}[{number}]": each for number, each in enumerate(value)})


def read_card(name: str, folder: Path | str | None = None) -> Card:
    """Read the card of a network; see `load_pretrained` for its arguments."""
    place = SHIPPED if folder is None else Path(folder)
    path = place / f"{name}.json"
    if not path.is_file():
        names = sorted(each.stem for each in place.glob("*.json"))
        where = "the package" if folder is None else str(place)
        raise WeightsError(
            f"{where} has no pretrained network {name!r}; it has {', '.join(names) or 'none'}. Train one with "
            f"`dsvnp pretrain`, or pass folder="
        )
    return Card.read(path)


def save_pretrained(
    model: NeuralProcess, card: Card, folder: Path | str, dtype: torch.dtype = torch.float16
) -> Path:
    """Write the two files of a network and return the path of its weights.

    Args:
        model: the network.
        card: what it is; model, architecture and checksum are filled in here.
        folder: where; made if need be.
        dtype: of the parameters. Buffers keep single precision: a fixed frequency has no digit to lose.
    """
    if dtype not in KEPT:
        raise ValueError(f"weights are kept as float16, bfloat16 or float32, got {dtype}")
    learned = {name for name, _ in model.named_parameters()}
    tensors = {
        name: value.detach().cpu().to(dtype if name in learned else torch.float32).contiguous()
        for name, value in model.state_dict().items()
    }
    for name, value in tensors.items():
        if not value.isfinite().all():
            raise ValueError(f"{name} is not finite in {dtype}; a network that diverged is not worth keeping")
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    content = save(tensors)
    path = place / f"{card.name}.safetensors"
    write_atomically(path, content)
    made = replace(
        card, model=model.name, architecture=model.arch.to_dict(), sha256=hashlib.sha256(content).hexdigest()
    )
    text = json.dumps(asdict(made), indent=1, ensure_ascii=False)
    write_atomically(place / f"{card.name}.json", text + "\n")
    return path


def _check(tensors: dict[str, Tensor], expected: dict[str, Tensor], path: Path) -> None:
    """Refuse tensors that are not those of the architecture, of no dtype that is written, or not finite."""
    if missing := sorted(expected.keys() ^ tensors.keys()):
        raise WeightsError(f"{path}: not of the card's architecture, {missing[0]} is in one of the two only")
    for name, value in tensors.items():
        if value.shape != expected[name].shape:
            shapes = f"{tuple(value.shape)}, the architecture needs {tuple(expected[name].shape)}"
            raise WeightsError(f"{path}: {name} has the shape {shapes}; the card is of another network")
        if value.dtype not in KEPT:
            raise WeightsError(
                f"{path}: {name} is of {value.dtype}, not float16, bfloat16 or float32; get both files again"
            )
        if not value.isfinite().all():
            raise WeightsError(f"{path}: {name} has values that are not finite; get the file again")
