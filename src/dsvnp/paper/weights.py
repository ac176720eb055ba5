"""Weights of small networks kept with their results, from which a table is measured again without training.

One file per row and seed, in half precision. A network whose weights are kept is measured with the kept ones: `dsvnp
reproduce … --measure-only` computes the table's figures from the files.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import save_file

from dsvnp.models import Architecture, NeuralProcess
from dsvnp.paper.experiment import Experiment, Workplace
from dsvnp.paper.label import Label
from dsvnp.playground.export import read_halves
from dsvnp.pretrained.loading import REFUSALS
from dsvnp.sources.base import TaskSource
from dsvnp.training import Settings
from dsvnp.training.loop import Validation

FOLDER = "weights"
MOST_BYTES = 5_000_000  # of all files of a run


@dataclass(frozen=True)
class WithWeights(Experiment):
    """An experiment that can keep the weights of its networks, and measure kept ones."""

    extendable: ClassVar[tuple[str, ...]] = (*Experiment.extendable, "keep_seeds")

    keep_seeds: int = 0  # number of seeds of each row, from seed 0 on, whose weights are kept

    def nets_of(
        self,
        label: Label,
        make: Callable[[], NeuralProcess],
        source: TaskSource,
        seeds: Sequence[int],
        settings: Settings,
        place: Workplace,
        validation: Validation | None = None,
        best: bool = True,
    ) -> list[NeuralProcess]:
        """Networks with kept weights where a run only measures; else trained ones, some of which are kept.

        Each is taken as it was at its best validation, if it had any; without `best` as it was at the end.
        """
        if place.weights is not None:
            paths = [weights_path(place.weights, label, seed) for seed in seeds]
            return [load_weights(make(), path).to(place.device).eval() for path in paths]
        fleet = self.train_replicas(label, make, source, seeds, settings, place, validation)
        nets = [fleet.replica(row, best=best) for row in range(len(seeds))]
        for row, seed in enumerate(seeds):
            path = weights_path(place.out, label, seed)
            if seed < self.keep_seeds and save_weights(nets[row], path):
                load_weights(nets[row], path)
            elif seed < self.keep_seeds:
                place.console.print(f"{path.name} is not kept: more than {MOST_BYTES / 1e6:g} MB in all")
        return nets

    def measurable(self, label: Label, seeds: Sequence[int], place: Workplace) -> list[int]:
        """The seeds whose weights were kept, where a run only measures; all of them elsewhere."""
        if place.weights is None:
            return list(seeds)
        return [seed for seed in seeds if weights_path(place.weights, label, seed).is_file()]


def weights_path(run: Path, label: Label, seed: int) -> Path:
    """The path of the weights of a row's seed in a run's folder."""
    return run / FOLDER / f"{label.file}-seed-{seed}.safetensors"


def save_weights(net: NeuralProcess, path: Path) -> bool:
    """Write weights in half precision, and what they are of; nothing where the folder would be too large."""
    tensors = {name: value.detach().half().cpu().contiguous() for name, value in net.state_dict().items()}
    size = sum(2 * value.numel() for value in tensors.values())
    others = (other.stat().st_size for other in path.parent.glob("*.safetensors") if other != path)
    if size + sum(others) > MOST_BYTES:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, {"model": net.name, "architecture": json.dumps(net.arch.to_dict())})
    return True


def load_weights(net: NeuralProcess, path: Path) -> NeuralProcess:
    """Fill a network with kept weights; those of another architecture are refused."""
    about, tensors = read_halves(path)
    agree = {
        "model": about.get("model") == net.name,
        "architecture": _architecture(about.get("architecture", "")) == net.arch,
    }
    for name, same in agree.items():
        if not same:
            raise ValueError(
                f"{path} has weights of another {name}, {about.get(name)}; choose the settings of their training"
            )
    try:
        with torch.no_grad():
            net.load_state_dict(
                {name: value.to(next(net.parameters()).dtype) for name, value in tensors.items()}
            )
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is damaged ({reason:.200}); run the experiment again") from None
    return net


def _architecture(text: str) -> Architecture | None:
    """The architecture that a file names; a setting that came later than the file has its default."""
    try:
        return Architecture.from_dict(json.loads(text))
    except REFUSALS:
        return None
