"""What is measured of a classifier of images, against loops and scikit-learn; and the figures made of it."""

import base64
import math
import tracemalloc
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score

from dsvnp.models import Architecture, make_model
from dsvnp.paper.experiment import UnitResult
from dsvnp.paper.images import figures as images_figures
from dsvnp.paper.images import measures as images_measures
from dsvnp.paper.images.data import ContextImages, Sets
from dsvnp.paper.images.figures import (
    _draw_row,
    cdf_figure,
    pictures_figure,
    reliability_figure,
)
from dsvnp.paper.images.measures import (
    GRID,
    Judged,
    bins,
    chunk_size,
    from_test_context,
    judge_images,
    measure_images,
    pack,
    pictures,
    scores,
    unpack,
)
from dsvnp.paper.label import Label
from dsvnp.plotting.style import look_of
from dsvnp.predictive import CategoricalPredictive

CPU = torch.device("cpu")
ARCH = Architecture(
    196, 10, "categorical", embed_x="lenet", image=(1, 14, 14), dim_laty=4, encoder=(), dim_lat=8, decoder=()
)
NAMES = ("nn", "mc-dropout", "cnp", "np", "attnnp", "dsvnp")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def net(name: str):
    torch.manual_seed(0)
    return make_model(name, ARCH).eval()


def context(number: int = 6) -> ContextImages:
    return ContextImages(torch.rand(number, 196, generator=seeded(5)), torch.arange(number)[:, None] % 10)


