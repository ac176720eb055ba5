"""Image completion on small made-up files: where pixels lie, what is scored, what is drawn."""

import base64
import io
import json
import math
import re
import zlib

import pytest
import torch
from rich.console import Console
from tiny_images import write_cifar10, write_mnist

from dsvnp.models import Architecture, make_model
from dsvnp.paper.completion import figures, measures
from dsvnp.paper.completion.experiment import CompletionExperiment
from dsvnp.paper.completion.measures import (
    HIDDEN,
    CompletionSizes,
    hidden_pixels,
    measure_completion,
    pictured,
    pictures,
)
from dsvnp.paper.completion.source import Pixels, completion_task, pixel_grid, split_pixels
from dsvnp.paper.experiment import UnitResult, Workplace
from dsvnp.paper.gather import gather
from dsvnp.paper.images.measures import unpack
from dsvnp.paper.label import Label
from dsvnp.paper.measuring import seeded_predict
from dsvnp.paper.records import read_units, write_units
from dsvnp.paper.runner import run
from dsvnp.paper.settings import as_json, make_experiment, rebuild
from dsvnp.training import Fleet, Settings

CPU = torch.device("cpu")


def images(number: int = 5, channels: int = 3, height: int = 4, width: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (number, channels, height, width)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def value(image: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """The pixel of an image [C, H, W] at a place in [−1, 1]², looked up by its row and column."""
    row, column = (round(float((p + 1) / 2) * (n - 1)) for p, n in zip(place, image.shape[1:], strict=True))
    return image[:, row, column].float() / 255 - 0.5


def net(channels: int = 3, name: str = "cnp"):
    torch.manual_seed(0)
    return make_model(name, Architecture(2, channels, encoder=(8,), dim_lat=8, decoder=(8,))).eval()


# --- tasks ---


def test_a_task_holds_distinct_pixels_of_one_image_at_their_places():
    source = Pixels(images(), batch_size=2, num_points=9, min_context=3, max_context=5)
    tensors = source.static() | source.pool(torch.Generator().manual_seed(1), CPU)
    drawn = torch.Generator().manual_seed(2)
    uniforms = {name: torch.rand(shape, generator=drawn) for name, shape in source.uniform_shapes().items()}
    for step in (0, 1):
        task = source.batch(tensors, uniforms, torch.tensor(step))
        for b in range(2):
            image = images()[tensors["order"][2 * step + b]]
            expected = torch.stack([value(image, place) for place in task.x_target[b]])
            torch.testing.assert_close(task.y_target[b], expected)
            assert len({tuple(place.tolist()) for place in task.x_target[b]}) == 9
            assert 3 <= int(task.mask_context[b].sum()) <= 5
    assert source.refresh_every == 2


def test_places_fill_the_square_line_by_line():
    grid = pixel_grid(3, 2)
    assert grid.tolist() == [[-1, -1], [-1, 1], [0, -1], [0, 1], [1, -1], [1, 1]]


def test_a_fleet_trains_on_pixels():
    source = Pixels(images(8), batch_size=2, num_points=9)
    arch = Architecture(2, 3, encoder=(8,), dim_lat=8, decoder=(8,))
    fleet = Fleet(lambda: make_model("cnp", arch), source, (0, 1), Settings(3))
    for _ in range(3):
        fleet.step()
    assert fleet.read_metrics()["log_likelihood"].isfinite().all()


def test_context_and_hidden_pixels_are_all_pixels_once():
    context, targets = split_pixels(images(), 7, seed=0)
    assert context.shape == (5, 7)
    assert torch.cat([context, targets], 1).sort(-1).values.tolist() == [list(range(24))] * 5
    assert not torch.equal(context[0], context[1])
    task = completion_task(images(), context, targets)
    torch.testing.assert_close(task.y_context[3, 2], value(images()[3], task.x_context[3, 2]))
    torch.testing.assert_close(task.y_target[4, 11], value(images()[4], task.x_target[4, 11]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pixels(images().float()), "images must be bytes"),
        (lambda: Pixels(images(), 2, 25), "an image has 24 pixels, fewer than num_points=25"),
        (lambda: Pixels(images(), 6, 9), "got 5 images, fewer than the 6 of a batch"),
        (lambda: split_pixels(images(), 24, 0), "a context of 24 pixels leaves none of 24"),
    ],
)
def test_what_no_task_can_be_made_of_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# --- measures and pictures ---


def test_rows_are_means_over_hidden_pixels_summed_over_channels():
    model = net()
    rows = measure_completion([model], {"cifar10": images()}, CompletionSizes(contexts=(5,), max_draws=32))
    (task,) = hidden_pixels(images(), 5)
    predictive = model.predict(task)
    each = torch.distributions.Normal(predictive.mean, predictive.stddev).log_prob(
        task.y_target
    )  # [5, 19, 3]
    ((row,),) = (rows,)
    assert (row.dataset, row.split, row.unit) == ("cifar10", "context-5", "nats/pixel")
    assert row.values[0] == pytest.approx(float(each.sum(-1).mean()), rel=1e-5)


def test_pictures_hold_truth_context_mean_and_sigma():
    model, shown = net(1), images(2, 1)
    sizes = CompletionSizes(contexts=(3, 20), num_global=1, block=12)
    kept = pictures(model, shown, sizes)
    drawn = unpack(kept["images"], kept["shape"])
    assert drawn.shape == (4, 7, 3, 4, 6)  # two images, each with two contexts; grey as colours
    assert kept["titles"] == ["3 pixels", "20 pixels"] * 2
    assert torch.equal(drawn[2, 0], shown[1].expand(3, -1, -1))
    context, _ = split_pixels(shown, 3, seed=3)
    hidden = (drawn[2, 1] == torch.tensor(HIDDEN)[:, None, None]).all(0).flatten()
    assert sorted((~hidden).nonzero().flatten().tolist()) == sorted(context[1].tolist())
    every = torch.arange(24).expand(2, -1)
    predictive = model.predict(completion_task(shown, context, every))
    mean = ((predictive.mean[1, :, 0] + 0.5) * 255).round().clamp(0, 255).reshape(4, 6)
    assert torch.equal(drawn[2, 2, 0].float(), mean)
    sigma = (predictive.stddev[1, :, 0] / 0.5 * 255).round().clamp(0, 255).reshape(4, 6)
    assert torch.equal(drawn[2, 3, 0].float(), sigma)
    assert pictures(model, shown, sizes) == kept


def test_a_chain_sees_no_more_pixels_than_training_did(monkeypatch):
    model, seen = net(1), []
    usual = model.summarise

    def summarise(task, noise):
        seen.append(int(task.mask_context.sum(-1).max()))
        return usual(task, noise)

    monkeypatch.setattr(model, "summarise", summarise)
    pictures(model, images(1, 1), CompletionSizes(contexts=(3,), chain=9, block=2))
    assert max(seen) == 9  # of 24


@pytest.mark.parametrize(("name", "chained"), [("tnp", None), ("dsvnp", None), ("dsvtnp", True)])
def test_samples_go_without_the_noise_of_the_floor(name, chained, monkeypatch):
    """DSVTNP's are chains although it has a z_G; `sample_functions` decides for all others."""
    model, seen = net(1, name), []
    usual = model.sample_functions

    def sample_functions(*args, **settings):
        seen.append((settings["known_noise"], settings["autoregressive"]))
        return usual(*args, **settings)

    monkeypatch.setattr(model, "sample_functions", sample_functions)
    pictures(model, images(1, 1), CompletionSizes(contexts=(3,), chain=5, num_local=2, num_global=2))
    assert seen == [(model.arch.sigma_floor, chained)]
    assert model.arch.sigma_floor > 0


def test_pictures_are_drawn_again_from_kept_weights(tmp_path, monkeypatch):
    data, places = write_mnist(tmp_path / "data"), (tmp_path / "first", tmp_path / "again")
    made = make_experiment(CompletionExperiment, "smoke", verify=False, models=("tnp",), keep_seeds=1)
    for out, kept in zip(places, (None, places[0]), strict=True):
        run(made, Workplace(out, CPU, Console(file=io.StringIO(), width=200), data, weights=kept))
        monkeypatch.setattr(CompletionExperiment, "train_replicas", None)
    first, again = (read_units(out)["units"][0]["extras"]["pictures"] for out in places)
    assert first == again
    assert not (places[1] / "training.svg").exists()


def test_pictures_average_over_the_local_latents(monkeypatch):
    seen = []

    def predict(net, task, draws):
        seen.append(draws)
        return seeded_predict(net, task, draws)

    monkeypatch.setattr(measures, "seeded_predict", predict)
    arch = Architecture(2, 1, encoder=(8,), dim_lat=8, decoder=(8,), dim_local=2)
    sizes = CompletionSizes(contexts=(3,), num_global=2, num_local=5)
    pictures(make_model("dsvnp", arch), images(1, 1), sizes)
    assert seen == [(2, 5)]


def test_models_are_compared_on_the_same_images_with_one_size_of_context(tmp_path, monkeypatch):
    kept = pictures(net(1), images(2, 1), CompletionSizes(contexts=(3, 20), num_global=1, block=12))
    units = [UnitResult(Label(name), (0,), (), {"pictures": kept}) for name in ("tnp", "cnp")]
    drawn = []
    monkeypatch.setattr(figures, "_draw_rows", lambda rows, path: drawn.extend(rows))
    figures.compared_figure(units, tmp_path / "compared.webp", 20)
    assert [name for name, _, _ in drawn] == ["TNP", "CNP", "TNP", "CNP"]
    assert torch.equal(
        drawn[2][2], unpack(kept["images"], kept["shape"])[3]
    )  # the second image with 20 pixels


def test_one_image_of_each_set_is_shown_or_three_of_the_only_one():
    sets = {"a": images(4), "b": images(5) // 2}
    assert torch.equal(pictured(sets), torch.stack([sets["a"][0], sets["b"][0]]))
    assert torch.equal(pictured({"a": sets["a"]}), sets["a"][:3])


# --- a run ---


def ran(out, data, **changes):
    made = make_experiment(CompletionExperiment, "smoke", verify=False, **changes)
    run(made, Workplace(out, CPU, Console(file=io.StringIO(), width=200), data))
    return json.loads((out / "results.json").read_text())["rows"]


def test_mnist_is_tested_on_three_sets_with_all_rows_and_figures(tmp_path):
    rows = ran(tmp_path / "out", write_mnist(tmp_path / "data"), models=("dsvnp", "tnp"), mixtures=())
    sets = ("mnist", "fashion-mnist", "kmnist")
    expected = {
        (model, "log-likelihood", name, f"context-{size}")
        for model in ("dsvnp", "tnp")
        for name in sets
        for size in (10, 50, 200)
    }
    assert {(r["model"], r["metric"], r["dataset"], r["split"]) for r in rows} == expected
    kept = {(r["model"], *r["method"], *r["draws"], *r["still"]) for r in rows}
    assert kept == {("dsvnp", "prior", 32, False), ("tnp", "exact", 1, True)}
    drawn = {path.name for path in (tmp_path / "out").iterdir() if path.suffix in (".svg", ".webp")}
    pictured = {"completed-dsvnp.webp", "completed-tnp.webp", "compared.webp"}
    assert drawn == {*pictured, "by-context.svg", "training.svg"}


def test_cifar10_is_completed_in_colour(tmp_path):
    rows = ran(
        tmp_path / "out",
        write_cifar10(tmp_path / "data"),
        domain="cifar10",
        models=("tnp",),
        mixtures=("tnp",),
    )
    assert {row["model"] for row in rows} == {"tnp", "tnp-mixture"}
    assert {row["dataset"] for row in rows} == {"cifar10"}
    assert all(row["mean"] is not None for row in rows)
    refuse_damaged_pictures(tmp_path)


def refuse_damaged_pictures(folder):
    """Pictures of a finished run that someone has damaged are one line, in `gather` and in a resumed run."""
    record = read_units(folder / "out")
    shown = record["units"][0]["extras"]["pictures"]
    size = math.prod(shown["shape"])
    good = zlib.compress(bytes(size))
    for bad, reason in (
        (good[:10] + b"x" + good[11:], "ValueError: pictures that do not unpack"),
        (zlib.compress(bytes(10**8)), f"ValueError: pictures that do not unpack to the {size} bytes"),
        (3, "TypeError: "),
    ):
        shown["images"] = base64.b64encode(bad).decode() if isinstance(bad, bytes) else bad
        write_units(folder / "out", record)
        path = re.escape(str(folder / "out" / "units.json.gz"))
        said = rf"the figures cannot be drawn \({reason}.*\): {path} lacks what they are made of"
        with pytest.raises(ValueError, match=said) as refusal:
            gather(folder / "again", [folder / "out"])
        assert "\n" not in str(refusal.value)
        with pytest.raises(ValueError, match=said):
            ran(folder / "out", folder / "data", domain="cifar10", models=("tnp",))


def test_settings():
    made = CompletionExperiment.presets()["paper"]
    assert made.architecture(Label("tnp"), 3).dim_y == 3
    assert made.architecture(Label("dsvnp"), 1).dim_local == made.recipe.local.dim_local
    assert {made.architecture(label, 1).sigma_floor for label in made.labels()} == {0.1}
    assert made.architecture(Label("tnp", "mixture"), 1).likelihood == "mixture"
    assert made.settings("attnnp").objective.kind == "iw"
    assert made.architecture(Label("attnnp"), 1).attention == "dot"  # as the stored rows were trained
    assert (made.num_points, made.max_context, made.sizes.contexts) == (200, 197, (10, 50, 200))
    assert rebuild(CompletionExperiment, as_json(made)) == made
    names = ["attnnp", "dsvnp", "tnp", "tnp-mixture", "dsvtnp"]
    assert made.labels() == [Label.parse(name) for name in names]
    with pytest.raises(ValueError, match="single precision"):
        CompletionExperiment(precision="float64")


def test_what_is_missing_is_named(tmp_path):
    missing = make_experiment(CompletionExperiment, "smoke").missing(tmp_path)
    assert missing is not None
    assert "mnist/train-images" in missing
