"""Kept weights: a run that only measures gives the same rows, without training, from half-precision files."""

from __future__ import annotations

import io
import json
from operator import itemgetter

import pytest
import torch
from rich.console import Console
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from dsvnp import Architecture, make_model
from dsvnp.cli import app
from dsvnp.paper import EXPERIMENTS, weights
from dsvnp.paper.experiment import Experiment, Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.runner import run
from dsvnp.paper.settings import make_experiment
from dsvnp.paper.weights import load_weights, save_weights, weights_path
from dsvnp.training import Fleet

TINY = {
    "curves": {"models": ("np",), "num_tests": 4, "test_points": 24, "paper.num_steps": 3},
    "field": {"models": ("np",), "recipe.num_steps": 3, "num_marks": 1},
    "ambiguity": {"models": ("np",), "variants": (), "problems": ("branches",), "num_steps": 3},
    "cartpole": {"models": ("np",), "num_steps": 3, "num_trajectories": 10, "num_particles": 4},
}


def place(path, kept=None):
    return Workplace(path, torch.device("cpu"), Console(file=io.StringIO(), width=200), weights=kept)


def rows_of(path):
    return json.loads((path / "results.json").read_text())["rows"]


@pytest.mark.parametrize("name", TINY)
def test_kept_weights_give_the_same_rows_without_training(name, tmp_path, monkeypatch):
    made = make_experiment(EXPERIMENTS[name], "smoke", keep_seeds=1, **TINY[name])
    run(made, place(tmp_path / "first"))
    files = sorted(path.name for path in (tmp_path / "first" / "weights").iterdir())
    assert all(file.endswith("-seed-0.safetensors") for file in files)
    monkeypatch.setattr(Experiment, "train_replicas", None)
    run(made, place(tmp_path / "again", tmp_path / "first"))
    names = itemgetter("model", "dataset", "metric", "split")
    first = {names(row): row for row in rows_of(tmp_path / "first")}
    for row in rows_of(tmp_path / "again"):
        before = first[names(row)]["seeds"]
        learns_nothing = row["model"].startswith(("oracle", "gp", "truth", "diagonal", "full"))
        kept = before if learns_nothing else before[:1]  # the second seed was not kept
        assert row["seeds"] == pytest.approx(kept, rel=1e-5)
    assert {row["model"] for row in rows_of(tmp_path / "again")} == {key[0] for key in first}


def test_the_field_measures_networks_as_they_were_at_the_end(tmp_path, monkeypatch):
    asked, usual = [], Fleet.replica

    def replica(fleet, row, best=False):
        asked.append(best)
        return usual(fleet, row, best)

    monkeypatch.setattr(Fleet, "replica", replica)
    run(make_experiment(EXPERIMENTS["field"], "smoke", ceilings=False, **TINY["field"]), place(tmp_path))
    assert asked
    assert not any(asked)  # its validations are marks, and choose nothing


def test_measures_with_draws_that_suffice_from_the_command_line(tmp_path, monkeypatch):
    made = make_experiment(EXPERIMENTS["curves"], "smoke", keep_seeds=1, **TINY["curves"])
    run(made, place(tmp_path / "first"))
    monkeypatch.chdir(tmp_path)
    words = [
        "reproduce",
        "curves",
        "--preset",
        "smoke",
        "--models",
        "np",
        "--out",
        "again",
        "--device",
        "cpu",
    ]
    changes = ["num_tests=4", "test_points=24", "paper.num_steps=3", "likelihoods.draws=suffice"]
    options = [word for change in (*changes, "likelihoods.max_draws=64") for word in ("--set", change)]
    result = CliRunner().invoke(app, [*words, *options, "--measure-only", "--weights", "first"])
    assert result.exit_code == 0, result.output
    likelihoods = [row for row in rows_of(tmp_path / "again") if row["metric"].startswith("nll")]
    assert likelihoods
    assert all(len(row["draws"]) == len(row["seeds"]) == 1 for row in likelihoods)
    missing = CliRunner().invoke(app, [*words, "--measure-only"])
    assert "no weights in again/weights or results/curves/weights" in str(missing.exception)
    alone = CliRunner().invoke(app, [*words, "--weights", "first"])
    assert "pass both, or neither" in str(alone.exception)


def test_an_experiment_that_keeps_none_says_so(tmp_path):
    made = make_experiment(EXPERIMENTS["toy"], "smoke")
    with pytest.raises(ValueError, match="toy keeps no weights"):
        run(made, place(tmp_path, tmp_path))
    curves = make_experiment(EXPERIMENTS["curves"], "smoke")
    with pytest.raises(ValueError, match="has no weights of these settings"):
        run(curves, place(tmp_path, tmp_path))


def test_weights_are_half_precision_and_of_one_architecture(tmp_path, monkeypatch):
    torch.manual_seed(0)
    net, path = make_model("np", Architecture(1, 1, dim_lat=8)), weights_path(tmp_path, Label("np"), 3)
    assert save_weights(net, path)
    back = load_weights(make_model("np", Architecture(1, 1, dim_lat=8)), path)
    for mine, its in zip(net.parameters(), back.parameters(), strict=True):
        torch.testing.assert_close(its, mine.half().float(), rtol=0, atol=0)
    for other in (make_model("cnp", Architecture(1, 1, dim_lat=8)), make_model("np", Architecture(1, 1))):
        with pytest.raises(ValueError, match="weights of another"):
            load_weights(other, path)
    with safe_open(path, "pt") as file:
        about = file.metadata()
    good = load_file(path)
    settings = json.loads(about["architecture"])
    del settings["deterministic_path"]  # a file from before has no such setting
    older, other = tmp_path / "older.safetensors", Architecture(1, 1, dim_lat=8, deterministic_path=True)
    save_file(good, older, about | {"architecture": json.dumps(settings)})
    load_weights(make_model("np", Architecture(1, 1, dim_lat=8)), older)
    with pytest.raises(ValueError, match="weights of another architecture"):
        load_weights(make_model("np", other), older)
    for text in ("", "[]", '{"dim_x": []}', "[" * 100_000):
        save_file(good, tmp_path / "bad.safetensors", about | {"architecture": text})
        with pytest.raises(ValueError, match="weights of another architecture"):
            load_weights(net, tmp_path / "bad.safetensors")
    name, value = next(iter(good.items()))
    for bad, reason in (
        ({name: value.to(torch.complex64)}, f"{name} is of torch.complex64, not of torch.float16"),
        ({name: value[:1].clone()}, "is damaged .*size mismatch"),
    ):
        save_file(good | bad, tmp_path / "bad.safetensors", about)
        with pytest.raises(ValueError, match=rf"bad\.safetensors.*{reason}"):
            load_weights(net, tmp_path / "bad.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"bad\.safetensors cannot be read as weights"):
        load_weights(net, tmp_path / "bad.safetensors")
    monkeypatch.setattr(weights, "MOST_BYTES", path.stat().st_size + 10)
    assert save_weights(net, path)  # in place of itself
    assert not save_weights(net, weights_path(tmp_path, Label("np"), 4))