def some_judged(seed: int, number: int = 40, sharp: float = 3.0) -> Judged:
    logits = sharp * torch.randn(5, number, 10, generator=seeded(seed), dtype=torch.float64)
    log_probs = logits.log_softmax(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return Judged(log_probs.exp().mean(0).log(), entropy.mean(0), 5)


class Stub:
    """A "model" with given draws of log-probabilities, which remembers its task."""

    def __init__(self, log_probs):
        self.log_probs, self.tasks = log_probs, []

    def noise_shapes(self, *sizes, shared):
        return {}

    def predict(self, task, num_draws, num_local, generator, chunk, validate):
        self.tasks.append(task)
        return CategoricalPredictive(self.log_probs[:, None, None, : task.num_targets])


# --- a prediction ---


def test_entropies_are_what_loops_give():
    log_probs = torch.randn(4, 7, 10, generator=seeded()).log_softmax(-1)
    judged = judge_images(Stub(log_probs), context(), torch.zeros(7, 196), 4)
    for i in range(7):
        draws = [[math.exp(float(v)) for v in draw[i]] for draw in log_probs]
        mean = [sum(draw[c] for draw in draws) / 4 for c in range(10)]
        entropy = -sum(p * math.log(p) for p in mean)
        expected = -sum(p * math.log(p) for draw in draws for p in draw) / 4
        kinds = judged.uncertainties()
        assert float(kinds["entropy"][i]) == pytest.approx(entropy, rel=1e-6)
        assert float(kinds["expected-entropy"][i]) == pytest.approx(expected, rel=1e-6)
        assert float(kinds["mutual-information"][i]) == pytest.approx(entropy - expected, rel=1e-5)
        assert judged.probs[i].tolist() == pytest.approx(mean, rel=1e-6)
    assert judged.num_draws == 4
    assert judged.entropy.dtype == torch.float64


def test_nearly_certain_images_keep_their_order():
    logits = torch.zeros(1, 2, 10)
    logits[0, 0, 0], logits[0, 1, 0] = 30.0, 40.0  # in single precision both probabilities are 1
    entropy = judge_images(Stub(logits.log_softmax(-1)), context(), torch.zeros(2, 196), 1).entropy
    assert entropy[0] > 1000 * entropy[1] > 0


@pytest.mark.parametrize("name", NAMES)
def test_predictions_repeat_and_know_no_labels(name):
    x = torch.rand(9, 196, generator=seeded())
    first, again = (judge_images(net(name), context(), x, 4) for _ in range(2))
    assert torch.equal(first.log_probs, again.log_probs)
    assert first.log_probs.shape == (9, 10)
    assert first.num_draws == (1 if name in ("nn", "cnp") else 4)
    torch.testing.assert_close(first.probs.sum(1), torch.ones(9, dtype=torch.float64), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["nn", "mc-dropout", "cnp", "np", "attnnp"])
def test_the_size_of_a_chunk_changes_nothing(name, monkeypatch):
    x = torch.rand(9, 196, generator=seeded())
    whole = judge_images(net(name), context(), x, 4)
    monkeypatch.setattr(images_measures, "chunk_size", lambda *rest: 2)
    torch.testing.assert_close(
        judge_images(net(name), context(), x, 4).log_probs, whole.log_probs, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["mc-dropout", "attnnp"])
def test_an_image_is_judged_by_itself_under_batch_norm(name, monkeypatch):
    torch.manual_seed(0)
    arch = replace(ARCH, embed_x="vgg", vgg=(4, "M", 4))
    model, x = make_model(name, arch), torch.rand(9, 196, generator=seeded())
    model.train()  # the statistics of training are used all the same, whatever else is judged with it
    whole = judge_images(model, context(), x, 4)
    monkeypatch.setattr(images_measures, "chunk_size", lambda *rest: 2)
    torch.testing.assert_close(
        judge_images(model, context(), x, 4).log_probs, whole.log_probs, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["cnp", "np", "attnnp", "dsvnp"])
def test_an_image_is_embedded_once_however_many_draws(name):
    model, seen = net(name), []
    model.embed.x.register_forward_hook(
        lambda module, inputs, output: seen.append(inputs[0].shape[:-1].numel())
    )
    judge_images(model, context(6), torch.rand(9, 196), 50)
    assert sum(seen) == 6 + 9


def test_chunks_shrink_where_each_draw_needs_its_layers():
    assert chunk_size(net("nn"), 100, CPU) == 1000
    assert chunk_size(net("dsvnp"), 100, CPU) == 1000
    largest = 20 * 10 * 10  # of the first convolution
    assert chunk_size(net("mc-dropout"), 100, CPU) == 20_000_000 // (100 * largest)
    assert chunk_size(net("mc-dropout"), 100, torch.device("cuda")) == 1000
    assert chunk_size(net("mc-dropout"), 1000, torch.device("cuda")) == 500_000_000 // (1000 * largest)
    assert chunk_size(net("mc-dropout"), 10**9, CPU) == 1


# --- scores ---


def test_scores_agree_with_scikit_learn():
    judged = {"mnist": some_judged(0), "kmnist": some_judged(1, 60, 1.0)}
    labels = torch.randint(10, (40,), generator=seeded(2))
    values = scores(judged, labels)
    is_ood = np.r_[np.zeros(40), np.ones(60)]
    for suffix, kind in {"": "entropy", "-mi": "mutual-information"}.items():
        both = np.concatenate([each.uncertainties()[kind].numpy() for each in judged.values()])
        assert values["kmnist", f"auroc{suffix}"] == pytest.approx(roc_auc_score(is_ood, both))
        assert values["kmnist", f"aupr{suffix}"] == pytest.approx(average_precision_score(is_ood, both))
        threshold = np.sort(both[:40])[37]  # 38 of 40 are 95 %
        assert values["kmnist", f"fpr95{suffix}"] == pytest.approx((both[40:] <= threshold).mean())
    probs = judged["mnist"].probs.numpy()
    assert values["mnist", "nll"] == pytest.approx(log_loss(labels, probs, labels=range(10)))
    assert values["mnist", "accuracy"] == pytest.approx((probs.argmax(1) == labels.numpy()).mean())
    assert values["kmnist", "entropy"] == pytest.approx(float(judged["kmnist"].entropy.mean()))
    assert not any(
        name == "mnist" and metric.startswith(("auroc", "aupr", "fpr95")) for name, metric in values
    )


def test_a_model_without_draws_has_no_split():
    judged = {name: some_judged(i)._replace(num_draws=1) for i, name in enumerate(("mnist", "kmnist"))}
    metrics = {metric for _, metric in scores(judged, torch.zeros(40, dtype=torch.long))}
    assert metrics == {"accuracy", "nll", "ece", "entropy", "auroc", "aupr", "fpr95"}


def make_sets(number: int = 12) -> Sets:
    shown = {
        name: torch.randint(256, (number, 1, 14, 14), generator=seeded(i), dtype=torch.uint8)
        for i, name in enumerate(("mnist", "kmnist"))
    }
    x = {name: images.flatten(1) / 255 for name, images in shown.items()} | {
        "uniform": torch.rand(number, 196)
    }
    y = torch.arange(number) % 10
    zero, one = torch.zeros(1), torch.ones(1)
    return Sets(shown["mnist"], y, zero, one, context(3), x, y, shown, tuple("abcdefghij"))


def test_test_images_of_a_context_are_not_predicted():
    sets = make_sets()
    stub = Stub(torch.randn(2, 12, 10, generator=seeded()).log_softmax(-1))
    from_test_context(stub, sets, 2)
    (task,) = stub.tasks
    rows = {tuple(x.tolist()): int(y) for x, y in zip(sets.x["mnist"], sets.y, strict=True)}
    seen = [tuple(x.tolist()) for x in task.x_context[0]]
    asked = [tuple(x.tolist()) for x in task.x_target[0]]
    assert (len(seen), len(asked)) == (3, 9)
    assert set(seen) | set(asked) == set(rows)
    assert [rows[x] for x in seen] == task.y_context[0, :, 0].tolist()
    assert task.y_target is None


def test_measure_gives_a_value_for_each_net_and_pictures_of_the_first():
    sets, nets = make_sets(), [net("np"), make_model("np", ARCH).eval()]
    rows, extras = measure_images(nets, sets, 3, pictured=True)
    assert all(len(m.values) == 2 for m in rows)
    values = {(m.dataset, m.metric, m.split): m.values for m in rows}
    assert values["mnist", "nll", "test"][0] != values["mnist", "nll", "test"][1]
    assert {name: len(curves) for name, curves in extras["cdf"].items()} == dict.fromkeys(sets.x, 2)
    judged = judge_images(nets[1], sets.context, sets.x["kmnist"], 3)
    expected = [(judged.entropy <= at).double().mean().item() for at in GRID]
    assert extras["cdf"]["kmnist"][1] == pytest.approx(expected, abs=1e-4)
    assert len(extras["reliability"]) == 2
    assert list(extras["pictures"]) == ["mnist", "kmnist"]
    assert "pictures" not in measure_images(nets[:1], sets, 3, pictured=False)[1]


def test_bins_are_sums_that_can_be_added():
    judged, labels = some_judged(0), torch.randint(10, (40,), generator=seeded(2))
    made = bins(judged, labels)
    confidence, choice = judged.probs.max(1)
    assert sum(made["num_points"]) == 40
    assert sum(made["confidence"]) == pytest.approx(float(confidence.sum()))
    assert sum(made["accuracy"]) == pytest.approx(float((choice == labels).sum()))


# --- pictures and figures ---


def test_packed_images_come_back():
    images = torch.randint(256, (2, 3, 4, 5), generator=seeded(), dtype=torch.uint8)
    assert torch.equal(unpack(pack(images), [2, 3, 4, 5]), images)


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (packed(bytes(119)), "to the 120 bytes of their shape"),
        (packed(bytes(121)), "to the 120 bytes of their shape"),
        (packed(bytes(10**8)), "to the 120 bytes of their shape"),
        (packed(bytes(120))[:-8], "to the 120 bytes of their shape"),
        (base64.b64encode(b"x" + zlib.compress(bytes(120))).decode(), "incorrect header check"),
        ("?" + packed(bytes(120)), "Only base64 data is allowed|padding"),
        ("é", "ASCII"),
        ("", "to the 120 bytes"),
    ],
)
def test_damaged_pictures_are_refused_and_unpacked_no_further_than_their_shape(text, reason):
    tracemalloc.start()
    with pytest.raises(ValueError, match=f"pictures that do not unpack.*({reason})"):
        unpack(text, [2, 3, 4, 5])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10**6  # bytes


