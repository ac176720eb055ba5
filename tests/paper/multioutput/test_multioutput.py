"""The tables from files to results: rows, units, the paper's figures, going on, and the command line."""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from tiny_tables import write_tables

from dsvnp.cli import main
from dsvnp.models import make_model
from dsvnp.networks import MLP
from dsvnp.paper.experiment import Measurement, Workplace
from dsvnp.paper.label import Label
from dsvnp.paper.multioutput.experiment import MultiOutputExperiment
from dsvnp.paper.runner import run
from dsvnp.paper.settings import make_experiment


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_tables(tmp_path_factory.mktemp("data"))


def place(out: Path, data: Path) -> Workplace:
    return Workplace(out, torch.device("cpu"), Console(file=io.StringIO(), width=200), data)


def smoke(**changes: Any) -> MultiOutputExperiment:
    made = make_experiment(MultiOutputExperiment, "smoke", **changes)
    assert isinstance(made, MultiOutputExperiment)
    return made


def rows(out: Path) -> list[dict[str, Any]]:
    return json.loads((out / "results.json").read_text(encoding="utf-8"))["rows"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory, data) -> Path:
    out = tmp_path_factory.mktemp("out")
    run(smoke(recipes=("paper",), **{"paper.max_steps": 2}), place(out, data))
    return out


# --- results ---


def test_every_model_and_baseline_on_every_data_set_has_a_headline(ran):
    headline = [r for r in rows(ran) if (r["metric"], r["split"], r["unit"]) == ("mse", "test", "standard")]
    models = (
        "ridge",
        "5-nn",
        "extra-trees",
        "sparse-gp",
        "exact-gp",
        "nn",
        "mc-dropout",
        "cnp",
        "np",
        "attnnp",
        "dsvnp",
    )
    datasets = ("sarcos (61 of 48933 rows)", "wq (61 of 1060 rows)", "scm20d (61 of 8966 rows)")
    assert [(r["dataset"], r["model"]) for r in headline] == [(d, m) for d in datasets for m in models]
    assert all(len(r["seeds"]) == 2 and 0 < r["mean"] < 3 for r in headline)


def test_the_papers_figure_stands_beside_its_recipe_in_the_unit_it_is_taken_to_be_in(ran):
    with_figure = {(r["dataset"].split()[0], r["model"]): r for r in rows(ran) if r["paper"] is not None}
    assert len(with_figure) == 15
    assert {(r["metric"], r["split"]) for r in with_figure.values()} == {("mse", "test")}
    units = {name: r["unit"] for (name, _), r in with_figure.items()}
    assert units == {"sarcos": "raw", "wq": "standard", "scm20d": "standard"}
    assert with_figure["wq", "mc-dropout"]["paper"] == 0.007
    assert with_figure["scm20d", "dsvnp"]["paper_spread"] == 2.3e-7
    assert smoke().paper_figure(
        Label("dsvnp", "gaussian"), Measurement("wq", "mse", "test", "standard", ())
    ) == (
        None,
        None,
    )
    inner = Measurement("wq-held-out", "mse", "test", "standard", ())
    assert smoke().paper_figure(Label("dsvnp"), inner) == (None, None)  # it is not about those rows


def test_figures_and_the_study_are_written(ran):
    assert {path.name for path in ran.glob("*.svg")} == {"errors.svg", "calibration.svg"}
    assert all(path.stat().st_size > 1000 for path in ran.glob("*.svg"))
    readings = json.loads((ran / "readings.json").read_text(encoding="utf-8"))
    assert {r["dataset"].split()[0] for r in readings} == {"sarcos", "wq", "scm20d"}
    assert {r["split"] for r in readings} >= {
        "train",
        "test",
        "test-own",
        "test-posterior",
        "train-posterior",
    }


def test_a_later_run_adds_data_sets_recipes_and_splits_in_their_order(tmp_path, data):
    first = {"models": ("cnp",), "baselines": ("ridge",), "paper.max_steps": 2}
    run(smoke(**first, datasets=("wq",), recipes=("paper",), num_seeds=1), place(tmp_path, data))
    (before,) = [r for r in rows(tmp_path) if r["metric"] == "nll" and r["model"] == "ridge"]
    run(
        smoke(**first, datasets=("sarcos", "wq"), recipes=("gaussian", "strong", "paper"), num_seeds=3),
        place(tmp_path, data),
    )
    found = {
        (r["dataset"].split()[0], r["model"]): r["seeds"] for r in rows(tmp_path) if r["split"] == "test"
    }
    assert found.keys() == {
        (d, m) for d in ("wq", "sarcos") for m in ("ridge", "cnp", "cnp-gaussian", "cnp-strong")
    }
    after = [r for r in rows(tmp_path) if r["metric"] == "nll" and r["model"] == "ridge"]
    (merged,) = [r for r in after if r["dataset"].startswith("wq")]
    assert merged["seeds"][:1] == before["seeds"]
    assert all(len(seeds) == 3 for seeds in found.values())
    run(smoke(**first, datasets=("wq",), recipes=("paper",), num_seeds=3), place(tmp_path / "new", data))
    (whole,) = [r for r in rows(tmp_path / "new") if r["metric"] == "nll" and r["model"] == "ridge"]
    assert whole["seeds"] == merged["seeds"]  # whichever way they were added


