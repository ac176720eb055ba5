"""Train the playground's networks, at most 0.3 million weights each, and write them for the page.

python -m studies.playground_training --out src/dsvnp/playground/page/weights --device cuda --batch 64 --mnist MNIST
python -m studies.playground_training --out OUT --only curves-tnp cartpole --steps 3000     # placeholders, on a CPU

Networks are trained one after the other; a file is written as soon as its network is trained, then the manifest.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from dsvnp.files import gunzipped
from dsvnp.models import Architecture, NeuralProcess, Transformer, make_model
from dsvnp.objectives import Objective
from dsvnp.paper.datasets.locate import LARGEST
from dsvnp.paper.datasets.readers import read_idx
from dsvnp.playground.export import export, write_manifest
from dsvnp.training import Adam, Fleet, Reporter, Schedule, Settings, train
from studies import playground_tasks as tasks

NUM_STEPS = 200_000
MAX_WEIGHTS = 300_000
# z_G learns before z_*
SILENT: dict[str, Any] = {"dim_local": 2, "local_start": "silent", "local_detach": True}
SMALL = Transformer(width=64, num_layers=4, num_heads=4, feedforward=128, embedder=(64, 64))


@dataclass(frozen=True)
class Network:
    """A network of the page and how it is trained."""

    model: str  # registered name
    arch: Architecture  # sizes
    source: Callable[..., tasks.PlaygroundTasks]  # makes the source of its tasks, for a `batch_size`
    learning_rate: float = 1e-3  # peak, reached after the warm-up; it falls to zero along a cosine
    beta_local: float = 1.0  # weight of KL_L
    # let KL_L rise together with KL_G, or count from the start: what z_* has learned to carry first, z_G never learns
    anneal_local: bool = True
    num_local: int = 1  # draws of z_* in training

    def settings(self, num_steps: int) -> Settings:
        """Adam, warm-up and cosine; KL_G rises over the first quarter."""
        return Settings(
            num_steps,
            self.learning_rate,
            optimizer=Adam(clip_norm=1.0),
            schedule=Schedule("cosine", warmup=max(1, min(1000, num_steps // 20))),
            objective=Objective(
                beta_local=self.beta_local,
                anneal="linear",
                anneal_steps=max(1, num_steps // 4),
                anneal_local=self.anneal_local,
                num_local=self.num_local,
            ),
            log_every=max(1, min(1000, num_steps // 20)),
        )


def _plain(width: int, lat: int, **others: Any) -> Architecture:
    """Sizes for curves of the models without a transformer."""
    sizes: dict[str, Any] = {"encoder": (width, width), "decoder": (width, width), "dim_lat": lat}
    return Architecture(1, 1, **{"sigma_floor": 0.01, **sizes, **others})


def _deep(dim_x: int, floor: float, **others: Any) -> Architecture:
    """Sizes of the transformers."""
    sizes: dict[str, Any] = {"transformer": SMALL, "decoder": (64,), "sigma_floor": floor}
    return Architecture(dim_x, 1, **{**sizes, **others})


def curve_networks() -> dict[str, Network]:
    """One network per model."""
    both = _plain(96, 96, latent_hidden=(96,), local_hidden=(48,), **SILENT)
    pair = _deep(1, 0.01, encoder=(64, 64), dim_lat=32, dim_local=2)
    return {
        "curves-cnp": Network("cnp", _plain(128, 128), tasks.MixedCurves, 2e-3),
        "curves-np": Network("np", _plain(96, 96, latent_hidden=(96,)), tasks.MixedCurves, 2e-3),
        "curves-attnnp": Network(
            "attnnp", _plain(96, 96, latent_hidden=(96,), num_heads=4), tasks.MixedCurves, 2e-3
        ),
        "curves-dsvnp": Network("dsvnp", both, tasks.MixedCurves, 2e-3, anneal_local=False),
        "curves-tnp": Network("tnp", _deep(1, 0.01), tasks.MixedCurves),
        "curves-dsvtnp": Network("dsvtnp", pair, tasks.MixedCurves, anneal_local=False),
    }


def other_networks() -> dict[str, Network]:
    """The networks of two branches and of the cart-pole.

    On branches KL_L rises slowly: a z_* that costs its full price from the start never learns to choose.
    """
    pair = _deep(1, 0.02, dim_lat=32, dim_local=2, encoder=(64,), decoder=(64, 64))
    plain = _plain(128, 64, latent_hidden=(128,), local_hidden=(64,), dim_local=2, sigma_floor=0.02)
    cart = Architecture(
        4, 2, encoder=(96, 96), dim_lat=32, latent_hidden=(96,), decoder=(96, 96), sigma_floor=0.02
    )
    return {
        "branches-dsvnp": Network("dsvnp", plain, tasks.TwoBranches, num_local=2),
        "branches-dsvtnp": Network("dsvtnp", pair, tasks.TwoBranches, num_local=2),
        "cartpole": Network("np", cart, tasks.Pushes),
    }


def digit_networks(images: torch.Tensor) -> dict[str, Network]:
    """One network that completes digits sharply, and one that imagines whole ones."""
    wide = Architecture(
        2, 1, encoder=(128,) * 3, dim_lat=96, latent_hidden=(128,), decoder=(128,) * 4, sigma_floor=0.05
    )
    source = partial(tasks.DigitPixels, images=images)
    return {"digits-tnp": Network("tnp", _deep(2, 0.05), source), "digits-np": Network("np", wide, source)}


def networks(images: torch.Tensor | None = None) -> dict[str, Network]:
    """All networks by the names of their files; those for digits need images to learn from."""
    return curve_networks() | other_networks() | (digit_networks(images) if images is not None else {})


def domains() -> dict[str, Any]:
    """What the page must know of the tasks: to draw such ones, to compute exact answers, to warn outside."""
    sizes = {"max_context": tasks.PlaygroundTasks.max_context}
    kernels = {
        name: {
            key: list(value) for key, value in asdict(prior).items() if key in ("length", "scale", "period")
        }
        for name, prior in tasks.KERNELS.items()
    }
    return {
        "curves": {
            "interval": list(tasks.INTERVAL),
            "kernels": kernels,
            "noise": list(tasks.NOISES),
            **sizes,
        },
        "branches": {"interval": list(tasks.INTERVAL), "noise": tasks.TwoBranches.noise, **sizes},
        "cartpole": {
            "mass": list(tasks.MASSES),
            "friction": tasks.FRICTION,
            "units": list(tasks.UNITS),
            "limits": list(tasks.LIMITS),
            "changes": list(tasks.CHANGES),
            "sensor": tasks.SENSOR,
            "max_context": tasks.Pushes.max_context,
        },
        "digits": {"max_context": tasks.DigitPixels.max_context},
    }


def train_one(
    name: str, network: Network, out: Path, num_steps: int, batch_size: int, device: str, console: Console
) -> NeuralProcess:
    """Train a network and write its file."""
    make = partial(make_model, network.model, network.arch)
    source = network.source(batch_size=batch_size)
    fleet = Fleet(make, source, [0], network.settings(num_steps), device)
    train(fleet, reporter=Reporter(name, num_steps, console=console))
    model = fleet.replica(0)
    about = {"steps": num_steps, "batch_size": batch_size}
    count = export(model, out / f"{name}.safetensors", about)
    if count > MAX_WEIGHTS:
        raise ValueError(f"{name} has {count} weights, more than {MAX_WEIGHTS}; make it smaller")
    console.print(f"{name}: {count} weights, {num_steps} steps")
    return model


def read_images(folder: Path) -> torch.Tensor:
    """The training images of MNIST from its published file, [60000, 28, 28]."""
    packed = (folder / "train-images-idx3-ubyte.gz").read_bytes()
    return torch.from_numpy(read_idx(gunzipped(packed, LARGEST)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=NUM_STEPS)
    parser.add_argument("--batch", type=int, default=16, help="tasks of a step")
    parser.add_argument("--only", nargs="*", default=[], help="some networks, by name")
    parser.add_argument("--mnist", type=Path, help="folder with train-images-idx3-ubyte.gz, for the digits")
    given = parser.parse_args(arguments)
    known = networks(read_images(given.mnist) if given.mnist else None)
    if strange := [name for name in given.only if name not in known]:
        parser.error(f"unknown network {strange[0]!r}; there are {', '.join(known)} (digits need --mnist)")
    console = Console()
    for name in given.only or known:
        train_one(name, known[name], given.out, given.steps, given.batch, given.device, console)
        write_manifest(given.out, domains())


if __name__ == "__main__":
    main()
