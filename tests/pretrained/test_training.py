"""Pretraining: it stops by the clock, continues to the bit, and leaves a log and weights."""

import json
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
import torch
from typer.testing import CliRunner

from dsvnp import Architecture, Transformer
from dsvnp.cli import app
from dsvnp.models.tnp import TNP
from dsvnp.pretrained import load_pretrained, read_card, recipes
from dsvnp.pretrained.recipes import RECIPES, PretrainingRecipe
from dsvnp.pretrained.training import pretrain
from dsvnp.sources.base import Rotation
from dsvnp.sources.priors.curves import CurvePrior, CurveSettings

ARCH = replace(
    recipes.curves().make.args[0],
    transformer=Transformer(8, 1, 2, 8, (8,), equivariant=True, rotary=20.0),
    decoder=(8,),
    num_components=2,
)


def tiny() -> PretrainingRecipe:
    shapes = (CurveSettings(2, 16, refresh_every=3), CurveSettings(2, 24, refresh_every=2))
    return PretrainingRecipe(
        "curves",
        partial(TNP, ARCH),
        Rotation(tuple(map(CurvePrior, shapes))),
        "tiny",
        1e-3,
        warmup=2,
        decay=5,
    )


@pytest.fixture
def command(monkeypatch, tmp_path):
    """Run `dsvnp pretrain curves` with the tiny recipe."""
    monkeypatch.setitem(RECIPES, "curves", tiny)

    def run(out, *arguments):
        where = ["--out", str(tmp_path / out), "--device", "cpu"]
        return CliRunner().invoke(app, ["pretrain", "curves", *where, *arguments])

    return run


def test_what_a_killed_run_left_is_swept_and_neighbours_stay(command, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    for name in (".writing-curves.safetensors-00112233", "precious"):
        (folder / name).write_text("x")
    assert command("out", "--steps", "1").exit_code == 0
    assert not list(folder.glob(".writing-*"))
    assert (folder / "precious").read_text() == "x"


def test_sittings_equal_one_undisturbed_run_to_the_bit(tmp_path):
    first = pretrain(tiny(), tmp_path / "cut", "cpu", minutes=0.0, precision="float32", seed=3)
    cut = first.num_steps_taken
    assert cut > 0
    second = pretrain(tiny(), tmp_path / "cut", "cpu", num_steps=cut + 7, precision="float32", seed=3)
    whole = pretrain(tiny(), tmp_path / "whole", "cpu", num_steps=cut + 7, precision="float32", seed=3)
    assert second.num_steps_taken == whole.num_steps_taken == cut + 7
    for name in ("params", "m", "v", "step"):
        assert torch.equal(whole.state[name], second.state[name]), name
    assert not torch.equal(first.state["params"], whole.state["params"])


def test_the_command_stops_by_the_clock_and_continues(command, tmp_path):
    result = command("out", "--minutes", "0", "--steps", "1000000")
    assert result.exit_code == 0, result.output
    cut = read_card("curves", tmp_path / "out").steps
    assert 0 < cut < 1_000_000
    result = command("out", "--steps", str(cut + 2))
    assert result.exit_code == 0, result.output
    assert f"curves: step {cut + 2}" in result.output
    lines = [json.loads(line) for line in (tmp_path / "out" / "log.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == cut + 2
    card = read_card("curves", tmp_path / "out")
    assert (card.steps, card.gpu_minutes, card.limits) == (cut + 2, 0.0, "tiny")
    assert [(prior["kind"], prior["num_points"]) for prior in card.prior] == [
        ("CurvePrior", n) for n in (16, 24)
    ]
    assert load_pretrained("curves", tmp_path / "out").arch == ARCH


def test_the_seed_matters_and_an_end_is_asked_for(command, tmp_path):
    for seed in ("1", "2"):
        assert command(seed, "--steps", "2", "--seed", seed).exit_code == 0
    one, two = (load_pretrained("curves", tmp_path / seed) for seed in ("1", "2"))
    assert not torch.equal(one.decoder.first.bias, two.decoder.first.bias)
    result = command("none")
    assert isinstance(result.exception, ValueError)
    assert "training needs an end" in str(result.exception)


def test_the_command_waits_for_another_process_where_it_is_asked_to(command, monkeypatch):
    asked = []

    def lock(folder, wait, say):
        asked.append(wait)
        return nullcontext()

    monkeypatch.setattr("dsvnp.pretrained.training.folder_lock", lock)
    for words in ([], ["--wait"]):
        assert command("out", "--steps", "1", *words).exit_code == 0
    assert asked == [False, True]


def test_a_run_may_begin_from_the_weights_of_another(command, tmp_path):
    assert command("first", "--steps", "3").exit_code == 0
    for name, begin in (("second", ["--start", str(tmp_path / "first")]), ("other", [])):
        result = command(name, "--steps", "1", "--seed", "9", *begin)
        assert result.exit_code == 0, result.output
    first, second, other = (load_pretrained("curves", tmp_path / n) for n in ("first", "second", "other"))
    gaps = [(model.decoder.first.bias - first.decoder.first.bias).abs().max() for model in (second, other)]
    assert gaps[0] < 5e-3 < gaps[1]


@pytest.mark.parametrize("name", ["curves", "tables", "landscapes"])
def test_recipes_make_networks_small_enough_to_ship(name):
    recipe = RECIPES[name]()
    model = recipe.make()
    size = 2 * sum(parameter.numel() for parameter in model.parameters())
    assert size < {"curves": 3e6, "tables": 9e6, "landscapes": 2e6}[name]
    assert isinstance(model.arch, Architecture)
    assert model.arch.transformer.fused


def test_a_wider_network_is_another_size_of_the_same_recipe(command, tmp_path):
    assert command("wide", "--steps", "1", "--decay", "1", "--width", "2").exit_code == 0
    found = load_pretrained("curves", tmp_path / "wide").arch
    wider = Transformer(16, 1, 2, 16, (16,), equivariant=True, rotary=20.0)
    assert found.transformer == wider
    assert found.decoder == (16,)
    one, two = (recipe.make() for recipe in (recipes.tables(), recipes.tables().widened(2)))
    counts = [sum(parameter.numel() for parameter in model.parameters()) for model in (one, two)]
    assert 3.9 < counts[1] / counts[0] < 4


@pytest.mark.parametrize(("device", "compiled"), [("cuda", "regions"), ("cpu", None)])
def test_a_gpu_compiles_the_step_in_regions_whatever_the_precision(device, compiled):
    for precision in ("bf16", "tf32", "float32"):
        assert recipes.tables().settings(100_000, precision, device).compile == compiled


def test_a_run_may_begin_from_weights_and_its_card_counts_both(tmp_path):
    first = pretrain(tiny(), tmp_path / "first", "cpu", num_steps=4, precision="float32")
    kept = load_pretrained("curves", tmp_path / "first")
    further: dict = {"num_steps": 1, "precision": "float32", "start": tmp_path / "first"}
    with pytest.raises(ValueError, match="seed 0, which would draw the same functions again"):
        pretrain(tiny(), tmp_path / "second", "cpu", **further)
    second = pretrain(tiny(), tmp_path / "second", "cpu", seed=1, **further)
    for name, value in second.replica(0).named_parameters():
        # One step of Adam moves a weight by no more than the learning rate, here half of it: the warm-up begins.
        assert (value - dict(kept.named_parameters())[name]).abs().max() < 6e-4
    assert first.num_steps_taken + second.num_steps_taken == read_card("curves", tmp_path / "second").steps