@pytest.mark.parametrize(
    "shape",
    [[], [0, 3, 4, 5], [-2, -3, 4, 5], [2.0, 60], [True, 120], ["2"], [2**62] * 9, [101, 1], [1, 2**24 + 1]],
)
def test_shapes_of_which_no_figure_is_made_are_refused_before_anything_is_unpacked(shape, monkeypatch):
    monkeypatch.setattr(zlib, "decompressobj", None)
    with pytest.raises(ValueError, match=r"pictures of the shape \[.*of which no figure is made"):
        unpack(packed(bytes(120)), shape)


def test_the_largest_pictures_are_unpacked():
    assert unpack(packed(bytes(2**24)), [1, 2**24]).shape == (1, 2**24)
    assert unpack(packed(bytes(100)), [100, 1]).shape == (100, 1)


def test_pictures_are_the_most_and_the_least_certain_images():
    sets = make_sets()
    judged = {name: some_judged(i, 12) for i, name in enumerate(sets.x)}
    made = pictures(judged, sets)
    for name in ("mnist", "kmnist"):
        entropy = judged[name].entropy.tolist()
        order = sorted(range(12), key=lambda i: entropy[i])
        for kind, rows in {"most": order[:5], "least": order[::-1][:5]}.items():
            shown = made[name][kind]
            assert torch.equal(unpack(shown["images"], shown["shape"]), sets.shown[name][rows])
            assert shown["entropy"] == pytest.approx([entropy[i] for i in rows], abs=1e-3)
            assert shown["taken_for"] == ["abcdefghij"[int(judged[name].probs[i].argmax())] for i in rows]


