"""Export: a network as one file that the page reads, and back.

The file is in the format of safetensors: a header of JSON with names, shapes and offsets, then the numbers. Weights are
stored in half precision; `about` and the architecture are metadata. What prediction never uses (the posterior of
z_*) is left out. The page's `js/models.js` computes what `NeuralProcess.predict` computes from it.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dsvnp.files import write_atomically
from dsvnp.models import Architecture, NeuralProcess, make_model
from dsvnp.naming import lookup
from dsvnp.pretrained.loading import empty_network

MODELS = ("cnp", "np", "attnnp", "dsvnp", "tnp", "dsvtnp")  # what `js/models.js` can compute
CHOICES = {
    "likelihood": ("gaussian",),
    "aggregator": ("mean",),
    "embed_x": ("none", "mlp", "fourier"),
    "attention": ("dot",),
}
UNUSED = ("local_posterior.",)  # parts that training alone reads
MANIFEST = "manifest.json"


def export(model: NeuralProcess, path: Path, about: Mapping[str, Any] | None = None) -> int:
    """Write one of `MODELS` with a Gaussian likelihood for the page; return how many weights the file holds.

    `about` is anything JSON can hold: what the network was trained on, its label.
    """
    _check(model)
    tensors = {name: value.detach().half().cpu().contiguous() for name, value in _used(model).items()}
    if broken := [name for name, value in tensors.items() if not value.isfinite().all()]:
        raise ValueError(
            f"{broken[0]} leaves what half precision can hold, ±65504; train with weight decay or clip_norm"
        )
    metadata = {
        "model": model.name,
        "architecture": json.dumps(model.arch.to_dict()),
        "about": json.dumps(dict(about or {})),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, save(tensors, metadata))
    return sum(math.prod(value.shape) for value in tensors.values())


def load(path: Path) -> NeuralProcess:
    """Read a network that `export` wrote; it can predict, but not be trained any further."""
    metadata, tensors = read_halves(path)
    if absent := [name for name in ("model", "architecture") if name not in metadata]:
        raise ValueError(f"{path} does not say the {absent[0]} of its network; export it again")
    try:
        architecture = json.loads(metadata["architecture"])
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{path}: its architecture is not JSON ({error}); export it again") from None
    # Without memory first: an architecture may claim any size.
    state = empty_network(metadata["model"], architecture, path).state_dict()
    for name in sorted(state.keys() | tensors.keys()):
        if name.startswith(UNUSED) and name not in tensors:
            continue
        if name not in tensors or name not in state or tensors[name].shape != state[name].shape:
            raise ValueError(
                f"{path} does not hold the weights of a {metadata['model']}: {name} is not as its architecture needs "
                "it; export it again"
            )
    model = make_model(metadata["model"], Architecture.from_dict(architecture))
    model.load_state_dict({name: value.float() for name, value in tensors.items()}, strict=False)
    return model


def read_halves(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Read the metadata and the tensors of weights in half precision; damage and other dtypes are refused."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, KeyError, RuntimeError) as error:
        raise ValueError(f"{path} cannot be read as weights ({error}); write it again") from None
    for name, value in tensors.items():
        if value.dtype != torch.float16:
            raise ValueError(f"{path}: {name} is of {value.dtype}, not of {torch.float16}; write it again")
    return metadata, tensors


def about(path: Path) -> dict[str, Any]:
    """What a file says of its network: the model's name, its number of weights, and what `export` was told."""
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        count = sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return {"model": metadata["model"], "num_weights": count, **json.loads(metadata["about"])}


def write_manifest(folder: Path, domains: Mapping[str, Any]) -> Path:
    """List the networks of a folder for the page, with what the tasks of each tab were like, by the tab's name."""
    networks = {path.stem: about(path) for path in sorted(folder.glob("*.safetensors"))}
    path = folder / MANIFEST
    path.write_text(json.dumps({"networks": networks, "domains": domains}, indent=1) + "\n", encoding="utf-8")
    return path


def _used(model: NeuralProcess) -> dict[str, Tensor]:
    """The weights that prediction reads."""
    state: dict[str, Tensor] = model.state_dict()
    return {name: value for name, value in state.items() if not name.startswith(UNUSED)}


def _check(model: NeuralProcess) -> None:
    """Refuse what the page cannot compute."""
    lookup(model.name, dict.fromkeys(MODELS), "model of the playground")
    for name, known in CHOICES.items():
        if (value := getattr(model.arch, name)) not in known:
            raise ValueError(f"the playground computes {name}={' or '.join(known)}, got {value!r}")
    if model.arch.deterministic_path and any(name.startswith("path") for name in model.state_dict()):
        raise ValueError("the playground computes no deterministic path; use deterministic_path=False")
    if not all(torch.is_floating_point(value) for value in model.state_dict().values()):
        raise ValueError(f"{model.name} has weights that are no floating-point numbers; leave such parts out")
