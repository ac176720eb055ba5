"""Measures of a classifier of images: accuracy, calibration, and how well its uncertainty separates sets."""

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsvnp import metrics
from dsvnp.models import NeuralProcess
from dsvnp.paper.experiment import Measurement
from dsvnp.paper.images.data import ContextImages, Sets
from dsvnp.paper.measuring import seeded_predict
from dsvnp.predictive import CategoricalPredictive, entropy_of, log_mean_exp
from dsvnp.schema import wrong
from dsvnp.task import Task

GRID = torch.linspace(0, math.log(10), 33, dtype=torch.float64)  # entropies of ten classes, as in Fig. 4
NUM_BINS = 15
NUM_SHOWN = 5
DETECTION = {"auroc": metrics.auroc, "aupr": metrics.aupr, "fpr95": metrics.fpr_at_95}
SCORES = {"": "entropy", "-mi": "mutual-information"}
MOST_ROWS, MOST_BYTES = 100, 2**24  # of the pictures of a figure, which has up to 15 rows and 0.4 MB
NATS = ("nll", "entropy", "expected-entropy", "mutual-information")


class Judged(NamedTuple):
    """Predictions for N images, in double precision: probabilities near 1 differ in their last digits only."""

    log_probs: Tensor  # log-probability of each class, averaged over draws, [N, classes]
    expected_entropy: Tensor  # mean over draws of the entropy, the aleatoric part, [N]
    num_draws: int  # draws of latents or masks behind it; 1 where nothing is random

    @property
    def probs(self) -> Tensor:
        """Class probabilities, [N, classes]."""
        return self.log_probs.exp()

    @property
    def entropy(self) -> Tensor:
        """Predictive entropy (Sec. 4.4), [N]."""
        return entropy_of(self.probs)

    def uncertainties(self) -> dict[str, Tensor]:
        """Entropy and its split; only where there are draws, since otherwise all of it is aleatoric."""
        entropy, expected = self.entropy, self.expected_entropy
        split = {"expected-entropy": expected, "mutual-information": entropy - expected}
        return {"entropy": entropy, **(split if self.num_draws > 1 else {})}


def judge_images(net: NeuralProcess, context: ContextImages, x: Tensor, num_draws: int) -> Judged:
    """Predict the classes of images x [N, pixels]; a draw is one of z_G with one of z_*, or of dropout masks."""
    task = Task.from_sets(context.x[None], context.y[None], x[None])
    made = seeded_predict(net, task, (num_draws, 1), chunk_size(net, num_draws, x.device))
    assert isinstance(made, CategoricalPredictive)
    draws = CategoricalPredictive(made.log_probs.double())
    return Judged(
        log_mean_exp(draws.log_probs, (0, 1))[0], draws.aleatoric[0], draws.shape[0] * draws.shape[1]
    )