def unit(model: str, seed: int, shares: list[float]) -> UnitResult:
    sums = {"num_points": [20, 0, 5], "confidence": [2.0, 0.0, 5.0], "accuracy": [1.0 + seed, 0.0, 5.0]}
    extras = {"entropies": [0.0, 1.0], "cdf": {"mnist": [shares], "kmnist": [shares]}, "reliability": [sums]}
    return UnitResult(Label(model), (seed,), (), extras)


def test_figures_hold_all_seeds_of_a_model(tmp_path, monkeypatch):
    drawn = {}

    def catch(plots, path, **options):
        drawn[path.name] = plots
        return path

    monkeypatch.setattr(images_figures, "lines_figure", catch)
    units = [unit("nn", 0, [0.1, 1.0]), unit("nn", 1, [0.3, 1.0]), unit("np", 0, [0.5, 0.9])]
    cdf_figure(units, tmp_path / "cdf_figure")
    reliability_figure({"this": units, "that": units[:1]}, tmp_path / "reliability_figure")
    assert [plot.title for plot in drawn["cdf_figure"]] == ["mnist", "kmnist"]
    nn, np_ = look_of("nn"), look_of("np")
    lines = drawn["cdf_figure"][1].lines
    assert (lines[nn].x, lines[nn].y) == ([0.0, 1.0], [[0.1, 1.0], [0.3, 1.0]])
    assert lines[np_].y == [[0.5, 0.9]]
    assert [(plot.title, list(plot.lines)) for plot in drawn["reliability_figure"]] == [
        ("this", [nn, np_]),
        ("that", [nn]),
    ]
    reliable = drawn["reliability_figure"][0].lines[nn]
    assert (reliable.x, reliable.y) == ([0.1, 1.0], [[3 / 40, 1.0]])  # 40 and 10 images, and none between
    assert len(drawn["reliability_figure"][0].lines[np_].x) == 1  # 5 images are too few


@pytest.mark.parametrize("channels", [1, 3])
def test_a_row_of_pictures_shows_images_with_class_and_entropy(channels):
    images = torch.randint(256, (2, channels, 4, 5), generator=seeded(), dtype=torch.uint8)
    shown = {
        "images": pack(images),
        "shape": list(images.shape),
        "taken_for": ["cat", "dog"],
        "entropy": [0.1, 2.0],
    }
    row = Figure().subplots(1, 2)
    _draw_row(row, shown)
    assert [axes.get_title() for axes in row] == ["cat, 0.10", "dog, 2.00"]
    for axes, image in zip(row, images, strict=True):
        expected = image[0] if channels == 1 else image.permute(1, 2, 0)
        assert torch.equal(torch.from_numpy(np.asarray(axes.get_images()[0].get_array())), expected)


def test_a_number_of_pictures_that_are_not_there_is_refused_before_a_figure_is_made(tmp_path):
    shown = {"images": "", "shape": [10**9, 1, 4, 5], "taken_for": [], "entropy": []}
    extras = {"pictures": {"mnist": {"most": shown, "least": shown}}}
    with pytest.raises(ValueError, match="of which no figure is made"):
        pictures_figure(UnitResult(Label("dsvnp"), (0,), (), extras), tmp_path / "sure.svg")


def test_a_figure_of_pictures_is_written(tmp_path):
    sets = make_sets()
    made = pictures({name: some_judged(i, 12) for i, name in enumerate(sets.x)}, sets)
    path = pictures_figure(
        UnitResult(Label("dsvnp"), (0,), (), {"pictures": made}), tmp_path / "figures" / "sure.svg"
    )
    assert path.stat().st_size > 5000
