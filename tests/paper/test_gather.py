"""Runs made apart and put together say what one run says."""

import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from dsvnp.paper.curves.experiment import CurvesExperiment
from dsvnp.paper.experiment import TERMS, Experiment, Measurement, UnitResult, Workplace
from dsvnp.paper.field.experiment import FieldExperiment
from dsvnp.paper.gather import gather, joint_experiment, main
from dsvnp.paper.label import Label
from dsvnp.paper.multioutput.experiment import MultiOutputExperiment
from dsvnp.paper.records import read_units, write_units
from dsvnp.paper.runner import run, write_results
from dsvnp.paper.settings import as_json, make_experiment
from dsvnp.paper.toy.experiment import ToyExperiment


def toy_run(out: Path, models: tuple[str, ...], **changes) -> Path:
    tiny = {"num_steps": 2, "num_global": 2, "gp_steps": 2, "decoder": (8,)} | changes
    made = make_experiment(ToyExperiment, "smoke", models=models, **tiny)
    run(made, Workplace(out, torch.device("cpu"), Console(quiet=True)))
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return {name: toy_run(root / name, tuple(name.split("+"))) for name in ("dsvnp", "cnp", "cnp+dsvnp")}


def results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


def test_runs_apart_are_as_one_run_whatever_their_order(runs, tmp_path):
    figures = gather(tmp_path / "apart", [runs["dsvnp"], runs["cnp"]])
    assert [path.name for path in figures] == ["functions.svg"]
    assert all(path.is_file() for path in figures)
    gather(tmp_path / "one", [runs["cnp+dsvnp"]])
    assert results(tmp_path / "apart") == results(tmp_path / "one")


def test_seeds_apart_are_as_one_run(runs, tmp_path):
    parts = [toy_run(tmp_path / f"{seed}", ("cnp",), num_seeds=1, first_seed=seed) for seed in (1, 0)]
    gather(tmp_path / "apart", parts)
    made, whole = results(tmp_path / "apart"), results(runs["cnp"])
    assert (made["config"]["first_seed"], made["config"]["num_seeds"]) == (0, 2)
    assert [row["seeds"] for row in made["rows"]] == [
        pytest.approx(row["seeds"], rel=1e-4) for row in whole["rows"]
    ]


def test_one_run_is_drawn_anew(runs, tmp_path):
    gather(tmp_path, [runs["cnp+dsvnp"]])
    new, old = results(tmp_path), results(runs["cnp+dsvnp"])
    assert new["config"] == old["config"]
    for row, expected in zip(new["rows"], old["rows"], strict=True):
        assert row["seeds"] == expected["seeds"]
        assert (row["model"], row["split"]) == (expected["model"], expected["split"])
        assert row["std"] == expected["std"]
    figures = [(folder / "functions.svg").read_bytes() for folder in (tmp_path, runs["cnp+dsvnp"])]
    assert figures[0] == figures[1]


def test_runs_of_other_settings_are_refused(runs, tmp_path):
    other = toy_run(tmp_path / "other", ("np",), num_steps=3)
    with pytest.raises(ValueError, match="num_steps = 3, not 2"):
        gather(tmp_path / "new", [runs["cnp"], other])
    assert not (tmp_path / "new").exists()


def test_a_folder_without_a_run_is_named(runs, tmp_path):
    with pytest.raises(ValueError, match=r"nothing has no units\.json\.gz; name folders that"):
        gather(tmp_path / "out", [*runs.values(), tmp_path / "nothing"])


