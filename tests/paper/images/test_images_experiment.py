"""The image experiment on small made-up files: its rows, its settings, and that no model reads a test label."""

import io
import json
import os
import shutil
import signal
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from tiny_images import draw, write_cifar10, write_idx, write_mnist

from dsvnp.cli import main
from dsvnp.objectives import Objective
from dsvnp.paper.experiment import Measurement, UnitResult, Workplace
from dsvnp.paper.gather import gather
from dsvnp.paper.images.data import ImagePortions, load_sets
from dsvnp.paper.images.experiment import COLUMNS, RECIPES, ImageRecipe, ImagesExperiment
from dsvnp.paper.label import Label
from dsvnp.paper.records import UNITS_FILE, read_units
from dsvnp.paper.runner import load_units, run, write_results
from dsvnp.paper.settings import make_experiment
from dsvnp.training import Adam, Fleet, Interrupted, Schedule
from studies.images_selection import GRIDS, choose_recipe, select_images

CPU = torch.device("cpu")
RESULTS = Path(__file__).parents[3] / "results"
NOISES = [f"{kind}{suffix}" for suffix in ("", "-in-range") for kind in ("rademacher", "uniform", "gaussian")]
DETECTION = {"auroc", "aupr", "fpr95"}
SPLIT = {"expected-entropy", "mutual-information"}


def smoke(out: Path, data: Path, **changes):
    """Run the smoke preset; its results and its units by model."""
    made = make_experiment(ImagesExperiment, "smoke", verify=False, **changes)
    run(made, Workplace(out, CPU, Console(file=io.StringIO(), width=200), data))
    results = json.loads((out / "results.json").read_text())
    return results, {unit["model"]: unit for unit in read_units(out)["units"]}


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    return write_mnist(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory):
    return write_cifar10(tmp_path_factory.mktemp("data"))


@pytest.fixture
def no_figures(monkeypatch):
    monkeypatch.setattr(ImagesExperiment, "draw", lambda self, units, out: [])


@pytest.fixture(scope="module")
def ran(tmp_path_factory, mnist):
    out = tmp_path_factory.mktemp("images")
    return out, *smoke(out, mnist)


# --- rows ---


def test_smoke_gives_all_rows_and_figures(ran):
    out, results, units = ran
    assert list(units) == [*COLUMNS, *(f"{name}-strong" for name in COLUMNS)]
    sets = ["mnist", "fashion-mnist", "kmnist", *NOISES]
    for model in units:
        random = model.split("-")[0] not in ("nn", "cnp")
        expected = {
            ("mnist", m, s) for m in ("accuracy", "nll", "ece", "entropy") for s in ("test", "test-context")
        }
        expected |= {(name, "entropy", "test") for name in sets}
        expected |= {(name, metric, "test") for name in sets[1:] for metric in DETECTION}
        if random:
            expected |= {(name, metric, "test") for name in sets for metric in SPLIT}
            expected |= {(name, f"{metric}-mi", "test") for name in sets[1:] for metric in DETECTION}
        mine = [r for r in results["rows"] if r["model"] == model]
        assert {(r["dataset"], r["metric"], r["split"]) for r in mine} == expected, model
        assert len(mine) == len(expected)
    figures = {"entropy-cdf", "entropy-cdf-strong", "reliability", "training"}
    assert {path.stem for path in out.glob("*.svg")} == figures
    sure = {f"sure-{name}{recipe}" for name in ("nn", "dsvnp") for recipe in ("", "-strong")}
    assert {path.stem for path in out.glob("*.webp")} == sure
    assert (out / UNITS_FILE).stat().st_size < 100_000