def chunk_size(net: NeuralProcess, num_draws: int, device: torch.device) -> int:
    """Number of images to predict at once, at most 1000: masks and noise of a layer get 2 GB, on a CPU 80 MB.

    An image is embedded once for all draws, but by MC-Dropout, which needs each layer once per draw.
    """
    shapes = net.noise_shapes(1, 1, num_draws, 1, shared=True).values()
    largest = max([math.prod(shape) for shape in shapes], default=1)
    room = 500_000_000 if device.type == "cuda" else 20_000_000
    return max(1, min(1000, room // largest))


def scores(judged: Mapping[str, Judged], labels: Tensor) -> dict[tuple[str, str], float]:
    """All measurements of one net, by set and metric; the domain's own images come first, with their classes."""
    domain, *others = judged
    doubts = {name: each.uncertainties() for name, each in judged.items()}
    values = {(domain, metric): value for metric, value in classification(judged[domain], labels).items()}
    for name, kinds in doubts.items():
        values |= {(name, kind): each.mean() for kind, each in kinds.items()}
    for name in others:
        for suffix, kind in SCORES.items():
            if kind in doubts[name]:
                pair = doubts[domain][kind], doubts[name][kind]
                values |= {(name, metric + suffix): function(*pair) for metric, function in DETECTION.items()}
    return {key: float(value) for key, value in values.items()}


def classification(judged: Judged, labels: Tensor) -> dict[str, Tensor]:
    """Accuracy, NLL and calibration of the predicted classes."""
    return {
        "accuracy": metrics.accuracy(judged.probs, labels),
        "nll": -judged.log_probs.gather(1, labels[:, None]).mean(),
        "ece": metrics.expected_calibration_error(judged.probs, labels, NUM_BINS),
    }


def measure_images(
    nets: Sequence[NeuralProcess], sets: Sets, num_draws: int, pictured: bool
) -> tuple[tuple[Measurement, ...], dict[str, Any]]:
    """Rows, one value per net, and what the figures are made of; if pictured, images the first net is (un)sure of."""
    values: dict[tuple[str, str, str], list[float]] = {}
    extras: dict[str, Any] = {"entropies": GRID.tolist(), "cdf": {}, "reliability": []}
    for net in nets:
        judged = {name: judge_images(net, sets.context, x, num_draws) for name, x in sets.x.items()}
        for (name, metric), value in scores(judged, sets.y).items():
            values.setdefault((name, metric, "test"), []).append(value)
        for metric, value in from_test_context(net, sets, num_draws).items():
            values.setdefault((next(iter(sets.x)), metric, "test-context"), []).append(value)
        for name, each in judged.items():
            cdf = metrics.empirical_cdf(each.entropy, GRID).tolist()
            extras["cdf"].setdefault(name, []).append([round(share, 4) for share in cdf])
        extras["reliability"].append(bins(judged[next(iter(judged))], sets.y))
        if pictured:
            extras["pictures"] = pictures(judged, sets)
            pictured = False
    rows = [
        Measurement(name, metric, split, "nats/image" if metric in NATS else "share", tuple(each))
        for (name, metric, split), each in values.items()
    ]
    return tuple(rows), extras


def from_test_context(net: NeuralProcess, sets: Sets, num_draws: int) -> dict[str, float]:
    """The same classification with images of the test set as context, which are then not among the targets."""
    x = next(iter(sets.x.values()))
    size = min(len(sets.context.x), len(x) // 2)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(4_000_000)).to(x.device)
    chosen, others = order[:size], order[size:]
    judged = judge_images(net, ContextImages(x[chosen], sets.y[chosen, None]), x[others], num_draws)
    values = {**classification(judged, sets.y[others]), "entropy": judged.entropy.mean()}
    return {metric: float(value) for metric, value in values.items()}


def bins(judged: Judged, labels: Tensor) -> dict[str, list[float]]:
    """A reliability diagram as sums, which add up over seeds; empty bins hold zeros."""
    made = metrics.reliability(judged.probs, labels, NUM_BINS)
    return {
        "num_points": made.num_points.tolist(),
        "confidence": (made.confidence * made.num_points).nan_to_num().tolist(),
        "accuracy": (made.accuracy * made.num_points).nan_to_num().tolist(),
    }


def pictures(judged: Mapping[str, Judged], sets: Sets) -> dict[str, Any]:
    """The images of each set that a net is most and least sure of, with the class it takes them for."""
    out: dict[str, Any] = {}
    for name, images in sets.shown.items():
        order = judged[name].entropy.argsort(stable=True)
        out[name] = {
            kind: {
                "shape": [len(rows), *images.shape[1:]],
                "images": pack(images[rows]),
                "taken_for": [sets.class_names[i] for i in judged[name].probs[rows].argmax(1).tolist()],
                "entropy": [round(value, 3) for value in judged[name].entropy[rows].tolist()],
            }
            for kind, rows in {"most": order[:NUM_SHOWN], "least": order.flip(0)[:NUM_SHOWN]}.items()
        }
    return out


def pack(images: Tensor) -> str:
    """Bytes as text that JSON holds."""
    return base64.b64encode(zlib.compress(images.cpu().contiguous().numpy().tobytes(), 9)).decode()


def unpack(text: str, shape: Sequence[int]) -> Tensor:
    """Turn text that `pack` made into bytes, no more of them than its shape has; what is damaged is refused."""
    sizes = list(shape)
    size = 0 if wrong(sizes, [int]) or min(sizes, default=0) < 1 else math.prod(sizes)
    if not 0 < size <= MOST_BYTES or sizes[0] > MOST_ROWS:
        raise ValueError(f"pictures of the shape {sizes!s:.60}, of which no figure is made")
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(base64.b64decode(text, validate=True), size + 1)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"pictures that do not unpack ({error})") from error
    if len(raw) != size or not stream.eof:
        raise ValueError(f"pictures that do not unpack to the {size} bytes of their shape {sizes}")
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(sizes)