def test_a_run_whose_settings_lack_one_of_its_models_is_taken(runs, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    record = read_units(runs["dsvnp"])
    record["config"]["models"] = ["cnp"]
    write_units(old, record)
    gather(tmp_path / "new", [old])
    rows = json.loads((tmp_path / "new" / "results.json").read_text())["rows"]
    assert {row["model"] for row in rows} == {"dsvnp", "gp"}


def test_a_shared_unit_must_agree(runs, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    record = read_units(runs["dsvnp"])
    gp = next(unit for unit in record["units"] if unit["model"] == "gp")
    gp["measurements"][0]["values"][1] += 1
    write_units(other, record)
    with pytest.raises(ValueError, match="has another gp with seed 1"):
        gather(tmp_path / "new", [runs["cnp"], other])
    gather(tmp_path / "new", [runs["cnp"], other], replace=True)
    row = next(row for row in results(tmp_path / "new")["rows"] if row["model"] == "gp")
    assert row["seeds"] == pytest.approx(gp["measurements"][0]["values"], rel=1e-5)


def field_run(out: Path, dim_local: int, model: str, seed: int = 0) -> Path:
    changes = {"recipe.local.dim_local": dim_local, "models": (model,), "num_seeds": 1, "first_seed": seed}
    made = make_experiment(FieldExperiment, "smoke", ceilings=False, **changes)
    recipe = as_json(made.recipe.local) if model == "dsvnp" else None
    marks = {"step": [1], "seconds": [1.0], "log_likelihood": [[0.0]]}
    training = {term: [[1.0]] if term != "step" else [1] for term in TERMS}
    extras = {"recipe": recipe, "marks": marks, "training": training}
    measured = (Measurement("rbf", "log-likelihood", "marginal", "nats/point", (1.0,)),)
    out.mkdir()
    write_results(made, [UnitResult(Label(model), (seed,), measured, extras)], out)
    return out


def test_rows_may_have_recipes_of_their_own_but_not_the_seeds_of_one_row(tmp_path):
    first, other = field_run(tmp_path / "a", 4, "dsvnp"), field_run(tmp_path / "b", 8, "cnp")
    for runs in ([first, other], [other, first]):
        gather(tmp_path / "both", runs)
        assert {row["model"] for row in results(tmp_path / "both")["rows"]} == {"cnp", "dsvnp"}
    gather(tmp_path / "once more", [tmp_path / "both"])  # the last run's recipe is the folder's
    again = field_run(tmp_path / "c", 8, "dsvnp", seed=1)
    with pytest.raises(ValueError, match="trained dsvnp with several recipes"):
        gather(tmp_path / "seeds", [first, again])
    gather(tmp_path / "new", [first, again], replace=True)
    assert results(tmp_path / "new")["rows"][0]["model"] == "dsvnp"


def test_seeds_keep_what_their_values_rest_on(tmp_path):
    first, other = (field_run(tmp_path / name, 4, "cnp", seed) for seed, name in enumerate("ab"))
    for number, folder in enumerate((first, other)):
        record = read_units(folder)
        basis = {"drawn": [["exact", 1, True]], "batches": [[1024], [3000]][number]}
        record["units"][0]["measurements"][0] |= basis
        record["config"]["tests"]["all_batches"] = [[], ["rbf"]][number]
        write_units(folder, record)
    gather(tmp_path / "both", [first, other])
    assert results(tmp_path / "both")["rows"][0]["batches"] == [1024, 3000]
    gather(tmp_path / "again", [tmp_path / "both", other])  # the second seed is known
    assert results(tmp_path / "again")["rows"][0]["batches"] == [1024, 3000]
    assert results(tmp_path / "again")["config"]["tests"]["all_batches"] == ["rbf"]


def test_a_reference_of_fewer_seeds_is_counted_once_in_either_order(runs, tmp_path):
    few = toy_run(tmp_path / "few", ("np",), num_seeds=1)
    for number, folders in enumerate(([runs["cnp"], few], [few, runs["cnp"]])):
        gather(tmp_path / str(number), folders)
        rows = {
            (row["model"], row["metric"], row["split"]): row
            for row in results(tmp_path / str(number))["rows"]
        }
        for row in results(runs["cnp"])["rows"]:
            assert rows[row["model"], row["metric"], row["split"]]["seeds"] == row["seeds"]


@pytest.mark.parametrize("label", ["../../planted", "dsvnp@../../planted"])
def test_a_label_that_leads_elsewhere_is_refused(runs, tmp_path, label):
    other = tmp_path / "other"
    other.mkdir()
    record = read_units(runs["dsvnp"])
    record["units"][0]["model"] = label
    write_units(other, record)
    with pytest.raises(ValueError, match=r"label .*planted' cannot be used"):
        gather(tmp_path / "new", [other])
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_a_unit_without_what_its_figure_shows_is_one_line(runs, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    record = read_units(runs["dsvnp"])
    for unit in record["units"]:
        unit["extras"] = dict.fromkeys(unit["extras"], 3)
    write_units(other, record)
    with pytest.raises(ValueError, match=r"the figures cannot be drawn \(TypeError"):
        gather(tmp_path / "new", [other])


def test_what_runs_have_of_a_list_is_joined(tmp_path):
    def joint(kind: type[Experiment], *settings: dict) -> Experiment:
        folders = []
        for number, changes in enumerate(settings):
            folders.append(tmp_path / f"{kind.name}{number}")
            folders[-1].mkdir()
            write_results(make_experiment(kind, "smoke", **changes), [], folders[-1])
        return joint_experiment(folders)

    curves = joint(CurvesExperiment, {"recipes": ("wide",), "num_seeds": 7}, {"recipes": ("paper",)})
    assert (curves.recipes, curves.num_seeds) == (("paper", "wide"), 7)
    tables = joint(MultiOutputExperiment, {"recipes": "gaussian"}, {"recipes": "paper"}, {"recipes": "paper"})
    assert tables.recipes == ("paper", "gaussian")


def test_a_run_older_than_a_setting_has_no_say_in_it(tmp_path):
    made = make_experiment(CurvesExperiment, "smoke", **{"likelihoods.draws": "suffice"})
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        write_results(made, [], tmp_path / name)
    record = read_units(tmp_path / "old")
    del record["config"]["likelihoods"]
    write_units(tmp_path / "old", record)
    for order in (["old", "new"], ["new", "old"]):
        assert joint_experiment([tmp_path / name for name in order]).likelihoods.draws == "suffice"
    assert joint_experiment([tmp_path / "old"]).likelihoods.draws == "fixed"


@pytest.mark.parametrize(
    ("words", "said"), [([], "usage: "), (["o"], "usage: "), (["o", "r"], "r has no units")]
)
def test_the_command_says_what_it_needs_in_a_line(words, said, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as leaving:
        main(words)
    assert leaving.value.code == 2
    assert said in capsys.readouterr().err