def test_the_split_adds_up_and_shares_are_shares(ran):
    _, results, _ = ran
    values = {(r["model"], r["dataset"], r["metric"], r["split"]): r["mean"] for r in results["rows"]}
    for (model, name, metric, split), value in values.items():
        if metric == "mutual-information":
            whole = values[model, name, "entropy", split]
            assert value + values[model, name, "expected-entropy", split] == pytest.approx(whole, abs=1e-5)
            assert value > 0
        if metric in DETECTION | {"accuracy", "ece"}:
            assert 0 <= value <= 1
    assert {r["unit"] for r in results["rows"] if r["metric"] in SPLIT | {"entropy", "nll"}} == {"nats/image"}


def test_the_papers_figures_stand_beside_ours(ran):
    _, results, _ = ran
    paper = {(r["model"], r["dataset"], r["metric"], r["split"]): r["paper"] for r in results["rows"]}
    assert paper["dsvnp", "fashion-mnist", "entropy", "test"] == 0.956
    assert paper["dsvnp-strong", "kmnist", "entropy", "test"] == 0.545
    assert paper["mc-dropout", "gaussian", "entropy", "test"] == 1.623
    assert paper["mc-dropout-strong", "mnist", "accuracy", "test"] == 0.993
    assert paper["mc-dropout", "gaussian-in-range", "entropy", "test"] is None
    assert paper["nn", "mnist", "accuracy", "test-context"] is None
    made = ImagesExperiment(domain="cifar10")
    gaussian = Measurement("gaussian", "entropy", "test", "", ())
    assert made.paper_figure(Label.parse("mc-dropout"), gaussian) == (0.266, None)
    assert made.paper_figure(Label.parse("attnnp"), Measurement("cifar10", "accuracy", "test", "", ())) == (
        0.795,
        None,
    )


def test_cifar10_runs_on_a_vgg(tmp_path, cifar10, no_figures):
    results, units = smoke(tmp_path, cifar10, domain="cifar10", models=("mc-dropout", "dsvnp"))
    assert list(units) == ["mc-dropout", "dsvnp", "mc-dropout-strong", "dsvnp-strong"]
    assert {r["dataset"] for r in results["rows"]} == {"cifar10", "svhn", *NOISES}
    assert units["dsvnp"]["extras"]["recipe"] == asdict(ImageRecipe(5e-5))
    assert units["dsvnp-strong"]["extras"]["pictures"]["svhn"]["most"]["shape"] == [5, 3, 32, 32]


def test_no_model_reads_a_test_label(tmp_path, mnist, ran, no_figures):
    shuffled = tmp_path / "data"
    for path in mnist.rglob("*ubyte"):
        target = shuffled / path.relative_to(mnist)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    labels = draw(40, (28, 28), 1)[1]
    write_idx(shuffled / "mnist/t10k-labels-idx1-ubyte", np.roll(labels, 3))
    _, units = smoke(tmp_path / "out", shuffled, recipes=("paper",))
    _, _, before = ran
    for model, unit in units.items():
        assert unit["extras"]["cdf"] == before[model]["extras"]["cdf"]
        bins = [u["extras"]["reliability"][0] for u in (unit, before[model])]
        assert bins[0]["confidence"] == bins[1]["confidence"]
        values = [
            {(m["dataset"], m["metric"]): m["values"] for m in u["measurements"] if m["split"] == "test"}
            for u in (unit, before[model])
        ]
        told = {key for key in values[0] if values[0][key] != values[1][key]}
        assert told <= {("mnist", metric) for metric in ("accuracy", "nll", "ece")}
        assert ("mnist", "nll") in told, model


def test_an_interrupted_run_goes_on_and_needs_no_weights_once_it_is_done(
    tmp_path, mnist, ran, no_figures, monkeypatch
):
    step, taken = Fleet.step, []

    def stepping(fleet):
        step(fleet)
        taken.append(fleet.num_steps_taken)
        if taken == [1, 2]:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Fleet, "step", stepping)
    only = {"models": ("dsvnp",), "recipes": ("strong",)}
    with pytest.raises(Interrupted, match="after step 2"):
        smoke(tmp_path, mnist, **only)
    _, units = smoke(tmp_path, mnist, **only)
    assert taken == [1, 2, 3]
    undisturbed = ran[2]["dsvnp-strong"]
    for part in ("measurements", "extras"):
        assert units["dsvnp-strong"][part] == undisturbed[part]
    shutil.rmtree(tmp_path / "checkpoints")
    assert smoke(tmp_path, mnist, **only)[1] == units
    assert taken == [1, 2, 3]