def test_each_replica_learns_from_its_own_fold(tmp_path, data, monkeypatch):
    made = smoke(datasets=("wq",), models=("nn",), baselines=(), recipes=("paper",))
    sources = []
    real = MultiOutputExperiment.train_replicas

    def spy(self, label, make, source, *others):
        sources.extend(source)
        return real(self, label, make, source, *others)

    monkeypatch.setattr(MultiOutputExperiment, "train_replicas", spy)
    run(made, place(tmp_path, data))
    assert len(sources) == 2
    assert sources[0].x.shape == sources[1].x.shape == (28, 16)
    assert not torch.equal(sources[0].y, sources[1].y)


def test_without_gpytorch_the_gp_is_left_out_and_one_line_says_so(tmp_path, data, monkeypatch):
    monkeypatch.setattr("dsvnp.paper.toy.gp.find_spec", lambda name: None)
    where = place(tmp_path, data)
    run(smoke(datasets=("wq",), models=("nn",), recipes=("paper",), **{"paper.max_steps": 1}), where)
    assert {r["model"] for r in rows(tmp_path)} == {"ridge", "5-nn", "extra-trees", "exact-gp", "nn"}
    said = [line for line in where.console.file.getvalue().splitlines() if "GPyTorch" in line]
    assert said == ["The sparse GP is left out: GPyTorch is not installed (pip install 'dsvnp[gp]')."]


# --- settings ---


def test_the_papers_architecture():
    arch = make_experiment(MultiOutputExperiment, "paper").paper.architecture(61, 16, "squared-error")
    net = make_model("dsvnp", arch)
    shapes = [sizes(net.embed.x), sizes(net.embed.y), sizes(net.z_global.encoder), sizes(net.decoder)]
    assert shapes == [[61, 100, 100, 100, 32], [16, 8], [32 + 8, 64], [32 + 64 + 64, 100, 16]]
    dropout = make_model("mc-dropout", arch)
    assert [sizes(dropout.encoder), sizes(dropout.decoder)] == [[61, 100, 100, 100, 64], [64, 100, 16]]
    assert dropout.rate == 0.01


def sizes(net: Any) -> list[int]:
    """Widths of an MLP's layers."""
    assert isinstance(net, MLP)
    first = sum(weight.shape[1] for weight in net.first.weights)
    return [first, net.first.bias.shape[0], *(layer.out_features for layer in net.rest)]


@pytest.mark.parametrize(
    ("dataset", "steps"), [("sarcos", 300 * 36), ("wq", 5000 * 5), ("scm20d", 3000 * 42)]
)
def test_the_papers_epochs(dataset, steps):
    per_epoch = {"sarcos": 36, "wq": 5, "scm20d": 42}[dataset]
    made = make_experiment(MultiOutputExperiment, "paper").paper
    assert made.settings_on(dataset, per_epoch, "float32").num_steps == steps
    assert smoke().paper.settings_on(dataset, per_epoch, "float32").num_steps == 8


def test_the_strong_recipe_is_changed_by_some_of_its_settings():
    assert smoke(strong={"members": 4}).strong == replace(smoke().strong, members=4)
    assert smoke(**{"strong.spreads": [1.0, 2.0]}).strong.spreads == (1.0, 2.0)  # as JSON gives it


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"datasets": ("water",)}, r"unknown data set 'water'"),
        ({"recipes": "papr"}, r"unknown recipe 'papr'. Did you mean 'paper'\?"),
        ({"portions.judged_on": "tset"}, r"unknown set to judge on 'tset'. Did you mean 'test'\?"),
        ({"baselines": ("ridg",)}, r"unknown baseline 'ridg'. Did you mean 'ridge'\?"),
    ],
)
def test_misspelt_settings(change, message):
    with pytest.raises(ValueError, match=message):
        smoke(**change)


def test_missing_files_are_named(tmp_path, data):
    assert smoke().missing(data) is None
    assert "sarcos_inv" in (smoke().missing(tmp_path) or "")


def test_the_command_line(tmp_path, data, monkeypatch, capsys):
    words = ["reproduce", "multioutput", "--preset", "smoke", "--data-dir", str(data), "--datasets", "wq"]
    words += [
        "--models",
        "cnp",
        "--set",
        'baselines=["ridge"]',
        "--set",
        "recipes=paper",
        "--out",
        str(tmp_path),
    ]
    monkeypatch.setattr(sys, "argv", ["dsvnp", *words])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert not leaving.value.code
    assert {(r["dataset"], r["model"]) for r in rows(tmp_path)} == {
        ("wq (61 of 1060 rows)", model) for model in ("ridge", "cnp")
    }
    monkeypatch.setattr(sys, "argv", ["dsvnp", *words[:4], "--data-dir", str(tmp_path)])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == 2
    assert "sarcos_inv.mat" in capsys.readouterr().err


@pytest.mark.data
def test_real_tables_have_their_published_folds(tmp_path):
    if not os.environ.get("DSVNP_DATA"):
        pytest.skip("DSVNP_DATA names no directory of data sets")
    made = make_experiment(
        MultiOutputExperiment,
        "paper",
        datasets=("wq", "scm20d"),
        models=(),
        baselines=("ridge",),
        num_seeds=2,
    )
    run(made, place(tmp_path, None))
    found = {
        r["dataset"]: r["mean"] for r in rows(tmp_path) if r["unit"] == "standard" and r["split"] == "test"
    }
    assert found["wq"] == pytest.approx(0.94, abs=0.03)
    assert found["scm20d"] == pytest.approx(0.42, abs=0.03)