def test_recipes_run_apart_come_together(tmp_path, mnist, no_figures):
    smoke(tmp_path / "a", mnist, models=("cnp",), recipes=("strong",))
    smoke(tmp_path / "b", mnist, models=("nn",), recipes=("paper",))
    _, units = smoke(tmp_path / "b", mnist, models=("nn",))  # a later run adds to an earlier one
    assert list(units) == ["nn", "nn-strong"]
    gather(tmp_path / "c", [tmp_path / "a", tmp_path / "b"])
    units = read_units(tmp_path / "c")["units"]
    assert {unit["model"] for unit in units} == {"nn", "nn-strong", "cnp-strong"}


def test_the_command_line_knows_it(tmp_path, mnist, monkeypatch, capsys):
    arguments = ["reproduce", "images", "--preset", "smoke", "--domain", "mnist", "--data-dir", str(mnist)]
    arguments += ["--models", "cnp", "--out", str(tmp_path), "--device", "cpu"]
    monkeypatch.setattr("sys.argv", ["dsvnp", *arguments, "--set", "verify=false", "--set", "recipes=paper"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0, capsys.readouterr().err
    assert json.loads((tmp_path / "results.json").read_text())["config"]["domain"] == "mnist"
    monkeypatch.setattr("sys.argv", ["dsvnp", *arguments, "--set", "domain=mnits"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert "unknown domain 'mnits'. Did you mean 'mnist'?" in capsys.readouterr().err


# --- settings ---


def test_the_papers_architecture_and_length():
    made = ImagesExperiment.presets()["paper"]
    arch = made.architecture(made.recipe_of(Label.parse("nn")))
    assert (arch.dim_x, arch.dim_y, arch.image, arch.embed_x) == (784, 10, (1, 28, 28), "lenet")
    assert (arch.dim_latx, arch.dim_laty, arch.dim_lat, arch.encoder, arch.decoder) == (32, 64, 64, (), ())
    assert (arch.dropout, arch.attend_self) == (0.1, True)
    assert made.settings(made.recipe_of(Label.parse("nn")), 1000).precision == "tf32"
    assert (made.num_epochs, made.num_points, made.num_draws) == (100, 100, 100)
    assert made.portions == ImagePortions("test", None, 5000, 10_000, 100)
    assert (made.num_seeds, made.verify) == (3, True)
    made = make_experiment(ImagesExperiment, "paper", domain="cifar10", **{"change.attend_self": False})
    arch = made.architecture(made.recipe_of(Label.parse("attnnp")))
    assert (arch.dim_x, arch.embed_x, arch.dim_lat, arch.dropout) == (3072, "vgg", 128, 0.2)
    assert not arch.attend_self
    assert made.recipe_of(Label.parse("np")).attend_self  # a unit of NP is the same whatever AttnNP does
    assert len([size for size in arch.vgg if size != "M"]) == 16


def test_recipes_and_what_replaces_them():
    own = {"beta_local": 7.0, "beta_global": 3.0, "anneal": 0.5, "train_local": 2}
    made = ImagesExperiment(domain="cifar10", change=own)
    assert made.recipe_of(Label.parse("dsvnp")) == ImageRecipe(5e-5, **own)
    assert made.recipe_of(Label.parse("attnnp-strong")) == replace(RECIPES["cifar10"]["strong"], **own)
    strong = made.recipe_of(Label.parse("mc-dropout-strong"))
    assert strong == replace(made.recipe_of(Label.parse("attnnp-strong")), attend_self=True)
    settings = made.settings(replace(strong, warmup=0.1, weight_decay=0.3, clip=2.0, length=1.0), 1000)
    assert settings.objective == Objective(7.0, 3.0, "linear", 500, divide_by="all", num_local=2)
    assert settings.schedule == Schedule("cosine", 100)
    assert settings.optimizer == Adam("adamw", weight_decay=0.3, clip_norm=2.0)
    assert (settings.num_steps, settings.checkpoint_every) == (1000, 125)
    brief = made.settings(replace(strong, warmup=0.1, length=0.1), 1000)
    assert (brief.num_steps, brief.objective.anneal_steps, brief.schedule.warmup) == (100, 50, 10)
    plain = ImagesExperiment().settings(ImagesExperiment().recipe_of(Label.parse("nn")), 1000)
    assert (plain.optimizer, plain.schedule, plain.learning_rate) == (Adam(), Schedule(), 1e-3)
    assert plain.objective == Objective(divide_by="all")


def test_the_source_shifts_and_mirrors_by_the_recipe(mnist):
    made = ImagesExperiment(num_points=20, portions=ImagePortions(num_context=10))
    sets = load_sets("mnist", mnist, CPU, ImagePortions(num_context=10), verify=False)
    source = made.source(sets, ImageRecipe(1e-3, pad=3, flip=0.5))
    assert (source.pad, source.flip, source.context, source.shape) == (3, 0.5, (1, 10), (1, 20))
    assert source.refresh_every == 4


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"unknown recipe 'string'\. Did you mean 'strong'"):
        ImagesExperiment(recipes=("string",))
    with pytest.raises(ValueError, match="unknown model 'dsvnpp'"):
        ImagesExperiment(models=("dsvnpp",)).labels()


def test_it_says_which_data_is_missing(tmp_path, mnist):
    made = ImagesExperiment(verify=False, portions=ImagePortions(num_held_out=20))
    assert made.missing(mnist) is None
    assert "svhn" not in (made.missing(tmp_path) or "")
    assert "train-images-idx3-ubyte" in made.missing(tmp_path)


# --- what is learned from, and what is judged ---


def test_domain_images_are_in_0_to_1_and_others_alike(mnist):
    sets = load_sets("mnist", mnist, CPU, ImagePortions(num_test=30), verify=False)
    assert list(sets.x) == ["mnist", "fashion-mnist", "kmnist", *NOISES]
    assert all(x.shape == (30, 784) for x in sets.x.values())
    images, labels = draw(40, (28, 28), 1)
    torch.testing.assert_close(sets.x["mnist"], torch.from_numpy(images[:30]).flatten(1) / 255)
    assert torch.equal(sets.y, torch.from_numpy(labels[:30]).long())
    for name in ("fashion-mnist", "kmnist", "uniform-in-range", "gaussian-in-range"):
        assert 0 <= float(sets.x[name].min()) < float(sets.x[name].max()) <= 1
    assert set(sets.x["rademacher"].unique().tolist()) == {-0.5, 0.5}
    assert set(sets.x["rademacher-in-range"].unique().tolist()) == {0.0, 1.0}
    assert float(sets.x["gaussian"].std()) == pytest.approx(1, abs=0.02)
    # Their mean and deviation are those of the noise in range, cut off at black.
    pixels = sets.images.double() / 255
    black = torch.special.ndtr(-pixels.mean() / pixels.std())
    share = (sets.x["gaussian-in-range"] == 0).double().mean()
    assert float(share) == pytest.approx(float(black), abs=0.01)


def test_cifar10_is_standardised_by_its_training_images(cifar10):
    sets = load_sets("cifar10", cifar10, CPU, ImagePortions(), verify=False)
    pixels = sets.images.double() / 255
    torch.testing.assert_close(sets.mean.double(), pixels.mean((0, 2, 3)), atol=1e-6, rtol=0)
    torch.testing.assert_close(sets.std.double(), pixels.std((0, 2, 3), correction=0), atol=1e-6, rtol=0)
    expected = (sets.shown["svhn"].double() / 255 - sets.mean[:, None, None]) / sets.std[:, None, None]
    torch.testing.assert_close(sets.x["svhn"], expected.flatten(1).float(), atol=1e-5, rtol=1e-5)
    white = (1 - sets.mean[0]) / sets.std[0]
    assert float(sets.x["uniform-in-range"][:, :1024].max()) == pytest.approx(float(white), rel=1e-2)
    assert float(sets.x["uniform"].max()) < 0.5


def test_the_context_is_of_the_training_images(mnist):
    sets = load_sets("mnist", mnist, CPU, ImagePortions(num_train=50, num_context=12), verify=False)
    assert (len(sets.images), sets.context.x.shape, sets.context.y.shape) == (50, (12, 784), (12, 1))
    known = {tuple(x.tolist()): int(y) for x, y in zip(sets.images.flatten(1), sets.labels, strict=True)}
    for x, y in zip(sets.context.x, sets.context.y, strict=True):
        assert known[tuple((255 * x).round().int().tolist())] == int(y)
    first = sets.images[:12].flatten(1) / 255
    assert not torch.allclose(sets.context.x.sort(0).values, first.sort(0).values)
    in_file, _ = draw(80, (28, 28), 0)
    assert not torch.equal(sets.images[:, 0], torch.from_numpy(in_file[:50]))  # in random order


def test_settings_are_chosen_without_the_test_files(tmp_path):
    directory = write_mnist(tmp_path)
    for path in directory.rglob("t10k*"):
        path.unlink()
    portions = ImagePortions("held-out", num_held_out=30, num_context=5)
    sets = load_sets("mnist", directory, CPU, portions, verify=False)
    assert list(sets.x) == ["mnist-held-out", "shuffled", *NOISES]
    assert (len(sets.images), len(sets.y)) == (50, 30)
    learned = {tuple(x.tolist()) for x in sets.images.flatten(1)}
    assert not any(tuple(x.tolist()) in learned for x in sets.shown["mnist-held-out"].flatten(1))
    own, shuffled = sets.shown["mnist-held-out"], sets.shown["shuffled"]
    assert not torch.equal(own, shuffled)
    assert torch.equal(own.flatten(1).sort(1).values, shuffled.flatten(1).sort(1).values)


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("DSVNP_DATA"), reason="DSVNP_DATA names no data directory")
@pytest.mark.parametrize(
    ("domain", "size", "mean"), [("mnist", 60_000, [0.1307]), ("cifar10", 50_000, [0.4914, 0.4822, 0.4465])]
)
def test_real_sets_have_their_published_statistics(domain, size, mean):
    sets = load_sets(domain, None, CPU, ImagePortions())
    assert len(sets.images) == size
    assert all(len(x) == 10_000 for x in sets.x.values())
    pixels = [float(channel.double().mean()) / 255 for channel in sets.images.unbind(1)]
    assert pixels == pytest.approx(mean, abs=1e-4)


# --- the selection ---


def test_the_selection_writes_every_cell_and_goes_on(tmp_path, mnist, monkeypatch):
    place = Workplace(tmp_path / "cells", CPU, Console(file=io.StringIO(), width=200), mnist)
    common = {"preset": "smoke", "verify": False}
    cells = [{"beta_local": 3.0}, {"model": "nn", "seed": 4}, {"recipe": "strong"}]
    out = tmp_path / "selection.jsonl"
    done = select_images(cells, out, place, **common)
    assert [entry["cell"] for entry in done] == cells
    assert [entry["label"] for entry in done] == ["dsvnp", "nn", "dsvnp-strong"]
    assert done[0]["trained"]["beta_local"] == 3.0
    assert [json.loads(line) for line in out.read_text().splitlines()] == done
    for entry in done:
        assert {key.split()[0] for key in entry["scores"]} == {"mnist-held-out", "shuffled", *NOISES}
        assert ImageRecipe(**entry["trained"]).length == 1.0  # of the preset
        assert 0 <= entry["scores"]["mnist-held-out accuracy"] <= 1
    monkeypatch.setattr(ImagesExperiment, "run_unit", None)  # nothing is left to run
    assert select_images(cells, out, place, **common) == done


def test_the_selection_changes_only_what_its_cell_says(tmp_path, mnist, monkeypatch):
    runs = []

    def run_unit(self, label, seeds, place):
        runs.append((self, label, seeds))
        return UnitResult(label, tuple(seeds), ())

    monkeypatch.setattr(ImagesExperiment, "run_unit", run_unit)
    place = Workplace(tmp_path, CPU, Console(file=io.StringIO()), mnist)
    select_images(GRIDS["cifar10"] + [{"model": "nn", "seed": 4}], tmp_path / "out.jsonl", place)
    labels = [label for _, label, _ in runs]
    assert [str(label) for label in labels] == ["dsvnp-strong"] * len(GRIDS["cifar10"]) + ["nn"]
    assert all(made.portions == ImagePortions("held-out") for made, _, _ in runs)
    assert runs[1][0].recipe_of(Label.parse("dsvnp-strong")) == replace(
        RECIPES["cifar10"]["strong"], learning_rate=3e-4, weight_decay=0.05, attend_self=True, length=0.2
    )
    assert (runs[-1][0], runs[-1][2]) == (
        make_experiment(ImagesExperiment, "paper", models=("nn",), **{"portions.judged_on": "held-out"}),
        [4],
    )


@pytest.mark.parametrize(("domain", "length"), [("mnist", 0.2), ("cifar10", 0.4)])
def test_the_committed_selection_is_of_the_grid_and_gives_the_recipe(tmp_path, monkeypatch, domain, length):
    out = tmp_path / "selection.jsonl"
    shutil.copy(RESULTS / f"images-{domain}" / "selection.jsonl", out)
    monkeypatch.setattr(ImagesExperiment, "run_unit", None)  # nothing is left to run
    done = select_images(GRIDS[domain], out, Workplace(tmp_path, CPU, Console(file=io.StringIO())))
    assert len(done) == len(GRIDS[domain])
    trained = ImageRecipe(**choose_recipe(done)["trained"])
    made = make_experiment(ImagesExperiment, "paper", domain=domain, recipes=("strong",))
    assert replace(trained, length=length) == made.recipe_of(Label.parse("dsvnp-strong"))


def test_attnnps_recipe_is_the_best_of_the_committed_attempts():
    lines = (RESULTS / "images-cifar10" / "attempts.jsonl").read_text().splitlines()
    tried = [entry for entry in map(json.loads, lines) if entry["label"] == "attnnp-strong"]
    best = max(tried, key=lambda entry: entry["scores"]["cifar10-held-out accuracy"])
    made = make_experiment(ImagesExperiment, "paper", domain="cifar10", recipes=("strong",))
    assert replace(ImageRecipe(**best["trained"]), length=0.4) == made.recipe_of(Label.parse("attnnp-strong"))


@pytest.mark.parametrize("domain", ["mnist", "cifar10"])
def test_committed_units_were_trained_by_the_recipes_as_they_are(domain):
    made = make_experiment(
        ImagesExperiment,
        "paper",
        domain=domain,
        recipes=("paper", "strong"),
        precision="bf16" if domain == "cifar10" else "tf32",
    )
    units = load_units(made, RESULTS / f"images-{domain}", resume=True)  # refuses others
    assert {unit.label for unit in units} == set(made.labels())


def test_seeds_of_a_recipe_are_one_recipe_though_a_setting_came_later():
    def entry(accuracy, **trained):
        scores = {"mnist-held-out accuracy": accuracy, "shuffled auroc": 0.5}
        return {"label": "dsvnp", "trained": {"learning_rate": 1e-3, **trained}, "scores": scores}

    made = choose_recipe([entry(0.9), entry(0.8, clip=None), entry(0.86, pad=2)])
    assert made["trained"]["pad"] == 2


def test_a_recipe_is_chosen_for_a_dsvnp_and_not_over_networks():
    def entry(accuracy, label="dsvnp", **cell):
        scores = {"mnist-held-out accuracy": accuracy, "shuffled auroc": accuracy}
        return {"cell": cell, "label": label, "trained": {"learning_rate": 1e-3}, "scores": scores}

    made = choose_recipe([entry(0.9, seed=0), entry(0.8, seed=1), entry(0.7, vgg=[8])])
    assert made["scores"]["mnist-held-out accuracy"] == pytest.approx(0.85)
    with pytest.raises(ValueError, match="no cell is a DSVNP"):
        choose_recipe([entry(0.9, "attnnp-strong")])


def test_images_are_not_trained_on_in_double_precision():
    with pytest.raises(ValueError, match="single precision; choose float32, tf32 or bf16"):
        ImagesExperiment(precision="float64")


def test_a_selection_looks_at_the_test_split_alone(tmp_path, monkeypatch):
    def run_unit(self, label, seeds, place):
        rows = [
            Measurement("mnist-held-out", "accuracy", split, "share", (v,))
            for split, v in (("test", 0.9), ("test-context", 0.1))
        ]
        return UnitResult(label, tuple(seeds), tuple(rows))

    monkeypatch.setattr(ImagesExperiment, "run_unit", run_unit)
    place = Workplace(tmp_path, CPU, Console(file=io.StringIO()))
    (entry,) = select_images([{"domain": "mnist"}], tmp_path / "out.jsonl", place)
    assert entry["scores"] == {"mnist-held-out accuracy": 0.9}


def test_units_of_another_recipe_are_refused(tmp_path):
    made = make_experiment(ImagesExperiment, "paper", recipes=("strong",), models=("nn",))
    other = replace(RECIPES["mnist"]["strong"], learning_rate=1.0)
    for recipe, refused in ((RECIPES["mnist"]["strong"], False), (other, True)):
        write_results(
            made, [UnitResult(Label("nn", "strong"), (0,), (), {"recipe": asdict(recipe)})], tmp_path
        )
        if refused:
            with pytest.raises(
                ValueError, match=r"nn-strong trained by another recipe.*choose another --out"
            ):
                load_units(made, tmp_path, resume=True)
        else:
            assert len(load_units(made, tmp_path, resume=True)) == 1


def chosen(done, **options) -> float:
    return choose_recipe(done, **options)["trained"]["beta_local"]


def test_the_choice_is_by_strange_images_among_those_that_classify_best():
    def entry(beta: float, accuracy: float, *aurocs: float, label="dsvnp-strong"):
        strange = dict(
            zip(("shuffled auroc", "uniform-in-range auroc", "uniform auroc"), aurocs, strict=False)
        )
        scores = {"mnist-held-out accuracy": accuracy, **strange}
        return {"label": label, "trained": {"learning_rate": 1e-3, "beta_local": beta}, "scores": scores}

    done = [entry(1.0, 0.99, 0.9), entry(2.0, 0.989, 0.95), entry(3.0, 0.988, 0.99)]
    assert chosen(done) == 2.0
    assert chosen([*done, entry(4.0, 0.995, 0.999, label="nn-strong")]) == 2.0
    harder = [entry(1.0, 0.92, 0.9), entry(2.0, 0.917, 0.95), entry(3.0, 0.915, 0.99)]
    assert chosen(harder) == 2.0  # standard error 0.0038
    assert chosen(harder, num_images=1000) == 3.0
    # Noise counts as much as shuffled images, but only in their range.
    assert chosen([entry(1.0, 0.99, 0.9, 0.9, 0.5), entry(2.0, 0.99, 0.95, 0.8, 1.0)]) == 1.0
    # Seeds of a recipe are averaged: neither its best nor its worst decides.
    assert chosen([*done, entry(2.0, 0.989, 0.7), entry(2.0, 0.989, 0.9)]) == 1.0
    assert chosen([*done, entry(2.0, 0.985, 0.99)]) == 1.0
